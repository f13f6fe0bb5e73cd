"""`hf://OWNER/NAME` by huggingface_hub itself, from a server on this machine.

In processes of their own, for the client reads its addresses at its import.
"""

import base64
import hashlib
import http.server
import importlib.util
import json
import threading

import numpy as np
import pytest

import xlnet_tf
from tests.support import artefacts
from tests.support.commands import python
from tests.support.export_fixtures import tiny_tokenizer
from xlnet_tf import convert

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="huggingface_hub is not installed",
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/small-xlnet"


class Hub(http.server.BaseHTTPRequestHandler):
    """A listing and files with their digests to download; commits."""

    directory = None
    asked = []
    uploaded = {}

    def do_GET(self):
        self._answer()

    def do_HEAD(self):
        self._answer()

    def do_POST(self):
        """A model is made, and a commit brings all its files at once."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        address = f"http://{self.headers['Host']}"
        if "Bearer right" != self.headers.get("Authorization"):
            self.send_error(401)
        elif self.path == "/api/repos/create":
            self._send_values({"url": f"{address}/{REPOSITORY}"})
        elif self.path.endswith("/preupload/main"):
            asked = json.loads(content)["files"]
            new = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            files = [{**new, "path": x["path"]} for x in asked]
            self._send_values({"files": files})
        elif self.path.endswith("/commit/main"):
            for line in map(json.loads, content.splitlines()):
                if line["key"] == "file":
                    file = line["value"]
                    data = base64.b64decode(file["content"])
                    self.uploaded[file["path"]] = data
            url = f"{address}/{REPOSITORY}/commit/{COMMIT}"
            self._send_values({"commitUrl": url, "commitOid": COMMIT})
        else:
            self.send_error(404)

    def _send_values(self, values):
        self._send(json.dumps(values).encode(), "application/json")

    def _answer(self):
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        names = sorted(x.name for x in self.directory.iterdir())
        entry = {"type": "file", "size": 1, "oid": COMMIT}
        files = [{**entry, "path": name} for name in names]
        siblings = [{"rfilename": name} for name in names]
        info = {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}
        base = f"/api/models/{REPOSITORY}"
        if path.startswith(f"{base}/tree/"):
            self._send(json.dumps(files).encode(), "application/json")
        elif path.startswith(base):
            self._send(json.dumps(info).encode(), "application/json")
        elif path.startswith(f"/{REPOSITORY}/resolve/"):
            file = self.directory / path.rpartition("/")[2]
            self._send(file.read_bytes(), "application/octet-stream")
        else:
            self.send_error(404)

    def _send(self, content, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub(tmp_path):
    """Function that runs a program with the hub, or without any network."""
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    model = xlnet_tf.XLNetBackbone(config, seed=1)
    model.save_to_preset(tmp_path / "ours", tokenizer=tiny_tokenizer())
    Hub.directory, Hub.asked = tmp_path / "published", []
    Hub.uploaded = {}
    argv = ["--from", tmp_path / "ours", "--to", Hub.directory]
    assert convert.main([*map(str, argv), "--format", "hf"]) == 0
    for name in ("tf_model.h5", "rust_model.ot", "pytorch_model.bin"):
        (Hub.directory / name).write_bytes(b"of others")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    environment = {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": address}
    yield lambda *command, **more: run(*command, **{**environment, **more})
    server.shutdown()
    server.server_close()


def run(*command, **environment):
    return python(*command, **environment, status=None)


def test_a_model_of_the_hub(hub, tmp_path):
    """Fetched once, without files of others; then from the cache."""
    program = f"""
import numpy as np, xlnet_tf
name = "hf://{REPOSITORY}"
model = xlnet_tf.XLNetBackbone.from_preset(name)
pinned = xlnet_tf.XLNetBackbone.from_preset(name + "@{COMMIT}")
found = model({{"token_ids": np.array([[9, 10, 3]])}})["content"]
np.save({str(tmp_path / "found.npy")!r}, found)
np.testing.assert_array_equal(
    pinned({{"token_ids": np.array([[9, 10, 3]])}})["content"], found)
"""
    done = hub("-c", program)
    assert done.returncode == 0, done.stderr[-2000:]
    ours = xlnet_tf.XLNetBackbone.from_preset(tmp_path / "ours")
    expected = ours({"token_ids": np.array([[9, 10, 3]])})["content"]
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    fetched = {x.rpartition("/")[2] for x in Hub.asked if "/resolve/" in x}
    assert "model.safetensors" in fetched
    assert not fetched & {"tf_model.h5", "rust_model.ot", "pytorch_model.bin"}

    command = ("-m", "xlnet_tf", "convert", "--from", f"hf://{REPOSITORY}")
    offline = {"HF_HUB_OFFLINE": "1"}
    done = hub(*command, "--to", tmp_path / "again", **offline)
    assert done.returncode == 0, done.stderr[-2000:]
    done = hub(*command[:-1], "hf://owner/other", "--to", "x", **offline)
    assert done.returncode == 1
    assert "`hf download owner/other --local-dir DIR`" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: hf://owner/other")


def test_a_model_is_uploaded(hub, tmp_path):
    """By the command, and by `save_to_preset`; without a login nothing is."""
    command = ("-m", "xlnet_tf", "convert", "--from", tmp_path / "ours")
    command += ("--to", f"hf://{REPOSITORY}")
    done = hub(*command, HF_TOKEN="wrong")
    assert done.returncode == 1 and not Hub.uploaded
    assert done.stderr.splitlines()[-1].startswith(
        f"error: nothing was uploaded to hf://{REPOSITORY} "
    )
    assert "`hf auth login`" in done.stderr
    done = hub(*command, HF_TOKEN="right")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"wrote preset hf://{REPOSITORY}" in done.stdout
    again = tmp_path / "again"
    for name, data in Hub.uploaded.items():
        file = again / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    ids = {"token_ids": np.array([[9, 10, 3]])}
    found, expected = (
        xlnet_tf.load(x)(ids)["content"] for x in (again, tmp_path / "ours")
    )
    np.testing.assert_array_equal(found, expected)
    Hub.uploaded.clear()
    program = f"""
import xlnet_tf
model = xlnet_tf.load({str(again)!r})
model.save_to_preset("hf://{REPOSITORY}", dtype="float16")
"""
    done = hub("-c", program, HF_TOKEN="right")
    assert done.returncode == 0, done.stderr[-2000:]
    assert {"config.json", "model.weights.h5", "SHA256SUMS"} <= set(
        Hub.uploaded
    )
