"""The site is built without a warning, and asks no network of who reads it."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//"
    r"|<link\b[^>]*\bhref=\"?(?:https?:)?//"
)


def test_the_site_is_built(tmp_path):
    # A proxy that is not there: whoever asks a network fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    result = subprocess.run(
        [*command, "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **nowhere, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not LOADED.search(text), page.name
    page = (tmp_path / "site/explanation/two_streams.html").read_text()
    assert 'src="two_streams.svg"' in page
    picture = (tmp_path / "site/explanation/two_streams.svg").read_text()
    assert picture.startswith("<?xml")
    page = (tmp_path / "site/tutorials/own_text.html").read_text()
    assert "exports/mine" in page and 'href="../training.html"' in page
    page = (tmp_path / "site/reference/xlnet_tf.html").read_text()
    for name in ("XLNetPretrainer.fill", "XLNetTextClassifier.predict_labels"):
        assert re.search(rf'id="[\w.]+\.{re.escape(name)}"', page), name
