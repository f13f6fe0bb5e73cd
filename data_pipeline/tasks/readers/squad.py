"""Questions and answers in the JSON format of SQuAD, nested or flat.

Flat is an object a question, as Hugging Face's `datasets` writes SQuAD: with
its `context`, and lists of the `text` and the `answer_start` of its answers.
"""

import json
import warnings

from data_pipeline.base.limits import in_a_line
from data_pipeline.tasks.archives import checked_text
from data_pipeline.tasks.archives import parse_json
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import has_text


def read_examples(split):
    """Read the questions of a file, in SQuAD's layout or flat lines.

    An answer without text, null or only blanks, is left out. A question of
    SQuAD 2.0 that has no others, or an empty list of flat answers, is
    impossible. An answer whose text is not at its `answer_start` is kept
    unchanged. Warnings give the numbers of both kinds of answers.

    Args:
        split: reading.Split of a task whose reader is "squad"; in a test split
            answers may be missing, and a question without any is not
            impossible for that.

    Returns:
        list of QuestionExample.

    Raises:
        ValueError: the JSON is broken, the layout is another one, or a
            question has no answer and is not marked `is_impossible`, or is
            marked in a file of SQuAD 1.1.
    """
    place = split.place
    with split.tree.open_text(split.path) as text:
        document = _parsed(text.read(), split)
    examples, without_text = [], []
    where = "the beginning"
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    where = f"question {str(question['id'])[:80]}"
                    example, missing = _example(
                        article, paragraph, question, split.file
                    )
                    examples.append(_checked(example, missing, split))
                    if missing:
                        without_text.append((example, missing))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{place}, at {where}: not SQuAD's layout, which is data > "
            "paragraphs (context) > qas (id, question, answers: text, "
            f"answer_start). Missing or of another kind: {in_a_line(error)}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{place}, {where}: {error}") from None
    if not examples:
        raise ValueError(f"{place}: the file holds no questions.")
    _warn_of_missing(without_text, place)
    _warn_of_misplaced(examples, place)
    return examples


def _parsed(text, split):
    """The document of a file; questions a line as paragraphs of their own."""
    place, lines = split.place, text.split("\n")
    if not _is_flat(lines[0]):
        return parse_json(text, place)
    articles = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = parse_json(line, place, number)
        try:
            articles.append(_article(row, number, split))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{place}, row {number}: not a question in a line, which has "
                "context, question and answers (text, answer_start). Missing "
                f"or of another kind: {in_a_line(error)}."
            ) from None
    return {"data": articles}


def _article(row, number, split):
    """A flat question as an article of one paragraph and question."""
    answers = row.get("answers")
    is_empty = answers is not None and not split.is_test
    if isinstance(answers, dict):
        both = zip(answers["text"], answers["answer_start"], strict=True)
        answers = [{"text": x, "answer_start": start} for x, start in both]
    question = {
        "id": str(number),
        "is_impossible": is_empty
        and not answers
        and split.task.name == "squad-2.0",
        **row,
        "answers": answers,
    }
    paragraph = {"context": row["context"], "qas": [question]}
    return {"title": row.get("title", ""), "paragraphs": [paragraph]}


def _is_flat(line):
    """Whether the first line of a file is a question with its context."""
    try:
        row = json.loads(line) if '"paragraphs"' not in line else None
    except (ValueError, RecursionError):
        return False  # of a file over several lines
    return isinstance(row, dict) and {"context", "question"} <= set(row)


def _example(article, paragraph, question, file):
    """A QuestionExample, and the number of its answers without text."""
    is_impossible = bool(question.get("is_impossible", False))
    given = () if is_impossible else question.get("answers") or ()
    texts = [
        "" if x["text"] is None else checked_text(x["text"]) for x in given
    ]
    answers = tuple(
        Answer(text, int(answer["answer_start"]))
        for text, answer in zip(texts, given, strict=True)
        if has_text(text)
    )
    example = QuestionExample(
        str(question["id"]),
        checked_text(paragraph["context"]),
        checked_text(question["question"]),
        answers,
        is_impossible,
        str(article.get("title") or ""),
        f"{file}, question {question['id']}",
    )
    return example, len(given) - len(answers)


def _checked(example, missing, split):
    """The example, impossible if no answer of a question of 2.0 has a text."""
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


def _warn_of_missing(without_text, place):
    if not without_text:
        return
    count = sum(missing for _, missing in without_text)
    alone = sum(not example.answers for example, _ in without_text)
    warnings.warn(
        f"{place}: {count} answers have no text and count as none, {alone} "
        "questions have no other answer; the first is of question "
        f"{without_text[0][0].id}",
        stacklevel=3,
    )


def _warn_of_misplaced(examples, place):
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
    warnings.warn(
        f"{place}: {len(misplaced)} answers do not stand at their "
        f"answer_start, {nowhere} of them nowhere in their context; the first "
        f"is of question {misplaced[0][0].id}",
        stacklevel=3,
    )
