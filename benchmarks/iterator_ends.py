"""How long the end of a tf.data iterator takes, tuned by tf.data and as ours.

    python benchmarks/iterator_ends.py

The thread that tunes a data set is told to stop and may sleep on nevertheless,
for about as long as the iterator has lived, a minute at most.
"""

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import tensorflow as tf

from data_pipeline.dataset_options import dataset_options


def seconds_to_end(options, count, lifetime):
    """list of float: what each of some iterators took to be deleted."""
    dataset = tf.data.Dataset.range(1 << 40).map(
        lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.batch(8).prefetch(tf.data.AUTOTUNE)
    dataset = dataset.with_options(options)
    iterators = [iter(dataset) for _ in range(count)]
    for place in range(count):
        next(iterators[place])
    time.sleep(lifetime)
    found = []
    while iterators:
        began = time.perf_counter()
        del iterators[-1]
        found.append(time.perf_counter() - began)
    return found


def main():
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.count < 1 or not 0 <= arguments.seconds <= 3600:
        parser.error("--count must be 1 or more, --seconds 0 to 3600.")
    for name, options in (
        ("tuned by tf.data", tf.data.Options()),
        ("ours", dataset_options()),
    ):
        found = seconds_to_end(options, arguments.count, arguments.seconds)
        late = sum(seconds > 0.1 for seconds in found)
        print(
            f"{name}: {arguments.count} ends took {sum(found):.1f} s, "
            f"{late} of them more than 0.1 s, one {max(found):.1f} s"
        )


if __name__ == "__main__":
    main()
