"""What sequences can be made; known before TensorFlow is loaded."""

TRUNCATIONS = ("longest_first", "only_first", "only_second")


def check_settings(sequence_length, truncate, num_symbols=3):
    """Refuses settings with which no sequence can be made.

    Args:
        sequence_length: int.
        truncate: str.
        num_symbols: int, [SEP] and [CLS] of a sequence.

    Raises:
        ValueError: if a setting is out of range.
    """
    if truncate not in TRUNCATIONS:
        raise ValueError(
            f"`truncate` must be one of {', '.join(TRUNCATIONS)}. Received: "
            f"truncate={truncate!r}."
        )
    if sequence_length <= num_symbols:
        raise ValueError(
            f"`sequence_length` must be above {num_symbols}: [SEP], [CLS] and "
            f"a token. Received: sequence_length={sequence_length}."
        )
