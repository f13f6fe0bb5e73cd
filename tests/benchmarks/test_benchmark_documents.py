"""The contenders that classify long documents do what they are named for."""

import numpy as np
import pytest

from benchmarks import workload
from benchmarks.contenders import NotAvailable
from benchmarks.contenders import our_documents

SHAPE = {"length": 40, "segment_length": 16, "memory_length": 8}


@pytest.mark.slow
def test_every_way_gives_an_answer(monkeypatch):
    asked = []
    compiled = our_documents._compiled

    def recording(classifier):
        forward = compiled(classifier)
        return lambda ids: asked.append(ids.shape[1]) or forward(ids)

    monkeypatch.setattr(our_documents, "_compiled", recording)
    for name, lengths in (("segments", [40]), ("windows", [16] * 4)):
        answer = getattr(our_documents, name)(workload.TINY, **SHAPE)
        asked.clear()
        logits = answer()
        assert logits.shape == (1, 2)
        assert np.isfinite(logits).all()
        assert asked == lengths
    logits = our_documents.one_piece(workload.TINY, 40)()
    assert logits.shape == (1, 2)


@pytest.mark.slow
def test_gradients_of_segments():
    run = our_documents.segments_gradient(workload.TINY, **SHAPE)
    gradient = run()
    assert np.abs(gradient).max() > 0


@pytest.mark.parametrize(
    ("length", "starts"),
    [(512, [0]), (300, [0]), (1024, [0, 256, 512]), (800, [0, 256, 288])],
)
def test_windows_reach_the_end(length, starts):
    assert our_documents.window_starts(length, 512) == starts


def test_a_document_that_is_too_long_for_one_piece():
    with pytest.raises(NotAvailable, match="GiB are free"):
        our_documents.one_piece(workload.BASE, 2**20)
