"""Commands with options and files of all kinds, right and wrong ones."""

import random

from tests.torture import command_options


def test_a_command_ends_well_or_says_what_is_wrong(tmp_path):
    """Without models; `make torture` gives them too."""
    found = command_options.trials(150, tmp_path, random.Random(5), False)
    broken = [problem for _, problem in found if problem is not None]
    assert broken == []
