"""SQuAD's JSON: articles, their paragraphs, questions and answers."""

import posixpath
import warnings

from data_pipeline.tasks import archives
from data_pipeline.tasks import examples


def read_examples(tree, name, task, split, columns=None):
    """The questions of a file.

    An answer that does not stand at its `answer_start` is kept as it is; how
    many there are is told in a warning.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "squad".
        split: str; in a test split answers may be missing.
        columns: None; there are none to name.

    Returns:
        list of QuestionExample.

    Raises:
        ValueError: broken JSON, another layout, or a question without an
            answer that is not marked `is_impossible`.
    """
    place, file = tree.place(name), posixpath.basename(name)
    with archives.open_text(tree, name) as text:
        document = archives.parse_json(text.read(), place)
    found = []
    where = "the beginning"
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    where = f"question {question['id']}"
                    found.append(_example(article, paragraph, question, file))
                    _check(found[-1], split)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{place}, at {where}: not SQuAD's layout, which is data > "
            "paragraphs (context) > qas (id, question, answers: text, "
            f"answer_start). Missing or of another kind: {error}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{place}, {where}: {error}") from None
    if not found:
        raise ValueError(f"{place}: the file holds no questions.")
    _warn_of_misplaced(found, place)
    return found


def _example(article, paragraph, question, file):
    is_impossible = bool(question.get("is_impossible", False))
    answers = () if is_impossible else question.get("answers") or ()
    return examples.QuestionExample(
        str(question["id"]),
        archives.checked_text(paragraph["context"]),
        archives.checked_text(question["question"]),
        tuple(
            examples.Answer(
                archives.checked_text(answer["text"]),
                int(answer["answer_start"]),
            )
            for answer in answers
        ),
        is_impossible,
        str(article.get("title", "")),
        f"{file}, question {question['id']}",
    )


def _check(example, split):
    if example.answers or example.is_impossible or split.startswith("test"):
        return
    raise ValueError(
        "it has no answers and is not marked `is_impossible`. Without answers "
        "a file can only be a test split."
    )


def _warn_of_misplaced(found, place):
    misplaced = [
        (example, answer)
        for example in found
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
