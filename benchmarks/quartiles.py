"""Medians and spreads of a few times, and of ratios round by round."""


def quartiles(values):
    """First quartile, median and third quartile, linearly interpolated.

    Args:
        values: non-empty iterable of float.

    Returns:
        list of three float.
    """
    values = sorted(values)
    found = []
    for share in (0.25, 0.5, 0.75):
        place = share * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        found.append(values[low] + (place - low) * (values[high] - values[low]))
    return found


def ratios(seconds, reference):
    """How many times longer than the reference, round by round.

    What disturbs a machine disturbs neighbours in time alike, so the ratio of
    a round says more than the ratio of two medians.

    Args:
        seconds: list of float, one a round.
        reference: list of float, the same rounds.

    Returns:
        list of float.

    Raises:
        ValueError: if the numbers of rounds differ.
    """
    return [
        of_one / of_reference
        for of_one, of_reference in zip(seconds, reference, strict=True)
    ]
