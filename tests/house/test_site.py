"""The site of docs/: what is in it. `tests/slow/test_site.py` builds it."""

import importlib
import importlib.util
import json
import posixpath
import re
import types
from types import SimpleNamespace

import yaml

import data_pipeline
import saved_models
import xlnet_tf
from tests.conftest import ROOT
from tests.house import options

DOCS = ROOT / "docs"
MOST_BYTES = 20_000  # of a notebook


def hook(name):
    """A module of docs/hooks."""
    file = DOCS / "hooks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"hooks_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages_of(nav):
    """Paths of all pages below an entry of the navigation."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in pages_of(entry)]


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = pages_of(yaml.safe_load(text)["nav"])
    files = [x for end in ("md", "ipynb") for x in DOCS.rglob(f"*.{end}")]
    expected = {
        x.relative_to(DOCS).with_suffix(".md").as_posix() for x in files
    }
    expected |= set(hook("pages").OUTSIDE.values())
    reference = hook("reference")
    expected |= {f"reference/{x}.md" for x in reference.PACKAGES}
    expected.add("reference/commands.md")
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert set(hook("pages").OUTSIDE) == {x.name for x in ROOT.glob("*.md")}


def test_links_of_the_repository_become_links_between_pages():
    pages = hook("pages")
    found = set(
        pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    )
    sources = {page: ROOT / name for name, page in pages.OUTSIDE.items()}
    sources |= {x.relative_to(DOCS).as_posix(): x for x in DOCS.rglob("*.md")}
    for name, file in sources.items():
        page = SimpleNamespace(file=SimpleNamespace(src_uri=name))
        text = file.read_text(encoding="utf-8")
        text = pages.on_page_markdown(text, page, config=None, files=None)
        # Whatever lines the text of a link goes over.
        for target in re.findall(r"\]\(([^)\s#:]+\.md)(?:#[^)\s]*)?\)", text):
            path = posixpath.join(posixpath.dirname(name), target)
            assert posixpath.normpath(path) in found, (name, target)


def test_every_public_name_is_in_the_reference():
    reference = hook("reference")
    for package in (xlnet_tf, data_pipeline, saved_models):
        text = reference.package_page(package.__name__)
        names = set(package.__all__) - {"__version__"}
        values = {name: getattr(package, name) for name in names}
        for folder, module in values.items():
            if isinstance(module, types.ModuleType):
                names.remove(folder)
                names |= {f"{folder}.{x}" for x in module.__all__}
        for name in names:
            title = f"\n### {package.__name__}.{name} "
            assert text.count(title) == 1, name
    # Where they are said to be defined they are.
    for package in reference.PACKAGES:
        for name, place in reference.public_names(package).items():
            module, _, attribute = place.rpartition(".")
            value = getattr(importlib.import_module(module), attribute)
            assert attribute == name.rpartition(".")[2] and value is not None


def test_what_is_shown_where_it_is_inherited_is_there():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (plugin,) = (x for x in yaml.safe_load(text)["plugins"] if x != "search")
    python = plugin["mkdocstrings"]["handlers"]["python"]["options"]
    models = (
        xlnet_tf.XLNetBackbone,
        xlnet_tf.XLNetPretrainer,
        xlnet_tf.XLNetTextClassifier,
    )
    for name in python["inherited_members"]:
        assert any(hasattr(model, name) for model in models), name


def test_every_option_is_in_the_reference():
    text = hook("reference").commands_page()
    kept = json.loads(options.FILE.read_text(encoding="utf-8"))
    for command, its in kept.items():
        _, _, rest = text.partition(f"`python -m {command}`")
        section = rest.partition("\n## ")[0]
        assert section, command
        for name in its:
            option = name.split()[-1]
            if option.startswith("--") and option != "--help":
                assert f"`{option}`" in section, (command, option)


def test_notebooks_are_small_and_without_outputs():
    for file in DOCS.rglob("*.ipynb"):
        text = file.read_text(encoding="utf-8")
        assert len(text.encode()) <= MOST_BYTES, file.name
        for cell in json.loads(text)["cells"]:
            assert not cell.get("outputs"), file.name
            assert cell.get("execution_count") is None, file.name
            source = "".join(cell["source"])
            # Without it a command that fails does not fail its cell.
            if source.startswith("%%bash"):
                assert source.startswith("%%bash\nset -e\n"), file.name


def test_names_of_peers_become_names_that_exist():
    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    for package, name in re.findall(
        r"`(xlnet_tf|data_pipeline)\.(\w+)(?=[`(.])", text
    ):
        assert name in importlib.import_module(package).__all__, name
    features = xlnet_tf.XLNetBackbone.__doc__
    _, _, rest = text.partition("| transformers | here | |\n")
    for row in rest.partition("\n\n")[0].splitlines()[1:]:
        for name in re.findall(r"`(\w+)`", row.split("|")[2]):
            assert name in features, name
    _, _, rest = text.partition("Fields of the config:")
    fields = xlnet_tf.XLNetConfig.__dataclass_fields__
    for row in rest.split("\n\n")[1].splitlines()[2:]:
        for name in re.findall(r"`(\w+)`", row.split("|")[2]):
            assert name in {*fields, "tanh", "erf", *_ATTENTION}, name


_ATTENTION = ("bidirectional", "causal")
