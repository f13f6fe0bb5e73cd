"""`saved_models.export --check FILE`: an export answers as its model."""

import json

import numpy as np
import pytest

import xlnet_tf
from data_pipeline.tasks.examples import TextExample
from saved_models import export
from saved_models.check import TOLERANCES
from saved_models.check import check
from saved_models.check import read_file
from saved_models.client.client import as_texts
from saved_models.settings import ExportSettings
from tests.support import finetuning_fixtures
from tests.support.commands import refused
from tests.support.commands import run
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import module_of
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import randomize
from tests.support.task_export_fixtures import LENGTH as TASK_LENGTH
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import write_run
from tests.support.training_fixtures import tiny_config
from xlnet_tf.loading import open_model
from xlnet_tf.objectives import Causal
from xlnet_tf.objectives import Masked
from xlnet_tf.tasks import kind_of

TEXTS = ["ba co fi gu ha je ki lo", "", "de fi", "mu na po ra " * 3]


class Export:
    """The signatures of a model as an export; nothing is written.

    Its answers are the functions', or what `changed` makes of them.
    """

    def __init__(self, model, changed=None, **settings):
        self._module = module_of(model, **settings)
        self._signatures = self._module.signatures()
        self._changed = changed

    def signatures(self):
        return {n: (x.inputs, x.meaning) for n, x in self._signatures.items()}

    def predict(self, inputs, signature):
        answer = ask(self._signatures[signature].function, **inputs)
        answer = as_texts(answer)
        return self._changed(answer) if self._changed else answer


def checked(model, task, examples, changed=None, **settings):
    """Differences of a model and its export, dict of name to (str, bool)."""
    length = {"sequence_length": LENGTH if task is None else 24}
    settings = {**length, "num_candidates": 3, **settings}
    found = check(
        model,
        tiny_tokenizer(),
        ExportSettings(**settings),
        Export(model, changed, **settings),
        task,
        examples,
    )
    assert all(isinstance(is_close, bool) for _, is_close in found.values())
    return found


def wrong(*arguments, **settings):
    """Names of the outputs that differ by more than is allowed."""
    found = checked(*arguments, **settings)
    return [name for name, (_, is_close) in found.items() if not is_close]


def seq2seq():
    config = tiny_config(vocabulary_size=PIECES, num_layers=1, memory_length=0)
    backbone = xlnet_tf.XLNetBackbone(config)
    task = randomize(xlnet_tf.XLNetSeq2Seq(backbone))
    task.preprocessor = xlnet_tf.XLNetSeq2SeqPreprocessor(
        tiny_tokenizer(), 24, target_length=6
    )
    return task


# kind of files -> (model, what is compared, what changes the export's answer)
CASES = {
    "classification": ("classifier", ["label", "scores"]),
    "multi-label": ("several", ["chosen", "scores"]),
    "regression": ("regressor", ["score"]),
    "race": ("choice", ["answer", "scores"]),
    "ranking": ("ranker", ["score"]),
    "ner": ("tagger", ["tags"]),
    "squad-2.0": ("questions", ["answer", "null_score"]),
    "seq2seq": (None, ["generated", "log_probabilities"]),
}


RESULTS = dict.fromkeys(
    ("metric", "value", "metrics", "seed", "steps", "examples", "preset")
) | {"started_from": "random", "versions": {}}


def as_run(directory, task):
    """A directory that names the task of a fine-tuning run."""
    results = json.dumps(RESULTS | {"task": task})
    (directory / "results.json").write_text(results)
    (directory / "run.json").write_text('{"format_version": 1}')
    return open_model(directory)


def read(model, directory, task):
    """The examples of a task, in the layout that fine-tuning reads."""
    data = finetuning_fixtures.write_task(directory / "data", task)
    columns = "source=en,target=de" if task == "seq2seq" else None
    return read_file(model, as_run(directory, task), str(data), columns)


def spoilt(output):
    """A function that changes one output of an export."""

    def changed(answer):
        # A ranker has one score of several.
        name = output if output in answer else "scores"
        value = answer[name]
        if value.dtype == object:
            value = np.where(value == value.flat[0], "none", value)
        elif value.dtype.kind == "f":
            value = value + np.abs(value).max(initial=1) / 100
        else:
            value = value == 0
        return {**answer, name: value}

    return changed


@pytest.mark.parametrize("task", CASES)
def test_every_task_answers_as_its_keras_model(tmp_path, task):
    name, outputs = CASES[task]
    model = make(name) if name else seq2seq()
    spec, examples = read(model, tmp_path, task)
    assert spec.name == task
    examples = examples[:8]
    found = checked(model, spec, examples)
    assert sorted(found) == sorted(outputs)
    assert all(is_close for _, is_close in found.values()), found
    for output in outputs:
        assert wrong(model, spec, examples, spoilt(output)) == [output]


def test_answers_of_narrow_precisions_are_counted(tmp_path):
    model = make("classifier")
    spec, examples = read(model, tmp_path, "classification")
    changed = spoilt("label")
    found = checked(model, spec, examples, changed, precision="int8")
    count, is_close = found["label"]
    assert is_close and 0 < int(count.split()[0]) <= len(examples) == 20
    assert count.endswith(f"of {len(examples)} differ")
    largest, is_close = found["scores"]
    assert is_close and 0 < float(largest.split()[2].rstrip(","))
    lacking = checked(
        model,
        spec,
        examples,
        lambda x: {**x, "scores": x["scores"] * np.nan},
        precision="int8",
    )
    assert not lacking["scores"][1]


@pytest.mark.parametrize(
    ("dtype", "precision"), [("bfloat16", "bfloat16"), ("float64", "float32")]
)
def test_a_model_of_another_dtype_has_its_tolerance(dtype, precision):
    backbone = xlnet_tf.XLNetBackbone(
        tiny_config(vocabulary_size=PIECES, num_layers=1), dtype=dtype
    )
    found = checked(backbone, None, TEXTS)
    text, is_close = found["embeddings"]
    assert is_close
    allowed = float(text.split()[-2])
    assert TOLERANCES[precision] <= allowed < 100 * TOLERANCES[precision]


def test_long_texts_in_windows(tmp_path):
    model = make("regressor")
    examples = [
        TextExample(str(row), text, where=f"text {row}")
        for row, text in enumerate([TEXTS[0] * 9, TEXTS[2]])
    ]
    task, _ = read(model, tmp_path, "regression")
    assert wrong(model, task, examples, window_stride=7) == []
    # Which are not those that lose their end.
    cut = Export(model, sequence_length=TASK_LENGTH)
    settings = ExportSettings(sequence_length=TASK_LENGTH, window_stride=7)
    found = check(model, tiny_tokenizer(), settings, cut, task, examples)
    assert not found["score"][1]


def test_classes_without_names(tmp_path):
    model = make("classifier")
    model.labels = None
    task, examples = read(model, tmp_path, "classification")
    assert wrong(model, task, examples) == []


def bert():
    config = xlnet_tf.BertConfig.from_size(
        "tiny", vocabulary_size=PIECES, max_positions=LENGTH, num_layers=1
    )
    backbone = xlnet_tf.BertBackbone(config)
    return randomize(xlnet_tf.XLNetPretrainer(backbone, objective=Masked()))


def causal():
    config = tiny_config(
        vocabulary_size=PIECES, num_layers=1, **Causal.config_values
    )
    backbone = xlnet_tf.XLNetBackbone(config)
    return randomize(xlnet_tf.XLNetPretrainer(backbone, objective=Causal()))


PRETRAINERS = {
    "permutation": shared_model,
    "both directions": lambda: pretrainer(
        num_layers=1, reverse_half_batch=True
    ),
    "bert": bert,
    "causal": causal,
}


@pytest.mark.parametrize("name", PRETRAINERS)
def test_pretrained_models_answer_raw_texts(name):
    model = PRETRAINERS[name]()
    found = checked(model, None, TEXTS)
    assert list(found) == ["embeddings", "log_probabilities", "best_tokens"]
    assert all(is_close for _, is_close in found.values()), found
    ids = [tiny_tokenizer().encode(x)[: LENGTH - 2] for x in TEXTS]
    begin = int(name == "bert")
    count = sum(len(range(1 - begin, len(x), 7)) for x in ids)
    assert found["best_tokens"][0] == f"0 of {count} differ"

    def changed(answer):
        if "padding_mask" in answer:  # only what is predicted differs
            return answer
        return {x: value + 0.1 for x, value in answer.items()}

    assert wrong(model, None, TEXTS, changed) == ["log_probabilities"]
    found = checked(model, None, TEXTS, precision="int8")
    assert all(is_close for _, is_close in found.values()), found
    assert " 0," not in found["log_probabilities"][0]


def test_a_backbone_has_embeddings():
    backbone = shared_model().backbone
    assert list(checked(backbone, None, TEXTS)) == ["embeddings"]
    with pytest.raises(ValueError, match="other tokens than the tokenizer in"):
        settings = ExportSettings(sequence_length=LENGTH)
        other = Export(backbone, sequence_length=5)
        check(backbone, tiny_tokenizer(), settings, other, None, TEXTS)


def test_texts_drawn_at_random_are_not_compared(tmp_path):
    model = seq2seq()
    task, examples = read(model, tmp_path, "seq2seq")
    generation = {"sample": True, "max_new_tokens": 6}
    with pytest.raises(ValueError, match="drawn at random"):
        checked(model, task, examples, generation=generation)


def write(file, *lines):
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def test_files_of_models_that_come_from_no_run(tmp_path, capsys):
    classifier, none = make("classifier"), open_model(tmp_path)
    lines = write(tmp_path / "a.txt", "ba co", "fi")
    task, examples = read_file(classifier, none, lines)
    assert [x.text for x in examples] == ["ba co", "fi"]
    assert examples[1].where == f"{lines}, text 2"
    table = write(tmp_path / "a.csv", "id,remark", "1,ba co", "2,fi gu")
    task, examples = read_file(classifier, none, table, "text=remark")
    assert [x.text for x in examples] == ["ba co", "fi gu"]
    task, examples = read_file(shared_model(), none, table)
    assert (task, examples) == (None, ["ba co", "fi gu"])
    assert "text column: remark; guessed" in capsys.readouterr().err
    dialogue = [[["ba"], [{"question": "co", "choice": ["a", "b"]}], "1"]]
    dialogue[0][1][0]["answer"] = "b"
    file = write(tmp_path / "a.json", json.dumps(dialogue))
    task, (example,) = read_file(make("choice"), none, file)
    assert (task.name, example.options) == ("dream", ("a", "b"))
    ranked = write(tmp_path / "b.tsv", "query\tdocument", "a\t ", "a\tb")
    _, (example,) = read_file(make("ranker"), none, ranked)
    assert example.document == "b"


def served(folder, model, *options):
    """The status of an export of a run with a model, which is checked."""
    write_run(folder / "run", model)
    as_run(folder / "run", kind_of(model))
    arguments = ["--model", folder / "run", "--output", folder / "served"]
    arguments += ["--sequence-length", TASK_LENGTH, "--quiet", *options]
    return run(export.main, *arguments)


def test_the_command_prints_a_line_an_output(tmp_path, capsys):
    table = write(tmp_path / "a.tsv", "text\tlabel", "ba co\tnew", "fi\tO")
    assert served(tmp_path, make("classifier"), "--check", table) == 0
    captured = capsys.readouterr()
    wrote, label, scores = captured.out.splitlines()
    assert wrote == f"wrote {tmp_path / 'served' / '1'}"
    assert label.split() == ["label", "0", "of", "2", "differ"]
    assert scores.split()[:3] == ["scores", "largest", "difference"]
    assert scores.endswith(", at most 0.001 allowed")
    assert captured.err == ""


def test_the_command_refuses_an_export_that_eight_bits_spoil(tmp_path, capsys):
    """A score in which large terms cancel."""
    model = make("regressor")
    text = "ba co fi"
    layer = model.head.logits_dense
    layer.kernel.assign(layer.kernel * 1000)
    (score,) = model.predict({"text": [text]}, verbose=0)
    layer.bias.assign(layer.bias - score)
    file = write(tmp_path / "a.txt", text)
    assert served(tmp_path, model, "--precision", "int8", "--check", file) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert captured.err == (
        f"error: the export {tmp_path / 'served' / '1'} does not answer {file} "
        "as its model: score differs by more than the precision int8 "
        "explains. Do not serve it; export anew, or with a wider "
        "--precision.\n"
    )


def test_the_command_reads_the_file_first(tmp_path, capsys):
    shared_model().save_to_preset(tmp_path / "a", tokenizer=tiny_tokenizer())
    empty = write(tmp_path / "empty", " ")
    options = ("--model", tmp_path / "a", "--output", tmp_path / "served")
    for arguments, message in (
        (("--check", tmp_path / "gone"), "gone"),
        (("--check", empty), "there is no text in"),
        (("--check", empty, "--columns", "text=a"), "`--columns` needs a tab"),
        (("--columns", "text=a"), "--columns needs --check"),
    ):
        line = refused(capsys, export.main, *options, "--quiet", *arguments)
        assert message in line
    assert not (tmp_path / "served").exists()
