"""How fast records become batches, and what each stage can do alone.

    python benchmarks/reading.py --records records --batch-size 64

Prints sequences a second of this process, the best of a few windows, and the
microseconds of processor time that a sequence costs, which other programs on
the machine disturb less. Batches hold ranks and positions, no mask. For the
figure of two cores of many: `taskset -c 0,1 python benchmarks/reading.py ...`.
"""

import argparse
import os
import pathlib
import resource
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import tensorflow as tf

from data_pipeline import command_line
from data_pipeline.dataset_options import dataset_options
from data_pipeline.objectives import permutation
from data_pipeline.objectives import released as parsing
from data_pipeline.pretraining import PretrainingData


def processor_seconds():
    """float, of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(name, dataset, batch_size, sequences, windows=4):
    """Prints the rate of a dataset of batches."""
    iterator = iter(dataset.with_options(dataset_options()))
    for _ in range(5):
        next(iterator)
    rates, costs = [], []
    for _ in range(windows):
        began, used, count = time.perf_counter(), processor_seconds(), 0
        while count < sequences:
            next(iterator)
            count += batch_size
        rates.append(count / (time.perf_counter() - began))
        costs.append(1e6 * (processor_seconds() - used) / count)
    print(f"{name:44} {max(rates):10,.0f}/s  {min(costs):6.1f} us a sequence")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=30_000)
    parser.add_argument("--service", action="store_true")
    arguments = parser.parse_args(argv)

    size = arguments.batch_size
    data = PretrainingData(arguments.records, size)
    manifest = data.manifest
    print(
        f"{data.num_records} records of {manifest.sequence_length} tokens, "
        f"{manifest.form}, batches of {size}, "
        f"{len(os.sched_getaffinity(0))} core(s)"
    )
    paths = [
        os.path.join(arguments.records, shard.file)
        for shard in manifest.splits["train"]
    ]
    raw = tf.data.TFRecordDataset(paths).repeat().batch(size)

    def run(name, dataset):
        measure(name, dataset, size, arguments.sequences)

    def mapped(dataset, function):
        return dataset.map(
            function, num_parallel_calls=tf.data.AUTOTUNE
        ).prefetch(2)

    run("read and checksum, file after file", raw)
    serialized = next(iter(raw))
    again = tf.data.Dataset.from_tensors(serialized).repeat()
    run(
        "parse",
        mapped(again, lambda batch: parsing.parse_records(batch, manifest)),
    )
    parsed = parsing.parse_records(serialized, manifest)
    index = tf.range(size, dtype=tf.int64)
    again = tf.data.Dataset.from_tensors(parsed).repeat()
    if manifest.form == "compact":
        run(
            "permute",
            mapped(
                again,
                lambda batch: permutation.draw_ranks(
                    0,
                    index,
                    index,
                    batch["token_ids"],
                    batch["is_target"],
                    manifest.reuse_length,
                    manifest.permutation_length,
                ),
            ),
        )
    run(
        "permute and make the batch",
        mapped(
            again,
            lambda batch: data._features(batch, index, index, index > 0, False),
        ),
    )
    run("everything, row after row, in training order", data.dataset())
    if arguments.service:
        service = tf.data.experimental.service
        dispatcher = service.DispatchServer()
        address = dispatcher.target.split("://")[1]
        worker = service.WorkerServer(
            service.WorkerConfig(dispatcher_address=address)
        )
        data = PretrainingData(
            arguments.records, size, service=dispatcher.target
        )
        run("everything, by a tf.data service in here", data.dataset())
        del worker, dispatcher


if __name__ == "__main__":
    sys.exit(command_line.run(main))
