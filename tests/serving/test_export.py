"""An export answers as the model does, from raw text, with nothing of ours."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from tests.support.export_fixtures import CANDIDATES
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import TOLERANCE
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import check_fill_in
from tests.support.export_fixtures import encoded
from tests.support.export_fixtures import export
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import with_targets
from tests.support.replicas import two_replicas

SHORT = "ba <mask> co"
TEXTS = (
    "Bacode fi guha.",
    "Ba co <mask> fi, in 1, 9 code.",
    "<mask> sela <mask> wa größer <mask>",
    "",
    # only the blank is special in a text
    "Co <sep> ba <mask> fi <cls> </s> <pad> <unk> <eop> .",
)
BLANKS = [0, 1, 3, 0, 1]


@pytest.fixture(scope="module")
def model():
    model = pretrainer()
    model.attach_memory(2)  # of training alone: an export remembers nothing
    return model


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    return export(model, tmp_path_factory.mktemp("exports") / "tiny" / "3")


def test_signatures_have_the_documented_names_and_types(served):
    text = {"text": tf.string}
    ids = dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], tf.int32)
    filled = {
        "pieces": tf.string,
        "token_ids": tf.int32,
        "log_probabilities": tf.float32,
        "count": tf.int32,
    }
    vectors = dict.fromkeys(["embeddings", "mean_embedding"], tf.float32)
    encoded_text = {"token_ids": tf.int32, "padding_mask": tf.int32}
    memory = {"memories": tf.float32, "memory_mask": tf.int32}
    expected = {
        "serving_default": (text, filled),
        "fill_in": (text, filled),
        "embed": (text, vectors | encoded_text),
        "fill_in_ids": (
            ids | {"target_positions": tf.int32},
            {"log_probabilities": tf.float32},
        ),
        "embed_ids": (ids, vectors),
        "document_segment": (
            text | memory,
            vectors | encoded_text | memory | {"dropped_tokens": tf.int32},
        ),
        "document_segment_ids": (encoded_text | memory, vectors | memory),
    }
    found = {}
    for name, function in served.items():
        _, inputs = function.structured_input_signature
        outputs = function.structured_outputs
        assert all(spec.shape[0] is None for spec in inputs.values())
        # `saved_model_cli show` can tell the rank of everything.
        assert all(spec.shape.rank for spec in outputs.values())
        found[name] = tuple(
            {key: spec.dtype for key, spec in specs.items()}
            for specs in (inputs, outputs)
        )
    assert found == expected


@pytest.mark.parametrize("name", ["serving_default", "fill_in"])
def test_blanks_are_filled_as_the_model_would(served, model, name):
    together = ask(served[name], TEXTS)
    assert together["pieces"].shape == (len(TEXTS), 3, CANDIDATES)
    assert list(together["count"]) == BLANKS
    for row, text in enumerate(TEXTS):
        if not BLANKS[row]:
            continue
        expected = log_probabilities(model, text)
        check_fill_in(together, row, expected)
        check_fill_in(ask(served[name], [text]), 0, expected)
    pieces = np.vectorize(tiny_tokenizer().id_to_piece)(together["token_ids"])
    np.testing.assert_array_equal(
        np.char.decode(together["pieces"].astype(bytes), "utf-8"), pieces
    )


def test_ids_are_filled_as_text_is(served, model):
    features, blanks = encoded(TEXTS[2])
    # A row with fewer targets repeats one; padding follows the shorter text.
    short, (blank,) = encoded(SHORT)
    padding = features["token_ids"].shape[1] - short["token_ids"].shape[1]
    assert padding > 0
    pad = ((0, 0), (0, padding))
    rows = {
        name: np.concatenate([features[name], np.pad(short[name], pad)])
        for name in ("token_ids", "segment_ids")
    }
    rows["padding_mask"] = np.ones_like(rows["token_ids"])
    rows["padding_mask"][1, -padding:] = 0
    rows["target_positions"] = np.array([blanks, [blank] * 3])

    def fill(**changed):
        return served["fill_in_ids"](
            **{n: tf.constant(x, tf.int32) for n, x in (rows | changed).items()}
        )["log_probabilities"].numpy()

    answer = fill()
    assert answer.shape == (2, 3, PIECES)
    for row, text in enumerate((TEXTS[2], SHORT)):
        expected = log_probabilities(model, text)
        expected = np.broadcast_to(expected, (3, PIECES))
        np.testing.assert_allclose(answer[row], expected, atol=TOLERANCE)
    # What stands at the blanks is seen by none of them.
    other = rows["token_ids"].copy()
    other[0, blanks] = [31, 87, 155]
    other[1, blank] = 44
    other[1, -padding:] = 99
    np.testing.assert_allclose(fill(token_ids=other), answer, atol=1e-6)
    # What stands beside them is.
    other[0, blanks[0] + 1] = 131
    assert np.abs(fill(token_ids=other) - answer)[0].max(-1).min() > 1e-3
    assert rows["token_ids"][0, blanks[0] + 1] != 131


def test_embeddings_are_the_content_stream(served, model):
    texts = [text.replace("<mask>", "de") for text in TEXTS]
    together = ask(served["embed"], texts)
    width = together["token_ids"].shape[1]
    by_ids = {
        name: tf.constant(together[name])
        for name in ("token_ids", "padding_mask")
    }
    by_ids["segment_ids"] = tf.where(by_ids["token_ids"] == CLS_ID, 2, 0)
    by_ids = as_numpy(served["embed_ids"](**by_ids))
    for row, text in enumerate(texts):
        features, _ = encoded(text)
        tokens = features["token_ids"].shape[1]
        real = slice(0, tokens)
        np.testing.assert_array_equal(
            together["token_ids"][row, real], features["token_ids"][0]
        )
        np.testing.assert_array_equal(
            together["padding_mask"][row], np.arange(width) < tokens
        )
        content = as_numpy(model(features)["content"])[0]
        alone = ask(served["embed"], [text])
        for answer in (together, by_ids):
            of_text = answer["embeddings"][row, real]
            np.testing.assert_allclose(of_text, content, atol=TOLERANCE)
            mean = answer["mean_embedding"][row]
            np.testing.assert_allclose(mean, content.mean(0), atol=TOLERANCE)
        np.testing.assert_allclose(
            alone["embeddings"][0], content, atol=TOLERANCE
        )
        # The text's own end alone is special, whatever the text says.
        special = np.isin(features["token_ids"][0], [SEP_ID, CLS_ID, MASK_ID])
        assert special.sum() == 2


def test_long_texts_lose_their_end(served, model):
    text = "Ba <mask> co" + " bacode fi" * 40 + " <mask>"
    outputs = ask(served["fill_in"], [text, "ba"])
    check_fill_in(outputs, 0, log_probabilities(model, text))
    embedded = ask(served["embed"], [text, "ba"])
    assert embedded["token_ids"].shape == (2, LENGTH)
    assert list(embedded["token_ids"][0, -2:]) == [SEP_ID, CLS_ID]


@pytest.mark.parametrize("name", ["fill_in", "embed"])
def test_no_texts_give_no_answers(served, name):
    for output in ask(served[name], []).values():
        assert len(output) == 0


def test_an_empty_text_is_its_end_alone(served):
    outputs = ask(served["embed"], [""])
    assert outputs["token_ids"].tolist() == [[SEP_ID, CLS_ID]]


def test_bytes_that_are_not_utf_8_are_replaced(served):
    broken = ask(served["fill_in"], [b"ba \xff co <mask> \xe2\x82"])
    replaced = ask(served["fill_in"], ["ba \ufffd co <mask> \ufffd"])
    np.testing.assert_array_equal(broken["token_ids"], replaced["token_ids"])
    assert broken["count"].tolist() == [1]


@pytest.mark.slow
def test_a_model_of_two_replicas(tmp_path):
    strategy = two_replicas()
    with strategy.scope():
        model = pretrainer(num_layers=1)
    before = log_probabilities(model, TEXTS[1])
    features, _ = encoded(TEXTS[2])
    features = with_targets(features | {"target_positions": np.arange(3)[None]})

    def step():
        with tf.GradientTape() as tape:
            loss = model(features, training=True)["loss"]
        variables = [v.value for v in model.trainable_variables]
        context = tf.distribute.get_replica_context()
        gradients = [
            context.all_reduce("SUM", tf.convert_to_tensor(gradient))
            for gradient in tape.gradient(loss, variables)
        ]
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)

    strategy.run(step)
    expected = log_probabilities(model, TEXTS[1])
    assert np.abs(expected - before).max() > 1e-2
    served = export(model, tmp_path / "1")
    check_fill_in(ask(served["fill_in"], [TEXTS[1]]), 0, expected)
