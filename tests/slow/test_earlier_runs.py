"""Runs and exports of the version before the folders were made anew."""

import json
import tarfile

import numpy as np
import pytest

from data_pipeline.tokenization.symbols import SPECIAL_IDS
from saved_models import export
from saved_models import predict
from tests.house import earlier
from xlnet_tf import finetune
from xlnet_tf import train

pytestmark = pytest.mark.slow


def test_a_stopped_run_goes_on(tmp_path, capsys):
    """From step 3 to step 6, with its memory, order and dropout."""
    records = earlier.restore("records/compact", tmp_path / "records")
    output = earlier.restore("run", tmp_path / "run")
    argv = earlier.training_options(earlier.EARLIER, records, output)
    assert not train.main(argv)
    said = capsys.readouterr()
    assert "ckpt-3" in said.out
    found = earlier.training_result(output)
    wanted = earlier.read("run_resumed.json")
    assert [m["step"] for m in found["metrics"]] == [3, 6, 6]
    earlier.check(found["metrics"], wanted["metrics"], 1e-6)
    earlier.check(found["weights"], wanted["weights"], 1e-5)


def test_a_new_run_on_kept_records(tmp_path):
    """The same first steps; those of the frozen set can be trained on too."""
    records = earlier.restore("records/compact", tmp_path / "records")
    argv = earlier.training_options(earlier.EARLIER, records, tmp_path / "run")
    assert not train.main(argv)
    wanted = earlier.read("run.json")
    found = earlier.training_result(tmp_path / "run")
    earlier.check(found["metrics"], wanted["metrics"], 1e-6)
    earlier.check(found["weights"], wanted["weights"], 1e-5)


def test_training_reads_frozen_records(tmp_path):
    records = earlier.restore("records/frozen", tmp_path / "records")
    argv = earlier.training_options(earlier.EARLIER, records, tmp_path / "run")
    assert not train.main(argv)
    found = earlier.training_result(tmp_path / "run")
    earlier.check(found["metrics"], earlier.read("run_frozen.json"), 1e-6)


@pytest.mark.parametrize(
    "case", earlier.read("finetuning/commands.json"), ids=lambda c: c["name"]
)
def test_fine_tuning(case, tmp_path):
    """Four steps from a kept preset on kept data, and its predictions."""
    directory = earlier.restore("finetuning", tmp_path / "finetuning")
    preset = earlier.restore("presets/pretrainer", tmp_path / "preset")
    argv = earlier.finetuning_options(case, preset, directory)
    assert not finetune.main(argv)
    found = earlier.finetuning_result(directory / "runs" / case["name"])
    wanted = earlier.read("finetuning/results.json")[case["name"]]
    if case["name"] == "regression":
        # The scores differ by 0.03, so that a correlation magnifies rounding:
        # it has to be that of the scores, which are compared below.
        for result, scores in (
            (found["results"], found["held_out_predictions.jsonl"]),
            (wanted["results"], wanted["held_out_predictions.jsonl"]),
        ):
            value = pearson(directory / "data/regression/dev.tsv", scores)
            for kept in (result, result["metrics"]):
                name = "pearson" if "pearson" in kept else "value"
                assert abs(kept.pop(name) - value) < 1e-6
    earlier.check(found.pop("results"), wanted.pop("results"), 1e-6)
    assert "held_out_predictions.jsonl" in wanted
    earlier.check(found, wanted, 1e-5)


def pearson(file, predictions):
    """Correlation of kept labels and predicted scores, by NumPy."""
    header, *rows = (x.split("\t") for x in file.read_text().splitlines())
    labels = [float(row[header.index("score")]) for row in rows]
    return np.corrcoef(labels, [x["score"] for x in predictions])[0, 1]


@pytest.mark.parametrize("name", ["pretrainer", "classifier", "questions"])
def test_exports_answer_as_before(name, tmp_path):
    wanted = earlier.read("exports.json")[name]
    preset = earlier.restore(f"presets/{name}", tmp_path / "preset")
    argv = ["--model", str(preset), "--output", str(tmp_path / name)]
    assert not export.main([*argv, *wanted["options"]])
    found = earlier.ask(tmp_path / name / "1", wanted["inputs"])
    for signature in ("serving_default", "fill_in"):
        if "pieces" in wanted["answers"].get(signature, {}):
            check_candidates(
                found.pop(signature), wanted["answers"].pop(signature)
            )
    earlier.check(found, wanted["answers"])


def check_candidates(found, wanted):
    """The same text for every blank; symbols, such as <s>, are left out now."""
    is_text = ~np.isin(wanted["token_ids"], list(SPECIAL_IDS.values()))
    for name in ("token_ids", "pieces", "log_probabilities"):
        kept, given = np.array(wanted.pop(name)), np.array(found.pop(name))
        for place in np.ndindex(is_text.shape[:2]):
            text = kept[place][is_text[place]].tolist()
            earlier.check(given[place][: len(text)].tolist(), text)
    earlier.check(found, wanted)


def test_a_kept_export_answers(tmp_path, capsys):
    """In Python, and by the command."""
    with tarfile.open(earlier.EARLIER / earlier.EXPORT_FILE) as file:
        file.extractall(tmp_path / "classifier", filter="data")
    wanted = earlier.read("exports.json")["classifier"]
    found = earlier.ask(tmp_path / "classifier" / "1", wanted["inputs"])
    earlier.check(found, wanted["answers"])
    texts = wanted["inputs"]["serving_default"]["text"]
    argv = ["--model", str(tmp_path / "classifier")]
    for text in texts:
        argv += ["--text", text]
    assert not predict.main(argv)
    lines = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
    answers = wanted["answers"]["serving_default"]
    assert [x["text"] for x in lines] == texts
    for name in ("label", "scores"):
        earlier.check([x[name] for x in lines], answers[name])
