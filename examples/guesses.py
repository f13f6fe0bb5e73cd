"""Guesses of words for blanks in text: accuracy, and a picture."""

import json
import math


def held_out_blanks(records, count):
    """Replace one word by a blank in each of some held-out texts.

    Args:
        records: directory of records with a validation split.
        count: int, maximum number of texts.

    Returns:
        list of (text with a blank, the replaced word).
    """
    from data_pipeline.pretraining import PretrainingData
    from data_pipeline.records.reading import tokenizer_of_records
    from data_pipeline.tokenization.symbols import BLANK
    from data_pipeline.tokenization.symbols import SEP_ID

    data = PretrainingData(records, batch_size=1, split="validation")
    tokenizer = tokenizer_of_records(records, data.manifest)
    found = []
    for batch in data.dataset().take(data.num_records):
        ids, segments = (
            batch[name].numpy()[0] for name in ("token_ids", "segment_ids")
        )
        ids = ids[(segments == 0) & (ids != SEP_ID)].tolist()
        pieces = [tokenizer.id_to_piece(index) for index in ids]
        # Choose the first word after the middle that is a single piece.
        for place in range(len(ids) // 2, len(ids) - 1):
            word = pieces[place].removeprefix(BLANK)
            begins = (x.startswith(BLANK) for x in pieces[place : place + 2])
            if all(begins) and word.isalpha() and len(word) > 2:
                before = tokenizer.decode(ids[:place])
                after = tokenizer.decode(ids[place + 1 :])
                found.append((f"{before} <mask> {after}".strip(), word))
                break
        if len(found) >= count:
            break
    return found


def guesses_of(answer):
    """Parse a line of `predict`: list of guesses (word, probability)."""
    answer = json.loads(answer)
    words = [x.strip("\u2581") or "\u2581" for x in answer["candidates"][0]]
    chances = map(math.exp, answer["log_probabilities"][0])
    return list(zip(words, chances, strict=True))


def draw_guesses(sentences, answers, picture):
    """Draw the guesses for blanks as bars; bars of correct words are red.

    Args:
        sentences: list of (text with a blank, the replaced word).
        answers: list of str, lines that `predict` printed for the texts.
        picture: path of the PNG to write.
    """
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(
        len(sentences),
        figsize=(7, 0.6 + 1.5 * len(sentences)),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    for axes, (text, word), answer in zip(
        rows[:, 0], sentences, answers, strict=True
    ):
        words, chances = zip(*guesses_of(answer), strict=True)
        places = range(len(words))
        colours = ["tab:red" if x == word else "tab:blue" for x in words]
        axes.barh(places, chances, color=colours)
        axes.set_yticks(places, words)
        axes.invert_yaxis()
        before, after = text.split("<mask>")
        title = f"{before[-45:]}[{word}]{after[:45]}"
        axes.set_title(title, fontsize=9, parse_math=False)
    rows[-1, 0].set_xlabel("probability (red: the word that was there)")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def share_found(blanks, answers):
    """Make a line about how often the correct word is among the guesses.

    Args:
        blanks: list of (text with a blank, the replaced word).
        answers: list of str, lines that `predict` printed for the texts.
    """
    if not blanks:
        return ""
    found = [
        word in dict(guesses_of(answer))
        for (_, word), answer in zip(blanks, answers, strict=True)
    ]
    count = len(guesses_of(answers[0]))
    return (
        f"\nof {len(found)} blanks in held-out text, {sum(found)} "
        f"({sum(found) / len(found):.0%}) have the word that was there among "
        f"the {count} guesses.\n"
    )
