"""`not_finite.jsonl` of a run: its steps whose numbers were not finite."""

import json
import math

from xlnet_tf.files import as_path
from xlnet_tf.files import write_bytes
from xlnet_tf.training.runs.progress.log import read_steps

NOT_FINITE_FILE = "not_finite.jsonl"


class NotFiniteSteps:
    """Writes a line for each step whose loss or gradients were not finite.

    A step that comes again after a resume replaces its line; no other line is
    ever dropped.

    Args:
        directory: path of the run.
        rows_of_step: function of a step to a list of dicts, what each row of
            the global batch was made of.
        is_chief: bool, whether this process writes.
    """

    def __init__(self, directory, rows_of_step, is_chief):
        self._file = as_path(directory) / NOT_FINITE_FILE
        self._rows_of_step = rows_of_step
        self._is_chief = is_chief

    def __call__(self, results):
        """Writes the steps down.

        Args:
            results: list of StepResult, not empty.

        Returns:
            str, a sentence that says where.
        """
        if self._is_chief:
            new = {x.step: self._line(x) for x in results}
            lines = read_steps(self._file)
            kept = [x for x in lines if x["step"] not in new]
            text = "".join(
                json.dumps(line) + "\n" for line in [*kept, *new.values()]
            )
            write_bytes(self._file, text.encode())
        return f"{self._file} names the rows of its batch."

    def _line(self, result):
        return {
            "step": result.step,
            "loss": _as_json(result.loss),
            "gradient_norm": _as_json(result.gradient_norm),
            "rows": self._rows_of_step(result.step),
        }


def _as_json(value):
    """A number, or where JSON has none a string that `float` reads."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
