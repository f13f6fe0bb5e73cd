"""The files for a server parse, and name the same things."""

import pathlib
import re

import pytest
import yaml

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "saved_models/serving"


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def fields(name):
    """Values of a text proto by field, without its nesting."""
    lines = [line.split("#")[0] for line in read(name).splitlines()]
    found = {}
    for key, value in re.findall(
        r"(\w+):\s*(\S+?)\s*(?:[}\n]|$)", "\n".join(lines)
    ):
        found.setdefault(key, []).append(value.strip('"'))
    return found


def compose():
    (service,) = yaml.safe_load(read("docker-compose.yaml"))[
        "services"
    ].values()
    return service


def kubernetes():
    deployment, service = yaml.safe_load_all(read("kubernetes.yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return deployment, service, container


def test_the_batching_rules_hold():
    found = fields("batching_parameters.txt")
    sizes = [int(size) for size in found["allowed_batch_sizes"]]
    assert sizes == sorted(set(sizes))
    largest, *others = (int(value) for value in found["value"])
    assert sizes[-1] == largest and len(others) == 3
    # Else ids are padded with a 1 in padding_mask.
    assert found["pad_variable_length_inputs"] == ["false"]


def test_the_official_messages_read_them():
    pytest.importorskip(
        "tensorflow_serving", reason="needs tensorflow-serving-api"
    )
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    config = text_format.Parse(
        read("models.config"), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert model.model_platform == "tensorflow"
    assert model.base_path == f"/models/{model.name}"
    assert model.model_version_policy.latest.num_versions == 1
    session_bundle_config_pb2 = pytest.importorskip(
        "tensorflow_serving.servables.tensorflow.session_bundle_config_pb2",
        reason="this tensorflow-serving-api has no batching messages",
    )
    message = text_format.Parse(
        read("batching_parameters.txt"),
        session_bundle_config_pb2.BatchingParameters(),
    )
    assert message.max_batch_size.value == message.allowed_batch_sizes[-1]


def test_all_files_name_the_same_model_and_files():
    (name,) = fields("models.config")["name"]
    _, service, container = kubernetes()
    probe = container["readinessProbe"]["httpGet"]
    assert probe["path"] == f"/v1/models/{name}"
    assert fields("models.config")["base_path"] == [f"/models/{name}"]
    for arguments in (compose()["command"], container["args"]):
        options = dict(a.removeprefix("--").split("=") for a in arguments)
        assert options["enable_batching"] == "true"
        for option in ("model_config_file", "batching_parameters_file"):
            file = pathlib.PurePosixPath(options[option])
            assert str(file.parent) == "/config"
            assert (FOLDER / file.name).is_file()
    assert compose()["image"] == container["image"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert mounts == {"models": "/models", "config": "/config"}
    targets = [v.split(":")[-2] for v in compose()["volumes"]]
    assert targets == ["/models", "/config"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert {
        p["targetPort"]: p["port"] for p in service["spec"]["ports"]
    } == ports
    assert compose()["ports"] == [f"{p}:{p}" for p in ports.values()]


def test_kubernetes_selects_its_own_pods():
    deployment, service, _ = kubernetes()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    names = [c["metadata"]["name"] for c in (deployment, service)]
    names += [v["configMap"]["name"] for v in volumes if "configMap" in v]
    assert set(names) == {"xlnet-serving"}
