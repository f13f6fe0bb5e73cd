"""Site pages made from documents in the repository's root and from notebooks.

On every page, the links in the source lead to files of the repository. This
hook turns these links into links between pages of the site.
"""

import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Documents of the root, and the pages that they become.
OUTSIDE = {
    "README.md": "index.md",
    "BUILD.md": "build.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_SOURCES = {page: name for name, page in OUTSIDE.items()}


def on_files(files, config):
    """Add a page for each document of the root and for each notebook."""
    import jupytext
    from mkdocs.structure.files import File

    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for file in [x for x in files if x.src_uri.endswith(".ipynb")]:
        notebook = jupytext.read(file.abs_src_path)
        text = jupytext.writes(notebook, "md")
        page = file.src_uri.replace(".ipynb", ".md")
        text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links to files of the repository into links to pages."""
    here = page.file.src_uri
    source = _SOURCES.get(here, f"docs/{here}")
    return _LINK.sub(lambda found: _link(found, source, here), markdown)


def _link(found, source, here):
    """Make a link to a file's page; without a page, return the link's text."""
    text, target, anchor = found.groups(default="")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path == "docs":
        page = "index.md"
    elif path in OUTSIDE:
        page = OUTSIDE[path]
    elif path.startswith("docs/"):
        page = re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    elif (ROOT / path).exists():
        return text
    else:
        return found[0]
    page = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"[{text}]({page}{anchor})"
