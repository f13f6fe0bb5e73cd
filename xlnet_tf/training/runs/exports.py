"""The SavedModels of a pretraining run, of which the newest are kept."""

from xlnet_tf.files import read_json_object
from xlnet_tf.files import remove
from xlnet_tf.files import write_json


def keep_newest(exports, step, count, file):
    """Removes the oldest exports of a run, and no other directory.

    Args:
        exports: path of the directory that holds an export for each step.
        step: int, that of the newest one.
        count: int, how many to keep.
        file: path of the JSON file in which the run notes its exports.
    """
    made = read_json_object(file) if file.is_file() else {}
    steps = made["steps"] if made.get("directory") == str(exports) else []
    # Later ones are of steps that were lost and are repeated.
    steps = [*(x for x in steps if x < step), step]
    for old in steps[:-count]:
        remove(exports / str(old))
    write_json(file, {"directory": str(exports), "steps": steps[-count:]})
