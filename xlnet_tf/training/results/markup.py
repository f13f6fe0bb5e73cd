"""HTML of elements, which escape what they hold.

A page loads nothing: pictures are inline, and its policy forbids the network.
"""

import base64
import re
import xml.etree.ElementTree as ElementTree

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto;
  max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .25em .7em;
  border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.text { max-width: 45em; overflow-wrap: anywhere; }
img { max-width: 100%; } pre { overflow-x: auto; }
p.note, p.caption { color: #555; }
"""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def element(tag, *content, **attributes):
    """An element of HTML.

    Args:
        tag: str, its name.
        *content: str, number or element each; None is left out.
        **attributes: str, "class_" for "class".

    Returns:
        xml.etree.ElementTree.Element.
    """
    attributes = {k.rstrip("_"): str(v) for k, v in attributes.items()}
    made, last = ElementTree.Element(tag, attributes), None
    for part in content:
        if part is None:
            continue
        if isinstance(part, ElementTree.Element):
            made.append(part)
            last = part
            continue
        # What a browser would not show, or UTF-8 does not have.
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(part))
        if last is None:
            made.text = (made.text or "") + text
        else:
            last.tail = (last.tail or "") + text
    return made


def table(header, rows):
    """A table.

    Args:
        header: list of str.
        rows: list of lists of cells: str, number (on the right), element.
    """
    return element(
        "table",
        element("tr", *(element("th", name) for name in header)),
        *(element("tr", *map(_cell, row)) for row in rows),
    )


def _cell(value):
    if isinstance(value, float):
        return element("td", f"{value:.4g}", class_="number")
    if isinstance(value, int) and not isinstance(value, bool):
        return element("td", f"{value:,}", class_="number")
    return element("td", value, class_="text")


def picture(data, alternative):
    """An inline picture.

    Args:
        data: bytes of a PNG.
        alternative: str, what is to be seen there.
    """
    source = "data:image/png;base64," + base64.b64encode(data).decode()
    return element("img", src=source, alt=alternative)


def page(title, content):
    """A whole page, bytes.

    Args:
        title: str.
        content: list of elements.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element(
            "meta", **{"http-equiv": "Content-Security-Policy"}, content=_POLICY
        ),
        element("title", title),
        element("style", _STYLE),
    )
    body = element("body", element("h1", title), *content)
    root = element("html", head, body, lang="en")
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode()
