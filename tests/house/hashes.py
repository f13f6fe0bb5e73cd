"""Digests of the tested versions, for `pip install --require-hashes`.

    python -m tests.house.hashes

writes `requirements-hashed.txt` and `requirements-hashed-3.10.txt`: the
packages that `xlnet_tf` needs, without extras, in the versions of the
constraints, with the digests of all files that the index of pip's settings has
of them. (Digests in a file of constraints do not count for pip.)
"""

import importlib.metadata

import packaging.utils
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link

from tests.conftest import ROOT
from tests.house import licences

# Versions of Python -> ending of the files.
ENDINGS = {("3.11", "3.12"): "", ("3.10",): "-3.10"}
_PLATFORMS = (("linux", "Linux"), ("darwin", "Darwin"))
_HEADER = """\
# The versions of {constraints} with the digests of their files, extras left
# out; written by tests/house/hashes.py:
# pip install --require-hashes --requirement {file}
"""


def environments(pythons):
    """list of dict, the environments of markers on some versions of Python."""
    return [
        {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": platform,
            "platform_system": system,
        }
        for python in pythons
        for platform, system in _PLATFORMS
    ]


def versions_of(file):
    """dict of the name of each package to its version in a constraints file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {packaging.utils.canonicalize_name(k): v for k, v in pairs}


def digests_of(collector, name, version):
    """Digests of all files of a version of a package, sorted list of str."""
    found = set()
    for address in collector.search_scope.get_index_urls_locations(name):
        page = collector.fetch_response(Link(address))
        for link in parse_links(page) if page else ():
            if link.hash_name == "sha256" and _is_of(link.filename, version):
                found.add(link.hash)
    return sorted(found)


def _is_of(filename, version):
    """Whether a file is a wheel or the source of a version, bool."""
    parse = packaging.utils.parse_sdist_filename
    if filename.endswith(".whl"):
        parse = packaging.utils.parse_wheel_filename
    try:
        return str(parse(filename)[1]) == version
    except ValueError:  # an egg, or an installer of Windows
        return False


def main():
    """Write the files."""
    command = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context():
        collector = LinkCollector.create(
            command.get_default_session(options), options=options
        )
        usual = versions_of(ROOT / "constraints.txt")
        for pythons, ending in ENDINGS.items():
            tested = versions_of(ROOT / f"constraints{ending}.txt")
            needed = licences.dependencies("xlnet_tf", environments(pythons))
            if tested != usual:
                # Of other versions of packages than those that are installed.
                needed = {*needed, *(tested.keys() - usual.keys()), "pytz"}
            for name in ("setuptools", "wheel"):
                tested.setdefault(name, importlib.metadata.version(name))
            lines = []
            for name in sorted(tested.keys() & set(needed)):
                digests = digests_of(collector, name, tested[name])
                parts = (f"--hash=sha256:{x}" for x in digests)
                lines.append(
                    " \\\n    ".join([f"{name}=={tested[name]}", *parts])
                )
            file = f"requirements-hashed{ending}.txt"
            header = _HEADER.format(
                constraints=f"constraints{ending}.txt", file=file
            )
            (ROOT / file).write_text(header + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
