"""Equality of structures of arrays; a failure names the place."""

import keras
import numpy as np


def assert_equal(found, expected, atol=0.0, rtol=0.0):
    """Assert that two structures of arrays are equal or close; name the place.

    Args:
        found, expected: arrays, variables, or lists, tuples or dicts of them.
        atol, rtol: floats, see `np.testing.assert_allclose`; 0 for equal.
    """
    keras.tree.assert_same_paths(found, expected)
    places = keras.tree.flatten_with_path(found)
    pairs = zip(places, keras.tree.flatten(expected), strict=True)
    for (place, one), other in pairs:
        name = getattr(one, "path", None) or ".".join(map(str, place))
        one, other = map(keras.ops.convert_to_numpy, (one, other))
        if atol or rtol:
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)
