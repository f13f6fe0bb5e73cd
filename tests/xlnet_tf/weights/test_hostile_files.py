"""Files that are wrong somewhere, read in this process: a few of each kind.

`make torture TORTURE='--only hostile_files'` reads a million of them in a
process that has little memory, of every reader.
"""

import pytest

from tests.support.hostile_readers import SHARES
from tests.support.hostile_readers import readers
from tests.support.mutations import mutated_safetensors
from tests.torture.hostile_files import outcome

# Others take a tenth of a second each, or need torch.
QUICK = ("config", "run files", "task files", "settings", "archives", "texts")
# Files that were once answered otherwise, by reader.
ONCE_BROKEN = {
    # names of members that are empty, or not UTF-8
    "archives": (
        "617621969-384174",
        "743904139-32267",
        "743904139-60474",
        "743904139-79721",
    ),
    # a rate of a head that is a hundred lists in each other
    "hugging face": ("743904139-43339",),
    "preset": ("743904139-213314", "617621969-174814"),
    # a message with an identity of 12,000 letters
    "task files": ("617621969-324650",),
    # a piece with the end of a line in it
    "vocabulary": ("743904139-231138",),
    # a tensor with the end of a line in its name
    "torch": ("617621969-35511",),
    # a tensor with a name of 4,000 letters
    "bert": ("743904139-129826",),
}


def test_a_wrong_file_gives_one_line(tmp_path):
    assert set(QUICK) < set(SHARES)
    for name, reader in readers(tmp_path, QUICK).items():
        reader.read(reader.directory)
        problems = [outcome(reader, f"{name} {i}") for i in range(12)]
        assert problems == [None] * 12


def test_what_was_once_broken_gives_one_line(tmp_path):
    pytest.importorskip("torch")
    for name, reader in readers(tmp_path, ONCE_BROKEN).items():
        for seed in ONCE_BROKEN[name]:
            assert outcome(reader, seed) is None


def test_a_wrong_answer_is_noticed(tmp_path):
    """Errors of other types, of several lines, or without a file."""
    (reader,) = readers(tmp_path, ["config"]).values()

    def failing(error):
        def read(path):
            raise error

        return reader._replace(read=read)

    here = str(reader.directory)
    for error in (
        KeyError("x"),
        RuntimeError(here),
        MemoryError(),
        ValueError("no file"),
        ValueError(f"{here}\nand more"),
        ValueError(here + "x" * 4000),
        TypeError(f"{here} is a list"),
    ):
        assert outcome(failing(error), "1"), error
    for error in (ValueError(f"{here} is damaged"), OSError(here)):
        assert outcome(failing(error), "1") is None
    before = {x.name: x.read_bytes() for x in reader.directory.iterdir()}
    outcome(reader, "2")
    after = {x.name: x.read_bytes() for x in reader.directory.iterdir()}
    assert after == before


def test_the_same_seed_changes_a_file_in_the_same_way():
    import random

    content = (2).to_bytes(8, "little") + b"{}" + bytes(100)
    for seed in range(20):
        one, two = (
            mutated_safetensors(content, random.Random(seed)) for _ in range(2)
        )
        assert one == two
