"""Questions and answers in the JSON format of SQuAD."""

import posixpath
import warnings

from data_pipeline.tasks import archives
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from xlnet_tf.files.limits import in_a_line


def read_examples(tree, name, task, split, columns=None):
    """Read the questions of a file.

    An answer whose text is not at its `answer_start` is kept unchanged; a
    warning gives the number of such answers.

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
            question has no answer and is not marked `is_impossible`.
    """
    place, file = tree.place(name), posixpath.basename(name)
    with archives.open_text(tree, name) as text:
        document = archives.parse_json(text.read(), place)
    examples = []
    where = "the beginning"
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    where = f"question {str(question['id'])[:80]}"
                    example = _example(article, paragraph, question, file)
                    _check(example, split)
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
