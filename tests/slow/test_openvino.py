"""Exports that OpenVINO computes answer as the models in Keras."""

import numpy as np
import pytest

import saved_models
import xlnet_tf
from data_pipeline.base.command_line import run
from saved_models import export
from saved_models import predict
from saved_models.client.client import as_texts
from saved_models.settings import ExportSettings
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import SEGMENT
from tests.support.task_export_fixtures import TASKS
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import TOLERANCE
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import raw
from tests.support.task_export_fixtures import shared_task

openvino = pytest.importorskip("openvino", reason="pip install openvino")


def loaded(directory, model, **settings):
    """The predictor of an export of a model by OpenVINO."""
    settings = {"sequence_length": LENGTH, "num_candidates": 3, **settings}
    saved_models.export_model(
        model, tiny_tokenizer(), directory, runtime="openvino", **settings
    )
    return saved_models.load(directory)


def compare(found, expected, where, tolerance=TOLERANCE):
    assert set(found) == set(expected), where
    expected = as_texts(expected)
    for name, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(
                *(found[name], value),
                atol=tolerance,
                rtol=tolerance,
                err_msg=f"{where}: {name}",
            )
        else:
            assert (found[name] == value).all(), (where, name)


@pytest.mark.parametrize("name", TASKS)
def test_answers_of_a_task_are_those_of_tensorflow(name, tmp_path):
    task = shared_task(name)
    predictor, signatures = loaded(tmp_path / "1", task), made(task)
    assert set(predictor.signatures()) == set(signatures)
    for signature, of_tensorflow in signatures.items():
        inputs = raw(name) if signature == "serving_default" else None
        if signature == "pairs":
            inputs = {"text": TEXTS, "text_pair": OTHERS}
        for x in [inputs] if inputs else of_tensorflow.examples:
            compare(
                predictor.predict(x, signature),
                ask(of_tensorflow.function, **x),
                (name, signature),
            )


def test_the_network_takes_ready_ids(tmp_path):
    for name in ("classifier", "regressor", "questions"):
        task = shared_task(name)
        loaded(tmp_path / name / "1", task)
        network = openvino.Core().compile_model(
            tmp_path / name / "1" / "model.xml",
            "CPU",
            {"INFERENCE_PRECISION_HINT": "f32"},
        )
        signature = made(task)["ids"]
        (example, *_) = signature.examples
        outputs = {
            port.get_any_name(): value
            for port, value in network(example).items()
        }
        expected = ask(signature.function, **example)
        same = set(outputs) & set(expected)
        assert same == set(outputs), name
        compare(outputs, {x: expected[x] for x in same}, name)


def test_embeddings_windows_and_segments(tmp_path):
    model = shared_model()
    predictor = loaded(tmp_path / "embed" / "1", model)
    assert set(predictor.signatures()) == {
        *("serving_default", "embed", "embed_ids")
    }
    expected = made(model.backbone)["embed"]
    compare(
        predictor.predict({"text": TEXTS}),
        ask(expected.function, text=TEXTS),
        "embed",
    )
    for kind, task, settings in (
        ("windows", shared_task("classifier"), {"window_stride": 9}),
        ("batches", shared_task("classifier"), {"max_batch": 2}),
        ("segments", make("regressor", SEGMENT), {}),
    ):
        predictor = loaded(tmp_path / kind / "1", task, **settings)
        expected = made(task, **settings)["serving_default"]
        compare(
            predictor.predict({"text": TEXTS}),
            ask(expected.function, text=TEXTS),
            kind,
        )


def test_bfloat16(tmp_path):
    task = shared_task("classifier")
    predictor = loaded(tmp_path / "1", task, precision="bfloat16")
    expected = ask(made(task)["serving_default"].function, text=TEXTS)
    found = predictor.predict({"text": TEXTS})
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=0.1)


def test_commands_and_refusals(tmp_path, capsys):
    shared_task("regressor").save_to_preset(tmp_path / "preset")
    texts = tmp_path / "texts.txt"
    texts.write_text("ba co fi\nco\n")
    arguments = ["--model", tmp_path / "preset", "--output", tmp_path / "out"]
    arguments += ["--runtime", "openvino", "--check", texts]
    assert run(export.main, list(map(str, arguments))) == 0
    assert "score" in capsys.readouterr().out
    arguments = ["--model", tmp_path / "out", "--file", texts]
    assert run(predict.main, list(map(str, arguments))) == 0
    assert capsys.readouterr().out.count('"score"') == 2

    config = xlnet_tf.XLNetConfig(tiny_tokenizer().vocabulary_size, 1, 2, 8, 8)
    seq2seq = xlnet_tf.XLNetSeq2Seq(xlnet_tf.XLNetBackbone(config))
    with pytest.raises(ValueError, match="not for XLNetSeq2Seq"):
        loaded(tmp_path / "seq2seq" / "1", seq2seq, sequence_length=80)
    assert not (tmp_path / "seq2seq" / "1").exists()
    file = tmp_path / "out" / "1" / "model.bin"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(ValueError, match="model.bin"):
        saved_models.load(tmp_path / "out")
    (tmp_path / "out" / "1" / "model.xml").write_text("<net")
    with pytest.raises(ValueError, match="OpenVINO cannot read .*model.xml"):
        saved_models.load(tmp_path / "out", verify=False)
    for wrong in ({"precision": "int8"}, {"jit_compile": True}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
            ExportSettings(runtime="openvino", **wrong)
