"""Splitting running text into sentences."""

import re

# Candidates for the end of a sentence. Group 1: a full-width mark. Without it,
# group 2 (opening quotes) or group 3 (the next letter) decides.
_SENTENCE_END = re.compile(
    r"(?:([。！？]+[”’」』]*)|[.!?…][\"'”’»)\]]*(?=\s))\s*"
    r"(?=([\"'“‘«(\[]*)(\w?))"
)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def split_sentences(text):
    """Split running text into sentences.

    A sentence ends at `.`, `!`, `?` or an ellipsis, closing quotes or brackets
    included, before white space and an upper-case letter or an opening quote;
    also right after a full-width mark. Abbreviations before names are split
    too, which is harmless: sentences only bound segments A and B.

    Args:
        text: str, paragraphs separated by blank lines.

    Returns:
        list of str, white space collapsed, none empty.
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
