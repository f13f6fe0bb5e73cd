"""Licences of all packages that an installation brings: `make licences`.

    python -m tests.house.licences

prints a table of the packages that `xlnet_tf` needs, their versions and
licences. The exit status is 1 if one has a licence that is not listed here: a
package under Apache-2.0 may depend on it only after somebody has read it.
"""

import importlib.metadata
import re
import sys

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Terms of licences, as their names begin. Of MPL-2.0 only changes to its own
# files have to be published.
ALLOWED = re.compile(
    r"(the )?(0bsd|(new |3-clause |2-clause |modified )?bsd|apache|cc0|cnri|"
    r"freebsd|hpnd|isc|mit|mozilla|mpl|psf|python software|unlicense|zlib)\b",
    re.IGNORECASE,
)
# Whose metadata name none, or several of which one may be chosen, after a look
# at their files.
READ = {"namex": "Apache-2.0", "text-unidecode": "Artistic"}


def dependencies(name, environments=({},)):
    """Names of the distributions that an installed one needs, without extras.

    Args:
        name: str, of a distribution.
        environments: list of dict of str, what markers are compared with where
            it is not this machine. What one of them needs is needed.

    Returns:
        sorted list of str.
    """
    found, waiting = set(), [(name, frozenset([""]))]
    while waiting:
        of, extras = waiting.pop()
        for requirement in map(Requirement, _requires(of)):
            entry = (
                canonicalize_name(requirement.name),
                frozenset(["", *requirement.extras]),
            )
            is_needed = requirement.marker is None or any(
                requirement.marker.evaluate({**environment, "extra": extra})
                for environment in environments
                for extra in extras
            )
            if is_needed and entry not in found:
                found.add(entry)
                waiting.append(entry)
    return sorted({x for x, _ in found})


def _requires(name):
    try:
        return importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()  # it is of another environment


def licence_of(name):
    """What the metadata of a distribution say of its licence, str."""
    if name in READ:
        return READ[name]
    metadata = importlib.metadata.metadata(name)
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        x.split(" :: ")[-1]
        for x in metadata.get_all("Classifier") or ()
        if x.startswith("License :: ") and x != "License :: OSI Approved"
    ]
    # Some have the whole text of the licence there.
    lines = (metadata.get("License") or "").strip().splitlines()
    return " AND ".join(classifiers or lines[:1]) or "not named"


def is_allowed(name, licence):
    """Whether each term of a licence, or of one of several, is allowed."""
    return name in READ or any(
        all(ALLOWED.match(term) for term in choice.split(" AND "))
        for choice in re.sub("[()]", "", licence).split(" OR ")
    )


def main():
    """Prints the table; gives the exit status."""
    unknown = 0
    for name in dependencies("xlnet_tf"):
        licence = licence_of(name)
        mark = "" if is_allowed(name, licence) else "  NOT LISTED"
        unknown += mark != ""
        version = importlib.metadata.version(name)
        print(f"{name:32} {version:16} {licence}{mark}")
    if unknown:
        print(f"error: {unknown} licence(s) are not listed.", file=sys.stderr)
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
