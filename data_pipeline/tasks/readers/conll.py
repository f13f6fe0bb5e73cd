"""Tagged words in CoNLL format: a word per line, a blank line between
sentences.
"""

import re

from data_pipeline.tasks.examples import TokensExample

_BLANKS = re.compile(" +")
_TAG = re.compile("O|[BIES]-.+")
# As in CoNLL-U, "# sent_id = 1".
_NAMED_COMMENT = re.compile(r"# *[\w.:-]+( [\w.:-]+)* *= ")
# A separator of a table between two names, or an object.
_TABLE = re.compile(r"\w\"?[,;]\"?\w|^[{\[]\"")
_DOCUMENT_START = "-DOCSTART-"


def read_examples(split):
    """Read the sentences of a file.

    Fields are separated by tabs, or in lines without a tab by blanks.
    `-DOCSTART-` lines are skipped, and so are comments before a sentence, such
    as "# id 17" or "# sent_id = 1"; a word may be or begin with "#". Tags are
    kept unchanged, except that IOB1 becomes BIO if `task.converts_tags`. In a
    test split, a file whose first line is a single word has no tags.

    Args:
        split: reading.Split of a task whose reader is "conll". Its columns are
            indices of the "words" and "tags", from 0; -1 is the last one.

    Returns:
        list of TokensExample.

    Raises:
        ValueError: a line has too few fields or an unknown tag, or the file
            has no sentence.
    """
    place, task = split.place, split.task
    word_column, tag_column = _columns(task, split.columns)
    known = frozenset(task.labels or ())
    examples, words, tags, begin = [], [], [], 0
    has_tags = None
    with split.tree.open_text(split.path, newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if "\r" in line.rstrip("\r\n"):
                raise ValueError(
                    f"{place}, row {number}: a carriage return within the "
                    "line. Write the file with line feeds at the ends of lines."
                )
            fields = _fields(line)
            if not fields or fields[0] == _DOCUMENT_START:
                _end(examples, words, tags, task, split.where(begin))
                continue
            if not words and _is_comment(line, fields, known):
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
    return examples


def convert_iob1(tags):
    """Convert IOB1 tags to BIO; BIO tags are unchanged.

    In IOB1, an entity begins with B- only if an entity of the same type ends
    right before it.

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
    """Append the current sentence, if it has words, and clear it."""
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
    """Describe the fault of a line that lacks its word or its tag, str."""
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


def _is_comment(line, fields, known):
    """Whether the line before the first word of a sentence is a comment."""
    if not line.startswith("#"):
        return False
    if "\t" in line:
        return fields[0].strip().startswith("# ")
    if _NAMED_COMMENT.match(line):
        return True
    # The word "#" has a tag behind it.
    return (
        fields[0] == "#"
        and len(fields) > 1
        and not _is_tag(fields[-1].strip(), known)
    )


def _fields(line):
    """Fields of a line, none if it is blank."""
    line = line.rstrip("\r\n")
    if not line.strip():
        return []
    # Only ASCII blanks separate: words may hold other white space.
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
