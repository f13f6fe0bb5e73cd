"""Comparison of an export with its model, for `export --check FILE`.

The export and the Keras model compute answers for the same texts or examples.

Shapes: T tokens of a text, P masked tokens, V pieces of the vocabulary, D width
of the model.
"""

import numpy as np

from data_pipeline.base.progress import track
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.table import is_table
from data_pipeline.tasks.task_data import tell_guess
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.client.rows import ask_rows
from saved_models.client.rows import read_lines_or_table

# Allowed difference of numbers by precision. The difference is relative to the
# output's largest number, but at least to 1.
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1, "int8": 0.1}
# From a model's dtype to the precision with its tolerance, if they differ.
_PRECISIONS = {"float16": "bfloat16", "float64": "float32"}
# Allowed share of different answers in float32, because rounding decides
# between equal scores.
_TIES = 0.01
_BATCH_SIZE = 8
_FIRST, _EVERY = 1, 7  # positions of masked tokens: 1, 8, 15, ...

# From the kind of a model to its task, if the model has no run.
_USUAL_TASKS = {
    "classification": "classification",
    "multi_label": "multi-label",
    "regression": "regression",
    "multiple_choice": "race",
    "ranking": "ranking",
    "token_classification": "ner",
    "question_answering": "squad-2.0",
    "sequence_to_sequence": "seq2seq",
}
_OF_TEXTS = ("classification", "multi_label", "regression")
_INPUTS = (
    *("text", "text_pair", "context", "question", "options"),
    *("query", "document", "words", "source"),
)
_TRUTHS = ("label", "answer", "tags", "relevance", "target")
# From a key in answers of `TaskKind.decode` to an output of an export.
_OUTPUTS = {
    "label": "label",
    "labels": "chosen",
    "probabilities": "scores",
    "score": "score",
    "answer": "answer",
    "no_answer_odds": "null_score",
    "tags": "tags",
    "text": "generated",
    "log_probability": "log_probabilities",
}


def read_file(model, stored, file, columns=None):
    """Read the texts or examples with which an export is checked.

    Args:
        model: the model that was exported.
        stored: StoredModel, the source of the model.
        file: str, path of texts, one per line, or of a table with a column of
            texts. For a task, a file in the task's format, or a directory or
            archive with a dev split or a test split; the dev split is
            preferred. Labels are not needed.
        columns: str, names of columns such as "text=review". Default None: the
            columns of the run that trained the model. If no column is given for
            a role such as "text", and no column has a usual name of the role, a
            column is guessed, and a note is printed.

    Returns:
        (task, examples): a TaskSpec and a list of examples. For a model without
        a task, `task` is None and `examples` is a list of str.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file is broken, or has no text or example.
    """
    from xlnet_tf.tasks import kind_of

    kind, results = kind_of(model), stored.results() or {}
    is_file = kind is None or reading.is_file(file)
    task = None
    if kind is not None:
        name = results.get("task") or _USUAL_TASKS[kind]
        if name == "race" and is_file:  # RACE is no file
            name = "dream"
        task = find_task(name)
    if task is None or kind in _OF_TEXTS and is_file and not is_table(file):
        texts, guessed = read_lines_or_table(file, columns)
        examples = [
            TextExample(str(row), text, where=f"{file}, text {row}")
            for row, text in enumerate(texts, start=1)
            if text.strip()
        ]
        if task is None:
            examples = [x.text for x in examples]
    else:
        name = "test"  # the reader requires no labels of a test split
        if not is_file and reading.find_split(task, file, "dev", columns):
            name = "dev"
        split = reading.find_columns(
            task,
            file,
            name,
            columns,
            results.get("columns"),
            getattr(model, "labels", None),
        )
        examples, guessed = split.examples(), split.guessed
        # Skip empty sources and documents, which an export refuses.
        names = {"sequence_to_sequence": "source", "ranking": "document"}
        if kind in names:
            examples = [x for x in examples if getattr(x, names[kind]).strip()]
    tell_guess(guessed)
    if not examples:
        raise ValueError(f"there is no text in {file}.")
    return task, examples


def check(model, tokenizer, settings, export, task, examples, progress=False):
    """Compare the answers of an export with the answers of its model.

    Floats may differ by a tolerance. The tolerance is the value in `TOLERANCES`
    for the precision of the export, times the largest magnitude of the output
    (at least 1). If the export keeps the model's dtype, this dtype is the
    precision; float16 counts as bfloat16, and float64 as float32. All other
    values, such as texts, are compared for equality. In float32, at most 1 % of
    these values in an output may differ, because rounding decides between equal
    scores. In lower precisions, all their differences are counted but allowed.

    Args:
        model: the model. The function sets the export's preprocessor and
            generation settings in the model.
        tokenizer: data_pipeline Tokenizer of the export.
        settings: ExportSettings of the export.
        export: Predictor or Client.
        task, examples: see `read_file`.
        progress: bool, whether to show progress. Default False.

    Returns:
        dict from the name of an output to (str, bool): a description of the
        differences, and whether these differences are allowed.

    Raises:
        ValueError: if the export refuses an example, draws answers at random,
            or encodes a text differently from the tokenizer.
    """
    settings = settings.for_model(model)
    if task is None:
        length = settings.sequence_length
        expected, found = _of_texts(
            model, tokenizer, length, export, examples, progress
        )
    else:
        expected = _of_task(
            model, tokenizer, settings, task, examples, progress
        )
        found = _of_export(export, task, examples, progress)
    precision = settings.precision
    if precision == "float32":  # the model's own dtype
        dtype = getattr(model, "backbone", model).compute_dtype
        precision = _PRECISIONS.get(dtype, dtype)
    differences = {}
    for name in dict.fromkeys(name for x in expected for name in x):
        pairs = [
            (np.atleast_1d(x[name]), np.atleast_1d(y[name]))
            for x, y in zip(expected, found, strict=True)
            if name in x
        ]
        differences[name] = _difference(pairs, precision)
    return differences


def _difference(pairs, precision):
    """Describe an output's differences; return (str, bool), see `check`."""
    if pairs[0][0].dtype.kind == "f":
        # NaN stays NaN, and is not allowed.
        apart = np.max([np.max(np.abs(x - y), initial=0) for x, y in pairs])
        largest = np.max([np.max(np.abs(x), initial=1) for x, _ in pairs])
        limit = TOLERANCES[precision] * largest
        text = f"largest difference {apart:.2g}, at most {limit:.2g} allowed"
        return text, bool(apart <= limit)
    count = sum(max(len(x), len(y)) for x, y in pairs)
    equal = sum(np.sum(x == y) for x, y in pairs if x.shape == y.shape)
    text = f"{count - equal:,} of {count:,} differ"
    is_close = precision != "float32" or count - equal <= _TIES * count
    return text, bool(is_close)


def _of_task(model, tokenizer, settings, task, examples, progress):
    """Compute the Keras model's answers: a dict of outputs per example."""
    from saved_models.signatures.base import preprocessor_for
    from xlnet_tf.training.evaluation import answer_examples

    model.preprocessor = preprocessor_for(model, tokenizer, settings)
    if getattr(model, "labels", ()) is None:
        model.labels = tuple(map(str, range(model.num_classes)))
    if task.kind == "sequence_to_sequence":
        if settings.generation is not None:
            model.generation = settings.generation.to_dict()
        if model.generation_settings().samples:
            raise ValueError(
                "--check cannot compare texts that are drawn at random: leave "
                "it out, or the sampling of --generation."
            )
    options = {"batch_size": _BATCH_SIZE}
    if settings.window_stride and examples[0].text_pair is None:
        stride = settings.window_stride
        options.update(long_documents="windows", stride=stride)
    # Remove labels: they change no answer, and the model may not have all
    # classes.
    examples = [
        x._replace(**{name: None for name in _TRUTHS if name in x._fields})
        for x in examples
    ]
    answers = []
    for one in answer_examples(model, task, examples, options, progress):
        answer = {_OUTPUTS[key]: one[key] for key in one if key in _OUTPUTS}
        if isinstance(answer.get("scores"), dict):
            answer["scores"] = [*answer["scores"].values()]
        if "chosen" in answer:
            answer["chosen"] = [x in one["labels"] for x in model.labels]
        answers.append(answer)
    return answers


def _of_export(export, task, examples, progress):
    """Compute the export's answers: a dict of outputs for each example."""
    from saved_models.signatures.tokens import count_words

    rows = []
    for example in examples:
        row = {name: getattr(example, name, None) for name in _INPUTS}
        row = {name: x for name, x in row.items() if x is not None}
        if "words" in row:
            row = {"text": " ".join(row["words"])}
        if "source" in row:
            row = {"text": row["source"]}
        if "document" in row:
            # One document per row, because queries have different numbers of
            # documents.
            row["documents"] = [row.pop("document")]
        if "options" in row:
            row["options"] = list(row["options"])
        rows.append(row)
    signature = "pairs" if "text_pair" in rows[0] else "serving_default"
    places = [x.where for x in examples]
    answers = _asked(export, rows, signature, places)
    answers = track(answers, "asking", "examples", len(rows), shown=progress)
    export_answers = []
    for example, answer in zip(examples, answers, strict=True):
        answer = {k: np.asarray(x).tolist() for k, x in answer.items()}
        if task.kind == "ranking":
            (answer["score"],) = answer["scores"]
        if task.kind == "sequence_to_sequence":  # keep the best text
            answer = {name: x[0] for name, x in answer.items() if x}
        if task.kind == "token_classification":
            # The export divides a word that contains spaces. As in fine-tuning,
            # the tag of the first part is the word's tag. Words beyond the
            # sequence have no tag.
            parts = list(map(count_words, example.words))
            begins = np.cumsum([0, *parts])
            answer["tags"] = [
                (answer["tags"][begin] if count else "") or "O"
                for begin, count in zip(begins, parts, strict=False)
            ]
        export_answers.append(answer)
    return export_answers


def _asked(export, rows, signature, places=None):
    """Yield the export's answers; raise ValueError for a refused row."""
    for answer in ask_rows(export, rows, signature, _BATCH_SIZE, places):
        if isinstance(answer, ValueError):
            raise answer
        yield answer


def _of_texts(model, tokenizer, length, export, texts, progress):
    """Compute the answers of the model and of the export: two lists of dicts.

    Each dict belongs to one text and has `embeddings` [T, D]. For a pretrained
    model, the dict also has `log_probabilities` [P, V] and `best_tokens` [P]
    of the masked tokens.
    """
    layout = LAYOUTS[model.config.layout]
    before, behind = [], [SEP_ID, CLS_ID]
    if layout.class_first:
        before, behind = [CLS_ID], [SEP_ID]
    rows = [{"text": text} for text in texts]
    answers = _asked(export, rows, "embed")
    answers = track(answers, "checking", "texts", len(rows), shown=progress)
    both = [], []
    for text, answer in zip(texts, answers, strict=True):
        ids = [*before, *tokenizer.encode(text)[: length - 2], *behind]
        is_real = answer["padding_mask"] > 0
        if answer["token_ids"][is_real].tolist() != ids:
            raise ValueError(
                "the export reads other tokens than the tokenizer in "
                f"{text[:60]!r}."
            )
        ids = np.array([ids], "int32")
        segments = np.where(ids == CLS_ID, layout.class_segment, FIRST_SEGMENT)
        features = {
            "token_ids": ids,
            "segment_ids": segments.astype("int32"),
            "padding_mask": np.ones_like(ids),
        }
        found = {"embeddings": answer["embeddings"][is_real]}
        hidden = np.arange(_FIRST, ids.shape[1], _EVERY, "int32")
        hidden = hidden[~np.isin(ids[0, hidden], (SEP_ID, CLS_ID))]
        if len(hidden) and "fill_in_ids" in export.signatures():
            request = {**features, "target_positions": hidden[None]}
            filled = export.predict(request, "fill_in_ids")
            found["log_probabilities"] = filled["log_probabilities"][0]
        expected = _in_keras(model, features, hidden)
        expected = {name: expected[name] for name in found}
        for answers_of, one in zip(both, (expected, found), strict=True):
            if "log_probabilities" in one:
                best = np.argmax(one["log_probabilities"], axis=-1)
                one["best_tokens"] = best
            answers_of.append(one)
    return both


def _in_keras(model, features, hidden):
    """Compute embeddings and masked tokens' log-probabilities in Keras.

    Args:
        model: a backbone or a pretrained model.
        features: dict of int32 arrays [1, T].
        hidden: int32 array [P], positions of the masked tokens. These tokens
            are predicted from the other tokens of the text.

    Returns:
        dict of float32 arrays.
    """
    import tensorflow as tf

    from xlnet_tf.model.masks import CONTEXT_RANK

    def as_array(tensor):
        return tf.cast(tensor, tf.float32).numpy()[0]

    features = {name: tf.constant(x) for name, x in features.items()}
    if getattr(model.config, "reverse_half_batch", False):
        features["is_reversed"] = tf.constant([False])
    backbone = getattr(model, "backbone", model)
    answer = {"embeddings": as_array(backbone(features)["content"])}
    if len(hidden) and hasattr(model, "objectives"):
        objective = model.objectives[0]
        is_hidden = np.isin(np.arange(features["token_ids"].shape[1]), hidden)
        ids = tf.where(is_hidden, MASK_ID, features["token_ids"])
        features |= {"token_ids": ids, "target_positions": hidden[None]}
        if model.reads_query:
            rank = np.where(is_hidden, 0, CONTEXT_RANK)[None]
            features["factorization_rank"] = tf.constant(rank, tf.int32)
        inputs = objective.features(features)
        outputs = backbone(inputs, streams=objective.streams)
        logits = model.logits(objective.rows(outputs, features))
        answer["log_probabilities"] = as_array(tf.nn.log_softmax(logits))
    return answer
