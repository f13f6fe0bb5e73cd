"""The files for a server parse, and name the same things."""

import json
import pathlib
import re
import socket
import subprocess
import threading

import pytest
import yaml

from saved_models.batching import write_batching

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
    deployment, service, _ = yaml.safe_load_all(read("kubernetes.yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return deployment, service, container


def test_the_batching_rules_hold(tmp_path):
    write_batching(tmp_path, 64)
    for text in (
        read("batching_parameters.txt"),
        (tmp_path / "batching_params.pbtxt").read_text(),
    ):
        # A batch that is filled up with a row of a request of no rows ends the
        # server.
        lines = [line.split("#")[0] for line in text.splitlines()]
        assert "allowed_batch_sizes" not in "".join(lines)
        # Else ids are padded with a 1 in padding_mask.
        assert "pad_variable_length_inputs: false" in lines
        assert "enable_large_batch_splitting { value: true }" in lines


def test_the_official_messages_read_them(tmp_path):
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
    for text, rows in (
        (read("batching_parameters.txt"), 32),
        (_rules_of_an_export(tmp_path, None), 32),
        (_rules_of_an_export(tmp_path, 64), 64),
        (_rules_of_an_export(tmp_path, 5000), 5000),
    ):
        message = text_format.Parse(
            text, session_bundle_config_pb2.BatchingParameters()
        )
        assert message.max_execution_batch_size.value == rows
        # A warm-up request of a compiled export has as many rows.
        assert message.max_batch_size.value >= rows


def _rules_of_an_export(directory, max_batch):
    write_batching(directory, max_batch)
    return (directory / "batching_params.pbtxt").read_text()


def test_all_files_name_the_same_model_and_files():
    (name,) = fields("models.config")["name"]
    _, service, container = kubernetes()
    for check in (
        container["readinessProbe"]["exec"]["command"],
        compose()["healthcheck"]["test"],
    ):
        assert f"/v1/models/{name} " in check[-1]
        for state, code in (("LOADING", 1), ("AVAILABLE", 0)):
            assert _checked(check[-1], state) == code
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"] == {"port": "rest"}
    assert compose()["mem_limit"] and container["resources"]["limits"]
    assert fields("models.config")["base_path"] == [f"/models/{name}"]
    for arguments in (compose()["command"], container["args"]):
        options = dict(a.removeprefix("--").split("=") for a in arguments)
        assert options["enable_batching"] == "true"
        assert options["enable_per_model_batching_parameters"] == "true"
        assert int(options["model_config_file_poll_wait_seconds"]) > 0
        for option in (
            "model_config_file",
            "batching_parameters_file",
            "monitoring_config_file",
        ):
            file = pathlib.PurePosixPath(options[option])
            assert str(file.parent) == "/config"
            assert (FOLDER / file.name).is_file()
    assert compose()["image"] == container["image"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert mounts == {"models": "/models", "config": "/config"}
    # Where a package is installed, beside it are all others.
    assert compose()["volumes"][0].startswith("${EXPORTS:?set EXPORTS")
    targets = [v.split(":")[-2] for v in compose()["volumes"]]
    assert targets == ["/models", "/config"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert {
        p["targetPort"]: p["port"] for p in service["spec"]["ports"]
    } == ports
    # Without authorization, for this machine alone.
    expected = [f"127.0.0.1:{p}:{p}" for p in ports.values()]
    assert compose()["ports"] == expected


def _checked(command, state):
    """Exit code of a health check of a server whose model is in a state."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"/127.0.0.1/{server.getsockname()[1]}"

        def answer():
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as request:
                # The shell sends each line by itself, and a connection that
                # is closed with unread bytes is reset.
                while request.readline().strip():
                    pass
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + status)

        status = json.dumps({"state": state}).encode()
        thread = threading.Thread(target=answer)
        thread.start()
        command = command.replace("/127.0.0.1/8501", place)
        code = subprocess.run(["bash", "-c", command]).returncode
        thread.join()
    return code


def test_kubernetes_selects_its_own_pods():
    deployment, service, _ = kubernetes()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    names = [c["metadata"]["name"] for c in (deployment, service)]
    names += [v["configMap"]["name"] for v in volumes if "configMap" in v]
    assert set(names) == {"xlnet-serving"}


def test_metrics_and_the_autoscaler():
    deployment, _, scaler = yaml.safe_load_all(read("kubernetes.yaml"))
    target = scaler["spec"]["scaleTargetRef"]
    assert target["name"] == deployment["metadata"]["name"]
    assert target["kind"] == deployment["kind"]
    # Else each `kubectl apply` would set the number of pods back.
    assert "replicas" not in deployment["spec"]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    (path,) = fields("monitoring.config")["path"]
    assert annotations["prometheus.io/path"] == path
    assert fields("monitoring.config")["enable"] == ["true"]
