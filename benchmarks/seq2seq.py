"""Benchmark of sequence to sequence, with encoder-decoders as peers.

    python benchmarks/seq2seq.py --data DIR --preset DIR --output runs/seq2seq

The program fine-tunes four models to write the subject lines of the e-mails in
AESLC (DATA/seq2seq/aeslc). The models are the preset, the same model with
random weights, and Hugging Face's T5 and BART. T5 and BART have random weights,
and about as many parameters as the preset. The results are in table.md. All
models have the same tokenizer, examples, batch size, number of steps, learning
rate, label smoothing and number of beams. A finished run is not repeated.
"""

import argparse
import json
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline.base import command_line  # noqa: E402
from data_pipeline.base.files import read_json  # noqa: E402
from data_pipeline.base.files import sha256_of  # noqa: E402
from data_pipeline.base.files import write_json  # noqa: E402
from examples.commands import run_once  # noqa: E402

TASK = "aeslc"
METRICS = ("rouge_l", "rouge1", "rouge2")
SETTINGS = {
    "steps": 600,
    "batch_size": 16,
    "learning_rate": 1e-3,
    "sequence_length": 160,
    "target_length": 32,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "label_smoothing": 0.1,
    "num_beams": 4,
    "length_penalty": 1.0,
    # The other models have no corruption.
    "target_corruption": 0.0,
    "steps_per_loop": 50,
}
WARMUP = 0.1  # share of the steps, as in `xlnet_tf.finetune`
PAD, END = 5, 4  # <pad>, <sep>


def write_examples(data, output, num_held_out):
    """Write the examples of AESLC as JSON lines, for all models.

    Returns:
        dict from "train" and "dev" to the path of the file.
    """
    from data_pipeline.tasks.reading import read_examples

    files = {}
    for split in ("train", "dev"):
        archive = data / "seq2seq" / "aeslc" / f"aeslc_{split}.tar.xz"
        examples = read_examples(TASK, archive, split)
        if split == "dev":
            random.Random(0).shuffle(examples)
            examples = examples[:num_held_out]
        lines = [
            json.dumps({"id": x.id, "source": x.source, "target": x.target})
            for x in examples
        ]
        files[split] = output / f"{split}.jsonl"
        files[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def ours(start, files, preset, place, seed, settings):
    """Fine-tune XLNetSeq2Seq with `xlnet_tf.finetune`; return the metrics."""
    from data_pipeline.base.models import read_results

    training = place.parent / "training.json"
    interval = {"evaluation_interval": settings["steps"]}
    training.write_text(json.dumps({**settings, **interval}))
    run_once(
        place,
        *("-m", "xlnet_tf.finetune", "--task", "seq2seq"),
        *("--data", files["train"], "--eval-data", files["dev"]),
        *("--preset", preset, "--output", place, "--training", training),
        *("--seed", seed),
        *(("--random-start",) if start == "random" else ()),
        preset=preset,
    )
    return read_results(place)["metrics"]


def make_other(kind, config, settings):
    """Make a T5 or BART with random weights, of the preset's size."""
    import transformers

    sizes = {
        "vocab_size": config.vocabulary_size,
        "d_model": config.hidden_dim,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
    }
    heads, inner = config.num_heads, config.intermediate_dim
    # A decoder layer has 1.5 times the parameters of an encoder layer.
    encoder = max(1, config.num_layers - 1)
    decoder = max(1, config.num_layers - encoder)
    if kind == "t5":
        return transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                **sizes,
                d_kv=config.hidden_dim // heads,
                d_ff=inner,
                num_heads=heads,
                num_layers=encoder,
                num_decoder_layers=decoder,
                dropout_rate=settings["dropout"],
            )
        )
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            **sizes,
            encoder_layers=encoder,
            decoder_layers=decoder,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=inner,
            decoder_ffn_dim=inner,
            max_position_embeddings=settings["sequence_length"] + 2,
            dropout=settings["dropout"],
            attention_dropout=settings["attention_dropout"],
            bos_token_id=1,
            forced_eos_token_id=None,
            # Narrow layers need initial weights above the default of 0.02.
            init_std=config.initializer_range,
        )
    )


def encode(file, tokenizer, settings):
    """Encode a file's examples: list of (source ids, target ids, target)."""
    room = settings["sequence_length"] - settings["target_length"] - 1
    most = settings["target_length"] - 1
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        source = [*tokenizer.encode(row["source"])[:room], END]
        target = [*tokenizer.encode(row["target"])[:most], END]
        rows.append((source, target, row["target"]))
    return rows


def pad(rows, filler):
    """Make a tensor from lists, which are padded on the right."""
    import torch

    width = max(map(len, rows))
    return torch.tensor([[*x, *[filler] * (width - len(x))] for x in rows])


def train_other(model, rows, seed, settings):
    """Train a model with AdamW and the schedule of `xlnet_tf.finetune`."""
    import torch
    import transformers

    draw = random.Random(seed)
    steps, size = settings["steps"], settings["batch_size"]
    optimizer = torch.optim.AdamW(
        model.parameters(), settings["learning_rate"], weight_decay=0.0
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, round(WARMUP * steps), steps
    )
    loss_of = torch.nn.CrossEntropyLoss(
        label_smoothing=settings["label_smoothing"]
    )
    model.train()
    order = []
    for step in range(steps):
        if len(order) < size:
            order = draw.sample(range(len(rows)), len(rows))
        batch = [rows[order.pop()] for _ in range(size)]
        source = pad([x[0] for x in batch], PAD)
        labels = pad([x[1] for x in batch], -100)
        logits = model(
            input_ids=source, attention_mask=source != PAD, labels=labels
        ).logits
        loss = loss_of(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if not (step + 1) % 100:
            print(f"step {step + 1}/{steps}  loss {loss:.3f}", flush=True)


def other(kind, files, preset, place, seed, settings):
    """Train and evaluate Hugging Face's T5 or BART; return the metrics."""
    import torch

    from data_pipeline.tokenization.hugging_face import read_tokenizer
    from xlnet_tf.tasks.metrics import find_metric
    from xlnet_tf.weights.preset import read_config

    done = place / "metrics.json"
    digests = {split: sha256_of(file) for split, file in files.items()}
    asked = {**settings, "examples": digests}
    known = read_json(done) if done.is_file() else {}
    if known.get("settings") == asked:
        return known["metrics"]
    place.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    tokenizer = read_tokenizer(preset)
    model = make_other(kind, read_config(preset), settings)
    print(f"{kind}: {model.num_parameters():,} parameters", flush=True)
    rows = encode(files["train"], tokenizer, settings)
    train_other(model, rows, seed, settings)
    model.eval()
    held_out = encode(files["dev"], tokenizer, settings)
    found = []
    for begin in range(0, len(held_out), 16):
        source = pad([x[0] for x in held_out[begin : begin + 16]], PAD)
        with torch.no_grad():
            ids = model.generate(
                input_ids=source,
                attention_mask=source != PAD,
                num_beams=settings["num_beams"],
                length_penalty=settings["length_penalty"],
                max_new_tokens=settings["target_length"],
                do_sample=False,
            )
        found += [
            tokenizer.decode([x for x in row if x not in (PAD, END)])
            for row in ids.tolist()
        ]
    targets = [x[2] for x in held_out]
    metrics = {name: find_metric(name)(targets, found) for name in METRICS}
    metrics["parameters"] = model.num_parameters()
    lines = [json.dumps({"text": x}, ensure_ascii=False) for x in found]
    (place / "predictions.jsonl").write_text("\n".join(lines) + "\n")
    write_json(done, {"settings": asked, "metrics": metrics})
    return metrics


def table(results):
    """Make the table in Markdown: medians and ranges of the metrics."""
    from xlnet_tf.training.results.summary import seeds_summary

    lines = [
        "| Model | " + " | ".join(METRICS) + " |",
        "| --- |" + " ---: |" * len(METRICS),
    ]
    for name, found in results.items():
        cells = []
        for metric in METRICS:
            x = seeds_summary([one[metric] for one in found])
            cells.append(
                f"{x['median']:.4f} ({x['min']:.4f} to {x['max']:.4f})"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, required=True)
    add("--preset", type=pathlib.Path, required=True)
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "seq2seq")
    add("--steps", type=int, default=SETTINGS["steps"])
    add("--held-out", type=int, default=300, help="e-mails to evaluate on")
    add("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    settings = {**SETTINGS, "steps": options.steps}
    preset, output = options.preset.resolve(), options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    files = write_examples(options.data.resolve(), output, options.held_out)
    contenders = {
        "XLNet, pretrained": (ours, "pretrained"),
        "XLNet, random start": (ours, "random"),
        "T5, random start": (other, "t5"),
        "BART, random start": (other, "bart"),
    }
    results = {name: [] for name in contenders}
    for seed in range(options.seeds):
        for name, (make, kind) in contenders.items():
            place = output / kind / f"seed-{seed}"
            place.parent.mkdir(exist_ok=True)
            began = time.monotonic()
            found = make(kind, files, preset, place, seed, settings)
            results[name].append(found)
            print(f"{name}, seed {seed}: {time.monotonic() - began:.0f} s")
        (output / "table.md").write_text(table(results) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
