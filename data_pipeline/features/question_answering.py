"""Questions about contexts -> windows `context sep question sep cls`.

A context that is too long is read in overlapping windows. Every piece of a
context knows its characters, so that a predicted span is a slice of the text
as the file has it.

Shapes: X examples, W windows, N tokens of all windows.
"""

import dataclasses
import typing

import numpy as np

from data_pipeline.features.answer_pieces import Contexts
from data_pipeline.features.answer_pieces import encode_contexts
from data_pipeline.features.answer_pieces import find_answers
from data_pipeline.features.context_windows import Plan
from data_pipeline.features.context_windows import max_context
from data_pipeline.features.context_windows import plan_windows
from data_pipeline.features.rows import Ragged
from data_pipeline.features.rows import Rows
from data_pipeline.features.rows import join
from data_pipeline.features.rows import ranges
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import PADDING_SEGMENTS
from data_pipeline.tokenization.symbols import SEP_ID

_BLOCK = 4096  # windows that are built at once, for little memory


class Report(typing.NamedTuple):
    """What became of the examples; all int.

    `contexts` counts distinct ones. `impossible` counts questions without an
    answer. Of `answers`, `inexact` do not begin and end where pieces do: the
    label then is the pieces around them; `misplaced` are not at their place in
    the context, or have no piece: they give no label. Training leaves out
    questions all whose answers are misplaced, `left_out`. `out_of_reach` counts
    questions whose answer is whole in no window.
    """

    examples: int
    contexts: int
    windows: int
    cut_questions: int
    split_contexts: int
    windows_with_answer: int = 0
    impossible: int = 0
    answers: int = 0
    inexact: int = 0
    misplaced: int = 0
    left_out: int = 0
    out_of_reach: int = 0

    def __str__(self):
        text = (
            f"{self.examples} questions about {self.contexts} contexts: "
            f"{self.windows} windows; {self.cut_questions} questions cut, "
            f"{self.split_contexts} contexts split"
        )
        if not (self.answers or self.impossible):
            return text
        return (
            f"{text}; {self.windows_with_answer} windows with an answer, "
            f"{self.impossible} questions without one; {self.answers} answers, "
            f"{self.inexact} not at the borders of pieces, {self.misplaced} "
            f"not at their place; {self.left_out} questions left out, "
            f"{self.out_of_reach} with an answer that no window holds whole"
        )


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of examples, in the order of the examples.

    Attributes:
        token_ids: int32 [N], `context sep question sep cls`.
        segment_ids: int32 [N], 0 context, 1 question, 2 cls; each <sep> has
            that of what is before it.
        answer_mask: uint8 [N], 1 = an answer may start or end here: the
            context and <cls>.
        is_max_context: uint8 [N], 1 = a token of the context that has more
            context on both sides here than in any other window.
        row_splits: int64 [W + 1], where windows begin in these.
        class_index: int32 [W], position of <cls>, the last one.
        example_index: int32 [W].
        first_piece: int32 [W], the context's piece at position 0.
        num_pieces: int32 [W], pieces of the context in the window.
        contexts: Contexts.
        report: Report.
        start_position, end_position: int32 [W], of the first answer that is
            whole in the window, else `class_index`; None without labels.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray
    answer_mask: np.ndarray
    is_max_context: np.ndarray
    row_splits: np.ndarray
    class_index: np.ndarray
    example_index: np.ndarray
    first_piece: np.ndarray
    num_pieces: np.ndarray
    contexts: Contexts
    report: Report
    start_position: np.ndarray | None = None
    end_position: np.ndarray | None = None

    def __len__(self):
        return len(self.class_index)

    @property
    def is_impossible(self):
        """float32 [W], 1 = no answer in the window; None without labels."""
        if self.start_position is None:
            return None
        return (self.start_position == self.class_index).astype(np.float32)

    def characters(self, windows, starts, ends):
        """The characters of spans, in the context as the file has it.

        Args:
            windows: int array, indices of windows.
            starts: int array of that shape, positions in the window, all in
                its context.
            ends: likewise, inclusive.

        Returns:
            begins: int array; ends: int array, exclusive.
        """
        context = self.contexts.of_example[self.example_index[windows]]
        first = self.contexts.splits[context] + self.first_piece[windows]
        return (
            self.contexts.begins[first + starts],
            self.contexts.ends[first + ends],
        )

    def rows(self):
        """The windows as rows to batch, padded on the right.

        Returns:
            Rows of `token_ids`, `segment_ids`, `answer_mask`, `class_index`
            and, with labels, `start_position`, `end_position`,
            `is_impossible`.
        """
        names = ("token_ids", "segment_ids", "answer_mask")
        labels = ("start_position", "end_position", "is_impossible")
        dense = {"class_index": self.class_index}
        if self.start_position is not None:
            dense |= {name: getattr(self, name) for name in labels}
        return Rows(
            {n: Ragged(getattr(self, n), self.row_splits) for n in names},
            dense,
            fillers={
                "token_ids": 0,
                "segment_ids": PADDING_SEGMENTS["right"],
                "answer_mask": 0,
            },
            side="right",
        )


def make_windows(
    examples,
    tokenizer,
    sequence_length=512,
    stride=128,
    max_question_length=64,
    training=True,
):
    """Makes the windows of questions.

    Args:
        examples: list of QuestionExample.
        tokenizer: Tokenizer.
        sequence_length: int, most tokens of a window. Default 512.
        stride: int, pieces of the context between the starts of windows.
            Default 128.
        max_question_length: int, pieces; longer questions lose their end.
            Default 64.
        training: bool, default True: with labels, and without the questions
            that have answers but none that can be a label. False: at least one
            window for every example.

    Returns:
        Windows.

    Raises:
        ValueError: a setting is out of range, a question leaves no room for
            its context, or training examples have no answer at all.

    Source: `convert_examples_to_features` of the released run_squad. There an
        answer is found by aligning strings, and the last piece of a context
        cannot be predicted; here neither.
    """
    _check_settings(stride, max_question_length)
    contexts = encode_contexts(examples, tokenizer)
    ids, lengths = tokenizer.encode_flat([one.question for one in examples])
    questions = Ragged.from_lengths(ids, lengths).head(max_question_length)
    room = sequence_length - 3 - questions.lengths
    _check_room(examples, room, sequence_length)
    plan = plan_windows(contexts.lengths, room, stride)
    counts = {
        "examples": len(examples),
        "contexts": len(contexts.splits) - 1,
        "cut_questions": int((lengths > max_question_length).sum()),
        "split_contexts": len(np.unique(contexts.of_example[plan.counts > 1])),
    }
    labels = {}
    if training:
        plan, labels, found = _labelled(examples, contexts, plan)
        counts |= found
    class_index = plan.num_pieces + questions.lengths[plan.example] + 2
    for name, position in labels.items():
        labels[name] = np.where(position < 0, class_index, position)
    return Windows(
        **_tokens(plan, contexts, questions),
        row_splits=np.concatenate([[0], np.cumsum(class_index + 1)]),
        class_index=class_index.astype(np.int32),
        example_index=plan.example.astype(np.int32),
        first_piece=plan.first_piece.astype(np.int32),
        num_pieces=plan.num_pieces.astype(np.int32),
        contexts=contexts,
        report=Report(windows=len(plan.example), **counts),
        **{name: value.astype(np.int32) for name, value in labels.items()},
    )


def _check_settings(stride, max_question_length):
    if stride < 1:
        raise ValueError(
            f"`stride` must be at least 1 piece. Received: stride={stride}."
        )
    if max_question_length < 0:
        raise ValueError(
            "`max_question_length` must not be negative. Received: "
            f"max_question_length={max_question_length}."
        )


def _check_room(examples, room, sequence_length):
    if not len(room) or room.min() >= 1:
        return
    number = int(room.argmin())
    one = examples[number]
    length = sequence_length - 3 - int(room[number])
    raise ValueError(
        f"{one.where or f'question {one.id!r}'}: `sequence_length` must hold "
        "the question, 3 symbols and a piece of the context: expected at least "
        f"{length + 4}. Received: sequence_length={sequence_length} for a "
        f"question of {length} pieces. Raise it, or lower "
        "`max_question_length`."
    )


def _check_answers(examples, answers):
    if not examples or answers.num_given.any():
        return
    if not any(one.is_impossible for one in examples):
        raise ValueError(
            "training needs answers, and no example has one. Received: "
            f"{len(examples)} examples, the first of "
            f"{examples[0].where or examples[0].id}. Is this a file without "
            "labels?"
        )


def _labelled(examples, contexts, plan):
    """Plan of what training takes, labels with -1 for none, and counts."""
    answers = find_answers(examples, contexts)
    _check_answers(examples, answers)
    is_usable = np.zeros(len(examples), bool)
    is_usable[answers.example] = True
    left_out = (answers.num_given > 0) & ~is_usable
    kept = ~left_out[plan.example]
    plan = Plan(
        *(column[kept] for column in plan[:3]),
        np.where(left_out, 0, plan.counts),
    )
    start, end = _first_answers(plan, answers)
    reached = np.unique(plan.example[start >= 0])
    return (
        plan,
        {"start_position": start, "end_position": end},
        {
            "windows_with_answer": int((start >= 0).sum()),
            "impossible": int((answers.num_given == 0).sum()),
            "answers": int(answers.num_given.sum()),
            "inexact": len(answers.example) - answers.num_exact,
            "misplaced": int(answers.num_given.sum()) - len(answers.example),
            "left_out": int(left_out.sum()),
            "out_of_reach": int(is_usable.sum()) - len(reached),
        },
    )


def _first_answers(plan, answers):
    """int64 start and end [W] of the first answer in each window, or -1."""
    per_example = np.bincount(answers.example, minlength=len(plan.counts))
    before = np.cumsum(per_example) - per_example
    counts = per_example[plan.example]
    window = np.repeat(np.arange(len(counts)), counts)
    answer = ranges(before[plan.example], counts)
    start = answers.first[answer] - plan.first_piece[window]
    end = answers.last[answer] - plan.first_piece[window]
    inside = (start >= 0) & (end < plan.num_pieces[window])
    window, place = np.unique(window[inside], return_index=True)
    result = np.full((2, len(counts)), -1)
    result[0, window] = start[inside][place]
    result[1, window] = end[inside][place]
    return result


def _tokens(plan, contexts, questions):
    """dict of the columns with one value a token."""
    blocks = [
        _block(Plan(*columns, plan.counts), contexts, questions)
        for columns in _blocks(plan)
    ]
    names = ("token_ids", "segment_ids", "answer_mask", "is_max_context")
    types = (np.int32, np.int32, np.uint8, np.uint8)
    return {
        name: np.concatenate([np.zeros(0, kind), *(b[i] for b in blocks)])
        for i, (name, kind) in enumerate(zip(names, types, strict=True))
    }


def _blocks(plan):
    """Columns of about _BLOCK windows, all those of an example together."""
    firsts = np.cumsum(plan.counts) - plan.counts
    cuts = np.arange(_BLOCK, len(plan.example), _BLOCK)
    cuts = np.unique(firsts[plan.example[cuts]])
    return zip(*(np.split(column, cuts) for column in plan[:3]), strict=True)


def _block(plan, contexts, questions):
    context = contexts.of_example[plan.example]
    places = ranges(
        contexts.splits[context] + plan.first_piece, plan.num_pieces
    )
    pieces = Ragged.from_lengths(contexts.token_ids[places], plan.num_pieces)
    questions = questions.gather(plan.example)
    one = np.ones(len(context), np.int64)
    lengths = (pieces.lengths, one, questions.lengths, one, one)

    def column(kind, *parts):
        parts = [
            part if isinstance(part, Ragged) else Ragged.full(n, part, kind)
            for part, n in zip(parts, lengths, strict=True)
        ]
        return join(parts).values

    is_best = Ragged(max_context(plan, contexts.lengths), pieces.row_splits)
    return (
        column(np.int32, pieces, SEP_ID, questions, SEP_ID, CLS_ID),
        column(np.int32, 0, 0, 1, 1, 2),
        column(np.uint8, 1, 0, 0, 0, 1),
        column(np.uint8, is_best, 0, 0, 0, 0),
    )
