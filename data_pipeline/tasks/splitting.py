"""Training and held-out examples of one list of examples.

Groups are never split: all questions about a text (SQuAD: an article), all
documents of a query, all copies of a text, pair or sentence.
"""

import random

from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample


def hold_out(examples, fraction, seed, by_class=True):
    """Split examples into training and held-out examples.

    Of texts with classes the same share of every class is held out, and one
    example at least of a class that has two, unless these are copies of one
    text. A class keeps one example at least to train on.

    Args:
        examples: list of examples, all of one kind.
        fraction: float in (0, 1), share to hold out; at least one group is
            held out and one is kept for training.
        seed: int; the result is a function of it.
        by_class: bool, whether classes are looked at. Runs of version 0.1
            did not. Default True.

    Returns:
        tuple (train, held out) of lists, in the order of `examples`.

    Raises:
        ValueError: `fraction` is out of range, or there is only one group.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` must be between 0 and 1. Received: "
            f"fraction={fraction}."
        )
    groups = {}
    for index, example in enumerate(examples):
        groups.setdefault(_group(example), []).append(index)
    if len(groups) < 2:
        raise ValueError(
            "nothing can be held out: the examples are of one group (one text, "
            f"article or query). Received: {len(examples)} examples."
        )
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    chosen = set()
    if by_class and all(map(_has_class, examples)):
        classes = [_classes(example) for example in examples]
        chosen = _choose_by_class(order, classes, fraction)
    if not chosen:
        chosen = _choose(order, fraction * len(examples))
    return (
        [one for index, one in enumerate(examples) if index not in chosen],
        [one for index, one in enumerate(examples) if index in chosen],
    )


def _choose(order, wanted):
    """Indices of the examples of whole groups, about as many as wanted."""
    chosen = set()
    for group in order[:-1]:
        if chosen and len(chosen) + len(group) / 2 > wanted:
            break
        chosen.update(group)
    return chosen


def _choose_by_class(order, classes, fraction):
    """Indices of the examples of whole groups, a share of every class.

    Args:
        order: list of lists of indices, the groups.
        classes: list of the tuples of classes of each example.
        fraction: float, the share.
    """
    with_class, left, counts, held = {}, {}, [], {}
    for group in order:
        found = {}
        for index in group:
            for name in classes[index]:
                found[name] = found.get(name, 0) + 1
        counts.append(found)
        for name, count in found.items():
            with_class.setdefault(name, []).append(len(counts) - 1)
            left[name] = left.get(name, 0) + count
    sizes, taken = dict(left), set()

    def take(place):
        """Hold a group out, unless a class would have nothing to train on."""
        found = counts[place]
        if place in taken or any(left[x] <= n for x, n in found.items()):
            return
        taken.add(place)
        for name, count in found.items():
            left[name] -= count
            held[name] = held.get(name, 0) + count

    # Rare classes first: their few groups must not be used up.
    for name in sorted(sizes, key=lambda x: (sizes[x], x)):
        wanted = fraction * sizes[name]
        for place in with_class[name]:
            if held.get(name, 0) + counts[place][name] / 2 <= wanted:
                take(place)
        # The smallest groups first, because only one example is missing.
        for place in sorted(with_class[name], key=lambda x: counts[x][name]):
            if not held.get(name):
                take(place)
    return {index for place in taken for index in order[place]}


def _has_class(example):
    return isinstance(example, TextExample) and isinstance(
        example.label, (str, tuple)
    )


def _classes(example):
    """tuple of the classes of an example; one without any is a class too."""
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
