"""Reader of questions in SQuAD's JSON format, nested or flat.

The published files have the nested format. Hugging Face's `datasets` writes the
flat format: each question is an object with its `context`, a list of the `text`
of all answers, and a list of the `answer_start` of all answers.
"""

import collections
import json

from data_pipeline.base.limits import in_a_line
from data_pipeline.base.limits import shown
from data_pipeline.tasks.archives import checked_text
from data_pipeline.tasks.archives import parse_json
from data_pipeline.tasks.counted import without_marks
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import has_text

_MOST_CHARACTERS = 2**31  # of a context, whose positions are int32
_LAYOUT = (
    "not SQuAD's layout, which is data > paragraphs (context) > qas (id, "
    "question, answers: text, answer_start)."
)


def read_examples(split):
    """Read the questions of a file in the nested or the flat format.

    An answer is skipped if its text is null or has only blanks. A question of
    SQuAD 2.0 counts as impossible if all its answers are skipped. In the flat
    format, a question of SQuAD 2.0 with an empty list of answers also counts as
    impossible. An answer whose text is not at `answer_start` in the context is
    kept unchanged. Warnings count the skipped and the misplaced answers.

    Args:
        split: reading.Split of a task whose reader is "squad". In a test split,
            answers may be missing, and a question without answers does not
            count as impossible.

    Returns:
        list of QuestionExample.

    Raises:
        ValueError: the JSON is not valid, the layout is unknown, a question of
            SQuAD 1.1 is marked `is_impossible`, a question is not impossible
            but has no answers (except in a test split), or two questions have
            the same id (except in a training split).
    """
    place = split.place
    with split.tree.open_text(split.path) as text:
        articles = _parsed(text.read(), split)
    examples, without_text = [], []
    where = "the beginning"
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    number = len(examples) + 1
                    where = f"question {str(question.get('id', number))[:80]}"
                    question = _with_id(question, number, split)
                    example, missing = _example(
                        article, paragraph, question, split.file
                    )
                    examples.append(_checked(example, missing, split))
                    if missing:
                        without_text.append((example, missing))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{place}, at {where}: {_LAYOUT} {_wrong(error)}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{place}, {where}: {error}") from None
    if not examples:
        raise ValueError(f"{place}: the file holds no questions.")
    if split.name != "train":  # answers are compared by their ids
        ids = collections.Counter(one.id for one in examples)
        ((one_id, count),) = ids.most_common(1)
        if count > 1:
            raise ValueError(
                f"{place}: {count} questions have the id {shown(one_id)}. Each "
                "question to predict or to evaluate must have an id of its own."
            )
    _count_missing(without_text, split.counted)
    _count_misplaced(examples, split.counted)
    return examples


def _wrong(error):
    """Describe an error about a missing value or a value of the wrong type."""
    if isinstance(error, KeyError):
        return f"Missing: {error.args[0]}"
    if isinstance(error, ValueError) or "is not a text" in str(error):
        return in_a_line(error)
    return "One of these is of another kind"  # no details


def _parsed(text, split):
    """Parse the text of a file into a list of articles.

    Each question in the flat format becomes an article of its own.
    """
    place, lines = split.place, text.split("\n")
    if _is_flat(_parsed_line(lines[0])):
        rows = [
            (number, parse_json(line, place, number))
            for number, line in enumerate(
                without_marks(lines, split.counted), 1
            )
            if line.strip()
        ]
    else:
        document = parse_json(text, place)
        if isinstance(document, dict):
            articles = document.get("data", [document])  # or a single article
        else:
            articles = document or None
        if not isinstance(articles, list):
            raise ValueError(f"{place}: {_LAYOUT} Of another kind: data.")
        if not articles or not _is_flat(articles[0]):
            return articles
        rows = list(enumerate(articles, start=1))
    articles = []
    for number, row in rows:
        try:
            articles.append(_article(row, number, split))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{place}, row {number}: not a question in a line, "
                "which has context, question and answers (text, "
                f"answer_start). {_wrong(error)}."
            ) from None
    return articles


def _article(row, number, split):
    """Convert a question in the flat format to an article."""
    row = {**row, "answers": _answers(row)}
    is_empty = row["answers"] is not None and not split.is_test
    question = {
        "id": str(number),
        "is_impossible": is_empty
        and not row["answers"]
        and split.task.name == "squad-2.0",
        **row,
    }
    paragraph = {"context": row["context"], "qas": [question]}
    return {"title": row.get("title", ""), "paragraphs": [paragraph]}


def _answers(question):
    """Convert a question's answers to a list of dict, or None if missing.

    Each dict has the keys `text` and `answer_start`. In the file, a question
    may have the key `answers` or `answer`, with one of these values:

    - a list of such dicts,
    - one such dict,
    - a dict of two lists, which Hugging Face's `datasets` writes,
    - the text of the only answer. The question then has an `answer_start`.
    """
    answers = question.get("answers", question.get("answer"))
    if isinstance(answers, str):
        answers = {"text": answers, "answer_start": question["answer_start"]}
    if not isinstance(answers, dict):
        return answers
    texts, starts = answers["text"], answers["answer_start"]
    if not isinstance(texts, list):
        texts, starts = [texts], [starts]
    if len(texts) != len(starts):
        raise ValueError(
            f"{len(texts)} texts of answers and {len(starts)} answer_start"
        )
    both = zip(texts, starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in both]


def _with_id(question, number, split):
    """Add an id to a question without an id: the number of the question."""
    if question.get("id") not in (None, ""):
        return question
    split.counted.add(
        "questions have no id and are numbered", f"question {number}"
    )
    return {**question, "id": str(number)}


def _parsed_line(line):
    """Parse a line of JSON; return None if the line is not valid JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None  # JSON over several lines


def _is_flat(row):
    """Whether a value is a question in the flat format, bool."""
    is_object = isinstance(row, dict) and "paragraphs" not in row
    return is_object and {"context", "question"} <= set(row)


def _example(article, paragraph, question, file):
    """Make a QuestionExample and count the skipped answers."""
    is_impossible = question.get("is_impossible") or False
    if is_impossible not in (False, True):
        raise ValueError(
            f"`is_impossible` is {shown(is_impossible)}, not true or false."
        )
    given = () if is_impossible else _answers(question) or ()
    texts = [
        "" if x["text"] is None else checked_text(x["text"]) for x in given
    ]
    answers = tuple(
        Answer(text, _start(answer["answer_start"]))
        for text, answer in zip(texts, given, strict=True)
        if has_text(text)
    )
    example = QuestionExample(
        str(question["id"]),
        checked_text(paragraph["context"]),
        checked_text(question["question"]),
        answers,
        bool(is_impossible),
        str(article.get("title") or ""),
        f"{file}, question {question['id']}",
    )
    return example, len(given) - len(answers)


def _start(value):
    """Convert an `answer_start` to an int."""
    try:
        start = int(value)
    except (OverflowError, ValueError):
        start = None
    is_cut = isinstance(value, float) and start != value
    if start is None or is_cut or abs(start) >= _MOST_CHARACTERS:
        raise ValueError(
            f"`answer_start` is {shown(value)}, not a position in the context."
        )
    return start


def _checked(example, missing, split):
    """Check a question; set `is_impossible` if all answers were skipped."""
    if example.is_impossible and split.task.name == "squad-1.1":
        raise ValueError(
            "it is marked `is_impossible`, and every question of SQuAD 1.1 has "
            "an answer. Take the task squad-2.0."
        )
    if example.answers or example.is_impossible or split.is_test:
        return example
    if missing and split.task.name == "squad-1.1":
        raise ValueError(
            "its answers have no text, and every question of SQuAD 1.1 has an "
            "answer. Take the task squad-2.0, where such a question has none."
        )
    if missing:
        return example._replace(is_impossible=True)
    raise ValueError(
        "it has no answers and is not marked `is_impossible`. Without answers "
        "a file can only be a test split."
    )


def _count_missing(without_text, counted):
    if not without_text:
        return
    alone = sum(not example.answers for example, _ in without_text)
    counted.add(
        f"answers have no text and count as none, {alone} questions have no "
        "other answer",
        f"of question {without_text[0][0].id}",
        sum(missing for _, missing in without_text),
    )


def _count_misplaced(examples, counted):
    misplaced = [
        (example, answer)
        for example in examples
        for answer in example.answers
        if not example.context.startswith(answer.text, max(0, answer.start))
        or answer.start < 0
    ]
    if not misplaced:
        return
    nowhere = sum(answer.text not in one.context for one, answer in misplaced)
    counted.add(
        f"answers do not stand at their answer_start, {nowhere} of them "
        "nowhere in their context",
        f"of question {misplaced[0][0].id}",
        len(misplaced),
    )
