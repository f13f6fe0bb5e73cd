"""Division of examples into training and held-out examples.

Groups of related examples stay together: all questions about a text, all
documents of a query, and all copies of a text, pair or sentence. All questions
about an article of SQuAD also stay together. `hold_out` divides large articles
only if whole articles do not give about the requested share.
"""

import random
import warnings

from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample


def hold_out(examples, fraction, seed):
    """Divide examples into training and held-out examples.

    For texts with classes, the same share of every class is held out. The last
    training text (or pair) of a class is not held out. If this rule allows it,
    each class has at least one held-out example. If every text is the only text
    of a class, classes are ignored.

    A group is held out only if the held-out share then comes closer to the
    requested share. Articles of SQuAD stay whole if whole articles give 0.5 to
    1.5 times the requested number of held-out questions. Otherwise, articles
    with more questions than the requested number are divided into their
    paragraphs. A warning reports a held-out share below half or above twice the
    requested share. Up to two held-out examples per class are never reported as
    too many.

    Args:
        examples: list of examples of the same kind.
        fraction: float in (0, 1), share to hold out. At least one group is held
            out, and at least one group is kept for training.
        seed: int, seed of the choice. The same seed gives the same result.

    Returns:
        tuple of two lists, the training and the held-out examples, in the order
        of `examples`.

    Raises:
        ValueError: `fraction` is out of its range, or there is only one group.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` must be between 0 and 1. Received: "
            f"fraction={fraction}."
        )
    wanted = fraction * len(examples)
    groups = _grouped(examples, range(len(examples)), _group)
    chosen, classes = set(), [("",)] * len(examples)
    if all(map(_has_class, examples)):
        classes = [_classes(example) for example in examples]
        chosen = _choose(groups, classes, fraction, seed)
    if not chosen:
        classes = [("",)] * len(examples)
        chosen = _choose(groups, classes, fraction, seed)
    if abs(len(chosen) - wanted) > wanted / 2 and all(
        isinstance(example, QuestionExample) for example in examples
    ):
        large = [x for group in groups if len(group) > wanted for x in group]
        texts = _grouped(examples, large, lambda example: example.context)
        groups = [group for group in groups if len(group) <= wanted] + texts
        chosen = _choose(groups, classes, fraction, seed)
    if not chosen:
        raise ValueError(
            "nothing can be held out: the examples are of one group (one text, "
            f"article or query). Received: {len(examples)} examples. Give "
            "others to evaluate on: --eval-data FILE."
        )
    # One example of each class is held out, even if this exceeds the share.
    most = 2 * max(wanted, len(set().union(*classes)))
    if not wanted / 2 <= len(chosen) <= most:
        warnings.warn(
            f"{len(chosen)} of {len(examples)} examples are held out, a share "
            f"of {len(chosen) / len(examples):.2g} instead of {fraction:g}: "
            "those of one text, article or query stay together, and each class "
            "keeps one to train on; --eval-data FILE evaluates on others",
            stacklevel=3,
        )
    return (
        [one for index, one in enumerate(examples) if index not in chosen],
        [one for index, one in enumerate(examples) if index in chosen],
    )


def _grouped(examples, indices, key):
    """Make lists of indices whose examples have the same key."""
    groups = {}
    for index in indices:
        groups.setdefault(key(examples[index]), []).append(index)
    return list(groups.values())


def _choose(groups, classes, fraction, seed):
    """Choose whole groups to hold out, with the same share of every class.

    Args:
        groups: list of lists of indices of examples.
        classes: list of tuple of str, the classes of each example.
        fraction: float, share to hold out.
        seed: int, seed of the choice.

    Returns:
        set of int, indices of the examples to hold out.
    """
    order = list(groups)
    random.Random(seed).shuffle(order)
    with_class, left, counts, held = {}, {}, [], {}
    for group in order:
        class_counts = {}
        for index in group:
            for name in classes[index]:
                class_counts[name] = class_counts.get(name, 0) + 1
        counts.append(class_counts)
        for name, count in class_counts.items():
            with_class.setdefault(name, []).append(len(counts) - 1)
            left[name] = left.get(name, 0) + count
            held[name] = 0
    sizes, taken = dict(left), set()

    def take(place):
        """Hold out a group if every class then keeps a training example."""
        class_counts = counts[place]
        if place in taken or any(left[x] <= n for x, n in class_counts.items()):
            return
        taken.add(place)
        for name, count in class_counts.items():
            left[name] -= count
            held[name] += count

    def fits(place, name):
        """Whether a group with the class `name` suits its other classes, bool.

        A group suits a class if the group has only one example of the class, or
        if at most `fraction` of the class is then held out.
        """
        return all(
            x == name or n == 1 or held[x] + n <= fraction * sizes[x]
            for x, n in counts[place].items()
        )

    # Begin with rare classes, before larger classes use up their few groups.
    for name in sorted(sizes, key=lambda x: (sizes[x], x)):
        wanted = fraction * sizes[name]
        for place in with_class[name]:
            if held[name] + counts[place][name] <= wanted and fits(place, name):
                take(place)
        # Then add small groups while this brings the number closer to the
        # wanted number. Closeness means the difference, or the ratio if the
        # number is below half. The first group is always closer.
        for place in sorted(with_class[name], key=lambda x: len(order[x])):
            now, then = held[name], held[name] + counts[place][name]
            is_nearer = now + then <= 2 * wanted or (
                2 * now < wanted and now * then < wanted**2
            )
            if is_nearer and (not now or fits(place, name)):
                take(place)
    return {index for place in taken for index in order[place]}


def _has_class(example):
    return isinstance(example, TextExample) and isinstance(
        example.label, (str, tuple)
    )


def _classes(example):
    """Tuple of an example's classes; ("",) for an example without a class."""
    label = example.label
    return (label,) if isinstance(label, str) else label or ("",)


def _group(example):
    if isinstance(example, ChoiceExample):
        return example.context
    if isinstance(example, QuestionExample):
        return example.title or example.context
    if isinstance(example, RankingExample):
        return example.query_id
    if isinstance(example, TokensExample):
        return example.words
    if isinstance(example, PairExample):
        return example.source
    return example.text, example.text_pair
