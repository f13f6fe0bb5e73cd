"""Base of all preprocessors: a tokenizer and settings.

A preprocessor runs eagerly and inside `tf.data.Dataset.map`. It needs
TensorFlow Text and SentencePiece, imported on first use.

Shapes: B batch, N texts, T tokens.
"""

import base64
import math
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from xlnet_tf.preprocessing.files import PreprocessorPreset

# Tables are padded to a multiple of 64 or 128, plus a few added tokens.
_MOST_UNUSED_TOKENS = 256


class Preprocessor(PreprocessorPreset):
    """Raw strings to features; base of the preprocessors of the tasks.

    A subclass defines `tensors`, `features` and `encode`. It may override
    `call` to change labels too.

    Args:
        tokenizer: data_pipeline Tokenizer.
        sequence_length: int, T, [SEP] and [CLS] included. Default 512.
        truncate: str, the segment of a pair that is truncated at its end:
            "longest_first" (default, as released), "only_first" or
            "only_second".
        pad_to_longest: bool, whether a batch is as wide as its longest
            sequence rather than `sequence_length`. Faster without XLA.
            Default False.
        layout: str, the model's `config.layout`: "xlnet" (default), [CLS] ends
            a sequence; or "bert", [CLS] begins a sequence, padded on the right.

    Call arguments:
        x: raw input of a batch, or of a single example.
        y: labels, or None.
        sample_weight: weights, or None.

    Returns:
        features, or tuples with `y` and `sample_weight` if these are given.

    Raises:
        TypeError: if the tokenizer is not a `data_pipeline.Tokenizer`.
        ValueError: if a setting is out of range.
    """

    usual_pad_side = "left"
    labels_are_strings = False
    # Rank of the strings of one example; a batch has one more axis.
    string_rank = 0
    # Function that refuses too many sequences before they are made, see
    # `data_pipeline.features.packing.checked_size`; set by exports.
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
        """str, "xlnet" or "bert"."""
        return self._layout.name

    @property
    def pad_side(self):
        """The padded side of sequences: "left" or "right"."""
        return self._layout.pad_side(self.usual_pad_side)

    @property
    def fillers(self):
        """dict of a feature's name to its value in padding."""
        return self._layout.fillers(self.pad_side)

    @property
    def text_begin(self):
        """int, the position of a sequence's first piece, if none is padding."""
        return self._layout.text_begin

    @property
    def sequence_length(self):
        """int, T. Data sets mapped before a change keep the old length."""
        return self._sequence_length

    @sequence_length.setter
    def sequence_length(self, value):
        self.check_length(value)
        self._sequence_length = value

    def check_length(self, value):
        """Refuse a `sequence_length` that does not fit the other settings.

        Raises:
            ValueError: if this or another setting is out of range.
        """
        from data_pipeline.features.packing import check_packing

        check_packing(value, self.truncate, self._num_symbols)

    def __call__(self, x, y=None, sample_weight=None):
        return self.call(x, y, sample_weight)

    def call(self, x, y=None, sample_weight=None):
        """See the class."""
        features = self.as_batch(self.features, self.tensors(x))
        return keras.utils.pack_x_y_sample_weight(features, y, sample_weight)

    def tensors(self, x):
        """Convert raw input to tensors, the parts of an example by name.

        Args:
            x: strings in lists, arrays or tensors.

        Returns:
            dict of str to string tensor, ragged or not.

        Raises:
            TypeError: if a part does not consist of strings.
            ValueError: if parts are missing or unknown.
        """
        raise NotImplementedError

    def features(self, x):
        """Features of a batch.

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
        """Rows of features and labels of examples, for fine-tuning.

        It reads texts with the same functions as a call.

        Args:
            examples: list of examples of `data_pipeline.tasks.examples`.
            labels: sequence of str, the classes or tags, or None.
            training: bool, whether the rows are for training; otherwise every
                example gets a prediction. Default False.
            progress: bool, whether to draw a bar. Default False.

        Returns:
            data_pipeline.features.batches.EncodedExamples.

        Raises:
            ValueError: if there are no examples, or one does not fit.
        """
        raise NotImplementedError

    def is_single(self, x):
        """Whether tensors hold one example rather than a batch."""
        return next(iter(x.values())).shape.rank == self.string_rank

    def as_batch(self, function, x, *others):
        """Apply a function of batches; one example becomes a batch of one.

        Args:
            function: callable.
            x: dict of tensors, see `tensors`.
            *others: other arguments of the batch or the example.

        Returns:
            the result of the function; for one example its first row.
        """
        if self.is_single(x):
            return _first_row(function(*add_axis((x, *others))))
        return function(x, *others)

    def tokenize(self, texts):
        """Ids of texts, see `Tokenizer.encode`.

        Args:
            texts: string tensor [N]; equal ones are tokenized once.

        Returns:
            int32 ragged tensor [N, (T)].
        """
        import tensorflow as tf

        texts = tf.convert_to_tensor(texts)
        with tf.device("CPU:0"):  # GPUs hold no strings
            distinct, numbers = tf.unique(texts)
        ids = _unconverted(self.graph_tokenizer)(distinct)
        return tf.gather(ids, numbers)

    @property
    def graph_tokenizer(self):
        """The tokenizer as TensorFlow ops; by default a shared function."""
        if self._graph_tokenizer is not None:
            return self._graph_tokenizer
        from data_pipeline.tokenization.graph import graph_of

        return graph_of(self.tokenizer)

    @graph_tokenizer.setter
    def graph_tokenizer(self, value):
        self._graph_tokenizer = value

    def pack(self, first, second=None, truncate=None, check_size=None):
        """Padded sequences of ragged ids; see `features.packing.pack`."""
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
        """Constructor arguments without the tokenizer: dict of JSON values."""
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
        """The setting `layout`, dict; empty for the default."""
        return {} if self.layout == "xlnet" else {"layout": self.layout}

    def with_settings(self, **settings):
        """A copy with other settings.

        Args:
            **settings: some of the settings in `settings`.

        Returns:
            A preprocessor of this class.

        Raises:
            ValueError: if it has no such setting, or one is out of range.
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
    """Most tokens of a model with this config, int or infinity."""
    return getattr(config, "max_positions", math.inf)


def check_positions(config, sequence_length):
    """Refuse sequences of more tokens than a model has positions.

    Raises:
        ValueError: if a sequence is longer.
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

    A model may have more: added tokens, and padding rows of its table. They are
    never predicted. Very many cause a warning.

    Args:
        num_pieces: int, pieces of the tokenizer.
        num_tokens: int, V of the model.
        advice: str, advice without its full stop.

    Raises:
        ValueError: if the tokenizer has more pieces.
    """
    text = (
        f"the tokenizer has {num_pieces:,} pieces and the model {num_tokens:,} "
        f"tokens. {advice}"
    )
    if num_pieces > num_tokens:
        raise ValueError(f"{text}.")
    if num_tokens - num_pieces > _MOST_UNUSED_TOKENS:
        warnings.warn(f"{text}, if this is another.", stacklevel=3)


def _find_layout(name):
    from data_pipeline.tokenization.symbols import find_layout

    return find_layout(name)


def _unconverted(function):
    """Exclude a function from AutoGraph, which saves seconds."""
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def add_axis(values):
    """Tensors of one example, or a dict or tuple of them -> a batch of one."""
    import tensorflow as tf

    return _map(lambda tensor: tf.expand_dims(tensor, 0), values)


def _first_row(values):
    """Tensors of a batch, or a dict or tuple of them -> its first example."""
    return _map(lambda tensor: tensor[0], values)


def _map(function, values):
    if isinstance(values, dict):
        return {name: _map(function, part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_map(function, part) for part in values)
    return None if values is None else function(values)
