"""Directory of a run: its lock, identity, progress and error messages."""

import contextlib
import errno
import json
import re
import typing
import warnings

import tensorflow as tf

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_listed
from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import check_tensorflow_reads
from data_pipeline.base.files import is_of_full_disk
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import remove
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.limits import first_line
from data_pipeline.base.locking import CannotLock
from data_pipeline.base.locking import locked
from data_pipeline.base.models import RUN_FILE
from data_pipeline.base.models import RUN_VERSION
from data_pipeline.base.models import TRAINING_FILE
from data_pipeline.base.models import read_run
from xlnet_tf.training.checkpoints import CHECKPOINTS
from xlnet_tf.training.checkpoints import has_steps
from xlnet_tf.training.checkpoints import remove_leftovers
from xlnet_tf.training.checkpoints import steps_of
from xlnet_tf.training.devices import differing


@contextlib.contextmanager
def opened(directory, is_chief, smaller, explain_data_loss=None):
    """Context that locks a run's directory and makes error messages helpful.

    Args:
        directory: path of the run.
        is_chief: bool, whether this process writes to the directory.
        smaller: str, the options to reduce if memory runs out.
        explain_data_loss: function without arguments, or None (default). The
            function is called after a tf.errors.DataLossError. If the function
            finds the damaged record, it raises an error that names the record.

    Raises:
        RuntimeError, ValueError: see `claimed`.
        RuntimeError, OSError: if TensorFlow or the operating system reports an
            error.
    """
    try:
        with contextlib.ExitStack() as held:
            if is_chief:
                with warnings_in_a_line():
                    held.enter_context(claimed(directory))
            yield
    except (tf.errors.OpError, MemoryError, OSError) as error:
        if isinstance(error, tf.errors.DataLossError) and explain_data_loss:
            explain_data_loss()
        better = explained(error, directory, smaller)
        if better is error:
            raise
        raise better from error


@contextlib.contextmanager
def claimed(directory):
    """Context that locks the directory of a run against other programs.

    The context also removes the unfinished files of a killed run. A directory
    in a bucket is not locked. If the disk cannot lock files, the context
    gives a warning instead.

    Args:
        directory: path of the run. The context creates a missing directory. At
            its end, the context removes this new directory if it is empty.

    Raises:
        RuntimeError: if another program has locked the directory.
        ValueError: if TensorFlow cannot write to the directory.
    """
    directory = as_path(directory)
    check_tensorflow_reads(
        directory,
        "Give such an --output; `convert` and `saved_models.export` write "
        "models anywhere.",
    )
    is_new = not directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.ExitStack() as held:
            if not is_remote(directory):
                try:
                    held.enter_context(_lock(directory))
                except CannotLock as error:
                    warnings.warn(
                        f"{directory} is not locked, because its disk cannot "
                        f"lock files ({error}): see to it that no other "
                        "program works there",
                        stacklevel=3,
                    )
            for path in list(directory.iterdir()):
                if is_unfinished(path):
                    remove(path)
            remove_leftovers(directory / CHECKPOINTS)
            yield
    finally:
        if is_new and not is_remote(directory):
            with contextlib.suppress(OSError):  # the directory is not empty
                directory.rmdir()


def _lock(directory):
    return locked(
        directory / ".lock",
        directory / ".lock-owner",
        f"is working in {directory}. Wait for it, or stop it, or give another "
        "--output.",
    )


def claim_identity(run, identity, kind):
    """Assign a directory to a run, or refuse a directory of another run.

    A run that has no results and no checkpoint may restart with other settings,
    because nothing is lost.

    Args:
        run: loop.Run.
        identity: dict for `run.json`, with all values that distinguish this run
            from other runs. The entry `training` has the settings. All other
            entries are values or dicts of values.
        kind: Kind of the run.

    Raises:
        ValueError: if the directory contains another run; the message names
            every difference. The error is also raised if a file is damaged or
            has another version of the format, or if workers have different
            identities.
    """
    directory, settings = run.output, run.settings
    _check_workers_agree(run, identity)
    has_run = (directory / RUN_FILE).is_file()
    if has_run and has_progress(directory, kind.result_file):
        if run.is_chief:  # the chief writes them next
            files = [RUN_FILE, TRAINING_FILE, *kind.checked_files]
            existing = [x for x in files if (directory / x).is_file()]
            verify_checksums(directory, existing)
        check_same(
            directory,
            read_run(directory),
            identity,
            kind.fixed_settings,
            kind.differences,
        )
    if run.is_chief and not has_ended(
        directory, kind.result_file, settings.steps
    ):
        run_values = {FORMAT_VERSION: RUN_VERSION, **identity}
        values = {RUN_FILE: run_values, TRAINING_FILE: settings.stored()}
        write_listed(directory, values)


def _check_workers_agree(run, identity):
    """Refuse workers whose runs differ.

    Workers with different runs would wait for one another.
    """
    values = {**identity, **identity["training"]}
    del values["training"]
    values["output"] = str(run.output)
    # JAX lets workers meet whose numbers of workers differ.
    values["num_workers"] = run.settings.num_workers
    names = differing(run.backend.strategy, values)
    if names:
        raise ValueError(
            f"the workers have other values of {', '.join(names)}: start all "
            "of them with the same options and files."
        )


# Message for the entry `backend`. Only the backend that wrote a checkpoint can
# read it.
OTHER_BACKEND = "it was trained on another backend of Keras (KERAS_BACKEND)"


class Kind(typing.NamedTuple):
    """Kind of a run, pretraining or fine-tuning, with its rules for resuming.

    Attributes:
        result_file: str, file name of a finished run's results.
        fixed_settings: tuple of str, names of the settings that a resumed run
            may not change.
        differences: dict of texts for the error message. The keys are names of
            entries of `identity`, see `claim_identity`. For a single value, the
            text describes the difference, such as "other training examples".
            For a dict of values, the text is appended to the name of each value
            that differs, such as " of the data".
        checked_files: tuple of str, names of additional files whose digests are
            verified before a run is resumed.
    """

    result_file: str
    fixed_settings: tuple[str, ...]
    differences: dict[str, str]
    checked_files: tuple[str, ...] = ()


def has_progress(directory, result_file):
    """Whether a directory has the results or a checkpoint of a run.

    Args:
        directory: path of the run.
        result_file: str, file name of a finished run's results.
    """
    is_done = (directory / result_file).is_file()
    return is_done or has_steps(directory / CHECKPOINTS)


def has_ended(directory, result_file, steps):
    """Whether a run has no steps left.

    Args:
        directory, result_file: see `has_progress`.
        steps: int, number of the run's last step.
    """
    done = steps_of(directory / CHECKPOINTS)
    return done[-1] >= steps if done else (directory / result_file).is_file()


def first_begun(directories, result_file):
    """Read the identity of the first run that has results or a checkpoint.

    Args:
        directories: list of paths of runs.
        result_file: str, file name of a finished run's results.

    Returns:
        dict, the contents of the run's `run.json`, or None if there is no such
        run.

    Raises:
        ValueError: see `read_run`.
    """
    for directory in map(as_path, directories):
        has_run = (directory / RUN_FILE).is_file()
        if has_run and has_progress(directory, result_file):
            return read_run(directory)
    return None


def check_same(directory, before, now, fixed_settings, texts):
    """Refuse to resume a different run.

    Args:
        directory: path of the run, for the error message.
        before: dict, the contents of `run.json`, with all settings.
        now: dict, the identity of this run.
        fixed_settings: names of the settings that may not change.
        texts: dict, see `Kind.differences`.

    Raises:
        ValueError: if the runs differ; the message names every difference. The
            error is also raised if the run has already made more steps than are
            requested now.
    """
    newest = max(steps_of(as_path(directory) / CHECKPOINTS), default=0)
    steps = now.get("training", {}).get("steps", newest)
    if steps < newest:
        raise ValueError(
            f"{directory} is at step {newest}. Give at least as many --steps, "
            f"or another --output. Received: --steps {steps}."
        )
    differences = _differences(before, now, fixed_settings, texts)
    if differences:
        raise ValueError(
            f"{directory} holds another run, which cannot go on with this one "
            f"({'; '.join(differences)}). Give the same options, or another "
            "--output."
        )


def _differences(before, now, fixed_settings, texts):
    differences = []
    for section, value in json.loads(json.dumps(now)).items():
        if not isinstance(value, dict):
            old = before.get(section)
            if old != value:
                differences.append(
                    texts.get(section)
                    or f"{section}: {_shown(old)} there, {_shown(value)} now"
                )
            continue
        suffix = texts.get(section, "")
        for name, entry in value.items():
            # float16 needs the loss scale, which only its checkpoints contain.
            needs_scale = (name, entry) == ("precision", "float16")
            is_fixed = name in fixed_settings or needs_scale
            if section == "training" and not is_fixed:
                continue
            old = before.get(section, {}).get(name)
            if old != entry:
                differences.append(
                    f"{name}{suffix}: {_shown(old)} there, {_shown(entry)} now"
                )
    return differences


def _shown(value):
    """Format a value for a message; shorten digests to twelve digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", str(value))


def explained(error, output, smaller):
    """Convert an error of TensorFlow or the machine to a helpful error.

    Args:
        error: tf.errors.OpError, MemoryError or OSError.
        output: path of the run's directory.
        smaller: str, the options to reduce if memory runs out.

    Returns:
        Exception with a helpful message, or `error` itself.
    """
    reason = first_line(error)
    says = f"TensorFlow says: {reason}"
    is_emfile = getattr(error, "errno", None) == errno.EMFILE
    if is_emfile or "Too many open files" in str(error):
        return RuntimeError(
            "this process may not open more files: raise the limit, as by "
            f"`ulimit -n 65536`. The system says: {reason}"
        )
    if is_of_full_disk(error):
        where = getattr(error, "filename", None) or str(output)
        return OSError(errno.ENOSPC, "No space left", where)
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return RuntimeError(
            f"out of memory: take a smaller {smaller}, or more "
            f"gradient_accumulation_steps in --training. {says}"
        )
    if isinstance(error, OSError):
        return error
    if isinstance(
        error, (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
    ):
        silent = "a worker stopped answering; start all of them again and they"
        if "HTTP" in str(error):  # an error of the file system of gs://
            silent = "a bucket does not answer; start the run again and it will"
        return RuntimeError(f"{silent} go on from the last checkpoint. {says}")
    return RuntimeError(reason)
