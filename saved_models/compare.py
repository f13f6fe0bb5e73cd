"""What a precision costs: two exports of one model on the same texts.

    python -m saved_models.compare --model exact/1 --other int8/1 --file texts

    python -m saved_models.compare --model exact/1 --other int8/1 \\
        --task sst-2 --data glue/SST-2

Of a pretrainer, single tokens are predicted from the rest of their texts. Of
other models the answers of `serving_default` are compared, and with a task what
both get right.
"""

import argparse
import math
import sys

import numpy as np

from data_pipeline import command_line
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from saved_models.client.rows import read_texts

_FIRST, _EVERY = 1, 7  # tokens of a text that are predicted: 1, 8, 15, ...
_ENDS = 2  # [SEP] and [CLS]


def compare(model, other, texts, batch_size=8):
    """Measures how far two exports are apart.

    Args:
        model: Predictor or Client, the exact one.
        other: the same of the other export.
        texts: list of str.
        batch_size: int, texts at once. Default 8.

    Returns:
        dict of str to float. For exports of a pretrainer `bits_per_token` and
        `other_bits_per_token`, `same_best` (share of tokens with the same
        likeliest candidate), `largest_difference` and `mean_difference` of
        log-probabilities, `tokens`; for others `largest_difference` of all
        numbers and `same_answers`, the share of texts of which both say the
        same in all that is no number, 1 where all are numbers.

    Raises:
        ValueError: if there is nothing to compare.
    """
    batches = [
        texts[begin : begin + batch_size]
        for begin in range(0, len(texts), batch_size)
    ]
    if "fill_in_ids" in model.signatures():
        return _of_pretrainers(model, other, batches)
    return _of_answers(model, other, batches)


def _of_pretrainers(model, other, batches):
    bits, differences, agree = ([], []), [], []
    for batch in batches:
        features, positions, is_target = _targets(model, batch)
        if not is_target.any():
            continue
        request = {**features, "target_positions": positions}
        values = [
            export.predict(request, "fill_in_ids")["log_probabilities"]
            for export in (model, other)
        ]
        true = np.take_along_axis(features["token_ids"], positions, axis=1)
        for of_export, found in zip(values, bits, strict=True):
            of_true = np.take_along_axis(of_export, true[..., None], axis=-1)
            found.extend(-of_true[..., 0][is_target] / math.log(2))
        exact, rounded = (value[is_target] for value in values)
        difference = np.abs(exact - rounded)
        differences.append((difference.max(), difference.mean(), len(exact)))
        agree.extend(exact.argmax(-1) == rounded.argmax(-1))
    if not differences:
        raise ValueError("the texts have no tokens to predict.")
    largest, mean, count = np.array(differences).T
    return {
        "bits_per_token": float(np.mean(bits[0])),
        "other_bits_per_token": float(np.mean(bits[1])),
        "same_best": float(np.mean(agree)),
        "largest_difference": float(largest.max()),
        "mean_difference": float((mean * count).sum() / count.sum()),
        "tokens": float(count.sum()),
    }


def _targets(model, batch):
    """Features of texts, positions [N, P] in them, and which of these count."""
    embedded = model.predict({"text": batch}, "embed")
    token_ids, mask = embedded["token_ids"], embedded["padding_mask"]
    segments = np.zeros_like(token_ids)
    lengths = mask.sum(1)
    segments[np.arange(len(batch)), lengths - 1] = CLS_SEGMENT
    columns = np.arange(_FIRST, max(token_ids.shape[1], 2), _EVERY)
    is_target = columns < lengths[:, None] - _ENDS
    # Shorter rows repeat a target, for what stands at a target is hidden.
    positions = np.where(is_target, columns, _FIRST).astype("int32")
    features = {
        "token_ids": token_ids,
        "segment_ids": segments,
        "padding_mask": mask,
    }
    return features, positions, is_target


def _of_answers(model, other, batches):
    gives = [
        sorted(export.signatures()["serving_default"][1])
        for export in (model, other)
    ]
    if gives[0] != gives[1]:
        raise ValueError(
            "the exports are of different models: one gives "
            f"{', '.join(gives[0])}, the other {', '.join(gives[1])}."
        )
    largest, agree = 0.0, []
    for batch in batches:
        answers = [e.predict({"text": batch}) for e in (model, other)]
        is_same = np.ones(len(batch), bool)
        for name, exact in answers[0].items():
            rounded = answers[1][name]
            if exact.dtype.kind == "f":
                difference = np.abs(exact - rounded).max(initial=0)
                largest = max(largest, float(difference))
            else:
                is_same &= (exact == rounded).reshape(len(batch), -1).all(1)
        agree.extend(is_same)
    return {"largest_difference": largest, "same_answers": np.mean(agree)}


def parse_arguments(argv=None):
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m saved_models.compare",
        description="Measure what the precision of an export costs.",
    )
    add = parser.add_argument
    add("--model", required=True, help="the exact export")
    add("--other", required=True, help="the export of the same model")
    add("--file", help="texts, one a line")
    add("--task", help="instead of --file: a task of xlnet_tf.finetune")
    add("--data", help="directory, archive or file of the task, with labels")
    add("--split", help="of the data (default: dev, else test)")
    add("--columns", help='which ones to read: "text=review,label=stars"')
    add("--limit", type=int, help="texts or examples at most")
    add("--batch-size", type=int, default=8, help="texts at once (default: 8)")
    return parser.parse_args(argv)


def _read_texts(arguments):
    texts = read_texts(arguments.file)
    if not texts:
        raise ValueError(f"there is no text in {arguments.file}.")
    return texts[: arguments.limit]


def _load(arguments):
    from saved_models.client.local import Predictor

    return Predictor(arguments.model), Predictor(arguments.other)


def _write(name, *values):
    columns = [f"{name:28}", *(f"{value:>12}" for value in values)]
    sys.stdout.write(" ".join(columns) + "\n")


def _main_on_texts(arguments):
    texts = _read_texts(arguments)
    figures = compare(*_load(arguments), texts, arguments.batch_size)
    for name, value in figures.items():
        _write(name, f"{value:.6g}")


def _main_on_task(arguments):
    from saved_models.task_comparison import compare_on_task
    from saved_models.task_comparison import read_labelled

    with command_line.warnings_in_a_line():
        examples = read_labelled(
            arguments.task,
            arguments.data,
            arguments.split,
            arguments.columns,
            arguments.limit,
        )
        metrics, agreement = compare_on_task(
            *_load(arguments), arguments.task, examples, arguments.batch_size
        )
    _write("", "model", "other", "difference")
    for name, (exact, rounded) in metrics.items():
        difference = rounded - exact
        _write(name, f"{exact:.6g}", f"{rounded:.6g}", f"{difference:.3g}")
    for name, value in agreement.items():
        _write(name, f"{value:.6g}")
    _write("examples", len(examples))


def main(argv=None):
    """Runs the command; see the module's text."""
    arguments = parse_arguments(argv)
    if bool(arguments.task) == bool(arguments.file):
        raise ValueError("give either --file, or --task and --data.")
    if bool(arguments.task) != bool(arguments.data):
        raise ValueError("--task and --data belong together.")
    if arguments.file and (arguments.split or arguments.columns):
        raise ValueError("--split and --columns are of --data, not of --file.")
    for name in ("limit", "batch_size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(
                f"`--{name.replace('_', '-')}` must be at least 1. Received: "
                f"{value}."
            )
    if arguments.task:
        _main_on_task(arguments)
    else:
        _main_on_texts(arguments)
    return 0


def command():
    """Runs the command and turns errors into one line."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
