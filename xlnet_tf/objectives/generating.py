"""Methods of a pretrained model that continue, score and fill in texts."""

from collections.abc import Callable

from xlnet_tf.generation.methods import answers
from xlnet_tf.generation.methods import check_can_read
from xlnet_tf.generation.methods import generate_texts
from xlnet_tf.generation.methods import texts_of


class GeneratingModel:
    """Mixin of `XLNetPretrainer` with the methods `generate`, `score`, `fill`.

    The inputs of these methods are raw strings, so the model needs a
    preprocessor with a tokenizer.
    """

    objectives: list

    def generate(
        self, inputs: str | list[str], strip_prompt: bool = False, **settings
    ) -> str | list:
        """Continue texts, token by token.

        The keys and values of earlier tokens are kept, so that each layer
        computes only one or two rows for a new token. `Objective.next_token`
        names the row that predicts the next token. The first call compiles the
        model. The first call with other settings compiles the model again.

        Args:
            inputs: str or list of str, the prompts.
            strip_prompt: bool, whether to return only the new text. Default
                False.
            **settings: fields of
                `xlnet_tf.generation.settings.GenerationSettings`, such as
                `max_new_tokens`, `temperature` or `num_beams`.

        Returns:
            str if `inputs` is a str, else list of str. If `num_sequences` is
            above 1, each str is replaced by a list of str. If a prompt in a
            list is empty or too long, its entry is None, and a warning gives
            the reason.

        Raises:
            ValueError: if the model has no tokenizer, if its objective cannot
                generate, if settings contradict each other or the model, or if
                `inputs` is a str that is empty or too long.
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
        """Make a TextGenerator, which returns each text as a GeneratedText.

        Args:
            **settings: see `generate`.

        Returns:
            TextGenerator.

        Raises:
            ValueError: see `generate`.
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
        """Compute the log-probabilities of texts, token by token in an order.

        Targets are the tokens to score, see `spans`. A model trained with
        permutations or pseudo masks predicts each target from all tokens that
        are not targets, and from the targets before it in the order. One
        forward pass predicts all targets. A causal model supports only the
        order "forward" and does not predict the first token. A masked model
        supports only the order "independent".

        Args:
            inputs: str or list of str, the texts.
            order: order of the targets: "forward" (default), "backward",
                "random", or "independent", which predicts each target without
                the other targets. The order may also be a list with the step of
                each target, or a function. The function gets the number of
                targets and returns such a list.
            num_orders: int, number of random orders to average over. Default 1.
            seed: int, seed of random orders. Default 0.
            spans: list of (begin, end), ranges of characters. A token is a
                target if the token overlaps a range. All other tokens are
                context. If `inputs` is a list, `spans` has a list of ranges for
                each text. None (default): every token is a target.
            batch_size: int, number of rows computed at a time. Default 8.

        Returns:
            `xlnet_tf.generation.scoring.TextScore` if `inputs` is a str, else a
            list with a TextScore for each text.

        Raises:
            ValueError: if a text is too long or has no target, if a span is
                outside its text, or if the order is invalid for the model.
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

        The method is a beam search over tokens and over the order in which the
        tokens are filled in. A beam is a text with some of its blanks filled
        in. Each step fills in one more token of any blank, given all tokens
        filled in so far, and keeps the likeliest texts.

        Args:
            inputs: str or list of str, the texts. In a text, `<mask>` is a
                blank of one token, `<mask:3>` a blank of three tokens, and
                `<mask:1-4>` a blank of one to four tokens. Fillings of several
                lengths are compared by their mean log-probability per token.
            num_beams: int, number of beams. Default 8.
            num_fillings: int, number of fillings to return for each text, best
                first. Default 1.
            max_blank_tokens: int, largest number of tokens of a blank. Default
                8.

        Returns:
            `xlnet_tf.generation.filling.Filling` if `inputs` is a str, else a
            list with a Filling for each text. If `num_fillings` is above 1,
            each Filling is replaced by a list of Filling. If a text in a list
            cannot be filled in, its entry is None, and a warning gives the
            reason.

        Raises:
            ValueError: if the model cannot attend to the text after a blank, or
                if `inputs` is a str that cannot be filled in.
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
