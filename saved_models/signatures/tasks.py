"""What the signatures of all tasks share: sequences, requests and checks.

Shapes: N rows of a request, R sequences, T tokens.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.features.packing import pack
from data_pipeline.tokenization.symbols import PADDING_ID
from data_pipeline.tokenization.symbols import PADDING_SEGMENTS
from saved_models.signatures import features as make_features
from saved_models.signatures.base import ModelSignatures

# Features with one value a token, and what stands in padding.
_FILLERS = {
    "token_ids": PADDING_ID,
    "segment_ids": None,  # that of the side
    "padding_mask": 0,
    "answer_mask": 0,
}


class TaskSignatures(ModelSignatures):
    """Base of the signatures of the tasks.

    Sequences are made by the same graph as in the task's preprocessor, and
    with its settings if the task has one; how long they may be is the
    export's.

    Args:
        model: a task.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    pad_side = "left"
    truncate = "longest_first"

    def __init__(self, model, tokenizer, settings):
        super().__init__(model, tokenizer, settings)
        kept = {}
        if model.preprocessor is not None:
            kept = model.preprocessor.settings()
        self._read_settings(kept)

    def _read_settings(self, kept):
        """Takes what it needs of the settings of the task's preprocessor."""
        self._truncate = kept.get("truncate", self.truncate)

    def _pack(self, first, second=None):
        """Sequences of ragged ids, as wide as the longest."""
        return pack(
            first,
            second,
            self._settings.sequence_length,
            self._truncate,
            self.pad_side,
            pad_to_longest=True,
        )

    def _outputs(self, features, minimum=1):
        """What the model says of sequences.

        Args:
            features: dict of int32 [R, T], and others [R].
            minimum: int, tokens that the model needs.

        Returns:
            tensor, or dict of tensors, whose first axis is R.
        """

        def run(features):
            outputs = self._call(features)
            return outputs if isinstance(outputs, dict) else {"": outputs}

        outputs = self._run(run, self._padded(features, minimum))
        return outputs[""] if "" in outputs else outputs

    def _call(self, features):
        return self._model(features, training=False)

    def _padded(self, features, minimum):
        """Pads on the task's own side to a length that the export has.

        `ForwardPass` would pad on the right, where a text has its end.
        """
        width = tf.shape(features["token_ids"])[1]
        wanted = tf.maximum(width, minimum)
        buckets = self._settings.seq_length_buckets
        if buckets:
            index = tf.reduce_sum(
                tf.cast(tf.constant(buckets) < wanted, "int32")
            )
            wanted = tf.gather(buckets, tf.minimum(index, len(buckets) - 1))
        return {
            name: self._filled_up(name, value, wanted)
            if name in _FILLERS
            else value
            for name, value in features.items()
        }

    def _filled_up(self, name, value, wanted):
        missing = tf.maximum(wanted - tf.shape(value)[1], 0)
        columns = [missing, 0] if self.pad_side == "left" else [0, missing]
        filler = _FILLERS[name]
        if filler is None:
            filler = PADDING_SEGMENTS[self.pad_side]
        return tf.pad(value, [[0, 0], columns], constant_values=filler)

    def _checked(self, features):
        return make_features.checked(
            features, self._served.config.vocabulary_size
        )

    def _examples(self, shown, filled, num_symbols):
        """Requests of raw strings: `shown`, then one for each bucket.

        Args:
            shown: dict of name to str or list of str, the one row that the
                model card shows.
            filled: str, the input that is as long as a bucket has room, while
                the others are empty.
            num_symbols: int, tokens that the signature adds.

        Returns:
            list of dicts of name to array.
        """
        requests = [shown]
        lengths = self._lengths()
        for length in lengths if len(lengths) > 1 else ():
            empty = {
                name: "" if isinstance(value, str) else [""] * len(value)
                for name, value in shown.items()
            }
            words = self._words.words(length - num_symbols)
            requests.append({**empty, filled: " ".join(words)})
        return [
            {name: np.array([value] * rows) for name, value in request.items()}
            for request in requests
            for rows in self._batches()
        ]

    def _example_ids(self):
        """Requests of ready ids [N, T]."""
        examples = []
        for length in self._lengths():
            for rows in self._batches():
                ids = _sequence([9] * (length - 2), length, self.pad_side)
                examples.append(
                    {name: np.array([x] * rows) for name, x in ids.items()}
                )
        return examples


def _sequence(tokens, length, pad_side):
    """Features of one sequence, as arrays."""
    features = pack(
        tf.ragged.constant([tokens], tf.int32, ragged_rank=1),
        sequence_length=length,
        pad_side=pad_side,
    )
    return {name: value[0].numpy() for name, value in features.items()}


def string_specs(**ranks):
    """dict of tf.TensorSpec of strings, by how many axes they have."""
    return {
        name: tf.TensorSpec([None] * rank, tf.string, name=name)
        for name, rank in ranks.items()
    }


def same_rows(first, **others):
    """The same tensors, refused where they do not have as many rows.

    Args:
        first: (str, tensor): the name and the rows that count.
        **others: tensors.

    Returns:
        list of tensors, of the first and the others in turn.
    """
    name, tensor = first
    checks = [
        tf.debugging.assert_equal(
            tf.shape(other)[0],
            tf.shape(tensor)[0],
            f"`{other_name}` must have a row for each row of `{name}`",
        )
        for other_name, other in others.items()
    ]
    with tf.control_dependencies(checks):
        return [tf.identity(x) for x in (tensor, *others.values())]
