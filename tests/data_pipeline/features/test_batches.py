"""Batches of encoded examples of like length: complete and in order."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.batches import Batches
from data_pipeline.features.batches import EncodedExamples
from data_pipeline.features.batches import bucket_lengths
from data_pipeline.features.batches import encode_in_chunks
from tests.support.equality import assert_equal

COUNT, BATCH = 103, 8
LENGTHS = (6, 11, 20)


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def make_rows(side="left", options=None, count=COUNT, seed=0):
    random = np.random.default_rng(seed)
    sequences = ragged(
        [
            random.integers(9, 97, random.integers(1, 20)).tolist()
            for _ in range(count * (options or 1))
        ]
    )
    return EncodedExamples(
        {"token_ids": sequences, "segment_ids": tf.ones_like(sequences)},
        {"label": np.arange(count, dtype=np.int32)},
        {"token_ids": 0, "segment_ids": 4},
        side,
        options=options,
    )


def arrays(dataset):
    return [
        {name: value.numpy() for name, value in batch.items()}
        for batch in dataset
    ]


def test_lengths_of_buckets():
    assert bucket_lengths(128) == (16, 24, 32, 48, 64, 96, 128)
    assert bucket_lengths(40) == (16, 24, 32, 40)
    assert bucket_lengths(20) == (16, 20)
    assert bucket_lengths(10) == (10,)
    assert bucket_lengths(6, smallest=1) == (1, 2, 3, 4, 6)


def test_elements_are_the_padded_rows():
    for side in ("left", "right"):
        for options in (None, 3):
            check_elements(side, options)


def check_elements(side, options):
    rows = make_rows(side, options)
    batches = Batches(rows, BATCH, LENGTHS, seed=5)
    for batch in arrays(batches.training(range(4))):
        length = batch["token_ids"].shape[-1]
        assert length in LENGTHS
        np.testing.assert_array_equal(batch["label"], batch["row_index"])
        longest = rows.lengths[batch["row_index"]].max()
        assert length == next(x for x in LENGTHS if x >= longest)
        flat = {
            name: batch[name].reshape(-1, length)
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        sequences = np.add.outer(
            batch["row_index"] * (options or 1), np.arange(options or 1)
        ).reshape(-1)
        for place, index in enumerate(sequences):
            tokens = rows.sequences["token_ids"][index].numpy().tolist()
            padding = length - len(tokens)
            for name, real, filler in (
                ("token_ids", tokens, 0),
                ("segment_ids", [1] * len(tokens), 4),
                ("padding_mask", [1] * len(tokens), 0),
            ):
                pads = [filler] * padding
                wanted = pads + real if side == "left" else real + pads
                assert flat[name][place].tolist() == wanted


def test_any_host_can_read_it():
    """Of TensorFlow's ops alone; and nothing sleeps when it ends."""
    batches = Batches(make_rows(options=3), BATCH, LENGTHS, seed=5)
    for dataset in (batches.training(range(3)), batches.evaluation()):
        assert dataset.options().autotune.enabled is False
        graph = tf.compat.v1.GraphDef.FromString(
            dataset._as_serialized_graph().numpy()
        )
        nodes = [
            *graph.node,
            *(n for f in graph.library.function for n in f.node_def),
        ]
        ops = {node.op for node in nodes}
        assert "TensorSliceDataset" in ops
        assert not [op for op in ops if "Py" in op or "Generator" in op]


def test_an_epoch_holds_rows_once_and_the_next_others():
    batches = Batches(make_rows(), BATCH, LENGTHS, seed=1)
    steps = batches.steps_per_epoch
    assert steps == COUNT // BATCH
    read = arrays(batches.training(range(2 * steps)))
    assert len(read) == 2 * steps
    epochs = [
        np.concatenate([x["row_index"] for x in read[i * steps :][:steps]])
        for i in range(2)
    ]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == steps * BATCH
    assert set(epochs[0].tolist()) != set(epochs[1].tolist())


def test_what_a_step_holds_depends_on_seed_and_step_alone():
    batches = Batches(make_rows(), BATCH, LENGTHS, seed=1)
    whole = arrays(batches.training(range(20)))
    assert len(whole) == 20
    assert not arrays(batches.training(range(24, 24)))
    rest = arrays(batches.training(range(14, 20)))
    assert len(rest) == 6
    assert_equal(rest, whole[14:])
    # Two workers with two replicas each read the same rows, equally padded.
    parts = [
        arrays(
            batches.training(
                range(6), first_row=row, num_rows=4, replica_batch=2
            )
        )
        for row in (0, 4)
    ]
    for step in range(6):
        for name in whole[0]:
            pieces = [p[name] for part in parts for p in part[2 * step :][:2]]
            np.testing.assert_array_equal(
                np.concatenate(pieces), whole[step][name]
            )
    other = Batches(make_rows(), BATCH, LENGTHS, seed=2)
    assert (
        arrays(other.training(range(1)))[0]["row_index"].tolist()
        != whole[0]["row_index"].tolist()
    )


def test_an_evaluation_holds_every_row_once():
    batches = Batches(make_rows(), BATCH, LENGTHS)
    read = arrays(batches.evaluation())
    assert len(read) == batches.evaluation_steps
    index = np.concatenate([x["row_index"] for x in read])
    assert sorted(index[index >= 0].tolist()) == list(range(COUNT))
    assert (index < 0).sum() == len(read) * BATCH - COUNT
    assert (read[-1]["row_index"] < 0).any()  # the last batch is filled up
    assert index.min() == -1


def test_what_fills_up_a_batch_is_whole():
    """Dense columns may point into the sequence, such as to its last token."""
    rows = make_rows()
    longest = int(rows.lengths.argmax())
    for is_last in (False, True):
        order = np.arange(COUNT)
        order[[0, longest]] = longest, 0
        if is_last:
            order = order[::-1]  # the longest row stands at either end
        picked = EncodedExamples(
            {k: tf.gather(x, order) for k, x in rows.sequences.items()},
            {"last": rows.lengths[order] - 1},
            rows.fillers,
            rows.side,
        )
        batches = Batches(picked, BATCH, LENGTHS)
        *_, batch = arrays(batches.evaluation())
        assert (batch["row_index"] < 0).any()
        assert (batch["padding_mask"].sum(1) == batch["last"] + 1).all()


def test_rows_of_like_length_share_a_batch():
    rows = make_rows(count=2000)
    sorted_away = Batches(rows, BATCH, (5, 10, 15, 20)).padding()
    one_length = Batches(rows, BATCH, (20,)).padding()
    assert sorted_away < 0.25 < 0.45 < one_length


def test_one_length_is_a_static_shape():
    batches = Batches(make_rows(options=3), BATCH, (20,))
    spec = batches.training(range(1)).element_spec
    assert spec["token_ids"].shape.as_list() == [BATCH, 3, 20]


def test_which_rows_and_examples_a_step_has():
    rows = make_rows()
    batches = Batches(rows, BATCH, LENGTHS, seed=5)
    steps = range(COUNT // BATCH - 2, COUNT // BATCH + 2)  # of two epochs
    for step, batch in zip(steps, arrays(batches.training(steps)), strict=True):
        np.testing.assert_array_equal(batches.rows(step), batch["row_index"])
    assert rows.examples_of(batches.rows(0)[1]) == [batches.rows(0)[1]]
    rows.dense["example"] = np.arange(COUNT) // 2  # windows of a text
    assert rows.examples_of(7) == [3]
    rows.dense["example"] = np.array([[4, 5, 4]] * COUNT)  # with fillers
    assert rows.examples_of(7) == [4, 5]


def test_rows_that_cannot_be_batched():
    with pytest.raises(ValueError, match="no examples"):
        Batches(make_rows(count=0), BATCH, LENGTHS)
    with pytest.raises(ValueError, match="longest row"):
        Batches(make_rows(count=5), BATCH, (6,))
    with pytest.raises(ValueError, match="equally many rows"):
        EncodedExamples({"token_ids": ragged([[1], [2]])}, {"a": [1]}, {}, "")


def test_chunks_give_what_all_examples_give(monkeypatch):
    monkeypatch.setattr("data_pipeline.features.batches._CHUNK", 3)
    found = encode_in_chunks(
        list(range(8)),
        lambda some: {
            "a": ragged([[x] * x for x in some]),
            "b": np.array(some),
        },
    )
    assert found["a"].to_list() == [[x] * x for x in range(8)]
    assert found["b"].tolist() == list(range(8))
    with pytest.raises(ValueError, match="no examples to encode"):
        encode_in_chunks([], None)


def test_a_batch_that_is_too_large():
    batches = Batches(make_rows(count=5), BATCH, LENGTHS)
    with pytest.raises(ValueError, match="`batch_size` must be at most"):
        batches.training(range(1))
    with pytest.raises(ValueError, match="elements divide them"):
        batches.evaluation(replica_batch=3)
