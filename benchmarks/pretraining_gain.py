"""Pretrained beside random weights, task by task: `make tasks DATA=...`.

Pretrains a small model with the commands of this project on the text below
DATA/lm, then fine-tunes it, and the same model with random weights, on every
task that lies below DATA, with equal budgets, and writes a table (table.md). A
command that is done is not run again, and one that was stopped resumes.
"""

import argparse
import json
import lzma
import pathlib
import random
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.commands import run_once  # noqa: E402

SETTINGS = pathlib.Path(__file__).with_suffix(".yaml")
# Of SQuAD 2.0 also without unanswerable questions: so small a model scores
# best by never answering.
ALSO = "squad_f1_if_answerable"
STARTS = ("random", "pretrained")


def read_settings():
    """dict of the model, the stages of pretraining and the tasks."""
    return yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))


def split_sentences(text):
    """list of str, one sentence each; blank lines stay."""
    # Books break lines inside sentences; a paragraph of Wikipedia is one line.
    text = re.sub(r"(?<=\S)\n(?=[a-z])", " ", text)
    return [
        sentence
        for line in text.split("\n")
        for sentence in re.split(r"(?<=[.!?]) +", line.strip())
    ]


def repeated(texts, generator):
    """Every sentence of 5 to 40 words twice, then without a quarter of them.

    Teaches a small model to look back in millions of tokens; plain text needs
    far more. One sentence per line.
    """
    lines = []
    for sentence in (x for text in texts for x in [*split_sentences(text), ""]):
        lines.append(sentence)
        words = sentence.split()
        if 5 <= len(words) <= 40:
            kept = [word for word in words if generator.random() < 0.75]
            lines += [" ".join(kept)] if kept else []
    return "\n".join(lines) + "\n"


def shuffled(texts, generator):
    """Groups of ten sentences in random order, blank lines between.

    In the order of the texts, the topic of the batches before tells whether B
    follows A; here A has to be compared with B.
    """
    groups = []
    for text in texts:
        sentences = list(filter(None, split_sentences(text)))
        for begin in range(0, len(sentences), 10):
            groups.append("\n".join(sentences[begin : begin + 10]))
    generator.shuffle(groups)
    return "\n\n".join(groups) + "\n"


def read_text(data):
    """list of str, the texts below DATA/lm."""
    files = [
        *sorted((data / "lm").rglob("*train.txt.xz")),
        *sorted((data / "lm").rglob("train/*.txt")),
    ]
    if not files:
        raise SystemExit(f"error: there is no text below {data / 'lm'}.")
    texts = []
    for file in files:
        data = file.read_bytes()
        data = lzma.decompress(data) if file.suffix == ".xz" else data
        texts.append(data.decode("utf-8-sig"))
    return texts


def pretrain(settings, data, output, steps):
    """Text -> tokenizer -> records -> a preset, stage by stage.

    Args:
        settings: dict of `read_settings`.
        data: path with `lm/`.
        output: path of the results.
        steps: int, of 2,048 tokens, of the first stage.

    Returns:
        path of the preset.
    """
    output.mkdir(parents=True, exist_ok=True)
    (output / "model.json").write_text(json.dumps(settings["model"]))
    for make in (repeated, shuffled):
        text = output / make.__name__ / "text.txt"
        if not text.is_file():
            text.parent.mkdir(exist_ok=True)
            made = make(read_text(data), random.Random(0))
            text.write_text(made, encoding="utf-8")
    tokenizer = output / "tokenizer" / "spiece.model"
    tokenizer.parent.mkdir(exist_ok=True)
    run_once(
        tokenizer.parent,
        *("-m", "data_pipeline.train_tokenizer", "--output", tokenizer),
        *("--input", output / "repeated" / "text.txt"),
        *("--vocabulary-size", settings["model"]["vocabulary_size"]),
        *("--sentence-limit", 60_000),
    )
    start, preset = ("--config", output / "model.json"), None
    for name, stage in settings["stages"].items():
        text, share = stage.pop("text"), stage.pop("share")
        records = output / f"{text}-records"
        run_once(
            records,
            *("-m", "data_pipeline.build_records", "--tokenizer", tokenizer),
            *("--input", output / text / "text.txt", "--output", records),
            *("--text-format", "sentences", "--reuse-length", 0),
            *("--sequence-length", 2048 // stage["batch_size"]),
            # A third of the tokens is predicted: so small a model, so few.
            *(("--tokens-per-target", 3) if text == "repeated" else ()),
            *("--validation-fraction", 0.01, "--overwrite"),
        )
        file = output / f"{name}.json"
        file.write_text(json.dumps({**settings["pretraining"], **stage}))
        run_once(
            output / name,
            *("-m", "xlnet_tf.train", "--training", file, *start),
            *("--records", records, "--output", output / name),
            *("--steps", max(1, round(steps * share))),
            preset=preset,
        )
        preset = output / name / "preset"
        start = ("--preset", preset)
    return preset


def finetune(settings, task, data, preset, output, seeds):
    """Results of both starts of a task: dict of start to list of dict."""
    from xlnet_tf.training.results import read_results

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
    """Markdown: the median of both starts, with extremes, and the gain.

    Args:
        results: dict of task to what `finetune` returns.
    """
    from xlnet_tf.training.results import seeds_summary

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
    """Runs the command; see the module's text."""
    settings = read_settings()
    tasks = settings["tasks"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, required=True)
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "tasks")
    add("--tasks", nargs="*", choices=tasks, default=list(tasks))
    add("--steps", type=int, default=16000, help="of the first stage")
    add("--preset", type=pathlib.Path, help="instead of pretraining")
    add("--seeds", type=int, default=1)
    options = parser.parse_args(argv)
    data, output = options.data.resolve(), options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    preset = options.preset or pretrain(settings, data, output, options.steps)
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
        raise SystemExit(f"error: none of the tasks is below {data}.")
    (output / "table.md").write_text(table(results) + "\n")
    print(f"\n{table(results)}")


if __name__ == "__main__":
    main()
