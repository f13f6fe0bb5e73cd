"""Reference pages, from docstrings of public names and from option parsers."""

import argparse
import importlib
import types
from argparse import SUPPRESS

from tests.house import options
from xlnet_tf.__main__ import COMMANDS

PACKAGES = ("xlnet_tf", "data_pipeline", "saved_models")
# Heading -> beginnings of the modules of its names, which stand in this order;
# the first heading that fits counts.
GROUPS = {
    "Models": (
        *("xlnet_tf.loading", "xlnet_tf.objectives.pretrainer"),
        *("xlnet_tf.model.", "xlnet_tf.config"),
    ),
    "Tasks": ("xlnet_tf.tasks",),
    "Preprocessors": ("xlnet_tf.preprocessing",),
    "Objectives": ("xlnet_tf.objectives",),
    "Optimizer": ("xlnet_tf.optimizer",),
    "Pictures": ("xlnet_tf.pictures",),
    "Text and records": ("data_pipeline",),
    "Exports": ("saved_models",),
}


def on_files(files, config):
    """Add a page for each package, and a page for all commands."""
    from mkdocs.structure.files import File

    pages = {f"reference/{name}.md": package_page(name) for name in PACKAGES}
    pages["reference/commands.md"] = commands_page()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def public_names(package):
    """Make a dict from public names to the names in the defining modules."""
    package = importlib.import_module(package)
    found, modules = {}, [package]
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                modules.append(value)
            elif name != "__version__":
                place = getattr(value, "__module__", module.__name__)
                found[f"{module.__name__}.{name}"] = f"{place}.{name}"
    return found


def group_of(place):
    """Find the heading of a name; `place` is the name with its module."""
    return next(x for x in GROUPS if place.startswith(GROUPS[x]))


def package_page(package):
    """Make the text of a package's page."""
    summary = importlib.import_module(package).__doc__.splitlines()[0]
    lines = [f"# {package}", "", summary, ""]
    names = public_names(package)
    groups = {name: group_of(place) for name, place in names.items()}
    for group, modules in GROUPS.items():
        its_names = [
            name
            for module in modules
            for name in names
            if groups[name] == group and names[name].startswith(module)
        ]
        if its_names:
            lines += [f"## {group}", ""]
        for name in its_names:
            lines += [
                f"### {name} {{ #{name} }}",
                "",
                f"::: {names[name]}",
                "    options:",
                "      show_root_heading: false",
                "      show_root_toc_entry: false",
                "",
            ]
    return "\n".join(lines)


def commands_page():
    """Make the text of the page about the commands."""
    lines = [
        "# Commands",
        "",
        "`xlnet NAME` and `python -m MODULE` are the same, and take the same "
        "options, which `--help` prints too.",
        "",
    ]
    for name, (module, summary) in COMMANDS.items():
        parser = options.parser(module)
        lines += [
            f"## xlnet {name}",
            "",
            f"`python -m {module}`: {summary}.",
            "",
            *_tables(parser),
        ]
    return "\n".join(lines)


def _tables(parser):
    """Make the lines of the option tables of a parser and its subcommands."""
    lines = []
    for group in parser._action_groups:
        rows = [
            _row(parser, action)
            for action in group._group_actions
            if not isinstance(action, argparse._SubParsersAction)
            and action.help is not SUPPRESS
            and action.dest != "help"
        ]
        if rows:
            lines += ["| option | takes | |", "| --- | --- | --- |", *rows, ""]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subcommand in action.choices.items():
                text = (subcommand.description or "").rstrip(".")
                lines += [f"### {name}", "", f"{text}.", ""]
                lines += _tables(subcommand)
    return lines


def _row(parser, action):
    names = action.option_strings or [action.metavar or action.dest]
    takes = (
        ""
        if action.nargs == 0
        else f"`{action.metavar or action.dest.upper()}`"
    )
    if action.nargs in ("+", "*"):
        takes += " ..."
    if action.choices:
        takes = ", ".join(f"`{x}`" for x in action.choices)
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    if "default" not in text and action.default not in (None, False, SUPPRESS):
        text = f"{text} (default {action.default})"
    if action.required and action.option_strings:
        text = f"required; {text}" if text else "required"
    cells = [", ".join(f"`{x}`" for x in names), takes, " ".join(text.split())]
    return "| " + " | ".join(x.replace("|", r"\|") for x in cells) + " |"
