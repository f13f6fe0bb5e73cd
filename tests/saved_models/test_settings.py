"""Settings of exports: ranges, files, and the values of a model."""

import json
import types

import pytest

import xlnet_tf
from saved_models.settings import ExportSettings

WRONG = [
    ({"sequence_length": 2}, "`sequence_length` must be at least 3: a token"),
    ({"seq_length_buckets": [2, 8]}, "every bucket must be at least 3"),
    ({"seq_length_buckets": [9, 8]}, "`seq_length_buckets` must rise"),
    (
        {"seq_length_buckets": ["9"]},
        "must be a list of whole numbers. Received: seq_",
    ),
    (
        {"seq_length_buckets": 9},
        "must be a list of whole numbers. Received: seq_leng",
    ),
    (
        {"seq_length_buckets": [8, 9], "sequence_length": 10},
        "the largest bucket must be `sequence_length`",
    ),
    ({"precision": "int4"}, "`precision` must be one of float32, bfloat16 or"),
    ({"max_batch": 0}, "`max_batch` must be a positive integer"),
    ({"max_batch": 1.5}, "`max_batch` must be a positive integer"),
    ({"stride": 0}, "`stride` must be a positive integer"),
    ({"memory_length": -1}, "`memory_length` must be an integer from 0 up"),
    (
        {"sequence_length": 24, "window_stride": 23},
        "`window_stride` must lie between 1 and 22.*window_stride=23",
    ),
    ({"window_stride": 0}, "`window_stride` must be a positive integer"),
]


def test_what_is_out_of_range():
    for settings, message in WRONG:
        with pytest.raises((ValueError, TypeError), match=message):
            ExportSettings(**settings)


def test_files_and_options(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("seq_length_buckets: [8, 16]\nprecision: int8\n")
    settings = ExportSettings.read(file, {"precision": "bfloat16"})
    assert settings == ExportSettings(
        seq_length_buckets=(8, 16), precision="bfloat16"
    )
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings.to_dict()))
    assert ExportSettings.read(file) == settings
    file.write_text('{"length": 3}')
    with pytest.raises(ValueError, match="has unknown fields: length. Known"):
        ExportSettings.read(file)


def test_the_length_of_a_model():
    def length(**settings):
        return ExportSettings(**settings).for_model(model).sequence_length

    model = types.SimpleNamespace(config=xlnet_tf.XLNetConfig.from_size("tiny"))
    assert length() == 512
    model.config = xlnet_tf.BertConfig.from_size("tiny", max_positions=30)
    assert length() == 30
    model.preprocessor = types.SimpleNamespace(sequence_length=24)
    assert length() == 24
    assert length(seq_length_buckets=[8, 40]) == 40
    assert length(sequence_length=31) == 31
    with pytest.raises(ValueError, match="between 1 and 22"):
        length(window_stride=23)
    model.preprocessor.sequence_length = 1024
    assert length(window_stride=600) == 1024
