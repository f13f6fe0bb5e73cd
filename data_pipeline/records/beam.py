"""Text -> record shards on Apache Beam, for text beyond a single machine.

The parts are those of `data_pipeline.records.build`, so the set has the same
bytes:

    files -> lengths of their documents -> part of each document
    files -> documents -> grouped by part -> shards

The text is read twice: first to find the ends of the parts, then to send each
document to the worker that builds its part. Workers write to the temporary
directory of the output; they need it and the text under the same paths as this
process. At the end, this process renames the shards and writes the manifest.
"""

import contextlib
import json
import os
import re
import typing

import numpy as np

from data_pipeline.records import held_out
from data_pipeline.records import restart
from data_pipeline.records.build import make_set
from data_pipeline.records.part import build_part
from data_pipeline.records.schema import SPLITS
from data_pipeline.records.schema import RecordSettings
from data_pipeline.text.documents import Document
from data_pipeline.text.documents import find_files
from data_pipeline.text.documents import stream_documents
from xlnet_tf.files import write_bytes

_COUNTS = "parts.json"
_WORKER_ERROR = re.compile(
    r"^([\w.]+Error): (.*?)(?: \[while running .*)?$", re.MULTILINE
)
_USERS_ERRORS = {
    "ValueError": ValueError,
    "ChangedTextError": restart.ChangedTextError,
}


class Source(typing.NamedTuple):
    """Format of the text files: `text_format` and `encoding`."""

    text_format: str
    encoding: str

    def documents(self, path):
        """Yield the Documents of a file."""
        return stream_documents(path, *self)


class Parts(typing.NamedTuple):
    """Part of each document, by the document's index in the whole text.

    `first` is a list of int, the index of each file's first document.
    `threshold` is the result of `held_out.validation_threshold`. `lasts` is a
    dict of split to int64 array, the last document of each part of the split.
    """

    first: list
    threshold: int | None
    lasts: dict

    def find(self, number, seed):
        """(split, number of the part in the split) of a document."""
        split = held_out.split_of(number, self.threshold, seed)
        return split, int(np.searchsorted(self.lasts[split], number))


class _Measured(typing.NamedTuple):
    """Stand-in for a document: a text of the same length, its index."""

    text: range
    number: int


def build_records(
    pattern,
    tokenizer,
    output,
    settings=None,
    text_format="auto",
    encoding="utf-8",
    runner="DirectRunner",
    options=(),
    overwrite=False,
):
    """Build a set of records on Beam, as `records.build.build_records` does.

    Args:
        pattern: str, a path or a glob of text files.
        tokenizer: Tokenizer.
        output: str or path of the directory of the set.
        settings: RecordSettings, or None for the defaults.
        text_format: as in `data_pipeline.text.documents`.
        encoding: str.
        runner: str, such as "DirectRunner", "DataflowRunner", "FlinkRunner"
            or "SparkRunner".
        options: sequence of str, for Beam's PipelineOptions.
        overwrite: bool, as in `records.build.build_records`.

    Returns:
        Manifest of the set.

    Raises:
        RuntimeError: Beam is not installed, or the pipeline failed.
        FileNotFoundError, FileExistsError, ValueError, OSError: as from
            `records.build.build_records`.
    """
    beam = _import_beam()
    settings = (settings or RecordSettings()).resolved()
    files = [os.path.abspath(file) for file in find_files(pattern)]
    source = Source(text_format, encoding)
    plan = restart.make_plan(files, tokenizer, settings, *source)
    output = os.path.abspath(os.fspath(output))

    def build(writer):
        pipeline_options = _pipeline_options(beam, runner, options)
        with (
            _failures_in_one_line(),
            beam.Pipeline(options=pipeline_options) as pipeline,
        ):
            _add_transforms(
                beam,
                pipeline,
                list(enumerate(files)),
                source,
                writer.temporary_path(""),
                tokenizer,
                settings,
            )
        return _finished_parts(writer.temporary_path(""))

    return make_set(output, plan, tokenizer, settings, overwrite, build)


def _add_transforms(
    beam, pipeline, files, source, directory, tokenizer, settings
):
    """Add the transforms of a build to a pipeline.

    Args:
        files: list of (number, path).
        directory: str, of the temporary files of the set.
    """
    # Reshuffle keeps Beam from fusing steps, so files spread over workers.
    paths = pipeline | beam.Create(files) | "Spread" >> beam.Reshuffle()
    parts = (
        paths
        | "Measure" >> beam.Map(_measure, source)
        | "All lengths" >> beam.combiners.ToList()
        | "Plan" >> beam.Map(_plan_parts, settings, directory)
    )
    _ = (
        paths
        | "Read"
        >> beam.FlatMap(
            _keyed_documents,
            beam.pvalue.AsSingleton(parts),
            source,
            settings.seed,
        )
        | beam.GroupByKey()
        | "Build" >> beam.Map(_build, directory, tokenizer, settings)
    )


def _measure(file, source):
    number, path = file
    lengths = [len(document.text) for document in source.documents(path)]
    return number, np.array(lengths, np.int64)


def _plan_parts(measured, settings, directory):
    """Assign every document to its part, as a build on one machine does.

    Args:
        measured: list of (file number, int64 array of documents' lengths).
        settings: RecordSettings, resolved.
        directory: str, of the file with the number of parts of each split.

    Returns:
        Parts.
    """
    lengths = [one for _, one in sorted(measured, key=lambda pair: pair[0])]
    first = np.cumsum([0, *map(len, lengths)]).tolist()
    lengths = np.concatenate(lengths)

    def documents():
        for number, length in enumerate(lengths.tolist()):
            yield _Measured(range(length), number)

    threshold = held_out.validation_threshold(documents, settings)
    lasts = {split: [] for split in SPLITS}
    for split, _, part in held_out.numbered_parts(
        documents(), threshold, settings.seed
    ):
        lasts[split].append(part[-1].number)
    counts = {split: len(parts) for split, parts in lasts.items()}
    write_bytes(os.path.join(directory, _COUNTS), json.dumps(counts).encode())
    return Parts(
        first, threshold, {s: np.array(n, np.int64) for s, n in lasts.items()}
    )


def _keyed_documents(file, parts, source, seed):
    number, path = file
    documents = source.documents(path)
    for index, document in enumerate(documents, start=parts.first[number]):
        yield parts.find(index, seed), (index, tuple(document))


def _build(grouped, directory, tokenizer, settings):
    (split, number), documents = grouped
    part = [
        Document(*document)
        for _, document in sorted(documents, key=lambda pair: pair[0])
    ]
    path = os.path.join(directory, f"{split}-{number}")
    digest = restart.text_digest(part)
    if restart.load_part(path, digest) is None:
        built = build_part(split, number, part, path, tokenizer, settings)
        restart.save_part(path, digest, built)


def _finished_parts(directory):
    """Parts that the workers have written, a list of BuiltPart, in order."""
    with open(os.path.join(directory, _COUNTS), encoding="utf-8") as file:
        counts = json.load(file)
    return [
        restart.load_part(os.path.join(directory, f"{split}-{number}"))
        for split in SPLITS
        for number in range(counts[split])
    ]


def _import_beam():
    try:
        import apache_beam
    except ImportError:
        raise RuntimeError(
            "`runner` needs Apache Beam, and it is not installed. Install the "
            "extra `beam`: pip install 'xlnet_tf[beam]' -c constraints.txt."
        ) from None
    return apache_beam


def _pipeline_options(beam, runner, options):
    from apache_beam.options import pipeline_options

    parsed = pipeline_options.PipelineOptions([f"--runner={runner}", *options])
    known = parsed.get_all_options(retain_unknown_options=False)
    names = {f"--{name}" for name in known} | {f"--no_{n}" for n in known}
    takes_value = False
    for option in options:
        name = option.split("=")[0]
        is_name = name.startswith("--")
        if name not in names if is_name else not takes_value:
            raise ValueError(
                "no option of this command or of Beam is called so: "
                f"{name}. See --help; quote a pattern of files."
            )
        takes_value = is_name and "=" not in option
    return parsed


@contextlib.contextmanager
def _failures_in_one_line():
    """Raise Beam's errors without the traceback of a worker in the message."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        # The last line of the last traceback is the error itself.
        errors = _WORKER_ERROR.findall(str(error))
        if not errors:
            message = re.sub(r" \[while running .*\]$", "", str(error))
            raise type(error)(message) from error
        kind, message = errors[-1]
        kind = _USERS_ERRORS.get(kind.rpartition(".")[2], RuntimeError)
        raise kind(message) from error
