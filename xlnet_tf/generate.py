"""Continue texts with a pretrained model: `python -m xlnet_tf.generate`.

    python -m xlnet_tf.generate --model runs/mine --prompt 'The house' --stream
    python -m xlnet_tf.generate --model runs/mine --input prompts.jsonl \\
        --num-beams 4 --output texts.jsonl

The command writes a JSON object for each prompt, in the order of the prompts.
With `--output`, repeating the command resumes a stopped run. In two cases the
run starts again at the first prompt: the output is in a model repository of the
Hugging Face Hub, or the output is in a bucket and SIGKILL ended the run. If a
prompt cannot be read, the prompt's JSON object contains `error`, and the exit
status is 1.
"""

import contextlib
import dataclasses
import hashlib
import json
import sys

from data_pipeline.base import command_line
from data_pipeline.base.files import json_line
from data_pipeline.base.outputs import check_writable
from data_pipeline.base.progress import track
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import given_options
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.training.startup import check_backend


def parse_arguments(argv=None):
    """Parse the options, one for each field of GenerationSettings."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.generate",
        usage="%(prog)s --model PATH [--prompt TEXT] [--input FILE] [options]",
        description="Continue texts with a pretrained model.",
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="PATH",
        help="output of a run, preset or .keras file",
    )
    add(
        "--prompt",
        action="append",
        default=[],
        help="text to continue; may be repeated",
    )
    add(
        "--input",
        metavar="FILE",
        help="file with a prompt on each line, or a .jsonl file of objects "
        "with `prompt`",
    )
    add(
        "--output",
        metavar="FILE",
        help="write JSON lines to this file (default: print them)",
    )
    add(
        "--stream",
        action="store_true",
        help="print the text of each prompt as it grows, instead of JSON",
    )
    add(
        "--tokenizer",
        metavar="FILE",
        help="a spiece.model (default: the model's tokenizer)",
    )
    add(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end a text before this string; may be repeated",
    )
    command_line.add_quiet(parser)
    group = parser.add_argument_group("settings")
    add_options(group, GenerationSettings, skip=("stop",))
    return command_line.parse(parser, argv, ("prompt", "stop"))


def read_prompts(options):
    """Read the prompts from the command line or the input file.

    Args:
        options: object with the options of the command as attributes.

    Returns:
        list of dicts with `prompt`. A dict from a JSON line also has the line's
        other fields.

    Raises:
        ValueError: if there are no prompts, or if a line has no prompt.
    """
    from data_pipeline.tasks.table import is_json_lines
    from data_pipeline.tasks.table import is_table
    from saved_models.client.rows import read_json_lines
    from saved_models.client.rows import read_texts

    rows = [{"prompt": text} for text in options.prompt]
    if options.input and is_json_lines(options.input):
        given, places = read_json_lines(options.input)
        given = [{"prompt": ""} if row is None else row for row in given]
        for row, place in zip(given, places, strict=True):
            if not isinstance(row.get("prompt"), str):
                raise ValueError(
                    f"{place}: an object must have the field `prompt`, a "
                    f"string. Received: {', '.join(row) or 'none'}."
                )
        rows += given
    elif options.input:
        if is_table(options.input):
            raise ValueError(
                "`--input` takes prompts, one per line, or JSON lines with "
                "the field `prompt`, not compressed; write the column of a "
                f"table to such a file. Received: --input {options.input}."
            )
        rows += [{"prompt": text} for text in read_texts(options.input)]
    if not rows:
        raise ValueError(
            "there is nothing to continue: give --prompt, or --input with a "
            "line at least."
        )
    return rows


def as_line(row, found):
    """Format a prompt and its generated texts as one line of JSON.

    Args:
        row: dict from `read_prompts`.
        found: list of GeneratedText, or a ValueError if the prompt is wrong.

    Returns:
        str, ending in a line feed.
    """
    if isinstance(found, ValueError):
        result = {"error": str(found)}
    else:
        result = {
            "texts": [
                {
                    "text": text.text,
                    "tokens": len(text.token_ids),
                    "log_probability": round(text.log_probability, 4),
                    "score": round(text.score, 4),
                    "has_ended": text.has_ended,
                }
                for text in found
            ]
        }
    # The input may be the output of an earlier run.
    row = {k: v for k, v in row.items() if k not in ("error", "texts")}
    return json_line({**row, **result})


def main(argv=None):
    """Run the command; see the module's docstring."""
    options = parse_arguments(argv)
    given = given_options(
        GenerationSettings, {**vars(options), "stop": tuple(options.stop)}
    )
    # Refuse wrong settings before the model is read.
    GenerationSettings(**given)
    rows = read_prompts(options)
    if options.output:
        check_writable(options.output, filter(None, [options.input]))
    check_backend("generation")
    if options.stream and options.output:
        raise ValueError(
            "--stream prints a text as it grows: leave --output out."
        )
    generator = _generator(options, given)
    settings = generator.settings
    if options.stream and settings.num_beams > 1:
        raise ValueError(
            "--stream prints one text as it grows: give --num-beams 1. "
            f"Received: num_beams={settings.num_beams}."
        )
    if options.stream and settings.num_sequences > 1:
        raise ValueError("--stream prints one text: leave --num-sequences out.")
    if options.stream:
        return _stream(generator, rows)
    if options.output:
        return _write(generator, rows, options)
    return _print(generator, rows, options)


def _generator(options, given):
    """Make a TextGenerator from the command's model and settings."""
    from xlnet_tf.generation.generator import TextGenerator
    from xlnet_tf.loading import open_model

    with command_line.warnings_in_a_line():
        stored = open_model(options.model)
        model = stored.load()
        tokenizer = stored.tokenizer_for(model, options.tokenizer)
    if not hasattr(model, "generate"):
        raise ValueError(
            f"{options.model} holds a {type(model).__name__}, which cannot "
            "generate: give a pretrained model, or one of sequence to sequence."
        )
    if hasattr(model, "generation_settings"):  # the model's own settings
        if options.tokenizer:
            model.preprocessor = model.preprocessor_with(tokenizer)
        return model.text_generator(**given)
    return TextGenerator(model, tokenizer, GenerationSettings(**given))


def _stream(generator, rows):
    from xlnet_tf.generation.methods import following

    printable = command_line.printable
    status = 0
    for number, row in enumerate(rows):
        try:
            token_ids = generator.encode(row["prompt"])
        except ValueError as error:
            command_line.print_notes(f"error: {error}")
            status = 1
            continue
        before = row["prompt"] if generator.keeps_prompt else ""
        # The model reads a line feed as a space.
        sys.stdout.write(printable(before.replace("\n", " ")))
        for text in generator.stream(token_ids, number):
            sys.stdout.write(printable(following(before, text)))
            before = ""  # only the first part is printed after the prompt
            sys.stdout.flush()
        sys.stdout.write("\n")
    return status


def _tracked(found, rows, options, initial=0):
    """Yield the results and show progress.

    With `--quiet`, or if a terminal shows the results, progress is not shown.
    """
    shown = not options.quiet
    if not options.output:
        shown = shown and not sys.stdout.isatty()
    return track(found, "generating", "texts", len(rows), initial, shown)


def _print(generator, rows, options):
    failed = 0
    prompts = (row["prompt"] for row in rows)
    results = _tracked(generator.all(prompts), rows, options)
    for row, (_, found) in zip(rows, results, strict=True):
        failed += isinstance(found, ValueError)
        sys.stdout.write(as_line(row, found))
        sys.stdout.flush()
    return _status(failed, rows)


def _write(generator, rows, options):
    """Write results to a partial file, and the complete output at the end."""
    from data_pipeline.base.files import as_path
    from data_pipeline.base.files import is_model_of_hub
    from data_pipeline.base.files import write_bytes

    partial = None
    # Every file that is written to a model of the hub is a commit.
    if not is_model_of_hub(options.output):
        output = as_path(options.output)
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.parent / f"{output.name}.partial"
    task = _task(options, rows, generator.settings)
    lines = _lines_kept(partial, task)
    if lines:
        command_line.print_notes(f"{len(lines)} of {len(rows)} are done")
    waiting = rows[len(lines) :]
    prompts = (row["prompt"] for row in waiting)
    results = generator.all(prompts, first=len(lines))
    results = _tracked(results, rows, options, len(lines))
    with _kept(lines, partial, task) as add:
        for row, (_, texts) in zip(waiting, results, strict=True):
            add(as_line(row, texts))
        write_bytes(options.output, "".join(lines).encode())
    if partial is not None:
        partial.unlink(missing_ok=True)
    return _status(sum("error" in json.loads(line) for line in lines), rows)


@contextlib.contextmanager
def _kept(lines, partial, task):
    """Context manager that keeps lines in a partial file, for a restart.

    A local partial file gets each line at once. A file in a bucket cannot grow.
    A partial file in a bucket is therefore written once, when an error or a
    signal ends the `with` block.

    Args:
        lines: list of str, the lines written so far. New lines are appended to
            this list.
        partial: path of the partial file, or None for no file.
        task: str, the first line of the partial file, see `_task`.

    Yields:
        function of a line (str). The function adds the line to `lines` and to
        a local partial file.
    """
    from data_pipeline.base.files import is_remote
    from data_pipeline.base.files import write_bytes

    if partial is None:
        yield lines.append
        return
    if is_remote(partial):
        try:
            yield lines.append
        except BaseException:
            if lines:
                write_bytes(partial, "".join([task, *lines]).encode())
            raise
        return
    write_bytes(partial, "".join([task, *lines]).encode())
    with partial.open("a", encoding="utf-8") as file:

        def add(line):
            lines.append(line)
            file.write(line)
            file.flush()

        yield add


def _task(options, rows, settings):
    """Make the first line of a partial file: a digest of the command."""
    values = {
        "model": options.model,
        "tokenizer": options.tokenizer,
        "settings": dataclasses.asdict(settings),
        "prompts": rows,
    }
    text = json.dumps(values, sort_keys=True)
    return f"# {hashlib.sha256(text.encode()).hexdigest()}\n"


def _lines_kept(partial, task):
    """Read the lines that a stopped run of the same command has written."""
    if partial is None or not partial.is_file():
        return []
    # `splitlines` would also split at U+2028 and the like, which a text may
    # contain. Bytes after the last line feed are an incomplete line, and may
    # end inside a character.
    first, *lines = partial.read_bytes().split(b"\n")[:-1] or [b""]
    if first != task.strip().encode():
        return []
    return [f"{line.decode()}\n" for line in lines]


def _status(failed, rows):
    if failed:
        command_line.print_notes(
            f"error: {failed} of {len(rows)} prompts could not be read; see "
            "`error` in their lines."
        )
    return int(bool(failed))


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
