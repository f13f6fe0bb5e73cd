"""Models of Hugging Face's give the same outputs here, and ours there.

Every weight is random, biases and norms too; what is held to what is said in
`hugging_face_models.py`. `head_mask` is theirs alone and left out, and
their query stream sees its own token without a `perm_mask`: one is given.
"""

import numpy as np
import pytest

import xlnet_tf
from tests.slow.peers.hugging_face_models import agree
from tests.slow.peers.hugging_face_models import call
from tests.slow.peers.hugging_face_models import features
from tests.slow.peers.hugging_face_models import for_theirs
from tests.slow.peers.hugging_face_models import theirs
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultiLabelClassifier
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier

torch = pytest.importorskip("torch", reason="compares with Hugging Face's code")
pytest.importorskip("transformers", reason="compares with Hugging Face's code")
# torch's arrays, which Keras copies in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.fixture
def held(tmp_path, record_property):
    """`agree` in a directory of the test; notes down the differences."""

    def hold(model, cls, compare, **arguments):
        read, written = agree(model, cls, tmp_path, compare, **arguments)
        record_property("difference", f"{read:.1e} {written:.1e}")
        return cls.from_preset(tmp_path / "theirs")

    return hold


def stream_outputs(inputs):
    """Compares both streams and what is remembered."""

    def compare(model, mine):
        outputs = call(model, inputs, output_hidden_states=True, use_mems=True)
        states = outputs.hidden_states
        result = as_numpy(mine(inputs))
        result.pop("memory_mask", None)
        expected = {"content": states[-1]}
        if "target_mapping" in inputs:
            expected = {"content": states[-2], "query": states[-1]}
        if "memories" in result:
            expected["memories"] = tuple(
                m.transpose(0, 1) for m in outputs.mems
            )
        return expected, result

    return compare


PLAIN = dict(padding=None)
CASES = {
    "padded left": ({}, dict(padding="left")),
    "padded right": ({}, dict(padding="right")),
    "padded both ways": ({}, dict(padding="both")),
    "remembers": (dict(mem_len=5), {}),
    "with memory": (dict(mem_len=5), dict(memory_length=5)),
    "memory longer than the segment": (
        dict(mem_len=17),
        dict(memory_length=17, padding="left"),
    ),
    "remembers a part": (dict(mem_len=5, reuse_len=3), dict(memory_length=5)),
    "permutation": ({}, dict(targets=True)),
    "permutation with memory": (
        dict(mem_len=5),
        dict(targets=True, memory_length=5),
    ),
    "causal": (dict(attn_type="uni", mem_len=5), PLAIN),
    "causal with memory": (
        dict(attn_type="uni", mem_len=5),
        dict(padding=None, memory_length=5),
    ),
    # Theirs takes a causal mask and another one for a batch of 1 only.
    "causal, padded": (
        dict(attn_type="uni", mem_len=5),
        dict(batch=1, memory_length=5),
    ),
    "causal permutation": (
        dict(attn_type="uni", mem_len=5),
        dict(batch=1, memory_length=5, targets=True),
    ),
    "equally many keys": (
        dict(attn_type="uni", same_length=True, mem_len=5),
        dict(padding=None, memory_length=5),
    ),
    "clamped": (dict(clamp_len=3, mem_len=5), dict(memory_length=5)),
    "half reads backwards": (dict(bi_data=True), dict(batch=4, targets=True)),
    "half reads backwards, clamped": (
        dict(bi_data=True, clamp_len=3, mem_len=5),
        dict(batch=4, memory_length=5),
    ),
    "half reads backwards, causal": (
        dict(bi_data=True, attn_type="uni", mem_len=5),
        dict(batch=4, padding=None, memory_length=5),
    ),
    "gelu": (dict(ff_activation="gelu"), {}),
    "gelu_new": (dict(ff_activation="gelu_new"), {}),
    "relu": (dict(ff_activation="relu"), {}),
    "epsilon": (dict(layer_norm_eps=0.1), dict(targets=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_backbones_agree(held, case):
    values, how = CASES[case]
    model = theirs("XLNetModel", **values)
    held(model, XLNetBackbone, stream_outputs(features(**how)))


def test_backbones_agree_without_segments(held):
    inputs = features()
    del inputs["segment_ids"]
    held(theirs("XLNetModel"), XLNetBackbone, stream_outputs(inputs))


def test_memory_is_handed_on_from_segment_to_segment(held):
    segments = [features(seed=seed, padding=None) for seed in (1, 2, 3)]

    def compare(model, mine):
        results, memories, mems = [], None, None
        for segment in segments:
            there = call(model, segment, mems=mems, use_mems=True)
            here = mine({**segment, "memories": memories})
            mems, memories = there.mems, here["memories"]
            results.append((there.last_hidden_state, here["content"]))
        assert mems[0].shape[0] == 17 > T
        return tuple(zip(*results, strict=True))

    held(theirs("XLNetModel", mem_len=17), XLNetBackbone, compare)


def test_language_models_agree(held):
    inputs = features(targets=True, memory_length=5)
    target_ids = np.random.default_rng(0).integers(0, 97, (3, 7))

    def compare(model, mine):
        there = call(model, {**inputs, "labels": target_ids})
        here = mine({**inputs, "target_ids": target_ids})
        logits = mine.logits(here["query"])
        mems = tuple(m.transpose(0, 1) for m in there.mems)
        expected = (there.logits, there.loss, mems)
        return expected, (logits, here["loss"], here["memories"])

    held(theirs("XLNetLMHeadModel", mem_len=5), XLNetPretrainer, compare)


def logits_of(inputs, field="logits"):
    """Compares the logits of a task."""

    def compare(model, mine):
        there = as_numpy(getattr(call(model, inputs), field))
        return there.reshape(mine(inputs).shape), mine(inputs)

    return compare


LABELS = {0: "no", 1: "maybe", 2: "yes"}


@pytest.mark.parametrize(
    "values",
    [
        dict(summary_type="last"),
        dict(summary_type="first"),
        dict(summary_type="mean"),
        dict(summary_use_proj=False),
        dict(summary_activation="linear"),
    ],
    ids=str,
)
def test_text_classifiers_agree(held, tmp_path, values):
    model = theirs("XLNetForSequenceClassification", id2label=LABELS, **values)
    compare = logits_of(features(padding="left"))
    mine = held(model, XLNetTextClassifier, compare)
    assert mine.labels == ["no", "maybe", "yes"]
    again = type(model).from_pretrained(tmp_path / "ours")
    assert again.config.id2label == LABELS
    assert again.config.label2id == {"no": 0, "maybe": 1, "yes": 2}


def test_text_regressors_agree(held, tmp_path):
    model = theirs("XLNetForSequenceClassification", num_labels=1)
    held(model, XLNetTextRegressor, logits_of(features()))
    again = type(model).from_pretrained(tmp_path / "ours")
    assert again.config.problem_type == "regression"


def test_multi_label_classifiers_agree(held, tmp_path):
    """Of one class too, which is a number else; the loss is theirs."""
    inputs = features()
    for count in (3, 1):
        model = theirs(
            "XLNetForSequenceClassification",
            num_labels=count,
            problem_type="multi_label_classification",
        )
        mine = held(model, XLNetMultiLabelClassifier, logits_of(inputs))
        labels = np.eye(4, count, dtype=np.float32)[1:]
        there = call(model, inputs, labels=torch.tensor(labels)).loss
        here = mine.default_loss()(labels, mine(inputs))
        np.testing.assert_allclose(as_numpy(there), here, atol=1e-5)
        again = type(model).from_pretrained(tmp_path / "ours")
        assert again.config.problem_type == "multi_label_classification"
        loaded = xlnet_tf.load(tmp_path / "ours")
        assert type(loaded) is XLNetMultiLabelClassifier


def test_token_classifiers_agree(held):
    model = theirs("XLNetForTokenClassification", id2label=LABELS)
    mine = held(model, XLNetTokenClassifier, logits_of(features()))
    assert mine.labels == ["no", "maybe", "yes"]
    assert mine.dropout == 0, "that code has none before its last layer"


def test_multiple_choice_agrees(held):
    inputs = {
        name: value.reshape(3, 5, T)
        for name, value in features(batch=15).items()
    }
    model = theirs("XLNetForMultipleChoice")
    held(model, XLNetMultipleChoice, logits_of(inputs))


def test_simple_question_answering_agrees(held):
    inputs = features(padding="right")

    def compare(model, mine):
        there = call(model, inputs)
        return (there.start_logits, there.end_logits), tuple(
            mine(inputs)[name] for name in ("start_logits", "end_logits")
        )

    model = theirs("XLNetForQuestionAnsweringSimple")
    held(model, XLNetSpanClassifier, compare)


def question_features():
    """Features, where an answer may not be, and where the class token is."""
    inputs = features(padding="right")
    answer_mask = np.zeros((3, T), "int32")
    answer_mask[:, 1:9] = 1
    return inputs, answer_mask, np.array([9, 0, 8])


def test_question_answering_agrees(held):
    inputs, answer_mask, class_index = question_features()

    def compare(model, mine):
        there = call(
            model,
            {**inputs, "p_mask": 1 - answer_mask, "class_index": class_index},
        )
        here = mine(
            {**inputs, "answer_mask": answer_mask, "class_index": class_index}
        )
        # Named log_probs there, and probabilities; ends before starts.
        ends = as_numpy(there.end_top_log_probs).reshape(3, 3, 5)
        positions = as_numpy(there.end_top_index).reshape(3, 3, 5)
        expected = (
            there.cls_logits,
            there.start_top_log_probs,
            there.start_top_index,
            ends.transpose(0, 2, 1),
            positions.transpose(0, 2, 1),
        )
        return expected, (
            here["class_logits"],
            np.exp(here["start_top_scores"]),
            here["start_top_positions"],
            np.exp(here["end_top_scores"]),
            here["end_top_positions"],
        )

    values = dict(start_n_top=5, end_n_top=3)
    mine = held(
        theirs("XLNetForQuestionAnswering", **values),
        XLNetQuestionAnswering,
        compare,
    )
    assert (mine.num_starts, mine.num_ends, mine.dropout) == (5, 3, 0)


def test_training_for_question_answering_agrees(held):
    inputs, answer_mask, class_index = question_features()
    starts, ends = np.array([1, 5, 3]), np.array([4, 5, 8])

    def compare(model, mine):
        import torch

        p_mask = 1 - answer_mask
        labels = {"start_positions": starts, "end_positions": ends}
        loss = call(model, {**inputs, "p_mask": p_mask, **labels}).loss
        hidden = call(model.transformer, inputs).last_hidden_state
        given = for_theirs({"p_mask": p_mask, "start_positions": starts})
        with torch.no_grad():
            scores = (
                model.start_logits(hidden, p_mask=given["p_mask"]),
                model.end_logits(hidden, **given),
            )
            scores = [torch.log_softmax(s, -1)[:, 1:9] for s in scores]
        here = mine(
            {
                **inputs,
                "answer_mask": answer_mask,
                "class_index": class_index,
                "start_positions": starts,
            }
        )
        start_scores = as_numpy(here["start_scores"])
        end_scores = as_numpy(here["end_scores"])
        rows = np.arange(3)
        mean = start_scores[rows, starts] + end_scores[rows, ends]
        return (loss, *scores), (
            -mean.mean() / 2,
            start_scores[:, 1:9],
            end_scores[:, 1:9],
        )

    model = theirs("XLNetForQuestionAnswering")
    held(model, XLNetQuestionAnswering, compare)
