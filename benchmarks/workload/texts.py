"""Text and tokenizer of a benchmark: given, found or made up."""

import glob
import pathlib
import random
import shutil

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_TEXT = _BESIDE / "lm" / "novels_en" / "train" / "*.txt"
_TOKENIZER = _BESIDE / "spiece" / "spiece.model"
_QUESTIONS = _BESIDE / "squad" / "train-v1.1.44articles.json"


def prepare(directory, megabytes, text=None, tokenizer=None, vocabulary=None):
    """Put a sample of text and a tokenizer into a directory.

    Args:
        directory: path.
        megabytes: float, maximum size of the text.
        text: str, glob pattern of UTF-8 files. None: text found beside the
            project, else made-up words.
        tokenizer: str, path of a SentencePiece model. None: a model found
            beside the project, else a model trained on the sample.
        vocabulary: int, number of pieces of a newly trained tokenizer. If this
            number is given, no files beside the project are used.

    Returns:
        str, description of text and tokenizer.

    Raises:
        FileNotFoundError: if no file matches `text`.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if vocabulary is None:
        text = text or (str(_TEXT) if glob.glob(str(_TEXT)) else None)
        tokenizer = tokenizer or (_TOKENIZER if _TOKENIZER.is_file() else None)
    size = int(megabytes * 1e6)
    sample, source = _made_up(size), "made-up words"
    if text:
        sample, source = _from_files(text, size)
    (directory / "text.txt").write_text(sample, encoding="utf-8")
    target = directory / "spiece.model"
    if tokenizer:
        shutil.copyfile(tokenizer, target)
        return f"{source}; {pathlib.Path(tokenizer).name}"
    from data_pipeline.train_tokenizer import train_tokenizer

    vocabulary = vocabulary or 2000
    train_tokenizer(sample.splitlines(), target, vocabulary_size=vocabulary)
    return f"{source}; a tokenizer of {vocabulary} pieces trained on it"


def files_in(directory):
    """Make the dict of paths of the files from `prepare`, for contenders."""
    directory = pathlib.Path(directory)
    return {
        "directory": str(directory),
        "text": str(directory / "text.txt"),
        "tokenizer": str(directory / "spiece.model"),
    }


def read_lines(path):
    """Read the lines of a text file that are not blank."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def read_questions(files, count):
    """Read questions of SQuAD beside the project, else make up questions."""
    from data_pipeline import read_examples
    from data_pipeline.tasks.examples import Answer
    from data_pipeline.tasks.examples import QuestionExample

    if _QUESTIONS.is_file():
        return read_examples("squad-1.1", _QUESTIONS)[:count]
    lines = read_lines(files["text"])
    rng = random.Random(0)
    examples = []
    for number in range(count):
        context = " ".join(rng.choices(lines, k=10))
        word = rng.choice(context.split())
        answer = Answer(word, context.index(word))
        question = f"Where is {word}?"
        examples.append(
            QuestionExample(str(number), context, question, (answer,))
        )
    return examples


def _from_files(pattern, size):
    paths = sorted(map(pathlib.Path, glob.glob(pattern)))
    if not paths:
        raise FileNotFoundError(
            f"no file of text matches {pattern}. Give --text a file or a "
            "quoted glob pattern."
        )
    data = b""
    for path in paths:
        data += path.read_bytes()[: size - len(data)]
        if len(data) == size:
            break
    sample = data.decode("utf-8", errors="ignore")
    return sample, f"{len(data) / 1e6:.1f} MB of {paths[0].name} and on"


def _made_up(size):
    """Make up sentences with word frequencies as in a natural language."""
    rng = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = [
        "".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5000)
    ]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lines, length = [], 0
    while length < size:
        sentence = rng.choices(words, weights, k=rng.randint(5, 20))
        line = " ".join(sentence).capitalize() + "."
        # Some lines are blank, so that the text has documents and paragraphs.
        line += "\n" if rng.random() < 0.2 else ""
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)[:size]
