"""Text -> record shards on Apache Beam, for more text than one machine's.

The transforms are those of `data_pipeline.records.build`, so the set is the
same to the byte:

    files -> lengths of their documents -> which part each document is in
    files -> documents -> grouped by part -> shards

The text is read twice: once to see where parts end, once to send each document
to who builds its part. Workers write into the output's temporary directory,
which they must reach under the same path as this process, as they must the
text. Shards get their names, and the manifest is written, at the end and here.
"""

import contextlib
import json
import os
import re
import typing

import numpy as np

from data_pipeline import files
from data_pipeline.records import build as building
from data_pipeline.records import held_out
from data_pipeline.records import part as part_building
from data_pipeline.records import restart
from data_pipeline.records import schema as features
from data_pipeline.records.schema import RecordSettings
from data_pipeline.text import documents as text_files

_COUNTS = "parts.json"
_WORKER_ERROR = re.compile(
    r"^([\w.]+Error): (.*?)(?: \[while running .*)?$", re.MULTILINE
)
_USERS_ERRORS = {
    "ValueError": ValueError,
    "ChangedTextError": restart.ChangedTextError,
}


class Source(typing.NamedTuple):
    """How the files are read: `text_format` and `encoding`."""

    text_format: str
    encoding: str

    def documents(self, path):
        """Yields the Documents of one file."""
        return text_files.stream_documents(path, *self)


class Parts(typing.NamedTuple):
    """Which part each document is in, by its number in the whole text.

    `first` is a list of int, the number of each file's first document.
    `threshold` is that of `held_out.validation_threshold`. `lasts` is a dict
    of split to int64 array, the last document of each part of the split.
    """

    first: list
    threshold: int | None
    lasts: dict

    def find(self, number, seed):
        """tuple of split and part of a document."""
        split = held_out.split_of(number, self.threshold, seed)
        return split, int(np.searchsorted(self.lasts[split], number))


class _Measured(typing.NamedTuple):
    """A document whose text is nothing but as long."""

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
    """Builds a set of records as `building.build_records`, on Beam.

    Args:
        pattern: str, a path or a glob of text files.
        tokenizer: Tokenizer.
        output: str or path of the directory to make.
        settings: RecordSettings, or None for the defaults.
        text_format: as in `data_pipeline.text.documents`.
        encoding: str.
        runner: str, such as "DirectRunner", "DataflowRunner", "FlinkRunner"
            or "SparkRunner".
        options: sequence of str, for Beam's PipelineOptions.
        overwrite: bool, as in `building.build_records`.

    Returns:
        Manifest of the set.

    Raises:
        RuntimeError: Beam is not installed, or the pipeline failed.
        FileNotFoundError, FileExistsError, ValueError, OSError: as from
            `building.build_records`.
    """
    beam = _import_beam()
    settings = (settings or RecordSettings()).resolved()
    files = [os.path.abspath(f) for f in text_files.find_files(pattern)]
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

    return building.make_set(
        output, plan, tokenizer, settings, overwrite, build
    )


def _add_transforms(
    beam, pipeline, files, source, directory, tokenizer, settings
):
    """files: list of (number, path); directory: where shards go until the set
    is complete."""
    # Between steps that would be fused, so that each is spread anew.
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
    """Puts every document in the part where a build on one machine has it.

    Args:
        measured: list of (file number, int64 array of documents' lengths).
        settings: RecordSettings, resolved.
        directory: str, where the numbers of parts are written.

    Returns:
        Parts.
    """
    lengths = [found for _, found in sorted(measured, key=lambda pair: pair[0])]
    first = np.cumsum([0, *map(len, lengths)]).tolist()
    lengths = np.concatenate(lengths)

    def documents():
        for number, length in enumerate(lengths.tolist()):
            yield _Measured(range(length), number)

    threshold = held_out.validation_threshold(documents, settings)
    lasts = {split: [] for split in features.SPLITS}
    for split, _, part in held_out.numbered_parts(
        documents(), threshold, settings.seed
    ):
        lasts[split].append(part[-1].number)
    counts = {split: len(found) for split, found in lasts.items()}
    files.write_bytes(
        os.path.join(directory, _COUNTS), json.dumps(counts).encode()
    )
    return Parts(
        first, threshold, {s: np.array(n, np.int64) for s, n in lasts.items()}
    )


def _keyed_documents(file, parts, source, seed):
    number, path = file
    documents = source.documents(path)
    for place, document in enumerate(documents, start=parts.first[number]):
        yield parts.find(place, seed), (place, tuple(document))


def _build(grouped, directory, tokenizer, settings):
    (split, number), documents = grouped
    part = [
        text_files.Document(*document)
        for _, document in sorted(documents, key=lambda pair: pair[0])
    ]
    path = os.path.join(directory, f"{split}-{number}")
    digest = restart.text_digest(part)
    if restart.load_part(path, digest) is None:
        built = part_building.build_part(
            split, number, part, path, tokenizer, settings
        )
        restart.save_part(path, digest, built)


def _finished_parts(directory):
    """list of BuiltPart, in order, of what the workers have written."""
    with open(os.path.join(directory, _COUNTS), encoding="utf-8") as file:
        counts = json.load(file)
    return [
        restart.load_part(os.path.join(directory, f"{split}-{number}"))
        for split in features.SPLITS
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

    made = pipeline_options.PipelineOptions([f"--runner={runner}", *options])
    known = made.get_all_options(retain_unknown_options=False)
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
    return made


@contextlib.contextmanager
def _failures_in_one_line():
    """Beam's errors carry the traceback of a worker in their message."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        # The last line of the last traceback is the error itself.
        found = _WORKER_ERROR.findall(str(error))
        if not found:
            message = re.sub(r" \[while running .*\]$", "", str(error))
            raise type(error)(message) from error
        kind, message = found[-1]
        kind = _USERS_ERRORS.get(kind.rpartition(".")[2], RuntimeError)
        raise kind(message) from error
