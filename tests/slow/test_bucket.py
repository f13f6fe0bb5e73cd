"""The commands on a bucket, by TensorFlow's client of Google Cloud Storage.

No quick test guards this: the client of TensorFlow differs from a file system
(no renames of folders, no empty folders, uploads at the end), and it can only
be led to another server before TensorFlow is imported.
"""

import os
import shlex
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from tests.slow.test_documents import blocks
from tests.slow.test_documents import made_smaller
from tests.slow.test_documents import write_text
from tests.support import gcs
from tests.support.preloaded import preloaded_python
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificate"
)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """Bucket with text and reviews, `run` and `folder`, that of `run`."""
    folder = tmp_path_factory.mktemp("bucket")
    with gcs.serving("mine", folder) as (bucket, variables):
        environment = {
            **os.environ,
            **variables,
            # Of TensorFlow's client, whose first wait is a second.
            "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "1000",
            "GCS_RETRY_CONFIG_MAX_RETRIES": "3",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        (folder / "here").mkdir()

        def run(body):
            return subprocess.run(
                ["bash", "-euo", "pipefail", "-c", body],
                cwd=folder / "here",
                capture_output=True,
                encoding="utf-8",
                env=environment,
            )

        write_text(folder)
        for path in (*folder.glob("text/*"), folder / "reviews.csv"):
            name = path.relative_to(folder).as_posix()
            bucket.put(name, path.read_bytes())
        bucket.run, bucket.folder = run, folder / "here"
        with preloaded_python(folder, environment):
            yield bucket


def test_from_text_to_predictions(bucket):
    """The block of docs/training.md, with nothing on the local disk.

    Eight logical CPUs stand for eight GPUs. `auto` takes GPUs alone, so
    `--strategy` is added.
    """
    _, body = blocks("docs/training.md")["bucket"]
    body = made_smaller(body).replace("BUCKET", "mine")
    train = "python -m xlnet_tf.train"
    body = body.replace(train, f"LOGICAL_DEVICES=8 {train} --strategy mirrored")
    body = body.replace("--batch-size 4", "--batch-size 8")
    done = bucket.run(body)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "8 sequences = 8 replica(s)" in done.stdout, done.stdout
    assert '"label": ' in done.stdout
    assert not list(bucket.folder.iterdir())
    for name in (
        "records/manifest.json",
        "runs/mine/preset/model.weights.h5",
        "runs/reviews/report.html",
        "saved_models/mine/2/saved_model.pb",
        "saved_models/reviews/1/SHA256SUMS",
    ):
        assert bucket.files[name], name


def test_a_run_survives_outages(bucket, tmp_path):
    """Outages that begin in a checkpoint and in an export end the run by one
    line; the same command then goes on to the weights of a run that nothing
    disturbed."""
    records = write_records(tmp_path)
    for path in records.rglob("*"):
        name = path.relative_to(tmp_path).as_posix()
        bucket.put(f"small/{name}", path.read_bytes())
    command = ["python", "-m", "xlnet_tf.train", *write_configs(tmp_path)]

    def run(name, *more):
        more = arguments(
            "gs://mine/small/records", f"gs://mine/runs/{name}", *more
        )
        return bucket.run(shlex.join([*command, *more]))

    def weights(name):
        return bucket.files[f"runs/{name}/preset/model.weights.h5"]

    done = run("calm")
    assert done.returncode == 0, done.stderr[-3000:]
    export = ("--export", "gs://mine/saved_models/disturbed")
    for place in ("ckpt-2.index", "4%2Fvariables"):
        bucket.outage = place
        done = run("disturbed", *export)
        assert bucket.is_down, place
        assert done.returncode == 1, done.stderr[-3000:]
        assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        bucket.is_down = False
    done = run("disturbed", *export)
    assert done.returncode == 0, done.stderr[-3000:]
    assert weights("disturbed") == weights("calm")
