# Two commands do everything on a machine with nothing but Python 3.10 to 3.13:
#   make demo    text -> tokenizer -> records -> pretraining -> SavedModel
#   make test    the tests, but for the slow ones
# Others: make docs, make lint, make test-slow, make torture, make bench, make startup, make preset,
# make tasks, make comparison, make licences, make hashes, make setup PYTHON=python3.12,
# make clean

PYTHON ?= python3
EXTRAS ?= dev,jax
VENV ?= .venv
RUN = $(VENV)/bin/python
# Processes that run tests side by side, of 5 GB each; 0: one after the other.
JOBS ?= 2
# Tests of one file, or of one artefact (tests/conftest.py), run in one process;
# the artefacts, which take longest, come first.
PYTEST = $(RUN) -m pytest --numprocesses $(JOBS) --dist loadgroup \
    --no-loadscope-reorder
STAMP = $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
comma := ,

CONSTRAINTS = $(if $(filter 3.10,$(shell $(PYTHON) -c \
    'import sys; print("%d.%d" % sys.version_info[:2])')),constraints-3.10.txt,constraints.txt)

.PHONY: setup bytecode demo preset tasks comparison test test-slow torture bench \
    startup licences hashes docs lint clean

setup: $(STAMP)

# Installed under the exact versions that were tested, and compiled by pip: it
# takes a minute, but where Python may write no bytecode (as the variable
# PYTHONDONTWRITEBYTECODE says in many images) each process would compile anew.
$(STAMP): setup.py constraints.txt constraints-3.10.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade \
	    pip wheel 'setuptools<81'
	$(RUN) -m pip install --quiet --disable-pip-version-check \
	    --constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]'
	touch $@

# make demo CORPUS=my.txt FORMAT=running STEPS=2000 OBJECTIVE=causal
demo: $(STAMP)
	$(RUN) examples/demo.py $(if $(CORPUS),--corpus '$(CORPUS)') \
	    $(if $(FORMAT),--text-format $(FORMAT)) \
	    $(if $(STEPS),--steps $(STEPS)) $(if $(OUTPUT),--output $(OUTPUT)) \
	    $(if $(OBJECTIVE),--objective $(OBJECTIVE))

# make tasks DATA=directory: pretrained beside random start on every task there;
# SEEDS=3 TASKS='sst-2 sts-b' runs some several times, of PRESET=dir or RECIPE=file
tasks: $(STAMP)
	$(RUN) benchmarks/pretraining_gain.py --data '$(DATA)' $(if $(OUTPUT),--output $(OUTPUT)) \
	    $(if $(PRESET),--preset $(PRESET)) $(if $(RECIPE),--recipe $(RECIPE)) \
	    $(if $(SCALE),--scale $(SCALE)) $(if $(SEEDS),--seeds $(SEEDS)) \
	    $(if $(TASKS),--tasks $(TASKS))

# make preset TEXT='text/*.txt': a small pretrained model by a recipe;
# RECIPE=mine.yaml SCALE=0.01 FORMAT=running OUTPUT=dir
preset: $(STAMP)
	$(RUN) examples/build_preset.py --text $(TEXT) \
	    $(if $(FORMAT),--text-format $(FORMAT)) \
	    $(if $(RECIPE),--recipe $(RECIPE)) $(if $(SCALE),--scale $(SCALE)) \
	    --output $(or $(OUTPUT),runs/preset)

# make comparison TEXT='text/*.txt' TASKS='sst-2=SST-2 rte=RTE': the ablation
# of the paper; STEPS=2000 SEEDS=5 ONLY='bert xlnet-k6' FORMAT=running OUTPUT=dir
comparison: $(STAMP)
	$(RUN) examples/compare_objectives.py --text $(TEXT) \
	    $(if $(FORMAT),--text-format $(FORMAT)) \
	    $(if $(TASKS),--tasks $(TASKS)) $(if $(STEPS),--steps $(STEPS)) \
	    $(if $(SEEDS),--seeds $(SEEDS)) $(if $(ONLY),--only $(ONLY)) \
	    --output $(or $(OUTPUT),runs/comparison)

# What tests import in processes of their own, compiled once for all of them.
bytecode: $(STAMP)
	$(RUN) -m compileall -q data_pipeline saved_models xlnet_tf tests

# make test TESTS='tests/xlnet_tf/model -k masks'
test: bytecode
	$(PYTEST) $(TESTS)

# Those of tests/slow: XLA, replicas, workers, peers, serving, documents; some of
# them by TESTS='-k xla'. In several goes, because what XLA and JAX have compiled
# is kept until a process ends, and one go fills 24 GB. Pytest's 5: no test.
SLOW = [a-s]*/ test_[a-e]*.py test_[f-m]*.py test_[n-r]*.py test_[s-z]*.py
test-slow: bytecode
	@result=5; for files in $(foreach go,$(SLOW),'tests/slow/$(go)'); do \
	    echo "$(PYTEST) --run-slow $$files $(TESTS)"; \
	    $(PYTEST) --run-slow $$files $(TESTS); status=$$?; \
	    case $$status in 0) result=0;; 5) ;; *) exit $$status;; esac; \
	done; exit $$result

# Fault tests with all their trials, hours:
# make torture TORTURE='--only killed_building --trials 5'
torture: $(STAMP)
	$(RUN) -m tests.torture $(TORTURE)

# make bench BENCH='--only training_step --rounds 5'; installs the peers too
bench:
	$(MAKE) setup EXTRAS=dev,jax,bench
	$(RUN) benchmarks/run.py $(BENCH)

# Seconds of `--help` of each command, and of `import xlnet_tf`.
startup: $(STAMP)
	$(RUN) benchmarks/startup.py

# Licences of all packages that an installation brings; fails on unknown ones.
licences: $(STAMP)
	$(RUN) -m tests.house.licences

# requirements-hashed*.txt anew, of the versions of the constraints.
hashes: $(STAMP)
	$(RUN) -m tests.house.hashes

# The site of docs/, written to site/; a warning is an error. No network.
docs:
	$(MAKE) setup EXTRAS=docs
	TF_CPP_MIN_LOG_LEVEL=3 NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf $(VENV) build site *.egg-info .pytest_cache .ruff_cache .mypy_cache
