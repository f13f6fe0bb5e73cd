"""Questions and answers in the JSON format of SQuAD, nested or flat.

Flat is an object a question, as Hugging Face's `datasets` writes SQuAD: with
its `context`, and lists of the `text` and the `answer_start` of its answers.
"""

import json
import posixpath
import warnings

from data_pipeline.tasks import archives
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from xlnet_tf.files.limits import in_a_line


def read_examples(tree, name, task, split, columns=None):
    """Read the questions of a file, in SQuAD's layout or flat lines.

    A flat question of SQuAD 2.0 whose answers are empty has none. An answer
    whose text is not at its `answer_start` is kept unchanged; a warning gives
    the number of such answers.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "squad".
        split: str; in a test split answers may be missing.
        columns: unused.

    Returns:
        list of QuestionExample.

    Raises:
        ValueError: the JSON is broken, the layout is another one, or a
            question has no answer and is not marked `is_impossible`, or is
            marked in a file of SQuAD 1.1.
    """
    place, file = tree.place(name), posixpath.basename(name)
    with archives.open_text(tree, name) as text:
        document = _parsed(text.read(), place, task, split)
    examples = []
    where = "the beginning"
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    where = f"question {str(question['id'])[:80]}"
                    example = _example(article, paragraph, question, file)
                    _check(example, task, split)
                    examples.append(example)
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
    _warn_of_misplaced(examples, place)
    return examples


def _parsed(text, place, task, split):
    """The document of a file; questions a line as paragraphs of their own."""
    lines = text.split("\n")
    if not _is_flat(lines[0]):
        return archives.parse_json(text, place)
    articles = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = archives.parse_json(line, place, number)
        try:
            articles.append(_article(row, number, task, split))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{place}, row {number}: not a question in a line, which has "
                "context, question and answers (text, answer_start). Missing "
                f"or of another kind: {in_a_line(error)}."
            ) from None
    return {"data": articles}


def _article(row, number, task, split):
    """A flat question as an article of one paragraph and question."""
    answers = row.get("answers")
    is_empty = answers is not None and not split.startswith("test")
    if isinstance(answers, dict):
        both = zip(answers["text"], answers["answer_start"], strict=True)
        answers = [{"text": x, "answer_start": start} for x, start in both]
    question = {
        "id": str(number),
        "is_impossible": is_empty and not answers and task.name == "squad-2.0",
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
    is_impossible = bool(question.get("is_impossible", False))
    answers = () if is_impossible else question.get("answers") or ()
    return QuestionExample(
        str(question["id"]),
        archives.checked_text(paragraph["context"]),
        archives.checked_text(question["question"]),
        tuple(
            Answer(
                archives.checked_text(answer["text"]),
                int(answer["answer_start"]),
            )
            for answer in answers
        ),
        is_impossible,
        str(article.get("title") or ""),
        f"{file}, question {question['id']}",
    )


def _check(example, task, split):
    if example.is_impossible and task.name == "squad-1.1":
        raise ValueError(
            "it is marked `is_impossible`, and every question of SQuAD 1.1 has "
            "an answer. Take the task squad-2.0."
        )
    if example.answers or example.is_impossible or split.startswith("test"):
        return
    raise ValueError(
        "it has no answers and is not marked `is_impossible`. Without answers "
        "a file can only be a test split."
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
