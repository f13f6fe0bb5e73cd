"""The cost of a precision: two exports of one model on the same texts.

    python -m saved_models.compare --model exact/1 --other int8/1 --file texts

    python -m saved_models.compare --model exact/1 --other int8/1 \\
        --task sst-2 --data glue/SST-2

Exports of a pretrainer predict single tokens from the rest of their texts. Of
other models the answers of `serving_default` are compared; with a task, answers
to its labelled examples, by the metrics of fine-tuning.

Shapes: N texts of a batch, P targets.
"""

import math
import sys

import numpy as np

from data_pipeline import command_line
from data_pipeline.progress import track
from data_pipeline.tasks import catalog
from data_pipeline.tasks import reading
from data_pipeline.tasks.task_data import tell_guess
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.client.local import add_trust_options
from saved_models.client.rows import read_lines_or_table
from saved_models.decoding import answers_of

_FIRST, _EVERY = 1, 7  # tokens of a text that are predicted: 1, 8, 15, ...


def compare(model, other, texts, batch_size=8, progress=False):
    """Measure how far two exports are apart.

    Args:
        model, other: Predictor or Client, the exact export first.
        texts: list of str.
        batch_size: int, texts at once. Default 8.
        progress: bool, whether to tell how far it is. Default False.

    Returns:
        dict of str to float. For exports of a pretrainer `bits_per_token` and
        `other_bits_per_token`, `same_best` (share of tokens with the same
        likeliest candidate), `largest_difference` and `mean_difference` of
        log-probabilities, `tokens`; for others `largest_difference` of all
        numbers and `same_answers`, the share of texts whose other outputs are
        all equal.

    Raises:
        ValueError: if there is nothing to compare.
    """
    starts = range(0, len(texts), batch_size)
    batches = [texts[start : start + batch_size] for start in starts]
    batches = track(batches, "comparing", "batches", shown=progress)
    if "fill_in_ids" in model.signatures():
        return _of_pretrainers(model, other, batches)
    return _of_answers(model, other, batches)


def _of_pretrainers(model, other, batches):
    bits, differences, agree = [], [], []
    for batch in batches:
        request, is_target = _targets(model, batch)
        if not is_target.any():
            continue
        exact, rounded = (
            export.predict(request, "fill_in_ids")["log_probabilities"]
            for export in (model, other)
        )
        _check_alike("log_probabilities", exact, rounded)
        exact, rounded = exact[is_target], rounded[is_target]
        ids, positions = request["token_ids"], request["target_positions"]
        true = np.take_along_axis(ids, positions, axis=1)
        true, tokens = true[is_target], np.arange(len(exact))
        of_true = exact[tokens, true], rounded[tokens, true]
        bits.extend(zip(*of_true, strict=True))
        apart = np.abs(exact - rounded)
        differences.extend(zip(apart.max(-1), apart.mean(-1), strict=True))
        is_number = ~np.isnan(apart).any(-1)
        agree.extend(is_number & (exact.argmax(-1) == rounded.argmax(-1)))
    if not agree:
        raise ValueError("the texts have no tokens to predict.")
    largest, mean = np.array(differences).T
    exact, rounded = -np.mean(bits, axis=0) / math.log(2)
    return {
        "bits_per_token": float(exact),
        "other_bits_per_token": float(rounded),
        "same_best": float(np.mean(agree)),
        "largest_difference": float(largest.max()),
        "mean_difference": float(mean.mean()),
        "tokens": float(len(agree)),
    }


def _targets(model, batch):
    """A request to fill in texts, and which target positions [N, P] count."""
    embedded = model.predict({"text": batch}, "embed")
    ids, mask = embedded["token_ids"], embedded["padding_mask"]
    segments = np.where(ids == CLS_ID, CLS_SEGMENT, 0).astype("int32")
    segments[:, 0] = 0  # BERT's layout, [CLS] in front
    columns = np.arange(_FIRST, max(ids.shape[1], 2), _EVERY)
    is_target = ~(np.isin(ids, (SEP_ID, CLS_ID)) | (mask == 0))[:, columns]
    # Shorter rows repeat a target: a new one would hide one more token.
    positions = np.where(is_target, columns, _FIRST).astype("int32")
    request = dict(token_ids=ids, segment_ids=segments, padding_mask=mask)
    return {**request, "target_positions": positions}, is_target


def _of_answers(model, other, batches):
    gives = [x.signatures()["serving_default"][1] for x in (model, other)]
    one, two = (", ".join(sorted(names)) for names in gives)
    if one != two:
        raise ValueError(
            f"the exports are of different models: one gives {one}, the other "
            f"{two}."
        )
    largest, agree = 0.0, []
    for batch in batches:
        answers = [e.predict({"text": batch}) for e in (model, other)]
        is_same = np.ones(len(batch), bool)
        for name, exact in answers[0].items():
            rounded = answers[1][name]
            # Texts are as many as there are, but for the names of classes.
            if exact.dtype.kind != "O" or name == "labels":
                _check_alike(name, exact, rounded)
            if exact.dtype.kind == "f":
                # NaN stays NaN, unlike with `max`.
                apart = np.abs(exact - rounded)
                largest = np.maximum(largest, apart.max(initial=0))
                is_same &= ~np.isnan(apart).reshape(len(batch), -1).any(1)
            else:
                is_same &= (exact == rounded).reshape(len(batch), -1).all(1)
        agree.extend(is_same)
    same = float(np.mean(agree))
    return {"largest_difference": float(largest), "same_answers": same}


def _check_alike(name, one, other):
    """Refuse answers of different shapes or kinds."""
    if (one.shape, one.dtype) == (other.shape, other.dtype):
        return
    shapes = " and ".join(
        f"{x.dtype.name} {list(x.shape)}" for x in (one, other)
    )
    raise ValueError(
        f"the exports are of different models: their `{name}` are {shapes}."
    )


def read_labelled(task, path, split=None, columns=None, limit=None):
    """The examples of a task that both exports are asked for.

    Args:
        task, path, columns: see `data_pipeline.tasks.reading.read_examples`.
            Columns that are not given and have no usual name are guessed, and
            told.
        split: str; default "dev", or "test" where there is no "dev".
        limit: int or None, how many examples at most.

    Raises:
        FileNotFoundError: if there is no such split.
        ValueError: if something is wrong in a file, or an example has no label.
    """
    task = catalog.find_task(task)
    if split is None:
        # A single file stands for any split, and matches none of these names.
        names = ("dev", "test")
        found = (s for s in names if reading.find_split(task, path, s, columns))
        split = next(found, "dev")
    columns, guessed = reading.find_columns(task, path, split, columns)
    tell_guess(guessed)
    examples = reading.read_examples(task, path, split, columns)[:limit]
    for example in examples:
        if not reading.is_labelled(example):
            raise ValueError(
                f"{example.where or path}: the example has no label; accuracy "
                "is measured on labelled data."
            )
    return examples


def compare_on_task(model, other, task, examples, batch_size=8, progress=False):
    """Measure how many answers of both exports are right.

    Args:
        model, other, batch_size, progress: see `compare`.
        task: str or TaskSpec.
        examples: list of labelled examples of the task.

    Returns:
        (metrics, agreement): dict of metric to (of `model`, of `other`), and
        dict of str to float: `same_answers`, the share of equal labels,
        options, answers, tags of words or best documents of queries; of
        numbers `mean_difference` and `largest_difference`.

    Raises:
        ValueError: if an export is of another kind of task, or does not know
            a label.
    """
    from xlnet_tf.tasks import squad
    from xlnet_tf.tasks import task_class

    task = catalog.find_task(task)
    values, both = [], []
    for export in (model, other):
        decoded = answers_of(export, task, examples, batch_size, progress)
        labels = None
        both.append(decoded)
        if task.kind == "classification":
            labels = tuple(decoded[0]["probabilities"])
        scores = task_class(task.kind).score(task, examples, decoded, labels)
        if "null_threshold" in scores:
            scores |= squad.scores_as_answered(examples, decoded)
        values.append(scores)
    metrics = {name: tuple(v[name] for v in values) for name in values[0]}
    return metrics, _agreement(task, examples, *both)


def _agreement(task, examples, *both):
    """dict of str to float, see `compare_on_task`."""
    if task.kind == "regression":
        apart = np.abs(
            [a["score"] - b["score"] for a, b in zip(*both, strict=True)]
        )
        mean, largest = float(apart.mean()), float(apart.max())
        return {"mean_difference": mean, "largest_difference": largest}
    decisions = [_decisions(task, examples, decoded) for decoded in both]
    same = [a == b for a, b in zip(*decisions, strict=True)]
    return {"same_answers": float(np.mean(same))}


def _decisions(task, examples, decoded):
    """list of the decisions of an export."""
    if task.kind == "token_classification":
        return [tag for one in decoded for tag in one["tags"]]
    if task.kind == "ranking":
        queries = {}
        for example, one in zip(examples, decoded, strict=True):
            queries.setdefault(example.query_id, []).append(one["score"])
        return [int(np.argmax(scores)) for scores in queries.values()]
    keys = {
        "classification": "label",
        "multi_label": "labels",
        "sequence_to_sequence": "text",
    }
    key = keys.get(task.kind, "answer")
    return [one[key] for one in decoded]


def parse_arguments(argv=None):
    """Options of the command."""
    parser = command_line.Parser(
        prog="python -m saved_models.compare",
        description="Measure what the precision of an export costs.",
    )
    add = parser.add_argument
    add("--model", required=True, help="the exact export")
    add(
        "--other",
        required=True,
        help="an export of the same model in another precision",
    )
    add("--file", help="texts, one per line, or a table with a column of them")
    add("--task", help="instead of --file: a task of xlnet_tf.finetune")
    add("--data", help="directory, archive or file of the task, with labels")
    add("--split", help="split of the data (default: dev, else test)")
    add("--columns", help='columns to read: "text=review,label=stars"')
    add("--limit", type=int, help="most texts or examples")
    add("--batch-size", type=int, default=8, help="texts at once (default: 8)")
    add_trust_options(parser)
    command_line.add_quiet(parser)
    return command_line.parse(parser, argv)


def _load(arguments):
    from saved_models.client.local import load

    options = arguments.verify, arguments.trust
    return load(arguments.model, *options), load(arguments.other, *options)


def _write(name, *values):
    columns = [f"{name:28}", *(f"{value:>12}" for value in values)]
    sys.stdout.write(" ".join(columns) + "\n")


def _main_on_task(arguments):
    with command_line.warnings_in_a_line():
        names = ("task", "data", "split", "columns", "limit")
        examples = read_labelled(*(getattr(arguments, x) for x in names))
        metrics, agreement = compare_on_task(
            *_load(arguments),
            arguments.task,
            examples,
            arguments.batch_size,
            progress=not arguments.quiet,
        )
    _write("", "model", "other", "difference")
    for name, (exact, rounded) in metrics.items():
        difference = rounded - exact
        _write(name, f"{exact:.6g}", f"{rounded:.6g}", f"{difference:.3g}")
    for name, value in agreement.items():
        _write(name, f"{value:.6g}")
    _write("examples", len(examples))
    return 0


def main(argv=None):
    """Run the command; see the module's docstring."""
    arguments = parse_arguments(argv)
    if bool(arguments.task) == bool(arguments.file):
        raise ValueError("give either --file, or --task and --data.")
    if bool(arguments.task) != bool(arguments.data):
        raise ValueError("--task and --data belong together.")
    if arguments.file and arguments.split:
        raise ValueError("--split needs --data, not --file.")
    sizes = {"limit": arguments.limit, "batch-size": arguments.batch_size}
    for name, value in sizes.items():
        if value is not None and value < 1:
            message = f"`--{name}` must be at least 1. Received: {value}."
            raise ValueError(message)
    if arguments.task:
        return _main_on_task(arguments)
    texts, guessed = read_lines_or_table(arguments.file, arguments.columns)
    tell_guess(guessed)
    if not texts:
        raise ValueError(f"there is no text in {arguments.file}.")
    texts = texts[: arguments.limit]
    found = compare(
        *_load(arguments), texts, arguments.batch_size, not arguments.quiet
    )
    for name, value in found.items():
        _write(name, f"{value:.6g}")
    return 0


def command():
    """Entry point of the console script: errors become one line."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
