"""Train a SentencePiece model with XLNet's special symbols.

python -m data_pipeline.train_tokenizer --input 'text/*.txt' \\
    --output spiece.model --vocabulary-size 32000
"""

import collections
import itertools
import random
import re
import sys

from data_pipeline.base.command_line import Parser
from data_pipeline.base.command_line import add_quiet
from data_pipeline.base.command_line import parse
from data_pipeline.base.command_line import print_lines
from data_pipeline.base.command_line import run
from data_pipeline.base.command_line import tell
from data_pipeline.base.files import write_bytes
from data_pipeline.base.outputs import check_writable
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import describe_bad_text
from data_pipeline.text.options import add_text_options
from data_pipeline.text.options import fill_text_options

CONTROL_SYMBOLS = ("<cls>", "<sep>", "<pad>", "<mask>", "<eod>")
USER_DEFINED_SYMBOLS = ("<eop>", ".", "(", ")", '"', "-", "–", "£", "€")

# SentencePiece skips sentences above 4,192 bytes. A character has at most four
# bytes.
_MAX_CHARACTERS = 1000
_TOO_FEW = 100  # sentences for SentencePiece
# The number of threads changes the order of sums, and so the rounding and the
# pieces. A fixed number gives the same model on every machine.
_NUM_THREADS = 16


class VocabularyTooLarge(ValueError):
    """Error for a text with too few different words for the vocabulary size.

    Attributes:
        largest: int, the largest vocabulary size that the text allows.
    """

    def __init__(self, message, largest):
        super().__init__(message)
        self.largest = largest


def train_tokenizer(
    sentences,
    output,
    vocabulary_size=32000,
    character_coverage=0.99995,
    lowercase=False,
    sentence_limit=10_000_000,
    keep_accents=False,
):
    """Train a unigram SentencePiece model with the released settings.

    Sentences are cleaned as a Tokenizer cleans text. The same sentences in the
    same order give the same file. If there are more than `sentence_limit`
    sentences, a random sample of sentences with a fixed seed is drawn.

    Args:
        sentences: iterable of str, read once.
        output: path of the file to write. The write is atomic. The file
            contains its own SHA-256.
        vocabulary_size: int, number of pieces. Default 32000.
        character_coverage: float from 0.98 to 1, share of all characters that
            get a piece. Default 0.99995. 0.9995 suits Chinese.
        lowercase: bool, whether to lowercase the text. Default False.
        sentence_limit: int, maximum number of sentences to train on. These
            sentences are held in memory. Default 10,000,000. A sentence above
            1,000 characters is divided and counts as several.
        keep_accents: bool, whether to keep accents and other marks of letters.
            Default False: remove them, as in the release. The file stores this
            setting, so users of the file need not repeat it.

    Returns:
        Tokenizer.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer
    lines = [f"{i} red apples and {i + 1} green pears." for i in range(99)]
    tokenizer = train_tokenizer(lines, "spiece.model", vocabulary_size=40)
    ```

    Raises:
        TypeError: `sentences` is a single str.
        VocabularyTooLarge: a ValueError. The text is too short for
            `vocabulary_size`. `main` then uses the largest possible size.
        ValueError: there is no text, `vocabulary_size` is too small for the
            text, or another setting is out of its range.

    Source: the `trainer_spec` in the released `spiece.model`.
    """
    from data_pipeline.tokenization import model_file
    from data_pipeline.tokenization.tokenizer import Tokenizer

    if isinstance(sentences, str):
        raise TypeError(
            "`sentences` must be an iterable of str, not one str. Received: a "
            f"str of {len(sentences)} characters. Put it into a list."
        )
    _check_settings(vocabulary_size, character_coverage, sentence_limit)
    settings = {
        "vocab_size": vocabulary_size,
        "character_coverage": character_coverage,
        "input_sentence_size": sentence_limit,
    }
    sentences = _Sentences(sentences, lowercase, keep_accents, sentence_limit)
    model_proto = _train(sentences, settings)
    if keep_accents:
        model_proto = model_file.with_accents(model_proto)
    model_proto = model_file.with_digest(model_proto)
    # Load the model first: an unusable model must not replace a usable file.
    Tokenizer.from_model_proto(model_proto, lowercase)
    write_bytes(output, model_proto)
    return Tokenizer(output, lowercase)


def main(argv=None):
    """Train a tokenizer on text files.

    Args:
        argv: list of str, or None for the arguments of the process.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: see `train_tokenizer`.
    """
    options = _parse_arguments(argv)
    from data_pipeline.tokenization.cleaning import accents_note
    from data_pipeline.tokenization.cleaning import count_accents

    fill_text_options(options)
    _check_settings(
        options.vocabulary_size,
        options.character_coverage,
        options.sentence_limit,
    )
    corpus = Corpus(
        options.input,
        options.text_format,
        options.encoding,
        options.on_bad_text,
        options.text_field,
    )
    check_writable(options.output, corpus.files)
    print_lines(*corpus.notes)
    tell(options, "reading the text and training on it")

    log = ReadLog()
    counts = collections.Counter()

    def sentences():
        for document in corpus.documents(log):
            if not options.keep_accents:
                counts["accents"] += count_accents(document.text)
                counts["characters"] += len(document.text)
            yield from document.sentences()

    def train(vocabulary_size):
        log.bad_text.clear()
        counts.clear()
        return train_tokenizer(
            sentences(),
            options.output,
            vocabulary_size=vocabulary_size,
            character_coverage=options.character_coverage,
            lowercase=options.lowercase,
            sentence_limit=options.sentence_limit,
            keep_accents=options.keep_accents,
        )

    try:
        tokenizer = train(options.vocabulary_size)
    except VocabularyTooLarge as error:
        print_lines(
            f"note: this text is enough for {error.largest:,} pieces, not for "
            f"{options.vocabulary_size:,}; more text allows more"
        )
        tokenizer = train(error.largest)
    if note := accents_note(counts["accents"], counts["characters"]):
        print_lines(note)
    bad_text = "".join(f"; {x}" for x in describe_bad_text(log.bad_text))
    print_lines(
        f"{options.output}: {tokenizer.vocabulary_size} pieces, "
        f"sha256 {tokenizer.digest}{bad_text}"
    )


def _parse_arguments(argv):
    parser = Parser(
        prog="python -m data_pipeline.train_tokenizer",
        description="Train a SentencePiece model for XLNet on your text.",
    )
    add = parser.add_argument
    add(
        "--input",
        required=True,
        nargs="+",
        metavar="GLOB",
        help="paths or globs of text, see build_records; also in buckets",
    )
    add(
        "--output",
        required=True,
        metavar="FILE",
        help="file of the model, such as spiece.model",
    )
    add(
        "--vocabulary-size",
        type=int,
        default=32000,
        metavar="N",
        help="number of pieces; a short text may allow fewer (default 32000)",
    )
    add(
        "--character-coverage",
        type=float,
        default=0.99995,
        metavar="SHARE",
        help="share of the text's characters that get a piece, from 0.98 to 1 "
        "(default 0.99995)",
    )
    add(
        "--lowercase",
        action="store_true",
        help="lowercase the text, for an uncased model",
    )
    add(
        "--keep-accents",
        action="store_true",
        help="keep accents and other marks of letters, which the released "
        "tokenizer removes; the model file stores this setting",
    )
    add(
        "--sentence-limit",
        type=int,
        default=10_000_000,
        metavar="N",
        help="maximum sentences to train on, drawn at random (default "
        "10000000)",
    )
    add_text_options(add)
    add_quiet(parser)
    return parse(parser, argv)


class _Sentences:
    """Iterable of cleaned sentences.

    Attributes:
        error: exception that ended the iteration, or None.
    """

    def __init__(self, sentences, lowercase, keep_accents, limit):
        self.error = None
        self._sentences = sentences
        self._options = lowercase, keep_accents
        self._limit = limit

    def __iter__(self):
        try:
            yield from sample(self._cleaned(), self._limit)
        except BaseException as error:
            # SentencePiece converts every exception here to a RuntimeError.
            self.error = error
            raise

    def _cleaned(self):
        from data_pipeline.tokenization.cleaning import preprocess

        for sentence in self._sentences:
            yield from _cut(preprocess(sentence, *self._options))


def sample(values, limit, seed=0):
    """Yield a uniform random sample of at most `limit` values.

    We sample here because SentencePiece's sample differs between processes.

    Args:
        values: iterable.
        limit: int, maximum number of values.
        seed: int, seed of the sample. Default 0.
    """
    values, draw = iter(values), random.Random(seed).random
    kept = list(itertools.islice(values, limit))
    for number, value in enumerate(values, start=limit + 1):
        place = int(draw() * number)
        if place < limit:
            kept[place] = value
    kept.reverse()
    while kept:  # free each value, because its reader copies it
        yield kept.pop()


def _cut(text):
    begin = 0
    while len(text) - begin > _MAX_CHARACTERS:
        end = text.rfind(" ", begin + 1, begin + _MAX_CHARACTERS)
        end = end if end > 0 else begin + _MAX_CHARACTERS
        yield text[begin:end]
        begin = end
        while text.startswith(" ", begin):
            begin += 1
    if begin < len(text):
        yield text[begin:]


def _train(sentences, settings):
    import io

    import sentencepiece

    file = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=file,
            model_type="unigram",
            shuffle_input_sentence=True,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            num_threads=_NUM_THREADS,
            minloglevel=2,
            **settings,
        )
    except RuntimeError as error:
        if sentences.error is not None:
            raise sentences.error from None
        raise _explained(str(error), settings) from error
    return file.getvalue()


def _explained(message, settings):
    """Convert an error message of SentencePiece to a ValueError."""
    size = f"Received: vocabulary_size={settings['vocab_size']}."
    match = re.search(r"size too high .* a value <= (\d+)", message)
    if match:
        return VocabularyTooLarge(
            "`vocabulary_size` is too large for this text: expected at most "
            f"{match[1]}. {size} Give more text, or a smaller size.",
            int(match[1]),
        )
    match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if match:
        return ValueError(
            "`vocabulary_size` is too small for the characters of this text: "
            f"expected at least {match[1]}. {size} Give a larger size, or a "
            "smaller `character_coverage`."
        )
    if "sentences_.empty()" in message:
        return ValueError(
            "there is no text to train on: expected at least one sentence that "
            "is not blank. Received: sentences without any. Check the input."
        )
    return ValueError(
        f"SentencePiece could not train on this text: {message.strip()}. "
        f"{size} Check the text and the settings."
    )


def _check_settings(vocabulary_size, coverage, sentence_limit):
    smallest = 3 + len(CONTROL_SYMBOLS) + len(USER_DEFINED_SYMBOLS)
    if vocabulary_size <= smallest:
        raise ValueError(
            f"`vocabulary_size` must be above {smallest}, the number of "
            f"special pieces. Received: vocabulary_size={vocabulary_size}. "
            "XLNet has 32000; small texts want a few thousand."
        )
    if not 0.98 <= coverage <= 1:
        raise ValueError(
            "`character_coverage` must be from 0.98 to 1. Received: "
            f"character_coverage={coverage}. The default is 0.99995."
        )
    if sentence_limit <= _TOO_FEW:
        raise ValueError(
            f"`sentence_limit` must be at least {_TOO_FEW + 1}. Received: "
            f"sentence_limit={sentence_limit}. The default is 10,000,000."
        )


def command():
    """Entry point of the console script of this module."""
    return run(main)


if __name__ == "__main__":
    sys.exit(command())
