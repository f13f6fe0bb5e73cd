"""Loop that kills and resumes runs, and comparison of their final states."""

import dataclasses
import io
import json
import os
import re
import signal
import time
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from tests.support import forked_commands
from xlnet_tf.weights.tensor_files import digest_of_weights

_SECONDS = 600  # for a run to end, or to come to a moment
_KILLS_OF_A_RUN = 4
_AIMS = {"save": 6, "anywhere": 2, "evaluation": 1, "export": 2}
# In front of the names of files that are being written, see `files.py`.
_UNFINISHED = r"\.tmp-[0-9a-f]{32}-"


@dataclasses.dataclass(frozen=True)
class Command:
    """Command that starts a run to kill.

    Args:
        module: str, such as "xlnet_tf.train".
        options: list of str, all options except the directories.
        steps: int, steps of the run, with a checkpoint at each step.
        evaluation_interval: int.
        devices: int, logical CPU devices.
        exports: bool, whether the run exports its model.
    """

    module: str
    options: list
    steps: int
    evaluation_interval: int
    devices: int = 1
    exports: bool = False

    def started(self, directory):
        """Context of the process of a run in a directory."""
        argv = [*self.options, "--output", directory / "run"]
        if self.exports:
            argv += ["--export", directory / "exports"]
        directory.mkdir(parents=True, exist_ok=True)
        return forked_commands.started(
            self.module, argv, directory / "log", devices=self.devices
        )

    def finish(self, directory):
        """Run to the end; return a description of a failure, str, or None."""
        with self.started(directory) as process:
            process.join(_SECONDS)
            if process.exitcode != 0:
                lines = (directory / "log").read_text().splitlines()
                return f"status {process.exitcode}: {lines[-1:]}"
        return None


def killed_trials(
    command, count, directory, generator, number=signal.SIGKILL, aims=_AIMS
):
    """Kill and resume runs, and compare them; see `tests/torture/__init__.py`.

    Every run is killed several times. By default more than half of the kills
    are in the middle of a save. The finished run is then compared with an
    uninterrupted run.

    Args:
        command: Command.
        count: int, number of kills.
        directory: path of an empty directory.
        generator: random.Random.
        number: int, the signal.
        aims: dict from a kind of moment to its relative frequency among the
            kills.

    Yields:
        (label, problem) for each kill.
    """
    problem = command.finish(directory / "whole")
    if problem:
        raise RuntimeError(f"the run that nobody disturbs: {problem}")
    expected = end_of(directory / "whole")
    made = runs = 0
    while made < count:
        place = directory / str(runs)
        runs += 1
        labels, problem = [], None
        for _ in range(min(_KILLS_OF_A_RUN, count - made)):
            label, problem = _killed(command, place, generator, number, aims)
            if label is None:  # the run ended first
                break
            labels.append(label)
            if problem:
                break
        problem = problem or command.finish(place) or differs(expected, place)
        if problem:
            problem = f"{problem} (killed {', then '.join(labels)}; {place})"
        for label in labels:
            yield label, problem
        made += len(labels)


def _killed(command, directory, generator, number, aims):
    """Start and kill a run: (moment, problem), or None, None if it ended."""
    run = directory / "run"
    wanted = generator.choices(list(aims), aims.values())[0]
    with command.started(directory) as process:
        begun = time.monotonic()
        reached = 0
        log = directory / "log"
        past = log.stat().st_size if log.exists() else 0

        def said():
            return log.read_bytes()[past:] if log.exists() else b""

        # Kill after so many saves or seconds, depending on `wanted`.
        saves = generator.randrange(3)
        seconds = generator.uniform(0, 8)
        # Three times the exports, which take longest to write.
        parts = ["a preset", "the model"] + ["exports"] * 3 * command.exports
        part = generator.choice(parts)
        seen = set()
        while process.exitcode is None:
            time.sleep(0.0005)
            if time.monotonic() - begun > _SECONDS:
                return "before a kill", f"it hangs: {said()[-200:]}"
            if wanted == "save":
                steps = _steps_in_writing(run / "checkpoints")
                seen |= steps
                reached = steps and len(seen) > saves
            elif wanted == "evaluation":
                reached = b"held out" not in said() and re.search(
                    rb"(?m)^step \d+/\d+  loss", said()
                )
            elif wanted == "export":
                reached = where(directory, "").endswith(part)
            else:
                is_running = (run / ".lock").exists()
                reached = is_running and time.monotonic() - begun > seconds
            if reached:
                break
        is_short = wanted in ("save", "export")
        time.sleep(generator.expovariate(200 if is_short else 5))
        if process.exitcode is not None:
            return None, None
        label = where(directory, said().decode())
        signalled = time.monotonic()
        os.kill(process.pid, number)
        process.join(_SECONDS)
        waited = time.monotonic() - signalled
        if number == signal.SIGKILL:
            label = where(directory, said().decode())
        elif process.exitcode == 0 and (run / "model.keras").exists():
            return None, None
        elif process.exitcode != 128 + number or waited > 30:
            end = said().decode().splitlines()[-1:]
            return label, (
                f"status {process.exitcode} after {waited:.1f} s: {end}"
            )
    return label, None


def _steps_in_writing(checkpoints):
    """Steps whose checkpoints are not complete, set."""
    try:
        names = os.listdir(checkpoints)
    except FileNotFoundError:
        return set()
    pattern = rf"(?:{_UNFINISHED})?(?:memory|ckpt)-(\d+)[-._].*"
    found = {m[1] for x in names if (m := re.fullmatch(pattern, x))}
    return {x for x in found if f"ckpt-{x}.sha256" not in names}


def where(directory, said):
    """Describe what a run was doing, by its unfinished files and last line."""
    run = directory / "run"
    if _steps_in_writing(run / "checkpoints"):
        return "writing a checkpoint"
    for kind, pattern in (
        ("exports", "exports/.tmp-*"),
        ("a preset", "run/.tmp-*-best"),
        ("a preset", "run/.tmp-*-preset"),
        ("the model", "run/.tmp-*-model.keras"),
    ):
        if any(directory.glob(pattern)):
            return f"writing what was learnt: {kind}"
    lines = [x for x in said.splitlines() if x.startswith("step ")]
    if not lines:
        return "starting or tracing"
    if "held out" in lines[-1]:
        return "computing, or after an evaluation"
    return "computing, or in an evaluation"


def end_of(directory):
    """Final state of a run, for the comparison with another run.

    Args:
        directory: path that holds `run`, and `exports` if there are any.

    Returns:
        dict of str to arrays or values.
    """
    run = directory / "run"
    end = {"leftovers": [str(x) for x in directory.rglob(".tmp-*")]}
    end["leftovers"] += [str(x) for x in directory.rglob("*_temp*")]
    text = (run / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    end["metrics.jsonl"] = [
        {k: v for k, v in line.items() if not k.endswith("_per_second")}
        for line in lines
    ]
    for name in ("best.json", "held_out_predictions.jsonl"):
        if (run / name).exists():
            end[name] = (run / name).read_text()
    for name in ("best", "preset"):
        if (run / name).exists():
            end[name] = digest_of_weights(run / name)
    end |= _arrays_of_model(run / "model.keras")
    steps = [int(m[1]) for m in map(_index_step, run.rglob("*.index")) if m]
    if steps:
        prefix = run / "checkpoints" / f"ckpt-{max(steps)}"
        end |= _arrays_of_checkpoint(prefix)
        for file in prefix.parent.glob(f"memory-{max(steps)}-*.npz"):
            end |= {f"{file.name} {k}": v for k, v in np.load(file).items()}
    for export in (directory / "exports").glob("*"):
        variables = export / "variables" / "variables"
        found = _arrays_of_checkpoint(variables)
        end |= {f"export {export.name} {k}": v for k, v in found.items()}
    return end


def _index_step(path):
    return re.fullmatch(r"ckpt-(\d+)\.index", path.name)


def _arrays_of_checkpoint(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        # The number of saves is that of this run.
        if dtype != tf.string and not name.startswith("save_counter")
    }


def _arrays_of_model(file):
    arrays = {}

    def add(name, value):
        if isinstance(value, h5py.Dataset):
            arrays[f"model {name}"] = value[()]

    with zipfile.ZipFile(file) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights) as opened:
        opened.visititems(add)
    return arrays


def differs(expected, directory):
    """Describe how the end of a run differs from the expected one, or None."""
    found = end_of(directory)
    names = [
        name
        for name in sorted(set(expected) | set(found))
        if name not in expected
        or name not in found
        or not np.array_equal(expected[name], found[name])
    ]
    return f"{len(names)} differences: {names[:5]}" if names else None


def pretraining(directory, strategy="one_device", devices=1, exports=False):
    """Command of a run with memory, dropout, evaluations and best weights.

    Args:
        directory: path for the records and settings.
        strategy: str.
        devices: int, logical CPU devices.
        exports: bool.
    """
    from tests.support import artefacts

    records = artefacts.Artefacts(directory).get("records")
    steps, interval = 6, 3
    training = {
        **artefacts.TRAINING,
        "steps_per_loop": 1,
        "checkpoint_interval": 1,
        "evaluation_interval": interval,
        "evaluation_steps": 20,
        "checkpoints_to_keep": 2,
    }
    settings, model = directory / "training.json", directory / "model.json"
    settings.write_text(json.dumps(training))
    model.write_text(json.dumps({**artefacts.MODEL, "hidden_dim": 32}))
    options = ["--config", model, "--training", settings, "--records", records]
    options += ["--steps", steps, "--batch-size", 4, "--strategy", strategy]
    return Command("xlnet_tf.train", options, steps, interval, devices, exports)


def finetuning(directory):
    """Command of a fine-tuning run.

    Args:
        directory: path for the examples, preset and settings.
    """
    from tests.support import finetuning_fixtures as fixtures

    preset = fixtures.write_preset(directory / "preset")
    data = fixtures.write_task(directory / "data", "classification")
    steps, interval = 6, 3
    settings = fixtures.write_training(
        directory,
        steps=steps,
        steps_per_loop=1,
        checkpoint_interval=1,
        evaluation_interval=interval,
        checkpoints_to_keep=2,
    )
    options = ["--task", "classification", "--data", data, "--preset", preset]
    options += ["--training", settings, "--strategy", "one_device"]
    return Command("xlnet_tf.finetune", options, steps, interval)
