"""The graphs of generation: reading prompts, adding tokens, beam search.

Shapes: B prompts, N rows, T tokens, S steps.
"""

import dataclasses
import weakref

import tensorflow as tf

from xlnet_tf.generation import sampling
from xlnet_tf.generation.beam_search import beam_search
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.symbols import Symbols

# model -> {(class, how the model computes, arguments): object}
_KEPT = weakref.WeakKeyDictionary()


def kept(cls, model, tokenizer, *arguments):
    """An object with compiled functions of a model, made once.

    Args:
        cls: class of (model, tokenizer, *arguments).
        model: XLNetPretrainer or XLNetSeq2Seq; it may be deleted while the
            object is kept.
        tokenizer: data_pipeline Tokenizer.
        *arguments: values that can be compared.

    Returns:
        object of the class, the same one for equal arguments.
    """
    of_model = _KEPT.setdefault(model, {})
    # A compiled function computes as the model did when it was traced.
    key = (cls, repr(model.computation()), id(tokenizer), *arguments)
    if key not in of_model:
        # Kept with its tokenizer, whose id no other then gets.
        made = cls(weakref.proxy(model), tokenizer, *arguments)
        of_model[key] = made, tokenizer
    return of_model[key][0]


class Programs:
    """Compiled functions of a model for some settings.

    Args:
        model: XLNetPretrainer or XLNetSeq2Seq.
        tokenizer: data_pipeline Tokenizer.
        settings: GenerationSettings, of `of_graph`.

    Attributes:
        decoder: Decoder.
        symbols: Symbols.

    Raises:
        ValueError: if the model cannot generate.
    """

    def __init__(self, model, tokenizer, settings):
        self.decoder = make_decoder(model)
        self.symbols = Symbols(tokenizer.vocabulary_size)
        self._settings = settings
        self.read, self.extend, self.search = (
            # Nothing here needs AutoGraph.
            tf.function(function, autograph=False, reduce_retracing=relaxes)
            for function, relaxes in (
                # The number of segments is fixed when it is traced.
                (self._read, settings.segment_length is None),
                (self._extend, True),
                (self._search, True),
            )
        )

    def _read(self, features):
        """The context of prompts, see `Decoder.read`."""
        settings = self._settings
        return self.decoder.read(
            features, settings.max_new_tokens, settings.segment_length
        )

    def _extend(self, context, state, uniforms, last_step):
        """The state after some steps, see `sampling.extend`."""
        return sampling.extend(
            *(self.decoder, context, state, uniforms),
            *(self._settings, self.symbols, last_step),
        )

    def _search(self, context, history):
        """Texts and scores, see `beam_search`."""
        settings = self._settings
        return beam_search(
            *(self.decoder, context, history),
            *(settings.max_new_tokens, settings, self.symbols),
        )


def of_graph(settings):
    """The settings, with defaults for those that do not affect a graph.

    Args:
        settings: GenerationSettings.

    Returns:
        GenerationSettings.
    """
    fields = {x.name: x.default for x in dataclasses.fields(settings)}
    names = ("stop", "seed", "max_prompt_tokens", "batch_size")
    return dataclasses.replace(settings, **{x: fields[x] for x in names})
