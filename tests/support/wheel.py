"""Packages as in a release: built, and installed in a folder."""

import shutil
import subprocess
import sys

from tests.conftest import ROOT

# Of the checkout: what the commands of README.md and the Makefile write.
WRITTEN = {"build", "dist", "runs", "site"}
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")


def build(directory):
    """Build a source distribution, and the wheel from it.

    Args:
        directory: path of an empty directory.

    Returns:
        (path of the source distribution, path of the wheel).
    """

    def ignored(folder, names):
        written = WRITTEN if folder == str(ROOT) else set()
        return IGNORED(folder, names) | written.intersection(names)

    # Not in the checkout, where setuptools would leave files of its own.
    source = shutil.copytree(ROOT, directory / "source", ignore=ignored)
    output = directory / "dist"
    subprocess.run(
        [
            *(sys.executable, "-m", "build", "--no-isolation"),
            *("--outdir", output, source),
        ],
        capture_output=True,
        check=True,
    )
    (archive,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    return archive, wheel


def install(wheel, directory):
    """Install a wheel below a directory, without its dependencies."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--no-compile", "--target", directory, wheel),
        ],
        check=True,
    )
