"""Splitting of running text into sentences."""

import re

# A possible end of a sentence. Group 1, a full-width mark, always ends a
# sentence. Otherwise group 2 (opening quotes) or group 3 (the next letter)
# decides.
_SENTENCE_END = re.compile(
    r"(?:([。！？]+[”’」』]*)|[.!?…][\"'”’»)\]]*(?=\s))\s*"
    r"(?=([\"'“‘«(\[]*)(\w?))"
)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def split_sentences(text):
    """Split running text into sentences.

    A sentence ends after `.`, `!`, `?` or an ellipsis, with any closing quotes
    or brackets, if white space and an upper-case letter or an opening quote
    follow. A sentence also ends after a full-width mark. Text is also
    split after an abbreviation before a name. This is harmless, because
    sentences are only used to bound the segments A and B.

    Args:
        text: str, paragraphs separated by blank lines.

    Returns:
        list of non-empty str, with single blanks as white space.
    """
    sentences = []
    for paragraph in _BLANK_LINE.split(text):
        paragraph = " ".join(paragraph.split())
        begin = 0
        for match in _SENTENCE_END.finditer(paragraph):
            if match[1] or match[2] or match[3].isupper():
                sentences.append(paragraph[begin : match.end()].rstrip())
                begin = match.end()
        if begin < len(paragraph):
            sentences.append(paragraph[begin:])
    return sentences
