"""Files that many tests read, made once per test run and never changed.

The commands make every artefact, so that it equals a user's files. All
processes of a test run share the directory. The first test that needs an
artefact makes it, and other processes wait for it. `tests/conftest.py` has a
fixture for each artefact.
"""

import json
import pathlib
import shutil
import traceback

import filelock

from tests.support.samples import tiny_sentences

_GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
TASKS = _GOLDEN / "tasks"  # data of each, by the name of the task
TOKENIZER = _GOLDEN / "spiece.model"
LENGTH = 32  # tokens of a record
STEPS = 6  # of pretraining
RESUMED_FROM = 2
MODEL = {
    "vocabulary_size": 300,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
}
TRAINING = {
    "steps_per_loop": 2,
    "evaluation_interval": 2,
    "evaluation_steps": 2,
    "checkpoint_interval": 2,
    "checkpoints_to_keep": 3,
    "learning_rate": 0.01,
    "warmup_steps": 2,
}
FINETUNING = {
    "steps": 4,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "steps_per_loop": 2,
    "evaluation_interval": 2,
    "checkpoint_interval": 2,
    "sequence_length": 24,
    "max_question_length": 8,
    "stride": 8,
    "n_best_size": 3,
}
# name -> task and data; the held-out examples are predicted once more
FINETUNED = {
    "classification": ("classification", "classification", "dev.tsv"),
    "questions": ("squad-2.0", "squad-2.0", "dev-v2.0.json"),
}


class Artefacts:
    """Artefacts below one directory, by name.

    Args:
        directory: path that the processes of a test run share.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def get(self, name):
        """Path of an artefact; the method makes a missing artefact.

        Raises:
            RuntimeError: if another process failed to make the artefact.
        """
        make, *arguments = name.split("-")
        place = self.directory / name
        done = self.directory / f"{name}.done"
        failed = self.directory / f"{name}.failed"
        with filelock.FileLock(str(self.directory / f"{name}.lock")):
            if failed.is_file():
                raise RuntimeError(
                    f"{name} failed before: {failed.read_text()}"
                )
            if not done.is_file():
                try:
                    getattr(self, f"_make_{make}")(place, *arguments)
                except BaseException:
                    failed.write_text(traceback.format_exc())
                    raise
                done.touch()
        return place

    def _make_records(self, place):
        from data_pipeline import build_records

        text = self.directory / "text.txt"
        lines = list(tiny_sentences(300))
        documents = ["\n".join(lines[i : i + 10]) for i in range(0, 300, 10)]
        text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        _run(
            build_records.main,
            *("--input", text, "--text-format", "sentences"),
            *("--tokenizer", TOKENIZER, "--output", place),
            *("--sequence-length", LENGTH, "--validation-fraction", 0.2),
            *("--processes", 1),
        )

    def _make_pretrained(self, place):
        self._pretrain(place)

    def _make_resumed(self, place):
        """Make a run that was killed after a checkpoint, and resume it."""
        whole = self.get("pretrained")
        kill(whole, place, RESUMED_FROM)
        lines = (whole / "metrics.jsonl").read_text().splitlines()
        kept = [
            line
            for line in lines
            if json.loads(line)["step"] <= RESUMED_FROM
            and json.loads(line)["kind"] == "train"
        ]
        (place / "metrics.jsonl").write_text("\n".join(kept) + "\n")
        self._pretrain(place)

    def _pretrain(self, place):
        from xlnet_tf import train

        model = self.directory / "model.json"
        model.write_text(json.dumps(MODEL))
        training = self.directory / "training.json"
        training.write_text(json.dumps(TRAINING))
        _run(
            train.main,
            *("--config", model, "--training", training),
            *("--records", self.get("records"), "--output", place),
            *("--steps", STEPS, "--batch-size", 4),
            *("--strategy", "one_device"),
        )

    def _make_finetuned(self, place, name):
        from xlnet_tf import finetune

        task, data, held_out = FINETUNED[name]
        data = TASKS / data
        training = self.directory / "finetuning.json"
        training.write_text(json.dumps(FINETUNING))
        _run(
            finetune.main,
            *("--task", task, "--data", data, "--training", training),
            *("--preset", self.get("pretrained") / "preset"),
            *("--output", place, "--predict", data / held_out),
            *("--strategy", "one_device"),
        )

    def _make_exported(self, place, name):
        from saved_models import export

        model = {
            "pretrainer": "pretrained",
            "classifier": "finetuned-classification",
        }[name]
        _run(
            export.main,
            *("--model", self.get(model), "--output", place / "1"),
            *("--sequence-length", LENGTH),
        )


class ByName:
    """Artefacts of one kind: `finetuned["questions"]` is a path.

    Args:
        artefacts: Artefacts.
        kind: str, the beginning of the artefacts' names.
    """

    def __init__(self, artefacts, kind):
        self._artefacts = artefacts
        self._kind = kind

    def __getitem__(self, name):
        return self._artefacts.get(f"{self._kind}-{name}")


def kill(whole, place, step):
    """Write the files of a run that `kill -9` ended after a step's checkpoint.

    Args:
        whole: path of a complete run.
        place: path for the killed run's files.
        step: int, the step of the checkpoint.
    """
    (place / "checkpoints").mkdir(parents=True)
    shutil.copy(whole / "run.json", place)
    for file in (whole / "checkpoints").iterdir():
        if file.name.startswith((f"ckpt-{step}.", f"memory-{step}-")):
            shutil.copy(file, place / "checkpoints")


def _run(main, *arguments):
    """Run a command in this process."""
    status = main([str(argument) for argument in arguments])
    if status:
        raise RuntimeError(f"{main.__module__} ended with status {status}")
