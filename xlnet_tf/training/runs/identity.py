"""The identity of a run, and its comparison with the run of a directory."""

import json
import re

from xlnet_tf.files import as_path
from xlnet_tf.files import read_json_object
from xlnet_tf.files import remove
from xlnet_tf.files import write_json
from xlnet_tf.files.checksums import CHECKSUMS_FILE
from xlnet_tf.files.models import RUN_FILE
from xlnet_tf.files.models import TRAINING_FILE
from xlnet_tf.training.runs.checkpoints import has_steps
from xlnet_tf.training.runs.checkpoints import steps_of


def write_settings(directory, identity, settings):
    """Writes `run.json` and `training.json`, whose digests are added after it.

    Args:
        directory: path.
        identity: dict of `Run.identity`.
        settings: dict of the config.
    """
    # Without digests nothing is compared, should this be interrupted.
    remove(directory / CHECKSUMS_FILE)
    write_json(directory / RUN_FILE, identity)
    write_json(directory / TRAINING_FILE, settings)


def with_defaults(identity, config, earlier):
    """The identity of a run, with the settings that are newer than it.

    Args:
        identity: dict of `run.json`.
        config: TrainingConfig, of whose class the defaults are.
        earlier: dict of the settings whose values were others before.
    """
    defaults = {**type(config)().to_dict(), **earlier}
    return {**identity, "training": {**defaults, **identity["training"]}}


def has_progress(directory, result_file):
    """Whether a directory holds the results or a checkpoint of a run, bool.

    Args:
        directory: path.
        result_file: str, the name of the file that a finished run has.
    """
    is_done = (directory / result_file).is_file()
    return is_done or has_steps(directory / "checkpoints")


def has_ended(directory, result_file, steps):
    """Whether no step of a run remains, bool.

    Args:
        directory, result_file: see `has_progress`.
        steps: int, the last step.
    """
    done = steps_of(directory / "checkpoints")
    return done[-1] >= steps if done else (directory / result_file).is_file()


def first_begun(directories, result_file):
    """The identity of the first run that has something to lose.

    Args:
        directories: list of paths of runs.
        result_file: str, the name of the file that a finished run has.

    Returns:
        dict of its `run.json`, or None if there is none.
    """
    for directory in map(as_path, directories):
        file = directory / RUN_FILE
        if file.is_file() and has_progress(directory, result_file):
            return read_json_object(file)
    return None


def check_same(directory, before, now, fixed_settings, texts):
    """Refuses to go on with a run that is another one.

    Args:
        directory: path, for the error.
        before: dict of `run.json`, with all settings.
        now: dict of `Run.identity`.
        fixed_settings: names of the settings that may not differ.
        texts: dict of an entry to what is said where it differs; of an entry
            that is a dict, what is said of each of its own.

    Raises:
        ValueError: names every difference; or the run has done more steps than
            it is to do now.
    """
    newest = max(steps_of(as_path(directory) / "checkpoints"), default=0)
    steps = now.get("training", {}).get("steps", newest)
    if steps < newest:
        raise ValueError(
            f"{directory} is at step {newest}. Give at least as many --steps, "
            f"or another --output. Received: --steps {steps}."
        )
    found = _differences(before, now, fixed_settings, texts)
    if found:
        raise ValueError(
            f"{directory} holds another run, which cannot go on with this one "
            f"({'; '.join(found)}). Give the same options, or another --output."
        )


def _differences(before, now, fixed_settings, texts):
    found = []
    for section, value in json.loads(json.dumps(now)).items():
        if not isinstance(value, dict):
            old = before.get(section, value)
            if old != value:
                found.append(
                    texts.get(section)
                    or f"{section}: {_shown(old)} there, {_shown(value)} now"
                )
            continue
        suffix = texts.get(section, "")
        for name, entry in value.items():
            # float16 needs the loss scale, which other checkpoints lack.
            needs_scale = (name, entry) == ("precision", "float16")
            is_fixed = name in fixed_settings or needs_scale
            if section == "training" and not is_fixed:
                continue
            old = before.get(section, {}).get(name)
            if old != entry:
                found.append(
                    f"{name}{suffix}: {_shown(old)} there, {_shown(entry)} now"
                )
    return found


def _shown(value):
    """A value for a message; of a digest the first twelve digits, str."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", str(value))
