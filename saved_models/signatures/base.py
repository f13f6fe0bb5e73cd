"""What one signature is, and what the signatures of every model share."""

import dataclasses

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.symbols import BLANK
from saved_models.signatures.forward_pass import ForwardPass
from saved_models.signatures.serving_model import ServedModel


@dataclasses.dataclass(frozen=True)
class Signature:
    """One function of an export.

    Args:
        function: callable that takes the inputs by name and returns a flat
            dict of tensors.
        inputs: dict of name to tf.TensorSpec.
        summary: str, one sentence: what it answers.
        meaning: dict of str, a line for each input and output.
        examples: list of dicts of name to NumPy array: requests, one for each
            bucket; all of them warm a server up, the first is in the model
            card.

    Raises:
        ValueError: if a name would not come through TensorFlow Serving.
    """

    function: callable
    inputs: dict
    summary: str
    meaning: dict
    examples: list

    def __post_init__(self):
        check_names(self.inputs)
        for example in self.examples:
            if set(example) != set(self.inputs):
                raise ValueError(
                    f"an example must give {', '.join(self.inputs)}. "
                    f"Received: {', '.join(example)}."
                )

    def concrete(self):
        """The function to save; its outputs keep their names.

        Returns:
            concrete function.

        Raises:
            ValueError: if an input or output has no documented meaning.
        """
        function = tf.function(self.function)
        function = function.get_concrete_function(**self.inputs)
        outputs = function.structured_outputs
        check_names(outputs)
        missing = {*self.inputs, *outputs} - set(self.meaning)
        if missing:
            raise ValueError(
                "every input and output needs a line in `meaning`. "
                f"Missing: {', '.join(sorted(missing))}."
            )
        return function


def check_names(tensors):
    """Refuses names that TensorFlow Serving's REST API reads otherwise.

    Args:
        tensors: dict of name to tensor or spec.

    Raises:
        ValueError: if a string tensor's name ends in `_bytes`, which stands
            for base64 there.
    """
    for name, tensor in tensors.items():
        if name.endswith("_bytes") and tensor.dtype == tf.string:
            raise ValueError(
                f"the string tensor {name!r} must not end in '_bytes': "
                "TensorFlow Serving would write it in base64."
            )


class ModelSignatures(tf.Module):
    """Base of the signatures of all models.

    A subclass gives `signatures()`; it runs `self._run(function, features)`,
    whose function computes with `self._backbone` and `self._model`.

    Args:
        model: XLNetBackbone or a task.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    reads_windows = False  # of texts that are too long, see `ExportSettings`

    def __init__(self, model, tokenizer, settings):
        super().__init__()
        self._served = ServedModel(model, settings.precision)
        # tf.Module finds variables in lists; it does not look into Keras 3
        # models.
        self._model_variables = self._served.variables
        self._tokenizer = GraphTokenizer(tokenizer)
        self._settings = settings
        self._forward = ForwardPass(settings)
        self._words = _Words(tokenizer)
        # Tables of strings live on the host.
        with tf.device("CPU:0"):
            self._pieces = tf.constant(
                [
                    tokenizer.id_to_piece(i)
                    for i in range(tokenizer.vocabulary_size)
                ]
            )

    @property
    def num_parameters(self):
        """int, weights of the model."""
        return self._served.num_parameters

    @property
    def _model(self):
        return self._served.model

    @property
    def _backbone(self):
        return self._served.backbone

    def signatures(self):
        """The named signatures, `serving_default` among them.

        Returns:
            dict of str to Signature.
        """
        raise NotImplementedError

    def _run(self, function, features, of_tokens=()):
        """Computes `function(features)` in the shapes that were asked for.

        Args:
            function: callable from features to a dict of tensors [N, ...].
            features: dict of tensors [N, ...].
            of_tokens: names of outputs whose second axis is T.

        Returns:
            dict of tensors.
        """

        def with_weights(features):
            with self._served.weights():
                return function(features)

        return self._forward(with_weights, features, of_tokens)

    def _lengths(self):
        """A number of tokens for each bucket; one where there are none."""
        return self._settings.seq_length_buckets or (
            min(8, self._settings.sequence_length),
        )

    def _batches(self):
        """Rows of the requests that warm a server up.

        One, and where XLA compiles each number of rows anew all of these.
        """
        batches = [1]
        if self._settings.jit_compile:
            largest = self._settings.max_batch or 1
            while batches[-1] * 2 <= largest:
                batches.append(batches[-1] * 2)
            if batches[-1] != largest:
                batches.append(largest)
        return batches

    def _example_texts(self, text, begin=(), ends=2):
        """Requests of raw text: `text` itself, then one for each bucket.

        Args:
            text: str, what the model card shows.
            begin: list of str, words of one token that all texts begin with.
            ends: int, tokens that the signature adds to a text.
        """
        texts = [text]
        lengths = self._lengths()
        for length in lengths if len(lengths) > 1 else ():
            words = self._words.words(length - ends - len(begin))
            texts.append(" ".join([*begin, *words]))
        return [
            {"text": np.array([text.encode()] * rows)}
            for text in texts
            for rows in self._batches()
        ]


class _Words:
    """Makes texts of a given number of tokens."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        pieces = map(tokenizer.id_to_piece, range(tokenizer.vocabulary_size))
        words = (p[1:] for p in pieces if p[:1] == BLANK and p[1:].isalpha())
        self._word = next((w for w in words if self._count(w) == 1), "a")

    def _count(self, word):
        """Tokens of the word where it follows itself."""
        twice = self._tokenizer.encode(f"{word} {word} {word}")
        return len(twice) - len(self._tokenizer.encode(f"{word} {word}"))

    def words(self, num_tokens):
        """Words of `num_tokens` tokens in all, or a few less."""
        return [self._word] * (num_tokens // max(1, self._count(self._word)))
