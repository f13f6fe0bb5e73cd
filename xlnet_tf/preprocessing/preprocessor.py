"""Base class of all preprocessors: a tokenizer with settings.

A preprocessor runs eagerly and inside `tf.data.Dataset.map`. TensorFlow Text
and SentencePiece are required, and imported on first use.

Shapes: B batch, N texts, T tokens. Axes in parentheses are ragged.
"""

import base64
import math
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from xlnet_tf.preprocessing.files import PreprocessorPreset

# Number of unused tokens that needs no warning: embedding tables are padded to
# a multiple of 64 or 128, and may have a few added tokens.
_MOST_UNUSED_TOKENS = 256


class Preprocessor(PreprocessorPreset):
    """Converter of raw strings to features; base of all preprocessors.

    A subclass defines `tensors`, `features` and `encode`. A subclass that
    changes labels also overrides `call`.

    Args:
        tokenizer: data_pipeline Tokenizer.
        sequence_length: int, T, maximum number of tokens, including [SEP] and
            [CLS]. Default 512.
        truncate: str, the segment of a pair that is truncated at the end:
            "longest_first" (default, as in the released code), "only_first" or
            "only_second".
        pad_to_longest: bool, whether batches are padded to their longest
            sequence instead of `sequence_length`. True is faster without XLA.
            Default False.
        layout: str, the model's `config.layout`. "xlnet" (default): [CLS] is
            the last token. "bert": [CLS] is the first token, and padding is on
            the right.

    Call arguments:
        x: raw input of a batch, or of a single example.
        y: labels, or None.
        sample_weight: weights, or None.

    Returns:
        features; if `y` or `sample_weight` is given, a tuple of features, `y`
        and `sample_weight`.

    Raises:
        TypeError: if the tokenizer is not a `data_pipeline.Tokenizer`.
        ValueError: if a setting is out of range.
    """

    usual_pad_side = "left"
    labels_are_strings = False
    # Number of axes of one example's strings; a batch has one more axis.
    string_rank = 0
    # Function of exports that refuses too many sequences before memory is
    # allocated, see `data_pipeline.features.packing.checked_size`.
    check_size = None
    _num_symbols = 3

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 512,
        truncate: str = "longest_first",
        pad_to_longest: bool = False,
        layout: str = "xlnet",
    ):
        if not hasattr(tokenizer, "model_proto"):
            raise TypeError(
                "`tokenizer` must be a data_pipeline.Tokenizer. Received: "
                f"tokenizer={tokenizer!r}."
            )
        self.tokenizer = tokenizer
        self._graph_tokenizer = None
        self._layout = _find_layout(layout)
        self.truncate = truncate
        self.pad_to_longest = pad_to_longest
        self.sequence_length = sequence_length

    @property
    def layout(self):
        """Layout of sequences, "xlnet" or "bert"."""
        return self._layout.name

    @property
    def pad_side(self):
        """Side of the padding in sequences, "left" or "right"."""
        return self._layout.pad_side(self.usual_pad_side)

    @property
    def fillers(self):
        """Dict of feature names to the ints that fill padding."""
        return self._layout.fillers(self.pad_side)

    @property
    def text_begin(self):
        """Position of the first piece in a sequence without padding."""
        return self._layout.text_begin

    @property
    def sequence_length(self):
        """Maximum number of tokens of a sequence, T.

        If the value is changed, data sets that are already mapped with the
        preprocessor keep the old value.
        """
        return self._sequence_length

    @sequence_length.setter
    def sequence_length(self, value):
        self.check_length(value)
        self._sequence_length = value

    def check_length(self, value):
        """Refuse an invalid `sequence_length`.

        Raises:
            ValueError: if `sequence_length` is invalid or contradicts another
                setting.
        """
        from data_pipeline.features.packing import check_packing

        check_packing(value, self.truncate, self._num_symbols)

    def __call__(self, x, y=None, sample_weight=None):
        return self.call(x, y, sample_weight)

    def call(self, x, y=None, sample_weight=None):
        """Convert raw input; see the class."""
        features = self.as_batch(self.features, self.tensors(x))
        return keras.utils.pack_x_y_sample_weight(features, y, sample_weight)

    def tensors(self, x):
        """Convert raw input to named string tensors.

        Args:
            x: strings in lists, arrays or tensors.

        Returns:
            dict of string tensors, which may be ragged. The keys are names of
            parts, such as "text".

        Raises:
            TypeError: if a part does not consist of strings.
            ValueError: if parts are missing or unknown.
        """
        raise NotImplementedError

    def features(self, x):
        """Compute the features of a batch.

        Args:
            x: dict of tensors, see `tensors`.

        Returns:
            dict of tensors with first axis B.
        """
        raise NotImplementedError

    def encode(
        self,
        examples: list,
        labels: Sequence[str] | None = None,
        training: bool = False,
        progress: bool = False,
    ):
        """Encode examples as rows of features and labels, for fine-tuning.

        Usually an example becomes one row. An example that is read in several
        windows becomes several rows. For ranking, a row has several examples:
        the documents of a query. `encode` encodes texts with the same functions
        as a call of the preprocessor.

        Args:
            examples: list of examples of `data_pipeline.tasks.examples`.
            labels: sequence of str, names of the classes or tags, or None.
            training: bool, whether the rows are for training. If False, every
                example has a row and so gets a prediction. Default False.
            progress: bool, whether to show a progress bar. Default False.

        Returns:
            data_pipeline.features.batches.EncodedExamples.

        Raises:
            ValueError: if `examples` is empty, or an example is invalid.
        """
        raise NotImplementedError

    def is_single(self, x):
        """Whether tensors contain one example instead of a batch."""
        return next(iter(x.values())).shape.rank == self.string_rank

    def as_batch(self, function, x, *others):
        """Apply a function of batches to a batch or to one example.

        Args:
            function: callable.
            x: dict of tensors, see `tensors`.
            *others: further arguments of `function`: tensors, dicts of tensors
                or None.

        Returns:
            the result of the function; for one example, the result without the
            batch axis.
        """
        if self.is_single(x):
            return _first_row(function(*add_axis((x, *others))))
        return function(x, *others)

    def tokenize(self, texts):
        """Encode texts as ids, see `Tokenizer.encode`.

        Args:
            texts: string tensor [N]; equal texts are tokenized once.

        Returns:
            int32 ragged tensor [N, (T)].
        """
        import tensorflow as tf

        texts = tf.convert_to_tensor(texts)
        with tf.device("CPU:0"):  # GPUs cannot store strings
            distinct, numbers = tf.unique(texts)
        ids = _unconverted(self.graph_tokenizer)(distinct)
        return tf.gather(ids, numbers)

    @property
    def graph_tokenizer(self):
        """Tokenizer in TensorFlow ops, a GraphTokenizer.

        By default, all preprocessors with the same Tokenizer share one
        GraphTokenizer.
        """
        if self._graph_tokenizer is not None:
            return self._graph_tokenizer
        from data_pipeline.tokenization.graph import graph_of

        return graph_of(self.tokenizer)

    @graph_tokenizer.setter
    def graph_tokenizer(self, value):
        self._graph_tokenizer = value

    def pack(self, first, second=None, truncate=None, check_size=None):
        """Pack ragged ids into sequences; see `features.packing.pack`."""
        from data_pipeline.features.packing import pack

        return _unconverted(pack)(
            first,
            second,
            self.sequence_length,
            truncate or self.truncate,
            self.pad_side,
            self.pad_to_longest,
            check_size or self.check_size,
            self.layout,
        )

    def settings(self):
        """Make a dict of the constructor arguments except the tokenizer."""
        return {
            "sequence_length": self.sequence_length,
            "truncate": self.truncate,
            "pad_to_longest": self.pad_to_longest,
            **self.layout_setting(),
        }

    def __repr__(self):
        values = ", ".join(f"{k}={v!r}" for k, v in self.settings().items())
        return f"<{type(self).__name__}: {values}, {self.tokenizer!r}>"

    def layout_setting(self):
        """Dict with the setting `layout`; empty for the default layout."""
        return {} if self.layout == "xlnet" else {"layout": self.layout}

    def with_settings(self, **settings):
        """Copy the preprocessor with other settings.

        Args:
            **settings: new values of settings; for the names of settings see
                the method `settings`.

        Returns:
            A preprocessor of this class.

        Raises:
            ValueError: if a setting is unknown or out of range.
        """
        own_settings = {**self.settings(), "layout": self.layout}
        unknown = ", ".join(sorted(set(settings) - set(own_settings)))
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no setting {unknown}; it has "
                f"{', '.join(own_settings)}."
            )
        return self.of_settings({**own_settings, **settings}, self.tokenizer)

    def get_config(self):
        model_proto = base64.b64encode(self.tokenizer.model_proto)
        tokenizer = {
            "model_proto": model_proto.decode("ascii"),
            "lowercase": self.tokenizer.lowercase,
        }
        return {"tokenizer": tokenizer, **self.settings()}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if isinstance(config["tokenizer"], dict):
            from data_pipeline.tokenization.tokenizer import Tokenizer

            config["tokenizer"] = Tokenizer.from_model_proto(
                base64.b64decode(config["tokenizer"]["model_proto"]),
                config["tokenizer"]["lowercase"],
            )
        return cls(**config)


def most_positions(config):
    """Find the maximum sequence length of a model, an int or infinity."""
    return getattr(config, "max_positions", math.inf)


def check_positions(config, sequence_length):
    """Refuse sequences with more tokens than the model has positions.

    Raises:
        ValueError: if `sequence_length` is larger than the number of positions.
    """
    if sequence_length > most_positions(config):
        raise ValueError(
            "`sequence_length` must be at most the positions of the model, "
            f"{config.max_positions}. Received: "
            f"sequence_length={sequence_length}."
        )


def check_vocabulary(
    num_pieces,
    num_tokens,
    advice="Give the tokenizer that the model was trained with",
):
    """Refuse a tokenizer with more pieces than the model has tokens.

    A model may have more tokens than the tokenizer has pieces: added tokens,
    and padding rows of the embedding table. These extra tokens are never
    predicted. A warning is issued if there are very many extra tokens.

    Args:
        num_pieces: int, number of the tokenizer's pieces.
        num_tokens: int, V, the model's vocabulary size.
        advice: str, advice for the message, without a full stop.

    Raises:
        ValueError: if the tokenizer has more pieces than the model has tokens.
    """
    text = (
        f"the tokenizer has {num_pieces:,} pieces and the model {num_tokens:,} "
        f"tokens. {advice}"
    )
    if num_pieces > num_tokens:
        raise ValueError(f"{text}.")
    if num_tokens - num_pieces > _MOST_UNUSED_TOKENS:
        warnings.warn(f"{text}, if this is another tokenizer.", stacklevel=3)


def _find_layout(name):
    from data_pipeline.tokenization.symbols import find_layout

    return find_layout(name)


def _unconverted(function):
    """Exclude a function from AutoGraph, because conversion takes seconds."""
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def add_axis(values):
    """Add a batch axis to the tensors of one example, in a dict or tuple."""
    import tensorflow as tf

    return _map(lambda tensor: tf.expand_dims(tensor, 0), values)


def _first_row(values):
    """Take the first example from the tensors of a batch."""
    return _map(lambda tensor: tensor[0], values)


def _map(function, values):
    if isinstance(values, dict):
        return {name: _map(function, part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_map(function, part) for part in values)
    return None if values is None else function(values)
