"""Arrangements of text for the stages of a recipe (build_preset.py).

An arrangement is a function with two arguments: documents (an iterable of lists
of sentences, str) and a random.Random. Most arrangements yield lines of text in
the format "sentences". The arrangements in `LABELLED` yield lines of labelled
examples.
"""

import collections
import math
import re

# Words with the same first six letters count as equal, whatever their endings.
_STEM = re.compile(r"\w{1,6}")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]")
# Words that may be between the words of a name.
_PARTICLES = ("of", "de", "van", "von")


def repeated(documents, generator):
    """Yield each sentence, followed by a copy without a quarter of the words.

    Only sentences of 5 to 40 words are copied. With copies, a small model
    learns to attend to earlier tokens within millions of training tokens.
    Without copies, the model needs far more training tokens.
    """
    for document in documents:
        for sentence in document:
            yield sentence
            words = sentence.split()
            if 5 <= len(words) <= 40:
                kept = [word for word in words if generator.random() < 0.75]
                if kept:
                    yield " ".join(kept)
        yield ""


def shuffled(documents, generator):
    """Yield groups of ten consecutive sentences, in random order of the groups.

    In random order, the topic of earlier batches does not show whether segment
    B follows segment A.
    """
    groups = [
        document[begin : begin + 10]
        for document in documents
        for begin in range(0, len(document), 10)
    ]
    generator.shuffle(groups)
    for group in groups:
        yield from group
        yield ""


def as_written(documents, generator):
    """Yield all sentences unchanged."""
    for document in documents:
        yield from document
        yield ""


def versions(documents, generator):
    """Yield groups of ten sentences, and shortened copies of some sentences.

    The groups are in random order. If a group has sentences of 8 to 40 words,
    eight versions of one of these sentences follow the group. A version lacks
    a tenth to a half of the words. If segments A and B are such versions and B
    follows A, the segments share words. So the model learns to compare the
    words of A and B, as in tasks that compare sentences.
    """
    group = []
    for line in shuffled(documents, generator):
        yield line
        group.append(line)
        if line:
            continue
        fitting = [x for x in group if 8 <= len(x.split()) <= 40]
        if fitting:
            words = generator.choice(fitting).split()
            for _ in range(8):
                rate = generator.uniform(0.1, 0.5)
                kept = [word for word in words if generator.random() >= rate]
                yield " ".join(kept or words)
            yield ""
        group = []


def graded(documents, generator):
    """Yield pairs of sentence parts, with similarity scores from 0 to 5.

    The parts of some pairs are unrelated, or come from consecutive sentences.
    Most pairs are a part and a version of this part, in which some words are
    removed or replaced by words of another sentence. The score is five times
    the cosine of the word counts, with larger weights for rare words (inverse
    document frequency).

    The lines are a table with three columns, separated by tabs: sentence1,
    sentence2, score.
    """
    documents = [[x.split() for x in document] for document in documents]
    sentences = [x for document in documents for x in document]
    cosine = _Cosine(sentences)
    yield "sentence1\tsentence2\tscore"
    for document in documents:
        for words, following in zip(document, document[1:], strict=False):
            if not 5 <= len(words) <= 45:
                continue
            a, other = _part(words, generator), generator.choice(sentences)
            kind = generator.random()
            if kind < 0.06:
                b = _part(other, generator)
            elif kind < 0.16:
                b = _part(following, generator)
            else:
                # Make a version of the same part, or of another part of the
                # sentence.
                origin = a if kind < 0.85 else _part(words, generator)
                b = _altered(origin, other, generator)
            if generator.random() < 0.5:
                a, b = b, a
            if a and b:
                score = 5 * cosine(a, b)
                yield f"{' '.join(a)}\t{' '.join(b)}\t{score:.3f}"


def _part(words, generator):
    """Draw 4 to 20 consecutive words from a sentence."""
    length = generator.randint(4, 20)
    begin = generator.randrange(max(1, len(words) - length + 1))
    return words[begin : begin + length]


def _altered(words, other, generator):
    """Remove some words, and replace or insert some words from `other`.

    Args:
        words, other: list of str.
        generator: random.Random.

    Returns:
        list of str, possibly empty.
    """
    replaced = 0.8 * generator.random()
    removed = replaced + (1 - replaced) * 0.5 * generator.random()
    altered = []
    for word in words:
        draw = generator.random()
        if draw < replaced:
            altered.append(generator.choice(other))
        elif draw >= removed:
            altered.append(word)
        if generator.random() < 0.3 * replaced:
            altered.append(generator.choice(other))
    if len(altered) > 3 and generator.random() < 0.3:
        turn = generator.randrange(1, len(altered))
        altered = altered[turn:] + altered[:turn]
    return altered


class _Cosine:
    """Cosine similarity of word stems, weighted by inverse document frequency.

    Args:
        sentences: list of list of str, sentences as words. The document
            frequencies are counted in these sentences.
    """

    def __init__(self, sentences):
        found = collections.Counter()
        for words in sentences:
            found.update(set(_stems(words)))
        total = len(sentences) + 1
        self._weights = {
            stem: math.log(total / (count + 1)) for stem, count in found.items()
        }

    def __call__(self, a, b):
        a, b = self._weighted(a), self._weighted(b)
        squares = [sum(x * x for x in side.values()) for side in (a, b)]
        shared = sum(value * b.get(stem, 0.0) for stem, value in a.items())
        return shared / math.sqrt(math.prod(squares)) if all(squares) else 0.0

    def _weighted(self, words):
        counts = collections.Counter(_stems(words))
        return {x: n * self._weights.get(x, 0.0) for x, n in counts.items()}


def named(documents, generator):
    """Yield sentences with tagged names, in various capitalizations.

    A name is a run of words that nearly always begin with a capital letter in
    the text. 40 % of the sentences stay unchanged. In all other sentences, the
    words are changed to small letters, to capitals or to a mixture, so that the
    model must find names by the words and the context. Pretraining that
    predicts capitals helps to find names in tweets
    (https://arxiv.org/abs/1912.07095).

    The lines are in CoNLL format: a token, a tab, and a tag (O, B-name or
    I-name).
    """
    sentences = [_TOKEN.findall(x) for document in documents for x in document]
    is_name = _names_of(sentences)
    generator.shuffle(sentences)
    for words in sentences:
        capitals = sum(word[0].isupper() for word in words)
        if not 5 <= len(words) <= 40 or capitals > 0.6 * len(words):
            continue
        tags = _tags(words, is_name)
        # Keep only half of the sentences without a name.
        if "B-name" in tags or generator.random() < 0.5:
            written = _with_other_capitals(words, generator)
            for word, tag in zip(written, tags, strict=True):
                yield f"{word}\t{tag}"
            yield ""


def _names_of(sentences):
    """Make a predicate of words: whether a word is part of a name.

    Args:
        sentences: list of list of str.
    """
    small, large = collections.Counter(), collections.Counter()
    for words in sentences:
        for word in words[1:]:
            counter = large if word[0].isupper() else small
            counter[word.lower()] += 1
    return lambda word: (
        word[0].isupper()
        and word.isalpha()
        and word != "I"
        and large[word.lower()] > 4 * small[word.lower()]
    )


def _tags(words, is_name):
    """Make a list of a sentence's tags: "O", "B-name" or "I-name" per word."""
    tags, inside = [], False
    for word, following in zip(words, [*words[1:], "."], strict=True):
        if not is_name(word):
            inside = inside and word in _PARTICLES and is_name(following)
            tags.append("I-name" if inside else "O")
        else:
            tags.append("I-name" if inside else "B-name")
            inside = True
    return tags


def _with_other_capitals(words, generator):
    """Keep the capitals, change all words alike, or each word at random."""
    forms = (str, str.lower, str.upper, str.capitalize)
    draw = generator.random()
    if draw >= 0.9:
        return [generator.choice(forms)(word) for word in words]
    form = forms[sum(draw >= x for x in (0.4, 0.7, 0.8))]
    return [form(word) for word in words]


def _stems(words):
    return [
        _STEM.match(part).group().lower()
        for word in words
        for part in _WORD.findall(word)
    ]


ARRANGEMENTS = {
    function.__name__: function
    for function in (repeated, shuffled, as_written, versions, graded, named)
}
# Arrangements for fine-tuning: the name of the file, and options of the
# command.
LABELLED = {
    "graded": (
        "text.tsv",
        ("--task", "regression")
        + ("--columns", "text=sentence1,text_pair=sentence2,label=score"),
    ),
    "named": ("text.conll", ("--task", "ner")),
}
