"""Reader and writer of the tokenizers of model directories.

A directory may have our format, the released format or Hugging Face's format.
From Hugging Face's `tokenizer.json` we rebuild the SentencePiece model, so that
the ids are the same as in the released preprocessing.

Hugging Face's own tokenizer gives other ids in some cases. The cases are commas
after digits, special symbols in a text, marks of combining class 0, control
characters that Python counts as blanks, and pieces with equal scores. With a
vocabulary that is not from the release, the ids also differ for Hangul and for
a Greek sigma at the end of a word. If a model keeps accents, the ids also
differ for an accent after a character that the model's character map replaces,
such as U+2460. Hugging Face's tokenizer removes this accent.
tests/slow/peers/test_transformers.py has an example of each difference.
"""

import json
import unicodedata
import warnings

from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import size_of
from data_pipeline.base.files import write_bytes
from data_pipeline.base.limits import MOST_JSON_BYTES
from data_pipeline.base.limits import check_length
from data_pipeline.base.models import as_model_path
from data_pipeline.base.models import near_shipped
from data_pipeline.tokenization import hugging_face_format
from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.hugging_face_format import added_tokens
from data_pipeline.tokenization.hugging_face_format import damaged
from data_pipeline.tokenization.hugging_face_format import normalizers
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.tokenizer import Tokenizer

PRESET_FILE = "assets/tokenizer/vocabulary.spm"
MODEL_FILE = "spiece.model"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
ADDED_TOKENS_FILE = "added_tokens.json"
WORD_PIECES_FILE = "vocab.txt"
# All files that `read_tokenizer` reads.
_FILES = (
    *(PRESET_FILE, MODEL_FILE, TOKENIZER_FILE, CONFIG_FILE),
    ADDED_TOKENS_FILE,
)

_KNOWN_NORMALIZERS = {
    "Replace",
    "NFC",
    "NFKD",
    "StripAccents",
    "Lowercase",
    "Precompiled",
}


def find_tokenizer_file(directory):
    """Find the vocabulary file of a model directory.

    Args:
        directory: str or path.

    Returns:
        path, or None if the directory has no vocabulary file. The files are
        tried in this order: `assets/tokenizer/vocabulary.spm` (from
        `save_to_preset`), `spiece.model` (released), `tokenizer.json` (Hugging
        Face).
    """
    directory = as_model_path(directory)
    for name in (PRESET_FILE, MODEL_FILE, TOKENIZER_FILE):
        if (directory / name).is_file():
            return directory / name
    return None


def has_tokenizer(directory):
    """Whether a model directory has a tokenizer that we can read, bool.

    Most BERT models have other tokenizers, such as WordPiece. We can read these
    models, but not their tokenizers.

    Args:
        directory: str or path.
    """
    file = find_tokenizer_file(directory)
    if file is None or file.name != TOKENIZER_FILE:
        return file is not None
    model = _read_json(file).get("model")
    if not isinstance(model, dict):
        return True  # `read_tokenizer` raises the error
    kind = _read_json(file.parent / "config.json").get("model_type")
    if kind not in ("bert", "mpnet"):
        return model.get("type") != "WordPiece"
    try:
        first = [piece for piece, _ in model["vocab"][: len(SPECIAL_SYMBOLS)]]
    except (LookupError, TypeError, ValueError):  # not a Unigram vocabulary
        return False
    return first == list(SPECIAL_SYMBOLS)


def read_tokenizer(directory, lowercase=None, verify=True):
    """Read the tokenizer of a model directory, in any supported format.

    `find_tokenizer_file` finds the vocabulary. The setting for lower case is
    read from the first of these places that has the setting: our
    `tokenizer.json`, `do_lower_case` in `tokenizer_config.json`, the normalizer
    in Hugging Face's `tokenizer.json`.

    Accents are kept if the SentencePiece model has the setting to keep them, if
    `keep_accents` in `tokenizer_config.json` is true, or if the normalizer in
    Hugging Face's `tokenizer.json` has no StripAccents. A warning lists
    settings in these files that the released preprocessing lacks.

    Args:
        directory: str or path.
        lowercase: bool, or None (default) for the setting in the files. If the
            files lack this setting, texts are not lowercased.
        verify: bool, whether to compare the files with the directory's
            `SHA256SUMS`, if it exists. Default True.

    Returns:
        Tokenizer. If the vocabulary is from a `tokenizer.json`, the Tokenizer's
        `path` is None. If a JSON file has the setting to keep accents, but the
        SentencePiece model lacks this setting, `path` is also None.

    Raises:
        FileNotFoundError: the directory does not exist or has no tokenizer.
        ValueError: a file is damaged, or belongs to another model.
    """
    directory = as_model_path(directory)
    file = find_tokenizer_file(directory)
    if file is None:
        _refuse(directory)
    if verify:
        files = [name for name in _FILES if (directory / name).is_file()]
        verify_checksums(directory, files)
    values = _read_json(directory / TOKENIZER_FILE)
    config = _read_json(directory / CONFIG_FILE)
    if "lowercase" in values and file.name == TOKENIZER_FILE:
        raise FileNotFoundError(
            f"{directory / PRESET_FILE} is missing: the preset is incomplete. "
            "Copy it again."
        )
    if lowercase is None:
        if file == directory / PRESET_FILE and not values:
            raise FileNotFoundError(
                f"{directory / TOKENIZER_FILE} is missing: nothing says "
                "whether this preset is for lower-cased text. Copy the preset "
                "again, or give `lowercase`."
            )
        lowercase = _read_lowercase(values, config, directory)
    if file.name == TOKENIZER_FILE:
        model = hugging_face_format.to_model(values, file)
        try:
            tokenizer = Tokenizer.from_model_proto(
                model.SerializeToString(), lowercase
            )
        except ValueError as error:
            raise damaged(file, str(error.__cause__ or error)) from error
    else:
        tokenizer = Tokenizer(file, lowercase)
    if not tokenizer.keep_accents and _keeps_accents(values, config, directory):
        tokenizer = Tokenizer.from_model_proto(
            model_file.with_accents(tokenizer.model_proto), lowercase
        )
    _warn_of_differences(tokenizer, values, directory)
    return tokenizer


def find_tokenizer(path, lowercase=None):
    """Read a SentencePiece model, or the tokenizer of a model directory.

    Args:
        path: str or path.
        lowercase: bool, whether to lowercase texts. None (default) for the
            setting in the files of a directory, and False for a model file.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError, ValueError: see `Tokenizer` and `read_tokenizer`.
    """
    path = as_model_path(path)
    if path.is_dir():
        return read_tokenizer(path, lowercase)
    return Tokenizer(path, lowercase=bool(lowercase))


def check_tokenizer(directory, tokenizer):
    """Refuse records that were not built with the tokenizer of a model.

    Args:
        directory: str or path of the model. The tokenizer and the setting for
            lower case are compared if the directory has them.
        tokenizer: Tokenizer of the records.

    Raises:
        ValueError: the vocabulary, the setting for accents or the setting for
            lower case differs.
    """
    directory = as_model_path(directory)
    file = find_tokenizer_file(directory)
    if file is None:
        return
    says_case = (directory / TOKENIZER_FILE).is_file() or (
        "do_lower_case" in _read_json(directory / CONFIG_FILE)
    )
    model_tokenizer = read_tokenizer(
        directory, None if says_case else tokenizer.lowercase
    )
    if model_tokenizer.digest != tokenizer.digest and (
        _vocabulary(model_tokenizer) != _vocabulary(tokenizer)
    ):
        advice = f"Build them again with --tokenizer {file}."
        if file.name == TOKENIZER_FILE:
            advice = (
                "Convert the model (python -m xlnet_tf.convert) and build "
                f"them again with --tokenizer {PRESET_FILE} of the result."
            )
        raise ValueError(
            f"the records were built with another tokenizer than {file}. "
            f"{advice}"
        )
    if model_tokenizer.keep_accents != tokenizer.keep_accents:
        does = ("drops", "keeps")
        raise ValueError(
            f"the tokenizer of the records {does[tokenizer.keep_accents]} "
            f"accents, and the model's in {directory} "
            f"{does[model_tokenizer.keep_accents]} them. Build the records "
            f"again with --tokenizer {directory}."
        )
    if model_tokenizer.lowercase != tokenizer.lowercase:
        cases = ("cased", "lower-cased")
        raise ValueError(
            f"the records are of {cases[tokenizer.lowercase]} text, and the "
            f"model in {directory} reads {cases[model_tokenizer.lowercase]} "
            "text. Build them again "
            f"{'with' if model_tokenizer.lowercase else 'without'} --lowercase."
        )


def _vocabulary(tokenizer):
    """Return the parts of a model file that determine the ids of a text."""
    model = model_file.ModelProto.FromString(tokenizer.model_proto)
    pieces = [(entry.piece, entry.score) for entry in model.pieces]
    return pieces, model.normalizer_spec.precompiled_charsmap


def write_tokenizer(tokenizer, directory):
    """Write a tokenizer for `transformers.AutoTokenizer.from_pretrained`.

    Write `spiece.model`, `tokenizer_config.json` and `tokenizer.json`, each
    atomically, and add their digests to `SHA256SUMS`. `read_tokenizer` gives
    the same ids from `spiece.model` and from `tokenizer.json`.

    Args:
        tokenizer: Tokenizer.
        directory: str or path. A missing directory is created.

    Raises:
        OSError: a file cannot be written.
        ValueError: Hugging Face's XLNet tokenizer cannot represent the model.
    """
    model = model_file.ModelProto.FromString(tokenizer.model_proto)
    _check_expressible(tokenizer, model)
    directory = as_path(directory)
    values = hugging_face_format.from_model(model, tokenizer.lowercase)
    config = json.dumps(_config(tokenizer), indent=2) + "\n"
    write_bytes(directory / MODEL_FILE, tokenizer.model_proto)
    write_bytes(directory / CONFIG_FILE, config.encode())
    write_bytes(
        directory / TOKENIZER_FILE,
        json.dumps(values, ensure_ascii=False).encode(),
    )
    add_checksums(directory, [MODEL_FILE, CONFIG_FILE, TOKENIZER_FILE])
    if not tokenizer.keep_accents:
        _warn_of_marks(model)


def _warn_of_marks(model):
    """Warn about pieces that Hugging Face's tokenizer never gives.

    Hugging Face's tokenizer removes every Unicode mark (general category M).
    The release keeps the marks of combining class 0.
    """
    pieces = [x.piece for x in model.pieces if x.type == model_file.NORMAL]
    lost = [
        piece
        for piece in pieces
        if any(unicodedata.category(character)[0] == "M" for character in piece)
    ]
    if lost:
        warnings.warn(
            "Hugging Face's tokenizer drops vowel signs and other marks that "
            f"are read here: it never makes {len(lost):,} of the "
            f"{len(pieces):,} pieces ({len(lost) / len(pieces):.1%}), such as "
            f"{', '.join(map(repr, lost[:3]))}, so ids of texts with them "
            "differ.",
            stacklevel=3,
        )


def _refuse(directory):
    if directory.is_file():
        raise FileNotFoundError(
            f"`directory` must be a directory, and {directory} is a file. "
            "Give the one that it is in, or `Tokenizer(file)`."
        )
    if not directory.is_dir():
        raise FileNotFoundError(
            f"there is no directory {directory}; give that of a model."
            f"{near_shipped(directory)}"
        )
    raise FileNotFoundError(
        f"there is no tokenizer in {directory}: expected {MODEL_FILE}, "
        f"{TOKENIZER_FILE} or {PRESET_FILE}. {tokenizer_advice(directory)}"
    )


def tokenizer_advice(directory):
    """Give advice about a model directory without a tokenizer, str."""
    for name in (WORD_PIECES_FILE, TOKENIZER_FILE):
        if (as_path(directory) / name).is_file():
            return (
                f"Its {name} is of WordPiece or another tokenizer than "
                "XLNet's, which is not read: this model can only be given "
                "token ids that its own tokenizer made, in Python."
            )
    return "Copy the one that came with the weights."


def _read_lowercase(values, config, directory):
    for source, name, key in (
        (values, TOKENIZER_FILE, "lowercase"),
        (config, CONFIG_FILE, "do_lower_case"),
    ):
        value = _read_bool(source, key, directory / name)
        if value is not None:
            return value
    return "Lowercase" in _kinds(values, directory)


def _keeps_accents(values, config, directory):
    if _read_bool(config, "keep_accents", directory / CONFIG_FILE):
        return True
    # The `tokenizer.json` of our presets has no normalizer.
    return "model" in values and "StripAccents" not in _kinds(values, directory)


def _read_bool(values, key, file):
    """Read the bool of a key, None if the key is missing."""
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise ValueError(
            f'"{key}" in {file} must be true or false. Received: '
            f"{json.dumps(value)[:80]}. Correct the file."
        )
    return value


def _kinds(values, directory):
    """Return the set of the normalizers' types in a `tokenizer.json`."""
    file = directory / TOKENIZER_FILE
    return {normalizer["type"] for normalizer in normalizers(values, file)}


def _warn_of_differences(tokenizer, values, directory):
    differences = []
    kinds = _kinds(values, directory)
    if tokenizer.keep_accents and "StripAccents" in kinds:
        differences.append(
            f"its {TOKENIZER_FILE} drops accents, which another file keeps; "
            "here they are kept"
        )
    if kinds - _KNOWN_NORMALIZERS:
        names = ", ".join(sorted(kinds - _KNOWN_NORMALIZERS))
        differences.append(f"it has the normalizer {names}")
    added = _tokens_beyond(tokenizer.vocabulary_size, values, directory)
    if added:
        differences.append(
            f"it adds {', '.join(added[:3])}{', ...' if added[3:] else ''} to "
            "the SentencePiece vocabulary, which here are ordinary text"
        )
    if differences:
        warnings.warn(
            f"the tokenizer in {directory} asks for more than the released "
            f"preprocessing, so ids can differ: {'; '.join(differences)}.",
            stacklevel=3,
        )


def _tokens_beyond(vocabulary_size, values, directory):
    """List the tokens that are added after the vocabulary, sorted by id."""
    file = directory / ADDED_TOKENS_FILE
    tokens = _read_json(file)
    if not all(isinstance(index, int) for index in tokens.values()):
        raise damaged(file, "it does not give an id for each token")
    for token in added_tokens(values, directory / TOKENIZER_FILE):
        tokens[token["content"]] = token["id"]
    beyond = [
        (index, content)
        for content, index in tokens.items()
        if index >= vocabulary_size
    ]
    return [content for _, content in sorted(beyond)]


def _check_expressible(tokenizer, model):
    if model.trainer_spec.model_type != model_file.UNIGRAM:
        reason = "is not a Unigram model"
    elif not tokenizer.cuts_at_blanks:
        reason = "does not cut texts at blanks"
    else:
        return
    raise ValueError(
        "`tokenizer` cannot be written in Hugging Face's format: its "
        f"SentencePiece model {reason}, as Hugging Face's XLNet tokenizer "
        f"must. Received: path={tokenizer.path!r}. Train one that does with "
        "`python -m data_pipeline.train_tokenizer`."
    )


def _config(tokenizer):
    return {
        # XLNetTokenizer of transformers 5 ignores the files and removes
        # accents.
        "tokenizer_class": "PreTrainedTokenizerFast"
        if tokenizer.keep_accents
        else "XLNetTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "keep_accents": tokenizer.keep_accents,
        "remove_space": True,
        "padding_side": "left",
        # By default transformers 5 does not return the segments of a pair.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "<sep>",
        "pad_token": "<pad>",
        "cls_token": "<cls>",
        "mask_token": "<mask>",
        "additional_special_tokens": ["<eop>", "<eod>"],
    }


def _read_json(file):
    """Read a JSON object, {} if the file does not exist."""
    if not file.is_file():
        return {}
    check_length(file, size_of(file), MOST_JSON_BYTES)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"it is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise damaged(file, "it does not hold a JSON object")
    return values
