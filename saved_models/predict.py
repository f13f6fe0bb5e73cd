"""Asks an export in this process, or a model server.

    python -m saved_models.predict --model saved_models/demo \\
        --text 'The <mask> is open.'
    python -m saved_models.predict --url http://HOST:8501/v1/models/demo ...
    python -m saved_models.predict --url grpc://HOST:8500 --name demo ...
"""

import argparse
import json
import pathlib
import sys

from data_pipeline import command_line
from saved_models.client import connect
from saved_models.versions import latest_version


class Predictor:
    """An export in this process.

    Args:
        directory: str or path, with or without the version.

    Raises:
        FileNotFoundError: if there is no SavedModel.
        ValueError: if it cannot be loaded.
    """

    def __init__(self, directory):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers SentencePiece's ops

        path = latest_version(directory)
        try:
            self._loaded = tf.saved_model.load(str(path))
        # TensorFlow turns its error of a file that ends early into IndexError.
        except (tf.errors.OpError, OSError, ValueError, IndexError) as error:
            raise ValueError(
                f"{path} cannot be loaded as a SavedModel: {error}"
            ) from error

    def __call__(self, texts, signature="serving_default"):
        """Runs a signature on raw text.

        Args:
            texts: list of str.
            signature: str.

        Returns:
            dict of output name to NumPy array.

        Raises:
            ValueError: if the export has no such signature, or it takes ids.
        """
        function = self._signature(signature)
        inputs = function.structured_input_signature[1]
        if list(inputs) != ["text"]:
            raise ValueError(
                f"the signature {signature!r} takes {', '.join(inputs)}, not "
                "text."
            )
        return self.predict({"text": texts}, signature)

    def predict(self, inputs, signature="serving_default"):
        """Runs a signature, as `client.Client.predict` does.

        Args:
            inputs: dict of name to array or nested list.
            signature: str.

        Returns:
            dict of output name to NumPy array.
        """
        import tensorflow as tf

        function = self._signature(signature)
        specs = function.structured_input_signature[1]
        outputs = function(
            **{
                name: tf.constant(value, specs[name].dtype)
                for name, value in inputs.items()
            }
        )
        return {name: value.numpy() for name, value in outputs.items()}

    @property
    def signatures(self):
        """Names of the signatures."""
        return sorted(self._loaded.signatures)

    def _signature(self, name):
        function = self._loaded.signatures.get(name)
        if function is None:
            raise ValueError(
                f"the export has no signature {name!r}; it has "
                f"{', '.join(self.signatures)}."
            )
        return function


def fill(text, candidates, blank="<mask>"):
    """Puts one piece into each blank of a text.

    Args:
        text: str with blanks.
        candidates: list of str, a piece for each blank; the mark of a word's
            beginning becomes a space.
        blank: str.

    Returns:
        str.
    """
    parts = text.split(blank)
    filled = parts[0]
    # Blanks beyond the model's length have no candidates and stay.
    missing = len(parts) - 1 - len(candidates)
    candidates = [*candidates, *[blank] * missing]
    for piece, part in zip(candidates, parts[1:], strict=True):
        word = piece.replace("\u2581", " ")
        if filled.endswith(" ") or not filled:
            word = word.removeprefix(" ")
        filled += word + part
    return filled


def _lines(texts, outputs):
    """One JSON object a text."""
    for row, text in enumerate(texts):
        line = {"text": text}
        if "pieces" in outputs:
            count = int(outputs["count"][row])
            pieces = [
                [piece.decode("utf-8", "replace") for piece in blank]
                for blank in outputs["pieces"][row][:count]
            ]
            line["filled"] = fill(text, [blank[0] for blank in pieces])
            line["candidates"] = pieces
            line["log_probabilities"] = [
                [round(float(value), 4) for value in blank]
                for blank in outputs["log_probabilities"][row][:count]
            ]
        else:
            line.update(
                {name: value[row].tolist() for name, value in outputs.items()}
            )
        yield json.dumps(line, ensure_ascii=False)


def main(argv=None):
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m saved_models.predict",
        description="Ask an exported model; writes a JSON object a text.",
    )
    add = parser.add_argument
    add("--model", help="NAME, or NAME/VERSION, of an export")
    add("--url", help="http://HOST:8501/v1/models/NAME or grpc://HOST:8500")
    add("--name", help="of the model on a grpc:// server")
    add(
        "--timeout",
        type=float,
        default=30.0,
        help="seconds that a server may take (default: 30)",
    )
    add("--text", action="append", default=[], help="may be repeated")
    add("--file", help="texts, one a line")
    add("--signature", default="serving_default")
    arguments = parser.parse_args(argv)
    texts = list(arguments.text)
    if arguments.file:
        content = pathlib.Path(arguments.file).read_text(encoding="utf-8")
        texts += [line for line in content.splitlines() if line.strip()]
    if not texts:
        raise ValueError("there is nothing to ask: give --text or --file.")
    if bool(arguments.model) == bool(arguments.url):
        raise ValueError("give either --model or --url.")
    if arguments.url:
        ask = connect(arguments.url, arguments.name, arguments.timeout)
    else:
        ask = Predictor(arguments.model)
    outputs = ask(texts, arguments.signature)
    for line in _lines(texts, outputs):
        sys.stdout.write(line + "\n")
    return 0


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
