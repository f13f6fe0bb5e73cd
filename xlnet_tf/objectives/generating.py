"""Continuing, scoring and filling in texts by a pretrained model."""

from collections.abc import Callable

from xlnet_tf.generation.methods import answers
from xlnet_tf.generation.methods import check_can_read
from xlnet_tf.generation.methods import generate_texts
from xlnet_tf.generation.methods import texts_of


class GeneratingModel:
    """Mixin of an `XLNetPretrainer` with `generate`, `score` and `fill`.

    All take raw strings, and need the TensorFlow backend and a preprocessor,
    whose tokenizer they use.
    """

    objectives: list

    def generate(
        self, inputs: str | list[str], strip_prompt: bool = False, **settings
    ) -> str | list:
        """Continue texts, token by token.

        Keys and values of what was read are kept, so that a new token costs
        one row of each layer. See `Objective.next_token` for what predicts it.
        The first call compiles, as does one with other settings.

        Args:
            inputs: str, or list of str: prompts.
            strip_prompt: bool, whether to return what was generated alone.
            **settings: of `xlnet_tf.generation.settings.GenerationSettings`,
                such as `max_new_tokens`, `temperature` or `num_beams`.

        Returns:
            str for a str, list of str for a list; with `num_sequences` above 1
            lists of str in their places. None for a prompt of a list that
            cannot be read, of which a warning says why.

        Raises:
            ValueError: if the model has no tokenizer, its objective cannot
                generate, settings do not fit, or the only prompt cannot be
                read.
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
        """The TextGenerator that `generate` uses, for more than texts.

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
        """Joint log-probabilities of texts, their tokens taken in an order.

        A model of permutations or pseudo masks predicts each target from the
        tokens that are no targets and from the targets before it in the order,
        all in one forward pass. A causal model takes the order "forward" and
        leaves the first token out, a masked one "independent".

        Args:
            inputs: str, or list of N str.
            order: "forward" (default), "backward", "random", "independent"
                (each target by itself), a function of the number of targets
                that returns the step of each, or a list of these.
            num_orders: int, random orders to average over. Default 1.
            seed: int, of random orders. Default 0.
            spans: list of (begin, end), characters of the targets, all others
                being given: infilling; for a list a list of these for each
                text. Default None: every token is a target.
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
        one more token, of any blank and given all that are there, and keeps
        the likeliest texts: a search over tokens and over their orders.

        Args:
            inputs: str, or list of str, with `<mask>` for one token,
                `<mask:3>` for three, `<mask:1-4>` for one to four. Fillings of
                several lengths are compared by the mean of a token.
            num_beams: int. Default 8.
            num_fillings: int, for each text, best first. Default 1.
            max_blank_tokens: int, tokens of a blank at most. Default 8.

        Returns:
            `xlnet_tf.generation.filling.Filling` for a str, list for a list;
            with `num_fillings` above 1 lists in their places. None for a text
            of a list that cannot be filled in, of which a warning says why.

        Raises:
            ValueError: if the model cannot see behind a blank, or the only
                text cannot be filled in.
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
