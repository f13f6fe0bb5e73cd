"""What the version before the folders were made anew wrote still works.

Its runs and exports, which take longer, are in `tests/slow`.
"""

import json

import keras
import numpy as np
import pytest

import xlnet_tf
from data_pipeline import build_records
from data_pipeline.base.files import read_json
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import write_json
from tests.house import earlier


def test_token_ids_and_offsets():
    """Cased, uncased, and of a vocabulary that has no comma."""
    recorded = earlier.read("tokens.json")
    assert len(recorded) == 180
    for case in recorded:
        wanted = {
            name: case[name]
            for name in ("ids", "ids_with_offsets", "offsets", "decoded")
        }
        found = earlier.tokens(case["model"], case["lowercase"], case["text"])
        assert found == wanted, (case["model"], case["lowercase"], case["text"])


def test_tokenizers_of_a_batch():
    recorded = earlier.read("tokens.json")
    for model, lowercase in (
        ("spiece.model", False),
        ("spiece.model", True),
        ("without_comma.model", False),
    ):
        cases = [
            case
            for case in recorded
            if (case["model"], case["lowercase"]) == (model, lowercase)
        ]
        tokenizer = earlier.tokenizer(model, lowercase)
        found = tokenizer.encode_batch([case["text"] for case in cases])
        assert found == [case["ids"] for case in cases]


def test_records_are_the_same_bytes(tmp_path):
    for name, wanted in earlier.read("records.json").items():
        output = tmp_path / name
        argv = earlier.record_options(
            wanted["options"], earlier.EARLIER, output
        )
        assert not build_records.main(argv)
        found = earlier.digests(output)
        # That file is for a build that was stopped, not for readers.
        wanted["digests"].pop("build.json")
        # Manifests gain fields only.
        manifest = output / "manifest.json"
        fields = read_json(manifest)
        assert fields.pop("text_format") == "sentences"
        del fields["manifest_sha256"]
        for shards in fields["splits"].values():
            for shard in shards:
                del shard["first_crc32c"], shard["last_crc32c"]
        write_json(manifest, {**fields, "format_version": 1})
        found["manifest.json"] = sha256_of(manifest)
        assert {k: found.get(k) for k in wanted["digests"]} == (
            wanted["digests"]
        ), name


def test_records_that_are_there_are_complete(tmp_path, capsys):
    recorded = earlier.read("records.json")
    for name in ("compact", "frozen"):
        output = earlier.restore(f"records/{name}", tmp_path / name)
        assert earlier.digests(output) == recorded[name]["digests"]
        argv = earlier.record_options(
            recorded[name]["options"], earlier.EARLIER, output
        )
        assert not build_records.main(argv)
        assert "was complete already" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*earlier.PRESETS, *earlier.KERAS_FILES])
def test_models_load_and_answer(name, tmp_path):
    """Raw strings, features, the loss and its gradients."""
    recorded = earlier.read("answers.json")
    model = earlier.load(name, tmp_path / name)
    found = earlier.answers(name, model, recorded["inputs"])
    earlier.check(found, recorded["answers"][name], where=name)


def test_a_keras_file_keeps_its_optimizer_memory_and_labels(tmp_path):
    model = earlier.load("pretrainer.keras", tmp_path / "pretrainer.keras")
    assert int(model.optimizer.iterations) == 1
    memory = [keras.ops.convert_to_numpy(m) for m in model.memory.memories]
    assert [m.shape for m in memory] == [(2, 8, 16)] * 2
    assert all(np.abs(m).max() > 0 for m in memory)
    slots = [v for v in model.optimizer.variables if "velocity" in v.path]
    assert slots
    assert any(keras.ops.max(v) > 0 for v in slots)
    for name in ("classifier.keras", "classifier"):
        model = earlier.load(name, tmp_path / name)
        assert model.labels == ["bad", "größer", "good"]
        assert model.preprocessor.sequence_length == 16


def test_presets_are_written_as_before(tmp_path):
    """The same files, and the same text in those that are JSON."""
    for name in ("pretrainer_next", "classifier", "questions"):
        before = earlier.restore(f"presets/{name}", tmp_path / f"{name}-before")
        now = tmp_path / f"{name}-now"
        model = getattr(xlnet_tf, earlier.PRESETS[name]).from_preset(before)
        given = {}
        if not getattr(model, "preprocessor", None):
            given["tokenizer"] = earlier.tokenizer()
        model.save_to_preset(now, **given)
        assert set(earlier.digests(now)) == {
            *earlier.digests(before),
            "SHA256SUMS",
        }
        for file in before.rglob("*"):
            if file.suffix == ".json" and file.name != "metadata.json":
                found = (now / file.relative_to(before)).read_text("utf-8")
                wanted = file.read_text("utf-8")
                assert _settings(found) == _settings(wanted), file


def _settings(text):
    """JSON without where classes are written, and the seeds and names."""

    def kept(value):
        if isinstance(value, list):
            return [kept(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: kept(item)
            for name, item in value.items()
            if name not in ("module", "name", "seed")
        }

    return kept(json.loads(text))
