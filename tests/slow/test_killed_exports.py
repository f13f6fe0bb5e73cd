"""Exports that are killed, in processes: a server sees whole versions only."""

import random

from tests.torture import killed_export


def test_a_server_sees_whole_versions_only(tmp_path):
    found = list(killed_export.trials(1, tmp_path, random.Random(0)))
    assert [problem for _, problem in found] == [None] * 3
