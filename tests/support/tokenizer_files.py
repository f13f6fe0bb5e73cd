"""Reading and changing of a tokenizer's files, for tests."""

import json

import numpy as np

from data_pipeline.tokenization.model_file import ModelProto


def change(file, **entries):
    values = json.loads(file.read_text(encoding="utf-8"))
    values.update(entries)
    file.write_text(json.dumps(values), encoding="utf-8")


def change_model(file, **entries):
    values = json.loads(file.read_text(encoding="utf-8"))
    change(file, model={**values["model"], **entries})


def pieces(model_proto):
    return ModelProto.FromString(model_proto).pieces


def assert_same_model(first, second):
    """Assert that two models have equal pieces, kinds, scores and tables."""
    assert pieces(first) == pieces(second)
    bits = [
        np.array([p.score for p in pieces(proto)], np.float32).view(np.int32)
        for proto in (first, second)
    ]
    np.testing.assert_array_equal(*bits)
    first, second = map(ModelProto.FromString, (first, second))
    first, second = first.normalizer_spec, second.normalizer_spec
    assert first.precompiled_charsmap == second.precompiled_charsmap
