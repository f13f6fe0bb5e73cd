"""Continuing, scoring and filling in texts with a pretrained model."""

from collections.abc import Callable

from xlnet_tf.generation.methods import answers
from xlnet_tf.generation.methods import check_can_read
from xlnet_tf.generation.methods import generate_texts
from xlnet_tf.generation.methods import texts_of


class GeneratingModel:
    """Mixin of an `XLNetPretrainer` with `generate`, `score` and `fill`.

    All take raw strings. They need the TensorFlow backend, and a preprocessor
    for its tokenizer.
    """

    objectives: list

    def generate(
        self, inputs: str | list[str], strip_prompt: bool = False, **settings
    ) -> str | list:
        """Continue texts, token by token.

        Keys and values of earlier tokens are kept, so that a new token costs
        one row of each layer. `Objective.next_token` is the row that predicts
        it. The first call compiles, and so does a call with other settings.

        Args:
            inputs: str, or list of str: prompts.
            strip_prompt: bool, whether to return only the new text.
            **settings: of `xlnet_tf.generation.settings.GenerationSettings`,
                such as `max_new_tokens`, `temperature` or `num_beams`.

        Returns:
            str for a str, list of str for a list; with `num_sequences` above 1
            lists of str instead. For an unreadable prompt in a list None, with
            a warning that gives the reason.

        Raises:
            ValueError: if the model has no tokenizer, its objective cannot
                generate, settings do not fit, or the only prompt is unreadable.
            NotImplementedError: if the backend is neither TensorFlow nor JAX.

        Example:

        ```python
        model = xlnet_tf.load("runs/demo/model")
        model.generate("The value of the", max_new_tokens=8)
        ```
        """
        generator = self.text_generator(**settings)
        return generate_texts(generator, inputs, keeps_prompt=not strip_prompt)

    def text_generator(self, **settings):
        """The TextGenerator behind `generate`, with more results than texts.

        Args:
            **settings: see `generate`.

        Returns:
            TextGenerator.

        Raises:
            ValueError: as from `generate`.
        """
        tokenizer = self._tokenizer("generate")
        from xlnet_tf.generation.generator import TextGenerator
        from xlnet_tf.generation.settings import GenerationSettings

        return TextGenerator(self, tokenizer, GenerationSettings.of(settings))

    def score(
        self,
        inputs: str | list[str],
        order: str | Callable | list = "forward",
        num_orders: int = 1,
        seed: int = 0,
        spans: list | None = None,
        batch_size: int = 8,
    ):
        """Joint log-probabilities of texts, with the tokens in a given order.

        A model of permutations or pseudo masks predicts each target from the
        given tokens and from the targets before it in the order, all in one
        forward pass. A causal model supports only the order "forward" and skips
        the first token. A masked model supports only "independent".

        Args:
            inputs: str, or list of N str.
            order: "forward" (default), "backward", "random", "independent"
                (each target by itself), a function of the number of targets
                that returns the step of each, or a list of these.
            num_orders: int, random orders to average over. Default 1.
            seed: int, of random orders. Default 0.
            spans: list of (begin, end), the targets in characters; all other
                text is given: infilling. For a list of texts, one such list for
                each. Default None: every token is a target.
            batch_size: int, rows at a time. Default 8.

        Returns:
            `xlnet_tf.generation.scoring.TextScore` for a str, list of N for a
            list.

        Raises:
            ValueError: if a text or an order does not fit.
            NotImplementedError: if the backend is neither TensorFlow nor JAX.

        Example:

        ```python
        model = xlnet_tf.load("runs/demo/model")
        model.score("The value of the tensor.", "random", 4).perplexity
        ```
        """
        tokenizer = self._tokenizer("score")
        from xlnet_tf.generation.generator import kept
        from xlnet_tf.generation.scoring import Scorer
        from xlnet_tf.generation.scoring import make_orders

        _check_positive(batch_size=batch_size)
        scorer = kept(Scorer, self, tokenizer)
        orders = make_orders(self.objectives[0], order, num_orders, seed)
        is_single = isinstance(inputs, str)
        texts = texts_of(inputs)
        if is_single and spans is not None:
            spans = [spans]
        if spans is not None and len(spans) != len(texts):
            raise ValueError(
                "`spans` must have a list for each text. Received: "
                f"{len(spans)} for {len(texts)} texts."
            )
        scores = scorer.score(texts, orders, spans, batch_size)
        return scores[0] if is_single else scores

    def fill(
        self,
        inputs: str | list[str],
        num_beams: int = 8,
        num_fillings: int = 1,
        max_blank_tokens: int = 8,
    ):
        """Fill in the blanks of texts, all blanks of a text together.

        A beam is a text with some of its blanks filled in. Each step fills in
        one more token, in any blank, given all tokens so far, and keeps the
        likeliest texts: a search over tokens and over their orders.

        Args:
            inputs: str, or list of str, with `<mask>` for one token,
                `<mask:3>` for three, `<mask:1-4>` for one to four. Fillings of
                several lengths are compared by the mean per token.
            num_beams: int. Default 8.
            num_fillings: int, for each text, best first. Default 1.
            max_blank_tokens: int, most tokens of a blank. Default 8.

        Returns:
            `xlnet_tf.generation.filling.Filling` for a str, list for a list;
            with `num_fillings` above 1 lists instead. For a text in a list that
            cannot be filled in None, with a warning that gives the reason.

        Raises:
            ValueError: if the model does not see the text after a blank, or the
                only text cannot be filled in.
            NotImplementedError: if the backend is neither TensorFlow nor JAX.

        Example:

        ```python
        model = xlnet_tf.load("runs/demo/model")
        model.fill("The <mask:1-2> of the <mask> is returned.").text
        ```
        """
        tokenizer = self._tokenizer("fill")
        from xlnet_tf.generation.filling import Filler
        from xlnet_tf.generation.generator import kept

        filler = kept(Filler, self, tokenizer)
        is_single = isinstance(inputs, str)
        _check_positive(num_beams=num_beams, num_fillings=num_fillings)
        num_beams = max(num_beams, num_fillings)
        results = []
        for text in texts_of(inputs):
            try:
                found = filler.fill(text, num_beams, max_blank_tokens)
            except ValueError as error:
                results.append(error)
                continue
            one = num_fillings == 1
            results.append(found[0] if one else found[:num_fillings])
        return answers(results, is_single)

    def _tokenizer(self, method):
        check_can_read(self, method)
        return self.preprocessor.tokenizer


def _check_positive(**values):
    for name, value in values.items():
        if value < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: {name}={value}."
            )
