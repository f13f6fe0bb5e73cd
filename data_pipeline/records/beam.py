"""Build of records on Apache Beam, for text that is too large for one machine.

A part is a section of the text with its own shards, see `records.build`.
`data_pipeline.records.processes` builds the same parts, byte for byte, on one
machine. The pipeline has two branches:

    files -> lengths of their documents -> part of each document
    files -> documents -> grouped by part -> shards

The text is read twice: first to find the ends of the parts, then to send each
document to the worker that builds its part. Workers write to the temporary
directory of the output. The workers must reach this directory and the text
under the same paths as the calling process, for example in a bucket. At the
end, the calling process renames the shards and writes the manifest.
"""

import contextlib
import os
import re
import typing

import numpy as np

from data_pipeline.base import files
from data_pipeline.base.limits import MOST_LIST_BYTES
from data_pipeline.records import held_out
from data_pipeline.records.part import finished_part
from data_pipeline.records.part import load_part
from data_pipeline.records.schema import SPLITS
from data_pipeline.text.documents import Document
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import TextError

_COUNTS = "parts.json"
_WORKER_ERROR = re.compile(
    r"^([\w.]+Error): (.*?)(?: \[while running .*)?$", re.MULTILINE
)
_USERS_ERRORS = {
    "ValueError": ValueError,
    "TextError": TextError,
    "MemoryError": MemoryError,
}


class Parts(typing.NamedTuple):
    """Table of the parts of the text, to look up the part of a document.

    Attributes:
        first: list of int, the index of each file's first document in the whole
            text.
        threshold: result of `held_out.validation_threshold`.
        lasts: dict of split names to int64 arrays. The array of a split has the
            index of the last document of each part.
    """

    first: list
    threshold: int | None
    lasts: dict

    def find(self, number, seed):
        """Find the split and the part number of a document: (str, int)."""
        split = held_out.split_of(number, self.threshold, seed)
        return split, int(np.searchsorted(self.lasts[split], number))


class _Measured(typing.NamedTuple):
    """Stand-in for a Document, with the text's length instead of the text.

    `text` is a range of ints as long as the document's text. `number` is the
    index of the document in the whole text.
    """

    text: range
    number: int


class Builder:
    """Builder of all parts on Beam: argument `build_parts` of `build_records`.

    Args:
        runner: str, such as "DirectRunner", "DataflowRunner", "FlinkRunner"
            or "SparkRunner".
        options: sequence of str, further options of Beam's PipelineOptions.

    Raises:
        RuntimeError: Beam is not installed.
        ValueError, MemoryError, RuntimeError: the pipeline fails in a call of
            the builder.
    """

    def __init__(self, runner="DirectRunner", options=()):
        self._beam = _import_beam()
        self._runner = runner
        self._options = options

    def __call__(self, corpus, tokenizer, settings, directory):
        directory, *paths = map(_absolute, (directory, *corpus.files))
        options = _pipeline_options(self._runner, self._options)
        work = _Work(directory, tokenizer, settings)
        with (
            _failures_in_one_line(),
            self._beam.Pipeline(options=options) as pipeline,
        ):
            _add_transforms(
                self._beam,
                pipeline,
                list(enumerate(paths)),
                corpus.reader,
                work,
            )
        return _finished_parts(directory, corpus)


class _Work(typing.NamedTuple):
    """Input of the workers besides the text."""

    directory: str
    tokenizer: typing.Any
    settings: typing.Any


def _add_transforms(beam, pipeline, paths, reader, work):
    """Add the two branches of a build to a Beam pipeline.

    Args:
        paths: list of (int, str), the number and the path of each file.
        reader: Reader of the corpus.
        work: _Work.
    """
    # Reshuffle stops Beam from fusing the steps, so all workers get files.
    paths = pipeline | beam.Create(paths) | "Spread" >> beam.Reshuffle()
    parts = (
        paths
        | "Measure" >> beam.Map(_measure, reader)
        | "All lengths" >> beam.combiners.ToList()
        | "Plan" >> beam.Map(_plan_parts, work.settings, work.directory)
    )
    _ = (
        paths
        | "Read"
        >> beam.FlatMap(
            _keyed_documents,
            beam.pvalue.AsSingleton(parts),
            reader,
            work.settings.seed,
        )
        | beam.GroupByKey()
        | "Build" >> beam.Map(_build, work)
    )


def _measure(file, reader):
    """Measure the lengths of the documents of a file.

    Returns:
        tuple of the file's number (int), the lengths of its documents (int64
        array), its SHA-256 (str) and the counts of its bad text (dict).
    """
    number, path = file
    log = ReadLog()
    lengths = [len(document.text) for document in reader.documents(path, log)]
    return (
        number,
        np.array(lengths, np.int64),
        log.digests[path],
        dict(log.bad_text),
    )


def _plan_parts(measured, settings, directory):
    """Assign every document to a part, as a build on one machine does.

    Args:
        measured: list of results of `_measure`.
        settings: RecordSettings with all defaults filled in.
        directory: str. The number of parts, the digests of the text files and
            the counts of bad text are written to a file there.

    Returns:
        Parts.
    """
    measured = sorted(measured, key=lambda one: one[0])
    _, lengths, digests, bad_text = zip(*measured, strict=True)
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
    files.write_json(
        os.path.join(directory, _COUNTS),
        {
            "parts": {split: len(parts) for split, parts in lasts.items()},
            "digests": digests,
            "bad_text": bad_text,
        },
    )
    return Parts(
        first, threshold, {s: np.array(n, np.int64) for s, n in lasts.items()}
    )


def _keyed_documents(file, parts, reader, seed):
    number, path = file
    documents = reader.documents(path)
    for index, document in enumerate(documents, start=parts.first[number]):
        # Send bytes, because Beam refuses a str with a lone surrogate.
        text = document.text.encode("utf-8", "surrogatepass")
        yield parts.find(index, seed), (index, (text, document.text_format))


def _build(grouped, work):
    (split, number), documents = grouped
    part = [
        Document(text.decode("utf-8", "surrogatepass"), text_format)
        for _, (text, text_format) in sorted(documents, key=lambda x: x[0])
    ]
    finished_part(
        work.directory, split, number, part, work.tokenizer, work.settings
    )


def _finished_parts(directory, corpus):
    """Load the workers' results: (list of BuiltPart, ReadLog)."""
    counts = files.read_json_object(
        os.path.join(directory, _COUNTS), MOST_LIST_BYTES
    )
    built = [
        load_part(directory, split, number)
        for split in SPLITS
        for number in range(counts["parts"][split])
    ]
    if None in built:
        raise RuntimeError(
            f"{built.count(None)} of {len(built)} parts that workers have "
            f"written are not whole in {directory}. Do all workers see "
            "`output` under the same path? Run the command again."
        )
    log = ReadLog()
    log.digests.update(zip(corpus.files, counts["digests"], strict=True))
    for bad_text in counts["bad_text"]:
        log.bad_text.update(bad_text)
    return built, log


def _absolute(path):
    """Make a path absolute, for workers with other working directories."""
    return path if files.is_remote(path) else os.path.abspath(path)


def _import_beam():
    try:
        import apache_beam
    except ImportError:
        raise RuntimeError(
            "`runner` needs Apache Beam, and it is not installed: pip install "
            "'apache-beam>=2.77,<3'."
        ) from None
    return apache_beam


def _pipeline_options(runner, options):
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
    """Context manager that removes workers' tracebacks from Beam's errors."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        # The last line of the last traceback is the error itself.
        errors = _WORKER_ERROR.findall(str(error))
        if not errors:
            # Some classes, such as UnicodeDecodeError, need more than a
            # message.
            kind = ValueError if isinstance(error, ValueError) else RuntimeError
            message = re.sub(r" \[while running .*\]$", "", str(error))
            raise kind(message) from error
        kind, message = errors[-1]
        kind = _USERS_ERRORS.get(kind.rpartition(".")[2], RuntimeError)
        raise kind(message) from error
