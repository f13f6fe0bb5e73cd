"""Trains the demo's model in float32 and in bfloat16 and compares the losses.

    python benchmarks/precision.py
    python benchmarks/precision.py --records runs/demo/records --steps 300

Same weights at the start, same batches, same settings as `examples/demo.py`;
only the precision of the products differs. Records are those of an earlier demo
or made anew. A minute or two on two cores.
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import contest
from examples import demo

ROOT = contest.ROOT
LIMIT = 0.01
PRECISIONS = ("float32", "bfloat16")


def main(argv=None):
    """Compares from the command line.

    Args:
        argv: list of str, or None for the process's.

    Returns:
        int, 0 if the losses are within 1 % of each other.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--records", metavar="DIR", help="default: the demo's")
    add("--steps", type=int, default=300)
    add("--batch-size", type=int, default=demo.BATCH_SIZE)
    add("--output", default=str(ROOT / "runs" / "precision"), metavar="DIR")
    settings = parser.parse_args(argv)
    output = pathlib.Path(settings.output)
    output.mkdir(parents=True, exist_ok=True)
    records = settings.records or _demo_records(output)
    results = {}
    for precision in PRECISIONS:
        results[precision] = train(
            records, precision, settings.steps, settings.batch_size
        )
        print(json.dumps({"precision": precision, **results[precision]}))
        sys.stdout.flush()
    differences = compare(results)
    print(f"after {settings.steps} steps:")
    for name, difference in differences.items():
        losses = (results[precision][name] for precision in PRECISIONS)
        figures = " and ".join(f"{loss:.4f}" for loss in losses)
        print(f"{name}: {figures} nats, {difference:+.2%}")
    (output / "precision.json").write_text(
        json.dumps({"steps": settings.steps, **results}, indent=1) + "\n"
    )
    return int(max(map(abs, differences.values())) > LIMIT)


def compare(results):
    """How far the loss in bfloat16 is above that in float32, as a share.

    Args:
        results: dict of precision to what `train` returned.

    Returns:
        dict of the loss's name to float.
    """
    exact, rounded = (results[precision] for precision in PRECISIONS)
    return {
        name: rounded[name] / exact[name] - 1
        for name in ("training_loss", "held_out_loss")
    }


def train(records, precision, steps, batch_size):
    """One run.

    Args:
        records: directory of records with a validation split.
        precision: "float32" or "bfloat16".
        steps, batch_size: ints.

    Returns:
        dict of floats: `training_loss`, mean of the last tenth of the steps,
        `held_out_loss`, both in nats a target, and `cpu_seconds`.
    """
    import orbit
    import tensorflow as tf

    from data_pipeline.pretraining import PretrainingData
    from xlnet_tf import XLNetConfig
    from xlnet_tf.training import pretraining_step as training_steps
    from xlnet_tf.training.config import TrainingConfig

    begun = time.process_time()
    training = TrainingConfig(
        **{
            **demo.TRAINING,
            "warmup_steps": min(demo.TRAINING["warmup_steps"], steps // 5),
        },
        steps=steps,
        batch_size=batch_size,
        precision=precision,
    )
    data = PretrainingData(records, batch_size)
    held_out = PretrainingData(records, batch_size, split="validation")
    manifest = data.manifest
    config = XLNetConfig(
        **demo.MODEL,
        vocabulary_size=manifest.tokenizer["vocabulary_size"],
        memory_length=3 * manifest.sequence_length // 4,
        reuse_length=manifest.reuse_length,
    )
    strategy = tf.distribute.get_strategy()
    model, optimizer, memory = training_steps.build(config, training, strategy)
    trainer = training_steps.PretrainingTrainer(
        model,
        optimizer,
        memory,
        training_steps.distribute_records(data, training, strategy),
        training,
        strategy,
        orbit.utils.create_global_step(),
    )
    last = max(1, steps // 10)
    if steps > last:
        trainer.train(tf.constant(steps - last))
    training_loss = trainer.train(tf.constant(last))["loss"]
    evaluator = training_steps.PretrainingEvaluator(
        model,
        training_steps.make_memory(model, training, strategy),
        training_steps.distribute_records(held_out, training, strategy),
        strategy,
    )
    batches = min(held_out.steps_per_epoch, training.evaluation_steps)
    return {
        "training_loss": training_loss,
        "held_out_loss": evaluator.evaluate(tf.constant(batches))["loss"],
        "cpu_seconds": time.process_time() - begun,
    }


def _demo_records(output):
    """Records of an earlier demo, or of the same text made here."""
    for found in (ROOT / "runs" / "demo" / "records", output / "records"):
        if (found / "manifest.json").is_file():
            return found
    corpus, tokenizer = output / "docstrings.txt", output / "spiece.model"
    demo.write_corpus(corpus)
    demo.run(
        "-m", "data_pipeline.train_tokenizer",
        "--input", corpus,
        "--text-format", "sentences",
        "--output", tokenizer,
        "--vocabulary-size", demo.VOCABULARY_SIZE,
    )  # fmt: skip
    demo.run(
        "-m", "data_pipeline.build_records",
        "--input", corpus,
        "--text-format", "sentences",
        "--tokenizer", tokenizer,
        "--output", output / "records",
        "--sequence-length", demo.SEQUENCE_LENGTH,
        "--validation-fraction", 0.03,
        "--overwrite",
    )  # fmt: skip
    return output / "records"


if __name__ == "__main__":
    sys.exit(main())
