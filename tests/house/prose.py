"""Sentences of the documents, counted: `python -m tests.house.prose`.

Prints for every Markdown document the sentences, the sentences above 30 words,
the words and phrases to avoid (CONTRIBUTING.md, "Words"), and the passives by a
rough pattern. Code, tables and headings are left out. The folder of another
checkout may follow the command.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "examples", "xlnet_tf", "benchmarks", "saved_models")
MOST_WORDS = 30

LEFT_OUT = re.compile(r"```.*?```|<!--.*?-->|^#.*?$|^\s*\|.*?$", re.M | re.S)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
# A paragraph ends at a blank line, an item at the next one.
UNIT = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ")
SENTENCE = re.compile(
    r"(?<=[.!?])[)*\"]*\s+(?=[\"(*\[]*(?:[A-Z0-9`]|\w+[/_.]\w))"
)

AVOIDED = re.compile(
    r"\b(?:that|those) of\b|\bof (?:which|it)\b|\b(?:is|are|was|were) told\b"
    r"|\bpromise[sd]?\b|\b[Ww]hat (?:is|are|was|were)\b|^Of \w+"
    r"|\b(?:knows|says|sees|tells)\b"
)
IRREGULAR = (
    "begun|bound|built|cut|done|drawn|found|given|held|hidden|kept|known|left|"
    "lost|made|meant|put|read|run|said|seen|sent|set|shown|split|stood|taken|"
    "told|thrown|understood|written"
)
PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+"
    rf"(?:(?:\w+ly|not|never|also|only|then)\s+)?(?:\w+ed|{IRREGULAR})\b"
)


def documents(root):
    """Sorted paths of the Markdown documents of a checkout."""
    found = [*root.glob("*.md")]
    for folder in FOLDERS:
        found += (root / folder).rglob("*.md")
    return sorted(found)


def sentences(text):
    """Yield the sentences of a Markdown text."""
    text = LINK.sub(r"\1", LEFT_OUT.sub("\n", text))
    text = CODE.sub("`", text)
    for unit in UNIT.split(f"\n{text}"):
        for sentence in SENTENCE.split(" ".join(unit.split())):
            # A title in bold type, or a mark alone, is no sentence.
            if len(sentence.split()) > 2:
                yield sentence


def counts(text):
    """List of int: sentences, long ones, avoided phrases, passives."""
    found = list(sentences(text))
    return [
        len(found),
        sum(len(x.split()) > MOST_WORDS for x in found),
        sum(len(AVOIDED.findall(x)) for x in found),
        sum(len(PASSIVE.findall(x)) for x in found),
    ]


def main():
    """Print the table, with its sums in the last line."""
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    total = [0] * 4
    print(f"{'':44}{'sentences':>10}{'long':>8}{'avoided':>9}{'passive':>9}")
    for file in documents(root):
        row = counts(file.read_text(encoding="utf-8"))
        total = [a + b for a, b in zip(total, row, strict=True)]
        _print_row(file.relative_to(root).as_posix(), row)
    _print_row("all", total)


def _print_row(name, row):
    print(f"{name:44}{row[0]:10}{row[1]:8}{row[2]:9}{row[3]:9}")


if __name__ == "__main__":
    main()
