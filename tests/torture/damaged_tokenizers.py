"""No flipped bit of a tokenizer, or of a build's own files, is silent.

A tokenizer is refused, or splits texts as before. A build is refused, or makes
the same bytes again.
"""

import contextlib
import io
import os
import shutil
import warnings

import pytest

from data_pipeline.records import held_out
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.reading import tokenizer_of_records
from data_pipeline.tokenization.hugging_face import read_tokenizer
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from data_pipeline.train_tokenizer import train_tokenizer
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import write_corpus
from tests.support.record_fixtures import write_set
from tests.support.samples import tiny_sentences

TRIALS = 1800
_DIRECTORY_FILES = (
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "SHA256SUMS",
)
_TEXTS = list(tiny_sentences(20))


def trials(count, directory, generator):
    """Yields (label, problem) of each trial; see `tests.torture`."""
    kinds = {**_tokenizers(directory), **_builds(directory)}
    for number in range(count):
        label, (file, problem_of) = list(kinds.items())[number % len(kinds)]
        content = file.read_bytes()
        place, bit = generator.randrange(len(content)), generator.randrange(8)
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        file.write_bytes(damaged)
        try:
            problem = problem_of()
        finally:
            file.write_bytes(content)
        yield label, problem and f"bit {bit} of byte {place}: {problem}"


def _tokenizers(directory):
    """Files of tokenizers, and what is wrong when they are read."""
    model = directory / "spiece.model"
    tokenizer = train_tokenizer(tiny_sentences(), model, vocabulary_size=300)
    exported, records = directory / "exported", directory / "records"
    write_tokenizer(tokenizer, exported)
    write_set(records, (3,), tokenizer=tokenizer)
    expected = [tokenizer.encode(text) for text in _TEXTS]

    def of(read):
        def problem():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = read()
            except (ValueError, FileNotFoundError) as error:
                return "several lines" if "\n" in str(error) else None
            if found.lowercase != tokenizer.lowercase:
                return "another case, silently"
            same = [found.encode(text) for text in _TEXTS] == expected
            return None if same else "other ids, silently"

        return problem

    return {
        "the model that was trained": (model, of(lambda: Tokenizer(model))),
        **{
            f"{name} of a model's directory": (
                exported / name,
                of(lambda: read_tokenizer(exported)),
            )
            for name in _DIRECTORY_FILES
        },
        "spiece.model of records": (
            records / "spiece.model",
            of(lambda: tokenizer_of_records(records, read_manifest(records))),
        ),
    }


def _builds(directory):
    """Files of a build that was stopped, and what is wrong with its records."""
    corpus = write_corpus(directory / "corpus", documents=8)
    whole, stopped = directory / "whole", directory / "stopped"
    with small_parts(), _quiet():
        run_build(corpus, whole)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(held_out, "numbered_parts", _first_part)
            run_build(corpus, stopped)
    expected, building = digests(whole), stopped / ".building"

    def problem():
        output = shutil.copytree(stopped, directory / "again")
        try:
            with small_parts(), _quiet() as errors:
                is_refused = run_build(corpus, output)
            found = digests(output)
        finally:
            shutil.rmtree(output)
        if is_refused:
            return None if errors.getvalue().count("\n") == 1 else "no one line"
        return None if found == expected else "other records, silently"

    names = sorted(x for x in os.listdir(building) if "train-0" in x)
    return {
        f"{name} of a stopped build": (building / name, problem)
        for name in ("build.json", *names)
    }


@contextlib.contextmanager
def _quiet():
    """Keeps what a command prints; yields the io.StringIO of its errors."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(errors):
            yield errors


_numbered_parts = held_out.numbered_parts


def _first_part(*arguments):
    """The first part; then the build is stopped."""
    yield next(_numbered_parts(*arguments))
    raise KeyboardInterrupt
