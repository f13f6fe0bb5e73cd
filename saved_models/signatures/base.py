"""Base classes of the signatures of models and tasks.

`SIGNATURES` in `__init__.py` of this folder maps each model class to its
subclass of `ModelSignatures`. The subclasses are in `texts.py`, `choices.py`,
`tokens.py`, `questions.py`, `seq2seq.py`, `embedding.py` and `fill_in.py`.

Shapes: N rows of a request, R sequences that the model computes, T tokens.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures.checks import after
from saved_models.signatures.checks import at_most
from saved_models.signatures.serving_model import ForwardPass
from saved_models.signatures.serving_model import ServedModel
from saved_models.signatures.signature import IDS
from saved_models.signatures.signature import id_meaning


class ModelSignatures(tf.Module):
    """Base class of the signatures of all models.

    A subclass implements `signatures()`. The function of each signature makes
    features and calls `self._run(function, features)`. The argument `function`
    is a callable that computes outputs from the features with `self._backbone`
    and `self._model`.

    Args:
        model: a backbone or a task.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings, with a `sequence_length`.
        served: object that computes the model. Default None: a ServedModel of
            the model.
    """

    reads_windows = False  # whether `window_stride` is allowed
    # Whether a server may join rows of different requests in a batch. Rows of
    # texts always fit; other rows must have equal shapes.
    joins_requests = True

    def __init__(self, model, tokenizer, settings, served=None):
        super().__init__()
        self._settings = settings
        self._served = served or ServedModel(model, settings.weight_precision)
        # tf.Module finds variables in this list, but not in Keras 3 models.
        self._model_variables = self._served.variables
        self._words = _Words(tokenizer)
        self._tokenizer = self._make_tokenizer(model, tokenizer)
        self._forward = self._make_forward_pass()

    def _make_tokenizer(self, model, tokenizer):
        if self._settings.stride or self._settings.max_question_length:
            raise ValueError(
                f"{type(model).__name__} reads no questions: leave --stride "
                "and --max-question-length out."
            )
        return GraphTokenizer(tokenizer)

    def _make_forward_pass(self):
        names = (*IDS, "factorization_rank")
        return ForwardPass(self._settings, dict.fromkeys(names, 0))

    @property
    def num_parameters(self):
        """Number of the model's parameters."""
        return self._served.num_parameters

    @property
    def _model(self):
        return self._served.model

    @property
    def _layout(self):
        return LAYOUTS[self._served.config.layout]

    def _id_meaning(self, **arguments):
        """Describe a signature's inputs of token ids; see `id_meaning`."""
        return id_meaning(self._layout, **arguments)

    @property
    def _backbone(self):
        return self._served.backbone

    def signatures(self):
        """Make the signatures of the model; one is named `serving_default`.

        Returns:
            dict from name to Signature.
        """
        raise NotImplementedError

    def traced(self):
        """Trace the functions of all signatures for the export.

        Returns:
            dict from name to (Signature, concrete function).
        """
        signatures, functions = self.signatures(), {}
        for signature in signatures.values():
            if id(signature) not in functions:
                limit = self._settings.max_request_bytes
                functions[id(signature)] = signature.concrete(limit)
        return {
            name: (signature, functions[id(signature)])
            for name, signature in signatures.items()
        }

    def forward(self, features):
        """Compute the model's outputs; OpenVINO also runs this method's graph.

        Args:
            features: dict of int32 tensors [R, T], or [R].

        Returns:
            dict of tensors [R, ...].
        """
        raise NotImplementedError

    def network(self):
        """Trace `forward` as a function of token ids, to convert for OpenVINO.

        Returns:
            concrete function whose inputs are token ids.

        Raises:
            ValueError: if the model has no signature for token ids.
        """
        signatures = self.signatures()
        ids_signature = signatures.get("ids") or signatures.get("embed_ids")
        if ids_signature is None:
            raise ValueError(
                "the runtime openvino is for tasks that read ids and for "
                f"embeddings, not for {type(self._model).__name__}: leave "
                "--runtime out."
            )
        specs = {
            name: tf.TensorSpec(spec.shape[-2:], spec.dtype, name)
            for name, spec in ids_signature.inputs.items()
        }

        def outputs(**features):
            return self._served.run(self.forward, features)

        return tf.function(outputs).get_concrete_function(**specs)

    def _run(
        self, function, features, of_tokens=(), minimum=0, are_windows=False
    ):
        """Compute `function(features)` with the static shapes of the settings.

        Args:
            function: callable from features to a dict of tensors [R, ...].
            features: dict of tensors [R, ...].
            of_tokens: names of the outputs whose second axis is T.
            minimum: int, minimum number of tokens that the function needs.
            are_windows: bool, whether the sequences are windows of texts.

        Returns:
            dict of tensors.
        """

        def step(features):
            return self._served.run(function, features)

        shape = tf.shape(features["token_ids"], tf.int64)
        check = self._check_windows if are_windows else self._check_tokens
        features = after([check(shape[0], shape[1])], features)
        return self._forward(step, features, of_tokens, minimum)

    def _check_tokens(self, count, num_tokens):
        """Make an op that refuses too many tokens in `count` sequences."""
        return at_most(
            count * num_tokens,
            self._settings.max_request_tokens,
            "tokens in a request, padding included",
        )

    def _check_windows(self, count, num_tokens):
        """Make an op that refuses too many windows; `num_tokens` is ignored."""
        return at_most(
            count, self._settings.max_request_windows, "windows in a request"
        )

    def _checked(self, features):
        """Check the features in a request of token ids, and return them.

        Args:
            features: dict of int32 [N, T], with `token_ids`.
        """
        token_ids = features["token_ids"]
        vocabulary_size = self._served.config.vocabulary_size
        shape = tf.shape(token_ids)
        checks = [
            tf.debugging.assert_equal(
                tf.shape(features[name]),
                shape,
                f"`{name}` must have the shape of `token_ids`",
            )
            for name in IDS[1:]
            if name in features
        ]
        for fits, message in (
            (token_ids >= 0, "negative"),
            (token_ids < vocabulary_size, "too large"),
        ):
            checks.append(
                tf.debugging.Assert(
                    tf.reduce_all(fits),
                    [
                        f"`token_ids` must be from 0 to {vocabulary_size - 1};"
                        f" some are {message}. Received:",
                        token_ids,
                    ],
                )
            )
        if not self._settings.seq_length_buckets:
            checks.append(
                at_most(
                    shape[1],
                    self._settings.sequence_length,
                    "tokens in a row of this export",
                )
            )
        features = after(checks, features)
        if "padding_mask" in features:  # any value except 0 marks a token
            mask = features["padding_mask"]
            features["padding_mask"] = tf.cast(mask != 0, mask.dtype)
        # A reshape needs at least one column.
        missing = tf.maximum(1 - shape[1], 0)
        return {
            name: tf.pad(x, [[0, 0], [0, missing]]) if name in IDS else x
            for name, x in features.items()
        }

    def _lengths(self):
        """Sequence lengths of warm-up requests.

        The lengths are `seq_length_buckets`. Without buckets the only length is
        8, or `sequence_length` if `sequence_length` is smaller.
        """
        return self._settings.seq_length_buckets or (
            min(8, self._settings.sequence_length),
        )

    def _batches(self):
        """Numbers of rows in the warm-up requests.

        Without XLA the only number is 1. With XLA the numbers are `max_batch`
        and all smaller powers of two. The model is compiled for each of these
        numbers separately.
        """
        batches = [1]
        if self._settings.jit_compile:
            largest = self._settings.max_batch or 1
            while batches[-1] * 2 <= largest:
                batches.append(batches[-1] * 2)
            if batches[-1] != largest:
                batches.append(largest)
        return batches

    def _examples(self, shown, filled, num_symbols, begin=()):
        """Make example requests: `shown`, and requests that fill buckets.

        If there are at least two buckets, each bucket has a request whose text
        fills the bucket. With fewer buckets, `shown` is the only request. Each
        request is made once for each number of rows in `_batches`.

        Args:
            shown: dict from input name to str or list of str, the example in
                the model card.
            filled: str, name of the input whose text fills a bucket. In the
                requests for buckets, all other inputs are empty.
            num_symbols: int, number of symbols that the signature adds.
            begin: list of str, the first words of `filled`. Each of these words
                is one token.

        Returns:
            list of dicts from input name to array.
        """
        requests = [shown]
        lengths = self._lengths()
        for length in lengths if len(lengths) > 1 else ():
            empty = {
                name: "" if isinstance(value, str) else [""] * len(value)
                for name, value in shown.items()
            }
            words = self._words.words(length - num_symbols - len(begin))
            requests.append({**empty, filled: " ".join([*begin, *words])})
        return [
            {name: np.array([value] * rows) for name, value in request.items()}
            for request in requests
            for rows in self._batches()
        ]

    def _example_ids(self):
        """Make example requests of token ids [N, T] without padding."""
        examples = []
        for length in self._lengths():
            for rows in self._batches():
                ids = np.full([rows, length], 9, "int32")
                ids[:, -2:] = [SEP_ID, CLS_ID]
                if self._layout.class_first:
                    ids = np.roll(ids, 1, axis=1)
                class_segment = self._layout.class_segment
                segments = np.where(ids == CLS_ID, class_segment, 0)
                values = (ids, segments.astype("int32"), np.ones_like(ids))
                examples.append(dict(zip(IDS, values, strict=True)))
        return examples


def preprocessor_for(model, tokenizer, settings):
    """Make the preprocessor of an export from a task's preprocessor.

    Args:
        model: a task, with or without a preprocessor.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings, whose lengths replace the lengths in the
            preprocessor.

    Returns:
        Preprocessor with the given tokenizer. The preprocessor pads to the
        longest sequence of a batch.
    """
    preprocessor = model.preprocessor_with(tokenizer)
    names = ("sequence_length", "stride", "max_question_length")
    given = {name: getattr(settings, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    return preprocessor.with_settings(**given, pad_to_longest=True)


class TaskSignatures(ModelSignatures):
    """Base class of the signatures of tasks.

    A copy of the task's preprocessor makes the features, with the sequence
    length of the export. A batch is padded to the longest sequence in it.

    Args: see `ModelSignatures`.

    Attributes:
        output: name of the model's output, if the output is one tensor.
    """

    output = "logits"

    def forward(self, features):
        outputs = self._call(features)
        return outputs if isinstance(outputs, dict) else {self.output: outputs}

    def _make_tokenizer(self, model, tokenizer):
        self._preprocessor = preprocessor_for(model, tokenizer, self._settings)
        self._preprocessor.check_size = self._check_tokens
        # A shared tokenizer would make the export store all functions that were
        # traced with it.
        self._preprocessor.graph_tokenizer = GraphTokenizer(tokenizer)
        return self._preprocessor.graph_tokenizer

    def _make_forward_pass(self):
        pad_side = self._preprocessor.pad_side
        fillers = {
            **self._preprocessor.fillers,
            "padding_mask": 0,
            "answer_mask": 0,
        }
        return ForwardPass(self._settings, fillers, pad_side)

    def _outputs(self, features, minimum=0, are_windows=False):
        """Compute the model's outputs for a batch of features.

        Args:
            features: dict of int32 [R, T] or [R].
            minimum: int, minimum number of tokens that the model needs.
            are_windows: see `_run`.

        Returns:
            tensor, or dict of tensors, whose first axis is R.
        """
        outputs = self._run(
            self.forward, features, minimum=minimum, are_windows=are_windows
        )
        return outputs.get(self.output, outputs)

    def _call(self, features):
        return self._model(features, training=False)


class _Words:
    """Source of words for example texts with a limited number of tokens."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        pieces = map(tokenizer.id_to_piece, range(tokenizer.vocabulary_size))
        words = (p[1:] for p in pieces if p[:1] == BLANK and p[1:].isalpha())
        self._word = next((w for w in words if self._count(w) == 1), "a")

    def _count(self, word):
        """Count the tokens that one more copy of a word adds to a text."""
        twice = self._tokenizer.encode(f"{word} {word} {word}")
        return len(twice) - len(self._tokenizer.encode(f"{word} {word}"))

    def words(self, num_tokens):
        """Make a list of words with at most `num_tokens` tokens in total."""
        return [self._word] * (num_tokens // max(1, self._count(self._word)))
