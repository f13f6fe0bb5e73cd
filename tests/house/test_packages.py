"""What an installation brings: exact versions, their digests, licences."""

import fnmatch
import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.house import licences
from tests.support.commands import python

OLD_PYTHON = sys.version_info < (3, 11)


def pinned(name):
    """dict of package to version, and digests: a list of each package."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = re.sub(r"^ *#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    versions, digests = {}, {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        requirement = Requirement(line.split(" --hash")[0].strip())
        name = canonicalize_name(requirement.name)
        (version,) = requirement.specifier
        assert version.operator == "=="
        versions[name] = version.version
        digests[name] = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line)
    return versions, digests


def test_hashed_requirements_are_the_tested_versions():
    for ending in ("", "-3.10"):
        tested, _ = pinned(f"constraints{ending}.txt")
        versions, digests = pinned(f"requirements-hashed{ending}.txt")
        for name, version in versions.items():
            # Those that pip needs for itself are not tested.
            assert tested.get(name, version) == version, name
            assert digests[name], name
        assert versions.keys() - tested.keys() <= {"setuptools", "wheel"}
        text = (ROOT / f"requirements-hashed{ending}.txt").read_text()
        assert "://" not in text
        if OLD_PYTHON == bool(ending):
            needed = set(licences.dependencies("xlnet_tf"))
            assert needed <= versions.keys()


def test_licences_of_all_dependencies_are_known():
    for name in licences.dependencies("xlnet_tf"):
        licence = licences.licence_of(name)
        assert licences.is_allowed(name, licence), (name, licence)


def test_licences_are_told_apart():
    for licence, allowed in (
        ("MIT", True),
        ("MIT OR GPL-2.0-only", True),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("Apache Software License AND BSD License", True),
        ("MIT AND LGPL-2.1-only", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("BSL-1.1", False),
        ("not named", False),
    ):
        assert licences.is_allowed("a-package", licence) == allowed, licence


@pytest.mark.parametrize("folder", ["docs", "docker", "benchmarks", "examples"])
def test_the_source_distribution_holds_every_file(folder):
    """The commands of make read recipes and settings, not programs alone."""
    text = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    (patterns,) = re.findall(rf"^recursive-include {folder} (.*)$", text, re.M)
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    if not listed:
        pytest.skip("not a checkout of git")
    for name in listed:
        name = name.rsplit("/", 1)[-1]
        assert any(fnmatch.fnmatch(name, x) for x in patterns.split()), name


def test_the_metadata_is_that_of_the_citation():
    command = [sys.executable, "setup.py", "--author", "--keywords"]
    author, *keywords = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert [author] == [x["name"] for x in citation["authors"]]
    assert ",".join(keywords).split(",") == citation["keywords"]


def test_a_file_of_the_user_with_the_name_of_a_package(tmp_path):
    """Python looks into the current folder first."""
    (tmp_path / "saved_models").mkdir()  # exports, which is not in the way
    program = "import xlnet_tf, sys; sys.exit('tensorflow' in sys.modules)"
    for name, expected in (
        (None, None),
        ("data_pipeline.py", "data_pipeline.py"),
        ("saved_models/__init__.py", "saved_models"),
    ):
        if name:
            (tmp_path / name).touch()
        done = python(
            "-c", program, cwd=tmp_path, PYTHONPATH=str(ROOT), status=None
        )
        if name:
            (tmp_path / name).unlink()
            message = f"ImportError: {tmp_path / expected} is imported instead"
            assert done.stderr.splitlines()[-1].startswith(message)
        else:
            assert done.returncode == 0, done.stderr[-2000:]


def test_advice_installs_what_exists():
    """The package itself is on no index: messages name those it needs."""
    for package in ("data_pipeline", "saved_models", "xlnet_tf", "docs"):
        for file in (ROOT / package).rglob("*"):
            if file.suffix in (".py", ".md", ".ipynb"):
                text = re.sub(r'"\s*f?"', "", file.read_text(encoding="utf-8"))
                assert not re.search(r"pip install\s+'?xlnet[_-]tf", text), file
