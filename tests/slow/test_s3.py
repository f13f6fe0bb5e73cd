"""Text, records, models and exports by s3fs, from moto's server of S3.

In processes of their own: `pip install s3fs 'moto[server]'` brings more
packages than all of the library, so they are not among those of the tests.
"""

import importlib.util

import pytest

from tests.support.commands import python
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import write_corpus

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("s3fs", "moto", "boto3"))),
    reason="pip install s3fs 'moto[server]'",
)


@pytest.fixture
def run():
    """Function that runs a command beside a server with a bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    keys["AWS_ENDPOINT_URL"] = address
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    client.create_bucket(Bucket="bucket")

    def run(*command):
        return python("-m", *command, **keys, status=None)

    run.client = client
    yield run
    server.stop()


def test_records(run, tmp_path):
    """Built by two processes, to the bytes of a local set."""
    corpus = write_corpus(tmp_path / "corpus", documents=4)
    for name in ("a.txt", "spiece.model"):
        run.client.upload_file(str(corpus / name), "bucket", f"text/{name}")
    command = [
        "data_pipeline.build_records",
        "--input",
        "s3://bucket/text/*.txt",
    ]
    command += [
        "--tokenizer",
        "s3://bucket/text/spiece.model",
        "--processes",
        "2",
    ]
    command += ["--output", "s3://bucket/records", "--sequence-length", "64"]
    for end in ("wrote s3://bucket/records", "was complete already"):
        done = run(*command)
        assert done.returncode == 0, done.stderr
        assert end in done.stdout
    done = run("data_pipeline.inspect", "s3://bucket/records")
    assert "all checksums are right" in done.stdout, done.stderr
    run_build(corpus, tmp_path / "near")
    (tmp_path / "far").mkdir()
    for entry in run.client.list_objects_v2(Bucket="bucket", Prefix="records/")[
        "Contents"
    ]:
        target = tmp_path / "far" / entry["Key"].rpartition("/")[2]
        run.client.download_file("bucket", entry["Key"], str(target))
    assert digests(tmp_path / "far") == digests(tmp_path / "near")


def test_models_and_exports(run):
    convert = ("xlnet_tf.convert", "--from", "xlnet_tiny_en", "--to")
    done = run(*convert, "s3://bucket/preset")
    assert done.returncode == 0, done.stderr
    done = run(*convert, "s3://none/preset")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("no such bucket or folder.")
    export = (
        "saved_models.export",
        "--model",
        "s3://bucket/preset",
        "--output",
    )
    for version in (1, 2):
        done = run(*export, "s3://bucket/fill")
        assert f"wrote s3://bucket/fill/{version}" in done.stdout, done.stderr
    text = "The capital of the United <mask>."
    done = run(
        "saved_models.predict", "--model", "s3://bucket/fill", "--text", text
    )
    assert '"The capital of the United States."' in done.stdout, done.stderr
