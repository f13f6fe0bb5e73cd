"""House rules: imports point down, without circles; functions stay short."""

import ast
import functools
import importlib
import re

from tests.conftest import ROOT
from tests.house import options

PACKAGES = ("data_pipeline", "xlnet_tf", "saved_models")
# Programs, whose functions are as short, and which have no floors.
PROGRAMS = ("benchmarks", "examples")

# A module imports its own folder and lower floors only. Imports inside
# functions count. The longest name that matches decides.
GROUND_FLOOR = "data_pipeline.base"
FLOORS = [
    [GROUND_FLOOR, "xlnet_tf.version"],
    ["data_pipeline.dataset_options"],
    ["data_pipeline.text"],
    ["data_pipeline.tokenization"],
    ["data_pipeline.features", "data_pipeline.objectives"],
    ["data_pipeline.records", "data_pipeline.tasks"],
    ["data_pipeline.pretraining"],
    ["data_pipeline.mixing", "data_pipeline.single_records"],
    [
        "data_pipeline",
        "data_pipeline.build_records",
        "data_pipeline.inspect",
        "data_pipeline.train_tokenizer",
    ],
    ["xlnet_tf.config", "xlnet_tf.optimizer"],
    ["xlnet_tf.weights"],
    ["xlnet_tf.model", "xlnet_tf.preprocessing"],
    ["xlnet_tf.generation"],
    ["xlnet_tf.tasks"],
    ["xlnet_tf.objectives"],
    ["xlnet_tf"],
    ["xlnet_tf.pictures"],
    ["xlnet_tf.training"],
    [
        "saved_models.batching",
        "saved_models.settings",
        "saved_models.versions",
        "saved_models.warm_up",
    ],
    ["saved_models.signatures", "saved_models.client"],
    ["saved_models.check", "saved_models.model_card"],
    ["saved_models.openvino"],
    ["saved_models.loading"],
    [
        "saved_models",
        "saved_models.export",
        "saved_models.predict",
    ],
    [
        "xlnet_tf.train",
        "xlnet_tf.finetune",
        "xlnet_tf.convert",
        "xlnet_tf.evaluate",
        "xlnet_tf.generate",
        "xlnet_tf.show",
    ],
]
COMMANDS = {*options.COMMANDS, "xlnet_tf.__main__"}
# Started as a module alone, not as a subcommand of `xlnet`.
CHECKS = {"data_pipeline.tokenization.agreement"}
MAY_IMPORT_TENSORFLOW_AT_TOP = (
    "xlnet_tf.generation.generator",
    "xlnet_tf.generation.search",
    "xlnet_tf.generation.sources",
    # Of JAX; the package itself, which all import, loads it in calls.
    "xlnet_tf.model.kernels.pallas",
    "xlnet_tf.training",
    "xlnet_tf.weights.tensorflow",
    "xlnet_tf.weights.released",
    "xlnet_tf.weights.model_garden",
    "data_pipeline",
    "saved_models",
)
MAY_IMPORT_DATA_PIPELINE = (
    "xlnet_tf.generation",
    "xlnet_tf.loading",
    "xlnet_tf.pictures",
    "xlnet_tf.preprocessing",
    "xlnet_tf.training",
    "saved_models",
    *sorted(COMMANDS),
)
HEAVY = {"tensorflow", "tensorflow_text", "orbit", "official", "jax"}
MOST_LINES_OF_A_FUNCTION = 75


def modules(packages):
    """dict of a module's full name to its path."""
    found = {}
    for package in packages:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            found[".".join(parts)] = file
    return found


MODULES = modules(PACKAGES)
SIZED = modules(PACKAGES + PROGRAMS)


@functools.cache
def tree(name):
    return ast.parse(SIZED[name].read_text(encoding="utf-8"))


def is_for_type_checkers(node):
    """Whether a node is `if typing.TYPE_CHECKING`, which no program runs."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def walk(node):
    """Yield a node and all below it that a program may run."""
    if not is_for_type_checkers(node):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)


def imported(nodes):
    """Full names that these nodes import; of ours, those of modules."""
    found = set()
    for top in nodes:
        for node in walk(top):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, "imports are absolute here"
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found.add(full if full in MODULES else node.module)
    return found


def all_imports(name):
    return imported([tree(name)])


def top_imports(name):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return imported(
        node for node in tree(name).body if not isinstance(node, functions)
    )


def loaded(name):
    """Full names of all modules that importing one of ours loads first."""
    found, waiting = set(), {name}
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        parents = {".".join(parts[:end]) for end in range(1, len(parts))}
        found.add(name)
        if name in MODULES:
            waiting |= (top_imports(name) | parents) - found
    return found


def is_in(name, folders):
    return any(name == x or name.startswith(x + ".") for x in folders)


def floor(name):
    """(index, entry) of the floor of a module."""
    found = [
        (len(entry), index, entry)
        for index, entries in enumerate(FLOORS)
        for entry in entries
        if is_in(name, [entry])
    ]
    assert found, f"{name} has no floor"
    return max(found)[1:]


def ours(names):
    return {name for name in names if name.split(".")[0] in PACKAGES}


def test_imports_point_down():
    wrong = []
    for name in MODULES:
        index, entry = floor(name)
        for other in sorted(ours(all_imports(name))):
            other_index, other_entry = floor(other)
            if other_entry != entry and other_index >= index:
                wrong.append(f"{name} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_circles():
    edges = {name: ours(all_imports(name)) - {name} for name in MODULES}
    done, circles = set(), []

    def visit(name, path):
        if name in path:
            circles.append(" -> ".join([*path[path.index(name) :], name]))
            return
        if name in done:
            return
        for other in sorted(edges.get(name, ())):
            visit(other, [*path, name])
        done.add(name)

    for name in MODULES:
        visit(name, [])
    assert not circles, "\n".join(circles)


def test_who_knows_tensorflow_and_the_data_pipeline():
    wrong = []
    for name in MODULES:
        top = {x.split(".")[0] for x in loaded(name)}
        if top & HEAVY and not is_in(name, MAY_IMPORT_TENSORFLOW_AT_TOP):
            wrong.append(f"{name} loads {top & HEAVY} when it is imported")
        every = {
            x.split(".")[0]
            for x in all_imports(name)
            if not is_in(x, [GROUND_FLOOR])
        }
        if "tests" in every:
            wrong.append(f"{name} imports tests")
        if name.split(".")[0] == "data_pipeline":
            if every & {"keras", "tf_keras", "xlnet_tf", "saved_models"}:
                wrong.append(f"{name} knows a model")
        elif "data_pipeline" in every:
            if not is_in(name, MAY_IMPORT_DATA_PIPELINE):
                wrong.append(f"{name} imports data_pipeline")
    assert not wrong, "\n".join(wrong)


def test_functions_stay_short():
    wrong = []
    for name in SIZED:
        for node in ast.walk(tree(name)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                    wrong.append(f"{name}.{node.name}")
    assert not wrong, "\n".join(wrong)


def test_progress_is_shown_in_one_way():
    found = {name for name in MODULES if "tqdm" in all_imports(name)}
    log = "xlnet_tf.training.log"  # with the values of a step
    assert found == {"data_pipeline.base.progress", log}


def test_lines_are_printed_in_one_place():
    """`print_lines` and `print_notes` escape control characters."""
    wrong = [
        name
        for name in MODULES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "sys.stderr.write")
    ]
    assert not wrong


def test_no_name_says_nothing():
    empty = {"utils", "util", "misc", "common", "helpers", "helper"}
    assert not [name for name in MODULES if empty & set(name.split("."))]


def test_console_scripts_exist():
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    ((module, function),) = re.findall(r'"xlnet = ([\w.]+):(\w+)"', text)
    assert callable(getattr(importlib.import_module(module), function))
    subcommands = {
        name for name, _ in importlib.import_module(module).COMMANDS.values()
    }
    assert subcommands == COMMANDS - {module}


def test_commands_load_nothing_heavy_for_their_help():
    wrong = [
        f"{name} loads {found} when it is imported"
        for name in sorted(COMMANDS | CHECKS)
        if (
            found := (HEAVY | {"keras"})
            & {x.split(".")[0] for x in loaded(name)}
        )
    ]
    assert not wrong, "\n".join(wrong)
