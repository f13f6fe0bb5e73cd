"""Last lines of a pretraining run: its outcome, and commands that can follow.

The losses are those of its `metrics.jsonl` and `best.json`.
"""

import math

from data_pipeline.base.files import read_json_lines
from data_pipeline.base.models import METRICS_FILE
from xlnet_tf.training.log import PICTURE_FILE
from xlnet_tf.training.loop import read_best

# From this times the best loss on, or that of chance, the last one is worse.
_CLEARLY_WORSE, _FAR_ABOVE = 1.03, 1.1
_OVERFITTED = ": the model has overfitted"
_NEXT = """next:
  xlnet finetune --task classification --data FILE.csv --output DIR \\
      --preset {preset}
  {second}
"""


def last_loss(directory, kind):
    """The last loss in the log of a run, float, or None without one.

    Args:
        directory: path of the run.
        kind: "eval" or "train".
    """
    lines = read_json_lines(directory / METRICS_FILE)
    found = [x["loss"] for x in lines if x.get("kind") == kind and "loss" in x]
    return found[-1] if found else None


def warning_of_failure(directory, vocabulary_size, predictions=1):
    """A line on a run that is worse than guessing, str; "" for any other.

    Args:
        directory: path of the run.
        vocabulary_size: int; a guess among so many has the loss of its
            logarithm.
        predictions: int, of each token, whose losses the loss sums. Default 1.
    """
    held_out, trained = (
        last_loss(directory, "eval"),
        last_loss(directory, "train"),
    )
    chance = predictions * math.log(vocabulary_size)
    last = trained if held_out is None else held_out
    if last is None or last <= _FAR_ABOVE * chance:  # NaN is not
        return ""
    of = "" if held_out is None else "held-out "
    found = (
        f"its last {of}loss is {last:.3f}, and a guess among "
        f"{vocabulary_size:,} tokens has {chance:.3f}"
    )
    picture = directory / PICTURE_FILE
    has_learned = trained is not None and trained <= _FAR_ABOVE * chance
    if has_learned and math.isfinite(last):
        return (
            f"warning: the model has overfitted: {found}, but in training it "
            f"is {trained:.3f}. Give more text, or fewer --steps; {picture} "
            "shows where the losses part.\n"
        )
    return (
        f"warning: the run has diverged: {found}. Train anew with a lower "
        f"--learning-rate; {picture} shows where the loss rises.\n"
    )


def ending(directory, has_failed, exports=()):
    """The last lines of a run: its best evaluation, and what can follow.

    Args:
        directory: path of the run.
        has_failed: bool, whether there is a `warning_of_failure`.
        exports: list of paths of the SavedModels that the run wrote, if any.

    Returns:
        str.
    """
    said, preset = "", directory
    best = read_best(directory)
    last = last_loss(directory, "eval")
    has_both = bool(best) and math.isfinite(best["value"]) and last is not None
    # NaN is worse too.
    if has_both and not last <= _CLEARLY_WORSE * best["value"]:
        preset = directory / "best"
        said = (
            f"best: step {best['step']}, loss {best['value']:.3f}; the last is "
            f"worse ({last:.3f}){'' if has_failed else _OVERFITTED}, use "
            f"{preset}\n"
        )
        exports = [x for x in exports if x.name == str(best["step"])]
    elif has_failed:
        return ""  # there is nothing to go on with
    second = f"xlnet export --model {preset} --output saved_models/NAME/1"
    if exports:
        second = f"xlnet predict --model {exports[-1]} --text TEXT"
    return said + _NEXT.format(preset=preset, second=second)
