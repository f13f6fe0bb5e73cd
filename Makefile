# Two commands do everything on a machine with nothing but Python 3.10 to 3.12:
#   make demo    text -> tokenizer -> records -> pretraining -> SavedModel
#   make test    the tests
# Others: make lint, make test-slow, make setup PYTHON=python3.12, make clean

PYTHON ?= python3
EXTRAS ?= dev,jax
VENV ?= .venv
RUN = $(VENV)/bin/python
# Processes that run test files side by side, of 5 GB each; 0: none but this one.
JOBS ?= 2
STAMP = $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
comma := ,

CONSTRAINTS = $(if $(filter 3.10,$(shell $(PYTHON) -c \
    'import sys; print("%d.%d" % sys.version_info[:2])')),constraints-3.10.txt,constraints.txt)

.PHONY: setup demo tasks test test-slow bench lint clean

setup: $(STAMP)

# Installed under the exact versions that were tested; "compat" so that every
# tool sees the packages where they are.
$(STAMP): setup.py constraints.txt constraints-3.10.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade \
	    pip wheel 'setuptools<81'
	$(RUN) -m pip install --quiet --disable-pip-version-check \
	    --constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]' \
	    --config-settings editable_mode=compat
	touch $@

# make demo CORPUS=my.txt FORMAT=running STEPS=2000
demo: $(STAMP)
	$(RUN) examples/demo.py $(if $(CORPUS),--corpus '$(CORPUS)') \
	    $(if $(FORMAT),--text-format $(FORMAT)) \
	    $(if $(STEPS),--steps $(STEPS)) $(if $(OUTPUT),--output $(OUTPUT))

# make tasks DATA=directory: pretrained beside random start on every task there;
# SEEDS=3 TASKS='sst-2 sts-b' runs some several times
tasks: $(STAMP)
	$(RUN) benchmarks/pretraining_gain.py --data '$(DATA)' $(if $(OUTPUT),--output $(OUTPUT)) \
	    $(if $(STEPS),--steps $(STEPS)) $(if $(SEEDS),--seeds $(SEEDS)) \
	    $(if $(TASKS),--tasks $(TASKS))

test: $(STAMP)
	$(RUN) -m pytest --numprocesses $(JOBS) --dist loadfile $(TESTS)

test-slow: $(STAMP)
	$(RUN) -m pytest --numprocesses $(JOBS) --dist loadfile --run-slow $(TESTS)

# make bench BENCH='--only training_step --rounds 5'; installs the peers too
bench:
	$(MAKE) setup EXTRAS=dev,jax,bench
	$(RUN) benchmarks/run.py $(BENCH)

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
