"""Benchmark of pretrained and random weights by task: `make tasks DATA=...`.

The program builds a small model by a recipe (examples/build_preset.py) from the
text below DATA/lm. The program then fine-tunes this model and the same model
with random weights on each task below DATA, with equal settings. The results
are in table.md. Finished commands are not repeated, and stopped commands
resume.
"""

import argparse
import json
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline.base import command_line  # noqa: E402
from data_pipeline.base.models import as_model_path  # noqa: E402
from examples import build_preset  # noqa: E402
from examples.commands import run_once  # noqa: E402

SETTINGS = pathlib.Path(__file__).with_suffix(".yaml")
# For SQuAD 2.0, also report answerable questions only, because such a small
# model scores best if it never answers.
ALSO = "squad_f1_if_answerable"
STARTS = ("random", "pretrained")


def read_settings():
    """Read the settings of fine-tuning and of the tasks, as a dict."""
    return yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))


def find_text(data):
    """Find the text files below DATA/lm, list of str.

    Raises:
        FileNotFoundError: if no file is found.
    """
    files = [
        *sorted((data / "lm").rglob("*train.txt.xz")),
        *sorted((data / "lm").rglob("train/*.txt")),
    ]
    if not files:
        raise FileNotFoundError(
            f"there is no text below {data / 'lm'}: neither *train.txt.xz nor "
            "train/*.txt."
        )
    return list(map(str, files))


def finetune(settings, task, data, preset, output, seeds):
    """Fine-tune on a task with each kind of initial weights and each seed.

    Returns:
        dict from the kind, "pretrained" or "random", to a list of results.
    """
    from data_pipeline.base.models import read_results

    own = dict(settings["tasks"][task])
    train, evaluation = own.pop("data"), own.pop("eval_data", None)
    file = output / f"{task}.json"
    file.write_text(json.dumps({**settings["finetuning"], **own}))
    found = {start: [] for start in STARTS}
    for start in STARTS:
        for seed in range(seeds):
            place = output / task / start / f"seed-{seed}"
            run_once(
                place,
                *("-m", "xlnet_tf.finetune", "--task", task),
                *("--data", data / train, "--preset", preset),
                *("--output", place, "--training", file, "--seed", seed),
                *(("--eval-data", data / evaluation) if evaluation else ()),
                *(("--random-start",) if start == "random" else ()),
                preset=preset if start == "pretrained" else None,
            )
            found[start].append(read_results(place))
    return found


def table(results):
    """Make the table in Markdown: medians and ranges over seeds, and the gain.

    Args:
        results: dict from task to the result of `finetune`.
    """
    from xlnet_tf.training.results.summary import seeds_summary

    lines = [
        "| Task | Trained on | Metric | Random start | Pretrained | Gain |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for task, starts in results.items():
        first = starts["random"][0]
        also = [ALSO] if ALSO in first["metrics"] else []
        for metric in (first["metric"], *also):
            found = [
                seeds_summary([one["metrics"][metric] for one in starts[start]])
                for start in STARTS
            ]
            cells = [
                f"{x['median']:.3f} ({x['min']:.3f} to {x['max']:.3f})"
                for x in found
            ]
            gain = found[1]["median"] - found[0]["median"]
            lines.append(
                f"| {task} | {first['examples']:,} | {metric} "
                f"| {cells[0]} | {cells[1]} | {gain:+.3f} |"
            )
    return "\n".join(lines)


def main(argv=None):
    """Run the command; see the module docstring."""
    settings = read_settings()
    tasks = settings["tasks"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, required=True)
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "tasks")
    add("--tasks", nargs="*", choices=tasks, default=list(tasks))
    add("--recipe", type=pathlib.Path, default=build_preset.RECIPE)
    add("--scale", type=float, default=1.0, help="factor of the recipe's steps")
    add("--preset", help="directory or name, instead of a recipe")
    add("--seeds", type=int, default=1)
    options = parser.parse_args(argv)
    data, output = options.data.resolve(), options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    preset = options.preset and as_model_path(options.preset)
    preset = preset or build_preset.build(
        build_preset.read_recipe(options.recipe),
        find_text(data),
        output,
        options.scale,
        text_format="running",
    )
    preset, results = preset.resolve(), {}
    for task in options.tasks:
        place = data / tasks[task]["data"]
        if place.exists():
            results[task] = finetune(
                settings, task, data, preset, output, options.seeds
            )
        else:
            print(f"left out {task}: there is no {place}")
    if not results:
        raise FileNotFoundError(f"none of the tasks is below {data}.")
    (output / "table.md").write_text(table(results) + "\n")
    print(f"\n{table(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
