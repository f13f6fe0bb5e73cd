"""Reader of tagged words in CoNLL format.

Each line has a word and its tag. A blank line ends a sentence.
"""

import collections
import itertools
import operator
import re
import warnings

from data_pipeline.tasks.counted import MARKS_DROPPED
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.text.lines import BYTE_ORDER_MARK

_BLANKS = re.compile(" +")
_TAG = re.compile("O|[BIES]-.+")
# A comment of CoNLL-U, such as "# sent_id = 1".
_NAMED_COMMENT = re.compile(r"# *[\w.:-]+( [\w.:-]+)* *= ")
# A mark of CoNLL-2012.
_DOCUMENT_MARK = re.compile(r"#(begin|end) document\b")
_HASHES = re.compile(r"#(\s|#|$)")
# A quoted word with doubled quotes, as tools for tables write it.
_DOUBLED = re.compile(r'"([^"]*"")+[^"]*"')
_COUNTER = re.compile(r"(.*?)([0-9]+)", re.ASCII | re.DOTALL)
_HEAD = 5000  # lines that decide the usual shape
_NEARLY_ALL = 0.9
_FEWEST_VALUES = 4  # values needed to judge a column
_MANY_VALUES = 100  # this many words have repetitions
_LONG_SENTENCE = 40  # words
# Part of a table: a separator between two names, or the begin of an object.
_TABLE = re.compile(r"\w\"?[,;]\"?\w|^[{\[]\"")
_DOCUMENT_START = "-DOCSTART-"


def read_examples(split):
    """Read the tagged sentences of a CoNLL file.

    Tabs separate fields; in lines without a tab, blanks separate fields.
    `-DOCSTART-` lines are skipped. Comments such as "# sent_id = 1",
    "#begin document" and "# text without a tag" are skipped and counted. A
    tagged word such as "#xlnet" is no comment. If `task.converts_tags` is True,
    IOB1 tags are converted to BIO. Otherwise tags stay unchanged. In a test
    split, a file whose first line is a single word is read without tags.

    Args:
        split: reading.Split of a task whose reader is "conll". The columns of
            the split are the indices of the "words" and the "tags" (from 0; -1
            is the last column).

    Returns:
        list of TokensExample.

    Raises:
        ValueError: a line has too few fields or an unknown tag, or the file has
            no sentences.
    """
    place, task = split.place, split.task
    word_column, tag_column = _columns(task, split.columns)
    known = frozenset(task.labels or ())
    examples, words, tags, begin = [], [], [], 0
    has_tags = None
    with split.tree.open_text(split.path, newline="\n") as file:
        lines = _Lines(file, split.counted, known, tag_column)
        for number, line, fields in lines:
            if not fields:
                _end(examples, words, tags, task, split.where(begin))
                continue
            if has_tags is None:
                has_tags = len(fields) > 1 or not split.is_test
            begin = begin if words else number
            try:
                words.append(_word(fields, word_column))
                if has_tags:
                    tags.append(_tag(fields, tag_column, known, task))
            except ValueError as error:
                raise ValueError(f"{place}, row {number}: {error}") from None
            except IndexError:
                raise ValueError(
                    f"{place}, row {number}: "
                    + _lacking(line, fields, word_column, tag_column)
                ) from None
        _end(examples, words, tags, task, split.where(begin))
    if not examples:
        raise ValueError(f"{place}: the file holds no sentences.")
    if "words" not in split.columns:
        lines.warn_of_words(place, word_column)
    _warn_of_one_sentence(examples, place)
    return examples


class _Lines:
    """Lines of a CoNLL file with the fields of each line, without comments.

    Args:
        file: iterable of str.
        counted: Counted.
        known: frozenset of str, the allowed tags. An empty set allows all tags.
        tag_column: int, index of the column with the tags.
    """

    def __init__(self, file, counted, known, tag_column):
        self._counted = counted
        self._known = known
        self._tag_column = tag_column
        self._lines = enumerate(file, start=1)
        self._head = list(itertools.islice(self._lines, _HEAD))
        # Shapes of the lines with words. Comments may have other shapes.
        self._shapes = collections.Counter(
            _shape(line, fields)
            for _, line in self._head
            if (fields := _fields(line)) and not line.startswith("#")
        )

    def __iter__(self):
        """Yield the number, the text and the fields of each line.

        The list of fields is empty at the end of a sentence. Comments are
        skipped and counted.

        Raises:
            ValueError: a line contains a carriage return before its end.
        """
        usual = self._usual()
        for number, line in itertools.chain(self._head, self._lines):
            if line.startswith(BYTE_ORDER_MARK):  # of a joined file
                self._counted.add(MARKS_DROPPED, number)
                line = line.lstrip(BYTE_ORDER_MARK)
                yield number, line, []
            if "\r" in line.rstrip("\r\n"):
                raise ValueError(
                    f"{self._counted.place}, row {number}: a carriage return "
                    "within the line. Write the file with line feeds at the "
                    "ends of lines."
                )
            fields = _fields(line)
            if _DOCUMENT_START in fields:
                fields = []
            elif line.startswith("#") and self._is_comment(line, fields):
                self._counted.add("lines of comments left out", number)
                continue
            elif fields and usual not in (None, _shape(line, fields)):
                self._counted.add(
                    "lines have more or fewer fields than the others",
                    number,
                )
            if '""' in line and any(map(_DOUBLED.fullmatch, fields)):
                self._counted.add(
                    "lines have words in quotes, which are kept as they are",
                    number,
                )
            yield number, line, fields

    def _usual(self):
        """Usual shape of the lines with words, see `_shape`, or None.

        At least 9 of 10 such lines at the beginning of the file have the usual
        shape. The result is None if no shape is so frequent.
        """
        for shape, count in self._shapes.most_common(1):
            if count >= _NEARLY_ALL * self._shapes.total():
                return shape
        return None

    def _is_comment(self, line, fields):
        """Whether a line that begins with "#" is a comment, bool."""
        if _NAMED_COMMENT.match(line) or _DOCUMENT_MARK.match(line):
            return True
        is_shaped = not self._shapes or _shape(line, fields) in self._shapes
        if is_shaped and len(fields) == 1:
            return False  # this is a word
        column = self._tag_column
        has_tag = -len(fields) <= column < len(fields) > 1 and _is_tag(
            fields[column].strip(), self._known
        )
        if _HASHES.match(line):
            return not (is_shaped and has_tag)
        return not is_shaped and len(fields) > 1 and not has_tag

    def warn_of_words(self, place, column):
        """Warn if the values of the word column are probably not words.

        Args:
            place: str, path of the file, for messages.
            column: int, index of the word column.
        """
        (shape, _), *_ = self._shapes.most_common(1) or [((False, 0), 0)]
        sentences = [[]]
        for _, line in self._head:
            fields = _fields(line)
            if not fields or _DOCUMENT_START in fields:
                sentences.append([])
            elif _shape(line, fields) == shape and not (
                line.startswith("#") and self._is_comment(line, fields)
            ):
                sentences[-1].append(fields)
        columns = [
            [[fields[index] for fields in sentence] for sentence in sentences]
            for index in range(shape[1])
        ]
        if not columns or not (why := _why_no_words(columns[column])):
            return
        used = {column, self._tag_column % len(columns)}
        numbers = [
            str(index)
            for index, values in enumerate(columns)
            if index not in used and not _why_no_words(values)
        ]
        first = next(x for values in columns[column] for x in values)
        warnings.warn(
            f"{place}: column {column} is read as the words, and its values "
            f"{why}, the first being {first!r}. Name the column of the words: "
            f"--columns words={numbers[0] if numbers else 'NUMBER'}",
            stacklevel=4,
        )


def _shape(line, fields):
    """Shape of a line: whether the line has tabs, and the number of fields."""
    return "\t" in line, len(fields)


def _why_no_words(sentences):
    """Reason why the values of a column cannot be words, str or None.

    Args:
        sentences: list of lists of str, the values of the column in each
            sentence.
    """
    values = [value for sentence in sentences for value in sentence]
    pairs = [pair for x in sentences for pair in itertools.pairwise(x)]
    if len(values) < _FEWEST_VALUES:
        return None
    enough = max(1, _NEARLY_ALL * len(pairs))
    if sum(itertools.starmap(_is_next, pairs)) >= enough:
        return "count up"
    if not any(x.isalpha() for value in values for x in value):
        return "have no letter"
    if sum(itertools.starmap(operator.eq, pairs)) >= enough:
        return "are the same throughout a sentence"
    if len(values) >= _MANY_VALUES and len(set(values)) == len(values):
        return "never occur again"
    return None


def _is_next(value, following):
    """Whether the number at the end of `value` grows by 1 in `following`.

    The texts before the numbers must be equal, as in "s1-7" and "s1-8".
    """
    before, after = _COUNTER.fullmatch(value), _COUNTER.fullmatch(following)
    return bool(
        before
        and after
        and before[1] == after[1]
        and int(before[2]) + 1 == int(after[2])
    )


def _warn_of_one_sentence(examples, place):
    """Warn if a file lacks blank lines between sentences."""
    if len(examples) == 1 and len(examples[0].words) > _LONG_SENTENCE:
        warnings.warn(
            f"{place}: no blank line divides sentences, and all "
            f"{len(examples[0].words):,} words are read as one. Put a blank "
            "line after each sentence",
            stacklevel=3,
        )


def convert_iob1(tags):
    """Convert IOB1 tags to BIO; BIO tags stay unchanged.

    In IOB1, the first tag of an entity is B- if the entity directly follows an
    entity of the same type. Otherwise the first tag is I-.

    Args:
        tags: list of str.

    Returns:
        list of str.
    """
    converted, previous = [], "O"
    for tag in tags:
        if tag.startswith("I-") and previous[2:] != tag[2:]:
            tag = "B-" + tag[2:]
        converted.append(tag)
        previous = tag
    return converted


def _end(examples, words, tags, task, where):
    """Append the current sentence to `examples`; clear `words` and `tags`.

    A sentence without words is not appended.
    """
    if not words:
        return
    if task.converts_tags:
        tags[:] = convert_iob1(tags)
    examples.append(
        TokensExample(
            str(len(examples)), tuple(words), tuple(tags) or None, where
        )
    )
    words.clear()
    tags.clear()


def _lacking(line, fields, word_column, tag_column):
    """Describe the fault of a line that lacks a word or a tag, str."""
    if len(fields) == 1 and _TABLE.search(line):
        return (
            "this looks like a table (CSV or JSON), and a task of tags reads "
            "CoNLL: a word and its tag per line, with a blank or a tab between "
            "them, and a blank line after each sentence. Received: "
            f"{line.strip()[:80]}"
        )
    return (
        f"{len(fields)} fields, {line!r}; the word is in column {word_column}, "
        f"the tag in column {tag_column} (from 0)."
    )


def _word(fields, column):
    if not fields[column].strip():
        raise ValueError("the word is empty.")
    return fields[column]


def _tag(fields, column, known, task):
    if len(fields) < 2:
        raise IndexError
    tag = fields[column].strip()
    if not tag:
        raise ValueError(f"the tag of {fields[0]!r} is empty.")
    if known and tag not in known:
        raise ValueError(
            f"the tag {tag!r} is not one of the task {task.name}: "
            f"{', '.join(task.labels)}."
        )
    if not _is_tag(tag, known):
        raise ValueError(
            f"the tag {tag!r} is neither O nor B, I, E or S and a type, such "
            "as B-person (write L as E, U as S, M as I). Name the column of "
            "the tags: --columns tags=NUMBER."
        )
    return tag


def _is_tag(tag, known):
    return tag in known if known else bool(_TAG.fullmatch(tag))


def _fields(line):
    """Split a line into fields; a blank line has no fields."""
    line = line.rstrip("\r\n")
    if not line.strip():
        return []
    # Only ASCII blanks separate fields: words may contain other white space.
    return line.split("\t") if "\t" in line else _BLANKS.split(line.strip(" "))


def _columns(task, given):
    numbers = {role: task.columns[role][0] for role in task.columns}
    for role, number in given.items():
        if not number.removeprefix("-").isdecimal():
            raise ValueError(
                "CoNLL files have no header: columns are numbers from 0, -1 "
                f"the last. Received: --columns {role}={number}."
            )
        numbers[role] = int(number)
    return numbers["words"], numbers["tags"]
