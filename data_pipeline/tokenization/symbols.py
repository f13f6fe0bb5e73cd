"""Special symbols of XLNet vocabularies, and layouts of sequences.

The nine special symbols are the first pieces of every vocabulary. Records,
tokenizers and exports all use their ids, which are the same as in the release.
"""

import dataclasses

UNKNOWN_ID = 0
BEGIN_ID = 1
END_ID = 2
CLS_ID = 3
SEP_ID = 4
PAD_ID = 5
MASK_ID = 6
END_OF_DOCUMENT_ID = 7
END_OF_PARAGRAPH_ID = 8

UNKNOWN = "<unk>"

SPECIAL_IDS = {
    UNKNOWN: UNKNOWN_ID,
    "<s>": BEGIN_ID,
    "</s>": END_ID,
    "<cls>": CLS_ID,
    "<sep>": SEP_ID,
    "<pad>": PAD_ID,
    "<mask>": MASK_ID,
    "<eod>": END_OF_DOCUMENT_ID,
    "<eop>": END_OF_PARAGRAPH_ID,
}
SPECIAL_SYMBOLS = tuple(SPECIAL_IDS)

BLANK = "\u2581"  # SentencePiece's character for a space

# XLNet only compares segments for equality. The class token and padding have
# separate segments. Questions are padded on the right.
FIRST_SEGMENT, SECOND_SEGMENT, CLS_SEGMENT = range(3)
PADDING_SEGMENTS = {"left": 4, "right": 3}
PADDING_ID = 0  # as in the release; not the id of <pad>


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of a sequence: positions and segments of symbols and padding.

    Attributes:
        name: str, the value of `layout` in a model's config.
        class_first: bool, whether [CLS] is the first token instead of the last.
        class_segment: int, segment id of [CLS].
        padding_segments: dict from the padded side ("left" or "right") to the
            segment id of padding (int).
    """

    name: str
    class_first: bool
    class_segment: int
    padding_segments: dict

    @property
    def text_begin(self):
        """Position of the text's first token, int."""
        return int(self.class_first)

    def pad_side(self, usual):
        """Choose the side to pad, "left" or "right".

        Args:
            usual: the side to pad if the class token is at the end.
        """
        # A class token at the front must stay at position 0.
        return "right" if self.class_first else usual

    def fillers(self, pad_side):
        """Return a dict of feature names to their values in padding."""
        segment = self.padding_segments[pad_side]
        return {"token_ids": PADDING_ID, "segment_ids": segment}


LAYOUTS = {
    layout.name: layout
    for layout in (
        # `A sep cls` and `A sep B sep cls`
        Layout("xlnet", False, CLS_SEGMENT, PADDING_SEGMENTS),
        # `cls A sep` and `cls A sep B sep`
        Layout("bert", True, FIRST_SEGMENT, {"left": 0, "right": 0}),
    )
}


def find_layout(name):
    """Find a Layout by its name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in LAYOUTS:
        raise ValueError(
            f"`layout` must be one of {', '.join(LAYOUTS)}. Received: "
            f"layout={name!r}."
        )
    return LAYOUTS[name]


def missing_symbols(pieces):
    """List the special symbols that a vocabulary lacks or has at another id.

    Args:
        pieces: list of str.

    Returns:
        list of str, such as "<unk> at id 0".
    """
    return [
        f"{symbol} at id {index}"
        for index, symbol in enumerate(SPECIAL_SYMBOLS)
        if pieces[index : index + 1] != [symbol]
    ]
