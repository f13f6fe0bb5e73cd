"""Pictures on the site's pages, drawn by commands that the pages contain.

A page has a line `<!-- picture: what it shows -->` above a code block with one
command `python -m xlnet_tf.show masks ... --output NAME.svg`. When the site is
built, the command draws the picture, which is inserted after the block. The
repository contains only the command.
"""

import contextlib
import io
import pathlib
import posixpath
import re
import shlex
import tempfile

from mkdocs.structure.files import File

BLOCK = re.compile(r"<!-- picture: ([^>]+?) -->\n```sh\n(.*?)```\n", re.DOTALL)


def commands(text):
    """Find a page's pictures: list of (description, command split in words)."""
    return [
        (title, shlex.split(body.replace("\\\n", " ")))
        for title, body in BLOCK.findall(text)
    ]


def on_files(files, config):
    """Draw the pictures of all pages."""
    for file in [x for x in files if x.is_documentation_page()]:
        for _, words in commands(file.content_string):
            folder = posixpath.dirname(file.src_uri)
            name = posixpath.join(folder, words[-1])
            files.append(File.generated(config, name, content=draw(words)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Insert each picture after the code block of its command."""

    def with_picture(found):
        ((title, words),) = commands(found[0])
        return f"{found[0]}\n![{title}]({words[-1]})\n"

    return BLOCK.sub(with_picture, markdown)


def draw(words):
    """Run a command of `xlnet_tf.show`; return the bytes of its file."""
    from xlnet_tf import show

    if (
        words[:3] != ["python", "-m", "xlnet_tf.show"]
        or words[-2] != "--output"
    ):
        raise ValueError(
            "a picture is drawn by `python -m xlnet_tf.show ... --output "
            f"FILE`. Received: {shlex.join(words)}."
        )
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / words[-1]
        with contextlib.redirect_stdout(io.StringIO()):
            show.main([*words[3:-1], str(output)])
        return output.read_bytes()
