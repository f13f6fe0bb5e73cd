"""Models of one and two layers, made once and only read."""

import pytest

from tests.support.weight_models import ours


@pytest.fixture(scope="session")
def models():
    """Function of a class, its arguments and `config=`: a random model.

    Equal calls give the same model: tests must not change it.
    """
    made = {}

    def model(cls, config=None, **arguments):
        key = repr((cls, sorted((config or {}).items()), arguments))
        if key not in made:
            made[key] = ours(cls, config, **arguments)
        return made[key]

    return model
