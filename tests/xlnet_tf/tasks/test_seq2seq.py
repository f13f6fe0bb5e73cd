"""Sequence to sequence: what predicts, what is corrupted, what is generated."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tasks.examples import PairExample
from tests.support.bert_models import bert_backbone
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetSeq2Seq
from xlnet_tf import XLNetSeq2SeqPreprocessor
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.generation.sources import decode_targets
from xlnet_tf.generation.sources import search_targets
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.objectives import NextSentence
from xlnet_tf.objectives import Permutation
from xlnet_tf.objectives import PseudoMasked
from xlnet_tf.tasks.losses import SmoothedLoss
from xlnet_tf.tasks.seq2seq import SequenceToSequence
from xlnet_tf.tasks.seq2seq import TargetInputs
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.released import save_tf1

SOURCES = ["ba co fi", "b", "co ba d f gu ha"]
TARGETS = ["fi co", "gu ha ba", "d"]
LENGTH, P = 24, 8
SIZES = dict(vocabulary_size=PIECES, num_layers=2)
KINDS = ("query", "content", "pseudo")

pytestmark = [
    pytest.mark.usefixtures("eager_functions"),
    pytest.mark.filterwarnings("ignore:Even though the"),  # of tf.data
]


def backbone_of(kind, **overrides):
    if kind == "pseudo":
        return bert_backbone(0, **{**SIZES, "max_positions": 32, **overrides})
    attention = "causal" if kind == "content" else "bidirectional"
    return small_backbone(
        0, **{**SIZES, "attention_type": attention, **overrides}
    )


def task_of(kind, preprocessor=True, **arguments):
    backbone = backbone_of(kind)
    if preprocessor:
        arguments["preprocessor"] = XLNetSeq2SeqPreprocessor(
            tiny_tokenizer(), LENGTH, P, layout=backbone.config.layout
        )
    task = XLNetSeq2Seq(backbone, **arguments)
    assert task.next_token == kind
    return randomize(task)


def row(source, target):
    """Features of one row of ids without padding."""
    return {
        "token_ids": np.array([[*source, *target]], "int32"),
        "segment_ids": np.array(
            [[0] * len(source) + [1] * len(target)], "int32"
        ),
        "target_positions": len(source) + np.arange(len(target))[None],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_sees_the_source_and_what_is_before_it(kind):
    task = task_of(kind)
    source, target = [17, 21, 33, 4], [40, 50, 60, 4]
    logits = as_numpy(task(row(source, target)))[0]
    for step in range(4):
        changed = list(target)
        changed[step] = 77
        found = as_numpy(task(row(source, changed)))[0]
        differs = np.abs(found - logits).max(axis=-1)
        assert differs[: step + 1].max() < 1e-5
        assert (differs[step + 1 :] > 1e-4).all()
        # What is cut off behind it does not matter.
        alone = as_numpy(task(row(source, target[: step + 1])))[0]
        np.testing.assert_allclose(alone[step], logits[step], atol=1e-5)
    for place in range(4):
        changed = list(source)
        changed[place] = 77
        found = as_numpy(task(row(changed, target)))[0]
        assert (np.abs(found - logits).max(axis=-1) > 1e-4).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_are_as_alone(kind):
    task = task_of(kind)
    features, targets, weights = task.preprocessor(SOURCES, TARGETS)
    logits = as_numpy(task(features))
    for i in range(3):
        real = features["padding_mask"].numpy()[i] > 0
        count = int(weights.numpy()[i].sum())
        ids = features["token_ids"].numpy()[i][real]
        assert ids[-count:].tolist() == targets.numpy()[i][:count].tolist()
        alone = as_numpy(task(row(ids[:-count], ids[-count:])))[0]
        np.testing.assert_allclose(logits[i, :count], alone, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_generation_agrees_with_the_call(kind):
    """Each source of a batch gets the text and the probability as if alone."""
    task = task_of(kind)
    # No ends, of which there are several, in what is compared.
    for settings in (
        dict(num_beams=1, min_new_tokens=P),
        dict(num_beams=3, num_sequences=3),
    ):
        generator, compared = task.text_generator(**settings), 0
        for source, found in generator.all(SOURCES):
            for text in found:
                if text.has_ended:
                    continue
                ids = text.token_ids
                logits = task(row(generator.encode(source), ids))[0]
                if generator.settings.num_beams > 1:
                    # Beam search divides the rest among what is allowed.
                    blocked = Symbols(PIECES).blocked(PIECES)
                    logits = tf.where(blocked, -1e9, logits)
                values = as_numpy(tf.nn.log_softmax(logits))
                value = values[np.arange(P), ids].sum()
                assert text.log_probability == pytest.approx(value, abs=1e-4)
                compared += 1
        assert compared >= 3
    texts = task.generate(SOURCES)
    assert texts == [task.generate(source) for source in SOURCES]
    found = search_targets(
        task, task.preprocessor(SOURCES), task.generation_settings(), PIECES
    )
    best = SequenceToSequence(task).decode(
        {name: as_numpy(value) for name, value in found.items()},
        None,
        [PairExample(str(i), source) for i, source in enumerate(SOURCES)],
    )
    assert [x["text"] for x in best] == texts


def test_one_beam_is_greedy_search():
    """Whose end does not come before a likelier token; nothing is drawn."""
    task = task_of("query")
    bias = np.zeros(task.config.vocabulary_size, "float32")
    for bias[4] in np.linspace(0, 8, 17):
        task.head.bias.assign(bias)
        texts = task.generate(SOURCES, num_beams=1)
        for sample in (False, True):
            settings = task.generation_settings(num_beams=1, sample=sample)
            features = task.preprocessor(SOURCES)
            tokens = search_targets(task, features, settings, PIECES)["tokens"]
            tokenizer = task.preprocessor.tokenizer
            assert decode_targets(as_numpy(tokens), tokenizer) == texts


def test_generation_reads_sources_as_training_does():
    task = task_of("query")
    assert task.generation_settings().max_new_tokens == P
    generator = task.text_generator(num_beams=1)
    long = "ba co " * 30
    assert len(generator.encode(long)) == LENGTH - P
    assert generator.encode(long)[-1] == 4
    with pytest.warns(UserWarning, match="this one is empty"):
        assert task.generate(["", "ba"])[0] is None
    with pytest.raises(ValueError, match="this one is empty"):
        task.generate("")
    with pytest.raises(ValueError, match="needs the tokenizer"):
        task_of("query", preprocessor=False).generate("ba")
    # Rules look at the target alone.
    rules = dict(num_beams=1, no_repeat_ngram=1, max_new_tokens=3)
    (text,) = next(task.text_generator(**rules).all(["ba co fi gu"]))[1]
    assert len(set(text.token_ids)) == len(text.token_ids)
    # The end of a source is that of a target, which may come all the same.
    bias = np.zeros(task.config.vocabulary_size, "float32")
    bias[4] = 100
    task.head.bias.assign(bias)
    for beams in (1, 2):
        for rule in (dict(no_repeat_ngram=1), dict(repetition_penalty=9.0)):
            settings = dict(num_beams=beams, max_new_tokens=3, **rule)
            assert task.generate("ba b", **settings) == "", settings


@pytest.mark.parametrize("kind", KINDS)
def test_corruption(kind):
    """Half of the target's tokens: 80 % masked, 10 % others, 10 % stay."""
    config = backbone_of(kind).config
    rows, num_source, num_target = 200, 5, 20
    total = num_source + num_target
    ids = np.full([rows, total], 50, "int32")
    positions = num_source + np.tile(np.arange(num_target), [rows, 1])
    features = {
        "token_ids": tf.constant(ids),
        "padding_mask": tf.ones_like(ids),
        "dropout_seed": fold_in(tf.constant([3, 4]), 1),
    }
    inputs = TargetInputs(kind, config, 0.5, 8)
    found, _ = inputs(features, tf.constant(positions, tf.int32), True)
    tokens = as_numpy(found["token_ids"])
    assert (tokens[:, :num_source] == 50).all()
    target = tokens[:, num_source:total]
    assert np.mean(target == 6) == pytest.approx(0.4, abs=0.03)
    other = target[(target != 50) & (target != 6)]
    assert len(other) / target.size == pytest.approx(0.05, abs=0.01)
    assert other.min() >= 9 and len(set(other.tolist())) > 40
    if kind == "pseudo":
        pseudo = tokens[:, total:]
        assert np.mean(pseudo == 8) == pytest.approx(0.8, abs=0.02)
        assert np.mean(pseudo == 50) == pytest.approx(0.1, abs=0.02)
        # The two draws are apart.
        both = np.mean((pseudo == 8) & (target == 6))
        assert both == pytest.approx(0.32, abs=0.03)
    again, _ = inputs(features, tf.constant(positions, tf.int32), True)
    np.testing.assert_array_equal(tokens, as_numpy(again["token_ids"]))
    # Of a model with more tokens than its tokenizer has pieces, pieces alone.
    task = task_of(kind)
    task(task.preprocessor(SOURCES, TARGETS)[0])
    assert task._inputs.num_pieces == PIECES
    inputs.num_pieces = 60
    fewer, _ = inputs(features, tf.constant(positions, tf.int32), True)
    assert 50 < as_numpy(fewer["token_ids"]).max() < 60
    plain, _ = TargetInputs(kind, config, 0.0, 8)(
        features, tf.constant(positions, tf.int32), True
    )
    assert (as_numpy(plain["token_ids"])[:, :total] == 50).all()


def test_the_loss_is_keras_own_on_one_hot_labels():
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(2, 3, 7)).astype("float32")
    labels = draw.integers(0, 7, (2, 3))
    weights = np.array([[1, 1, 0], [2, 0, 0]], "float32")
    keras_own = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.1, reduction=None
    )
    expected = as_numpy(keras_own(keras.ops.one_hot(labels, 7), logits))
    found = as_numpy(SmoothedLoss(0.1).call(labels, logits))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    mean = float(SmoothedLoss(0.1)(labels, logits, weights))
    assert mean == pytest.approx(
        (expected * weights).sum() / weights.sum(), abs=1e-6
    )


def test_the_head_of_a_pretrainer(tmp_path):
    own = randomize(
        XLNetPretrainer(
            bert_backbone(0, **SIZES), objective=PseudoMasked(pseudo_mask_id=7)
        )
    )
    own.save_to_preset(tmp_path / "pseudo")
    task = XLNetSeq2Seq.from_preset(tmp_path / "pseudo", preprocessor=None)
    assert task.pseudo_mask_id == 7
    np.testing.assert_array_equal(task.head.bias, own.head.bias)
    other = randomize(
        XLNetPretrainer(
            small_backbone(0, **SIZES),
            objective=[Permutation(), NextSentence()],
            has_transform=True,
        )
    )
    other.save_to_preset(tmp_path / "permutation")
    task = XLNetSeq2Seq.from_preset(tmp_path / "permutation", preprocessor=None)
    for name in ("transform", "transform_norm"):
        layers = (getattr(x.head, name) for x in (task, other))
        for a, b in zip(*(x.weights for x in layers), strict=True):
            np.testing.assert_array_equal(a, b)
    assert task.pseudo_mask_id == 6
    # Of other formats.
    width = dict(num_heads=2, hidden_dim=16, head_dim=8)
    plain = randomize(XLNetPretrainer(small_backbone(0, **SIZES, **width)))
    save_hugging_face(plain, tmp_path / "hugging_face")
    save_tf1(plain, tmp_path / "released")
    save_hugging_face(
        randomize(
            XLNetPretrainer(bert_backbone(0, **SIZES), has_transform=True)
        ),
        tmp_path / "bert",
    )
    for name in ("hugging_face", "released", "bert"):
        task = XLNetSeq2Seq.from_preset(tmp_path / name, preprocessor=None)
        again = XLNetPretrainer.from_preset(tmp_path / name, preprocessor=None)
        np.testing.assert_array_equal(task.head.bias, again.head.bias)
        assert np.any(as_numpy(task.head.bias) != 0)
        assert task.head.has_transform == again.head.has_transform
        with pytest.raises(ValueError, match="no head like that of XLNetSeq"):
            save_hugging_face(task, tmp_path / "no")
    # Back from its own files.
    task = task_of("query", target_corruption=0.2, generation={"num_beams": 2})
    task.save_to_preset(tmp_path / "own")
    again = XLNetSeq2Seq.from_preset(tmp_path / "own")
    assert again.get_config()["generation"] == task.generation
    assert again.target_corruption == 0.2
    assert again.preprocessor.target_length == P
    assert again.generate(SOURCES) == task.generate(SOURCES)
    task.save(tmp_path / "task.keras")
    again = keras.models.load_model(tmp_path / "task.keras")
    assert again.generate(SOURCES) == task.generate(SOURCES)


def test_raw_strings_in_fit():
    task = task_of("query", label_smoothing=0.0, target_corruption=0.0)
    task.compile(keras.optimizers.Adam(2e-2), run_eagerly=True)
    pairs = {"source": SOURCES, "target": TARGETS}
    history = task.fit(pairs, batch_size=3, epochs=3, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    after = task.evaluate(SOURCES, TARGETS, verbose=0, return_dict=True)
    data = tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS)).batch(3)
    of_data = task.evaluate(data, verbose=0, return_dict=True)
    assert of_data["loss"] == pytest.approx(after["loss"], rel=1e-5)
    weighted = task.evaluate(
        *(SOURCES, TARGETS),
        sample_weight=np.array([1.0, 0, 0], "float32"),
        verbose=0,
        return_dict=True,
    )
    alone = task.evaluate(SOURCES[:1], TARGETS[:1], verbose=0, return_dict=True)
    assert weighted["loss"] == pytest.approx(alone["loss"], rel=1e-5)


def test_rows_of_a_run():
    preprocessor = XLNetSeq2SeqPreprocessor(tiny_tokenizer(), LENGTH, P)
    examples = [
        PairExample(str(i), *pair)
        for i, pair in enumerate(zip(SOURCES, TARGETS, strict=True))
    ]
    examples.append(PairExample("3", "ba co " * 30, "fi gu " * 30))
    rows = preprocessor.encode(examples, training=True)
    features, targets, weights = preprocessor(
        [x.source for x in examples], [x.target for x in examples]
    )
    assert rows.dense["target_ids"].shape == (4, P)
    np.testing.assert_array_equal(rows.dense["target_ids"], targets)
    np.testing.assert_array_equal(rows.dense["target_weights"], weights)
    np.testing.assert_array_equal(
        rows.dense["target_positions"], features["target_positions"]
    )
    ids = rows.sequences["token_ids"].to_tensor(0, [4, LENGTH])
    np.testing.assert_array_equal(ids, features["token_ids"])
    assert "2 of 4 sources fill 16 tokens" in rows.notes[0]
    assert "2 of 4 targets fill 8 tokens" in rows.notes[1]
    assert targets[3, -1] == 4  # cut, and ended
    rows = preprocessor.encode(examples)
    assert rows.side == "left" and not rows.dense
    sources = preprocessor([x.source for x in examples])
    ids = [x[x > 0].tolist() for x in sources["token_ids"].numpy()]
    assert rows.sequences["token_ids"].to_list() == ids


def test_bad_settings():
    with pytest.raises(ValueError, match="`label_smoothing` must be"):
        task_of("query", label_smoothing=1.0)
    with pytest.raises(ValueError, match="leave `num_beams`"):
        task_of("query", generation={"top_k": 3})
    with pytest.raises(ValueError, match="set `same_length` to false"):
        XLNetSeq2Seq(backbone_of("content", same_length=True, memory_length=4))
    with pytest.raises(ValueError, match="call `generate`"):
        task_of("query")({"token_ids": np.array([[9, 4]])})
    with pytest.raises(ValueError, match="at least 3 above `target_length`"):
        XLNetSeq2SeqPreprocessor(tiny_tokenizer(), 10, 8)
    with pytest.raises(ValueError, match="targets are given twice"):
        preprocessor = XLNetSeq2SeqPreprocessor(tiny_tokenizer(), 24, 8)
        preprocessor({"source": "a", "target": "b"}, "b")


def test_a_new_preprocessor_fits_the_positions_of_the_model():
    task = XLNetSeq2Seq(backbone_of("pseudo", max_positions=100))
    made = task.preprocessor_with(tiny_tokenizer())
    assert made.sequence_length == 100
