"""Readers of multiple-choice questions: RACE and DREAM."""

from data_pipeline.tasks.archives import checked_list
from data_pipeline.tasks.archives import checked_text
from data_pipeline.tasks.archives import parse_json
from data_pipeline.tasks.examples import ChoiceExample

_RACE_LAYOUT = "article, questions, options, answers"
_DREAM_LAYOUT = (
    'a list of [[turns], [{"question", "choice", "answer"}, ...], id]'
)


def read_race(split):
    """Read the questions about RACE's articles below a folder, sorted by path.

    Args:
        split: reading.Split. The folder of the split has a folder for each
            group ("middle", "high") with .txt files. Each file has one article
            in JSON. In a test split, answers may be missing.

    Returns:
        list of ChoiceExample with the id "ARTICLE/NUMBER".

    Raises:
        ValueError: the JSON is not valid, the layout is unknown, or there is no
            article.
    """
    tree, name = split.tree, split.path
    names, by_file = [], {}
    for path in tree.names_under(name):
        if path.endswith(".txt"):
            names.append(path)
        else:
            split.counted.add("files left out that do not end in .txt", path)
    for path, text in tree.read_texts(names):
        place = tree.place(path)
        article = parse_json(text, place)
        group, file = path.split("/")[-2:]
        group = "" if path.count("/") == name.count("/") + 1 else group
        where = "/".join(path.split("/")[-3:])
        try:
            article_id = str(article.get("id", f"{group}{file}"))
            by_file[path] = [
                ChoiceExample(
                    f"{article_id}/{index}",
                    checked_text(article["article"]),
                    checked_text(question),
                    _texts(checked_list(article["options"])[index]),
                    _letter(article.get("answers"), index, split),
                    group,
                    f"{where}, question {index + 1}",
                )
                for index, question in enumerate(
                    checked_list(article["questions"])
                )
            ]
            for example in by_file[path]:
                _check(example)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{place}: not RACE's layout, {_RACE_LAYOUT}; missing or of "
                f"another kind: {error}."
            ) from None
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    examples = [example for path in names for example in by_file[path]]
    if not examples:
        raise ValueError(f"{split.place}: no questions in its .txt files.")
    return examples


def read_dream(split):
    """Read the questions about dialogues from a DREAM file.

    The context of a question is a dialogue, with one line for each turn of a
    speaker.

    Args:
        split: reading.Split. In a test split, answers may be missing.

    Returns:
        list of ChoiceExample with the id "DIALOGUE/NUMBER".

    Raises:
        ValueError: the JSON is not valid, the layout is unknown, or an answer
            is not one of the options.
    """
    place = split.place
    with split.tree.open_text(split.path) as text:
        dialogues = parse_json(text.read(), place)
    examples = []
    where = "the beginning"
    try:
        for turns, questions, dialogue_id in dialogues:
            for index, question in enumerate(questions):
                where = f"dialogue {dialogue_id}, question {index + 1}"
                options = _texts(question["choice"])
                example = ChoiceExample(
                    f"{dialogue_id}/{index}",
                    "\n".join(_texts(turns)),
                    checked_text(question["question"]),
                    options,
                    _option(question.get("answer"), options, split),
                    where=f"{split.file}, {where}",
                )
                _check(example)
                examples.append(example)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{place}, at {where}: not DREAM's layout, {_DREAM_LAYOUT}; "
            f"missing or of another kind: {error}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{place}, {where}: {error}") from None
    if not examples:
        raise ValueError(f"{place}: the file holds no questions.")
    return examples


def _texts(values):
    return tuple(map(checked_text, checked_list(values)))


def _letter(answers, index, split):
    if not answers and split.is_test:
        return None
    letter = answers[index]
    if len(letter) != 1 or not "A" <= letter <= "Z":
        raise ValueError(
            f"the answer of question {index + 1} is {letter!r}, not a letter "
            "from A on."
        )
    return ord(letter) - ord("A")


def _option(answer, options, split):
    if answer is None and split.is_test:
        return None
    if answer not in options:
        raise ValueError(
            f"the answer {answer!r} is none of the options: {options}."
        )
    return options.index(answer)


def _check(example):
    if len(example.options) < 2:
        raise ValueError(f"question {example.id} has fewer than two options.")
    if example.answer is not None and example.answer >= len(example.options):
        raise ValueError(
            f"the answer of question {example.id} is option "
            f"{example.answer + 1} of {len(example.options)}."
        )
