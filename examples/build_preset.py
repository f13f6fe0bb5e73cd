"""Train a small preset on text, with a recipe: `make preset TEXT=...`.

The program trains a tokenizer and then a model in several stages, with the
commands of this project and the settings of a recipe (xlnet_tiny_en.yaml). The
result is a preset.

    python examples/build_preset.py --text 'text/*.txt' --output runs/mine
    python examples/build_preset.py --text 'text/*.txt' --output runs/try \\
        --scale 0.01

After a stop, the same command continues with the first unfinished step.
"""

import argparse
import pathlib
import random
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline.base import command_line  # noqa: E402
from data_pipeline.base.files import read_json  # noqa: E402
from data_pipeline.base.files import write_json  # noqa: E402
from data_pipeline.base.files import written_whole  # noqa: E402
from data_pipeline.text.documents import read_documents  # noqa: E402
from examples.arrangements import ARRANGEMENTS  # noqa: E402
from examples.arrangements import LABELLED  # noqa: E402
from examples.commands import options_of  # noqa: E402
from examples.commands import run_once  # noqa: E402

RECIPE = pathlib.Path(__file__).with_name("xlnet_tiny_en.yaml")


def read_recipe(file=RECIPE):
    """Read a recipe: a dict of settings for tokenizer, model and stages.

    Raises:
        ValueError: if the file is not YAML or lacks a key, or a stage lacks
            `steps` or has an unknown arrangement (see arrangements.py).
    """
    text = pathlib.Path(file).read_text(encoding="utf-8")
    try:
        recipe = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML: {error}") from error
    needed = ("tokenizer", "model", "records", "pretraining", "stages")
    if not isinstance(recipe, dict) or set(recipe) != set(needed):
        raise ValueError(f"{file}: a recipe has the keys {', '.join(needed)}.")
    for name in needed:
        _check_entries(file, f"`{name}`", recipe[name])
    for name, stage in recipe["stages"].items():
        _check_entries(file, f"the stage {name}", stage)
        if stage.get("arrangement") not in list(ARRANGEMENTS):
            raise ValueError(
                f"{file}: `arrangement` of the stage {name} must be one of "
                f"{', '.join(ARRANGEMENTS)}. Received: "
                f"{stage.get('arrangement')!r}."
            )
        is_labelled = stage["arrangement"] in LABELLED
        kind = "finetuning" if is_labelled else "pretraining"
        settings = stage.get(kind)
        if not isinstance(settings, dict) or "steps" not in settings:
            raise ValueError(
                f"{file}: the stage {name} has no `steps` of `{kind}`."
            )
    if next(iter(recipe["stages"].values()))["arrangement"] in LABELLED:
        raise ValueError(
            f"{file}: the first stage has no weights to fine-tune; begin with "
            "one of `pretraining`."
        )
    return recipe


def _check_entries(file, what, values):
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{file}: {what} must have entries, not {values!r}.")


def build(recipe, text, output, scale=1.0, text_format="auto"):
    """Train a tokenizer and a model on text, stage by stage.

    Args:
        recipe: dict from `read_recipe`.
        text: list of str, files or globs.
        output: path of the directory for all outputs.
        scale: float, factor for the numbers of steps. A small factor makes a
            quick trial of a recipe. Default 1.
        text_format: str, see `build_records`.

    Returns:
        path of the preset.

    Raises:
        SystemExit: if a command fails or is stopped.
    """
    output.mkdir(parents=True, exist_ok=True)
    model = output / "model.json"
    write_json(model, recipe["model"])
    stages = recipe["stages"]
    arranged = {
        name: _arrange(name, text, text_format, output)
        for name in dict.fromkeys(x["arrangement"] for x in stages.values())
    }
    tokenizer = output / "tokenizer" / "spiece.model"
    tokenizer.parent.mkdir(exist_ok=True)
    run_once(
        tokenizer.parent,
        *("-m", "data_pipeline.train_tokenizer", "--output", tokenizer),
        *("--input", next(iter(arranged.values()))),
        *options_of(recipe["tokenizer"]),
    )
    start, preset = ("--config", model), None
    for name, stage in stages.items():
        arranged_text = arranged[stage["arrangement"]]
        if stage["arrangement"] in LABELLED:
            preset = _finetune(
                name, stage, arranged_text, preset, output, scale
            )
        else:
            records = _build_records(
                recipe, stage, arranged_text, tokenizer, output
            )
            settings = {**recipe["pretraining"], **stage["pretraining"]}
            run_once(
                output / name,
                *("-m", "xlnet_tf.train", *start, "--records", records),
                *_training(name, settings, output, scale),
                preset=preset,
            )
            preset = output / name / "preset"
        start = ("--preset", preset)
    return preset


def _finetune(name, stage, examples, preset, output, scale):
    """Run a stage of fine-tuning; return the path of its best preset."""
    _, options = LABELLED[stage["arrangement"]]
    run_once(
        output / name,
        *("-m", "xlnet_tf.finetune", *options, "--data", examples),
        *("--preset", preset),
        *_training(name, stage["finetuning"], output, scale),
        preset=preset,
    )
    return output / name / "best"


def _build_records(recipe, stage, text, tokenizer, output):
    """Build the records of a stage and return their path.

    Stages with equal settings share their records.
    """
    settings = stage.get("records", {})
    values = [f"{name}={settings[name]}" for name in sorted(settings)]
    records = output / "records" / "-".join([stage["arrangement"], *values])
    run_once(
        records,
        *("-m", "data_pipeline.build_records", "--tokenizer", tokenizer),
        *("--input", text, "--output", records),
        *("--text-format", "sentences", "--overwrite"),
        *options_of({**recipe["records"], **settings}),
    )
    return records


def _training(name, settings, output, scale):
    """Write the training settings of a stage; return a list of options."""
    settings = dict(settings)
    steps = max(1, round(settings.pop("steps") * scale))
    warmup = settings.get("warmup_steps", 0)
    settings["warmup_steps"] = min(warmup, steps // 4)
    file = output / f"{name}.json"
    write_json(file, settings)
    return ["--training", file, "--output", output / name, "--steps", steps]


def _arrange(name, text, text_format, output):
    """Write the text in an arrangement if needed; return the file's path."""
    file_name, _ = LABELLED.get(name, ("text.txt", ()))
    file = output / name / file_name
    source, arranged = [text, text_format], output / name / "source.json"
    if not arranged.is_file() or read_json(arranged) != source:
        documents = read_documents(text, text_format)
        lines = ARRANGEMENTS[name](documents, random.Random(0))
        with written_whole(file) as temporary:
            with temporary.open("w", encoding="utf-8") as writer:
                writer.writelines(line + "\n" for line in lines)
        write_json(arranged, source)
    return file


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", required=True, metavar="GLOB")
    add("--text-format", default="auto", help="see build_records")
    add("--output", required=True, type=pathlib.Path, metavar="DIR")
    add("--recipe", type=pathlib.Path, default=RECIPE, metavar="FILE")
    add("--scale", type=float, default=1.0, help="factor of all step counts")
    options = parser.parse_args(argv)
    if not 0 < options.scale <= 100:
        raise ValueError(
            f"`--scale` must be above 0 and at most 100, not {options.scale}."
        )
    preset = build(
        read_recipe(options.recipe),
        [str(pathlib.Path(x).absolute()) for x in options.text],
        options.output.resolve(),
        options.scale,
        options.text_format,
    )
    print(f"\nwrote {preset}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
