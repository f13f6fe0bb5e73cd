"""What pretraining is worth, task by task: `make tasks DATA=...`.

Pretrains a small model with the commands of this project on the text below
DATA/lm, then fine-tunes it and the same model with random weights on every task
that lies below DATA, with equal budgets, and writes a table (table.md). A
command that is done is not run again, and one that was stopped goes on.
"""

import argparse
import json
import lzma
import pathlib
import random
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MODEL = {
    "vocabulary_size": 8000,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 128,
    "head_dim": 64,
    "intermediate_dim": 512,
    # Narrow layers want larger initial weights than the released 0.02. Twice
    # this, and twice the rate below, learns frequencies and neighbours as fast
    # but in millions of tokens never to look further back.
    "initializer_range": 0.04,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    # Sequences share nothing with the ones before (--reuse-length 0 below).
    "memory_length": 0,
}
PRETRAINING = {
    "learning_rate": 1e-3,
    "warmup_steps": 100,
    "adam_beta_2": 0.98,
    "max_gradient_norm": 1.0,
    "jit_compile": True,
    "steps_per_loop": 50,
    "evaluation_interval": 1000,
    "evaluation_steps": 20,
    "checkpoint_interval": 500,
    "checkpoints_to_keep": 2,
}
# Afterwards: does B go on where A ends? Weighed less than words from the start,
# STS-B gains little; weighed more to the end, SST-2 nothing (BUILD.md).
COMPARING = {**PRETRAINING, "next_sentence_weight": 5.0}
FOLLOWING = {
    **PRETRAINING,
    "learning_rate": 5e-4,
    "next_sentence_weight": 1.0,
}
# Of all tasks: what suits so small a model and minutes of two cores.
FINETUNING = {
    "learning_rate": 1e-3,
    "layer_decay": 1.0,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "steps_per_loop": 50,
}
# Of sentences: without dropout, as in pretraining. With it, and the rate above,
# SST-2 was near chance after 200 steps. Chosen by looking at its dev split.
SENTENCES = {
    "learning_rate": 5e-4,
    "warmup_steps": 60,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "evaluation_interval": 100,
}
# Name of a run: task, files below DATA, files to evaluate on (None: the task's
# own, or a part held out), settings.
TASKS = {
    "sst-2": (
        "sst-2",
        "glue/SST-2",
        None,
        {**SENTENCES, "steps": 600, "sequence_length": 64},
    ),
    "rte": ("rte", "glue/RTE", None, {**SENTENCES, "steps": 400}),
    "sts-b": ("sts-b", "glue/STS-B", None, {**SENTENCES, "steps": 600}),
    "imdb": (
        "imdb",
        "imdb/aclImdb_train.tar.xz",
        None,
        {"steps": 400, "batch_size": 16, "sequence_length": 256},
    ),
    "wnut-17": (
        "wnut-17",
        "wnut17/wnut17train.conll",
        "wnut17/emerging.dev.conll",
        {"steps": 300, "batch_size": 16},
    ),
    "race": (
        "race",
        "race/RACE_train_subset.tar.xz",
        None,
        {
            "steps": 300,
            "batch_size": 8,
            "sequence_length": 256,
            "hold_out": 0.03,
            "evaluation_interval": 150,
        },
    ),
    "squad-1.1": (
        "squad-1.1",
        "squad/train-v1.1.44articles.json",
        "squad/dev-v1.1.partA.json",
        {
            "steps": 600,
            "batch_size": 16,
            "sequence_length": 256,
            "layer_decay": 1.0,
            "evaluation_interval": 300,
        },
    ),
    "squad-2.0": (
        "squad-2.0",
        "squad/dev-v2.0.partA.json",
        None,
        {
            "steps": 300,
            "batch_size": 16,
            "sequence_length": 256,
            "evaluation_interval": 150,
            "hold_out": 0.2,
        },
    ),
}


def run(*command):
    """Prints and runs a command of this project."""
    command = [str(part) for part in command]
    print(f"\n$ python {shlex.join(command)}", flush=True)
    result = subprocess.run([sys.executable, *command], cwd=ROOT)
    if result.returncode:
        raise SystemExit(result.returncode)


def split_sentences(text):
    """list of str, a sentence each; blank lines stay."""
    # Books are broken into lines; Wikipedia's paragraphs are one line each.
    text = re.sub(r"(?<=\S)\n(?=[a-z])", " ", text)
    sentences = []
    for line in text.split("\n"):
        sentences += re.split(r"(?<=[.!?]) +", line.strip())
    return sentences


def say_again(text, generator):
    """Says sentences twice, the second time without a quarter of the words.

    Tasks of two texts need a model that looks back for what was said before.
    Plain text teaches that after far more tokens than two cores read in an
    hour, text like this in a few millions; were half of the sentences said
    once, ten millions would hardly do (BUILD.md).

    Args:
        text: str, paragraphs, with blank lines between documents.
        generator: `random.Random`.

    Returns:
        str, a line for each sentence.
    """
    lines = []
    for sentence in split_sentences(text):
        lines.append(sentence)
        words = sentence.split()
        if 5 <= len(words) <= 40:
            kept = [word for word in words if generator.random() < 0.75]
            lines += [" ".join(kept)] if kept else []
    return "\n".join(lines) + "\n"


def in_pieces(texts, generator):
    """Pieces of ten sentences in random order.

    Whether B goes on where A ends is to be seen by comparing them. In the order
    of the texts it is enough to know what the last hundred batches were about.

    Args:
        texts: iterable of str, paragraphs.
        generator: `random.Random`.

    Returns:
        str, a line for each sentence, blank lines between pieces.
    """
    pieces = []
    for text in texts:
        sentences = list(filter(None, split_sentences(text)))
        for begin in range(0, len(sentences), 10):
            pieces.append("\n".join(sentences[begin : begin + 10]))
    generator.shuffle(pieces)
    return "\n\n".join(pieces) + "\n"


def read_text(data):
    """The text below DATA/lm, as dict of a file's name to str."""
    files = [
        *sorted((data / "lm").rglob("*train.txt.xz")),
        *sorted((data / "lm").rglob("train/*.txt")),
    ]
    if not files:
        raise SystemExit(f"error: there is no text below {data / 'lm'}.")
    texts = {}
    for file in files:
        opened = lzma.open if file.suffix == ".xz" else open
        with opened(file, "rt", encoding="utf-8-sig") as handle:
            texts[file.name.removesuffix(".xz")] = handle.read()
    return texts


def pretrain(data, output, steps):
    """Text -> tokenizer -> records -> a preset, in three stages.

    The first says sentences again, the second asks above all which sentences
    follow each other, the third asks for words as much.

    Args:
        data: path with `lm/`.
        output: path of the results.
        steps: int, of 2,048 tokens; the second stage takes half as many, the
            third a quarter.

    Returns:
        path of the preset.
    """
    preset = output / "following" / "preset"
    if (preset / "config.json").is_file():
        return preset
    tokenizer = output / "spiece.model"
    output.mkdir(parents=True, exist_ok=True)
    (output / "model.json").write_text(json.dumps(MODEL))
    if not (output / "records" / "manifest.json").is_file():
        text, generator = output / "text", random.Random(0)
        text.mkdir(parents=True, exist_ok=True)
        for name, content in read_text(data).items():
            (text / name).write_text(
                say_again(content, generator), encoding="utf-8"
            )
        if not tokenizer.is_file():
            run(
                *("-m", "data_pipeline.train_tokenizer"),
                *("--input", text / "*.txt", "--output", tokenizer),
                *("--vocabulary-size", MODEL["vocabulary_size"]),
                *("--sentence-limit", 60_000),
            )
        # For so small a model and so little time: every token once an epoch,
        # and a third of them predicted.
        build_records(output, "text", "records", 128, "--tokens-per-target", 3)
    train(
        output,
        "pretraining",
        PRETRAINING,
        *("--config", output / "model.json", "--records", output / "records"),
        *("--steps", steps, "--batch-size", 16),
    )
    if not (output / "pieces-records" / "manifest.json").is_file():
        pieces = output / "pieces"
        pieces.mkdir(parents=True, exist_ok=True)
        (pieces / "pieces.txt").write_text(
            in_pieces(read_text(data).values(), random.Random(0)),
            encoding="utf-8",
        )
        build_records(output, "pieces", "pieces-records", 64)
    for name, settings, before, share in (
        ("comparing", COMPARING, "pretraining", 2),
        ("following", FOLLOWING, "comparing", 4),
    ):
        train(
            output,
            name,
            settings,
            *("--preset", output / before / "preset"),
            *("--records", output / "pieces-records"),
            *("--steps", max(1, steps // share), "--batch-size", 32),
        )
    return preset


def build_records(output, text, records, length, *options):
    """Records of the text in one directory, without anything reused."""
    run(
        *("-m", "data_pipeline.build_records"),
        *("--input", output / text / "*.txt", "--output", output / records),
        *("--tokenizer", output / "spiece.model", "--reuse-length", 0),
        *("--sequence-length", length, *options),
        *("--validation-fraction", 0.01, "--overwrite"),
    )


def train(output, name, settings, *options):
    """A run of the train command, unless it is done."""
    if (output / name / "preset" / "config.json").is_file():
        return
    file = output / f"{name}.json"
    file.write_text(json.dumps(settings))
    run(
        *("-m", "xlnet_tf.train", "--training", file),
        *("--output", output / name, *options),
    )


def is_done(place, wanted, preset=None):
    """Whether a run has ended that had these settings.

    Args:
        place: path of the run.
        wanted: dict of settings.
        preset: path of the weights it was to start from, or None for random
            ones.
    """
    from xlnet_tf.files import digest_of_weights

    if not (place / "results.json").is_file():
        return False
    before = json.loads((place / "run.json").read_text())
    if preset is not None:
        # The path alone would not tell of weights that were trained anew.
        if before.get("preset_weights") != digest_of_weights(preset):
            return False
    settings = before["training"]
    # A run takes no more steps at once than lie between two evaluations.
    return all(
        settings.get(name) == value
        for name, value in wanted.items()
        if name != "steps_per_loop"
    )


def finetune(name, data, preset, output, seeds):
    """Both starts of one task.

    Returns:
        list of dict of results.
    """
    from xlnet_tf.training.results import read_results

    task, train, evaluation, settings = TASKS[name]
    found = []
    for start in ("pretrained", "random"):
        directory = output / name / start
        directory.mkdir(parents=True, exist_ok=True)
        file = output / f"{name}.json"
        wanted = {**FINETUNING, **settings}
        file.write_text(json.dumps(wanted))
        for seed in range(seeds):
            place = directory / f"seed-{seed}"
            weights = preset if start == "pretrained" else None
            # What began with other weights, the command refuses to go on with.
            if not is_done(place, wanted, weights):
                run(
                    *("-m", "xlnet_tf.finetune", "--task", task),
                    *("--data", data / train, "--preset", preset),
                    *("--output", place, "--training", file, "--seed", seed),
                    *(("--eval-data", data / evaluation) if evaluation else ()),
                    *(("--random-start",) if start == "random" else ()),
                )
            found.append(read_results(place))
    return found


def positive(text):
    """int of an option that must be above 0."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main():
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, required=True)
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "tasks")
    add("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    add("--steps", type=positive, default=16000, help="of the first stage")
    add("--preset", type=pathlib.Path, help="instead of pretraining")
    add("--seeds", type=positive, default=1)
    arguments = parser.parse_args()

    from xlnet_tf.training.results import starts_table

    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    data = arguments.data.resolve()
    preset = arguments.preset or pretrain(data, output, arguments.steps)
    results = []
    for name in arguments.tasks:
        if not (data / TASKS[name][1]).exists():
            print(f"left out {name}: there is no {data / TASKS[name][1]}")
            continue
        results += finetune(
            name, data, preset.resolve(), output, arguments.seeds
        )
    if not results:
        raise SystemExit(f"error: none of the tasks is below {data}.")
    # So small a model answers SQuAD 2.0 best by leaving every question open.
    table = starts_table(results, also=("squad_f1_if_answerable",))
    (output / "table.md").write_text(table + "\n")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
