"""The nine special symbols, the first pieces of every XLNet vocabulary.

Ids as released, and the segments of the layouts. The records, the tokenizers
and the exports share them.
"""

UNKNOWN_ID = 0
BEGIN_ID = 1
END_ID = 2
CLS_ID = 3
SEP_ID = 4
PAD_ID = 5
MASK_ID = 6
END_OF_DOCUMENT_ID = 7
END_OF_PARAGRAPH_ID = 8

SPECIAL_IDS = {
    "<unk>": UNKNOWN_ID,
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

BLANK = "\u2581"  # SentencePiece writes a space as this block

# Only whether two segments are equal matters to the model; the class token and
# padding have one of their own. Padding on the right is that of questions.
FIRST_SEGMENT, SECOND_SEGMENT, CLS_SEGMENT = range(3)
PADDING_SEGMENTS = {"left": 4, "right": 3}
PADDING_ID = 0  # as released, not that of <pad>
