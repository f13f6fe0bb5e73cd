"""Class of a signature: a function with its inputs and descriptions.

The other files of this folder contain the signatures. `SIGNATURES` in
`__init__.py` maps each model class to the class of its signatures.

Shapes: N rows of a request, T tokens.
"""

import dataclasses
import typing

import tensorflow as tf

from saved_models.signatures.checks import of_bytes

IDS = ("token_ids", "segment_ids", "padding_mask")


def id_meaning(layout, pad_side=None, first="text", second=None, axes="N, T"):
    """Make the model card's lines about the inputs of token ids.

    Args:
        layout: Layout of the model.
        pad_side: "left" or "right"; None if ids need no padding.
        first: str, content of segment 0.
        second: str, content of segment 1. None if segment 1 is not used.
        axes: str, axes of the inputs.

    Returns:
        dict from input name to str.
    """
    segments = [f"0 for {first}"]
    if second:
        segments.append(f"1 for {second}")
    place = "first" if layout.class_first else "final"
    segments.append(f"{layout.class_segment} for the {place} [CLS]")
    mask = f"int32 [{axes}], 1 = a real token"
    if pad_side:
        segments.append(f"{layout.padding_segments[pad_side]} for padding")
        mask += f"; padding comes {'first' if pad_side == 'left' else 'last'}"
    return {
        "token_ids": f"int32 [{axes}], all rows of one length",
        "segment_ids": f"int32 [{axes}], {', '.join(segments)}",
        "padding_mask": mask,
    }


@dataclasses.dataclass(frozen=True)
class Signature:
    """Function of an export with its inputs, outputs and examples.

    Args:
        function: callable with the inputs as keyword arguments. It returns a
            flat dict from output name to tensor.
        inputs: dict from input name to tf.TensorSpec.
        summary: str, one sentence about the function's results.
        meaning: dict from the name of each input or output to a description.
        examples: list of requests, at least one. A request is a dict from input
            name to NumPy array. All requests warm up a server; the model card
            shows the first request.

    Raises:
        ValueError: if TensorFlow Serving does not support an input's name, or
            an example does not have exactly the inputs.
    """

    function: typing.Callable
    inputs: dict
    summary: str
    meaning: dict
    examples: list

    def __post_init__(self):
        check_names(self.inputs)
        for example in self.examples:
            if set(example) != set(self.inputs):
                raise ValueError(
                    f"an example must give {', '.join(self.inputs)}. "
                    f"Received: {', '.join(example)}."
                )

    def concrete(self, max_bytes=None):
        """Trace the function for an export, with names for its outputs.

        Args:
            max_bytes: int, maximum number of bytes of all texts in a request.
                Default None: no limit.

        Returns:
            concrete function.

        Raises:
            ValueError: if an input or output has no line in `meaning`.
        """

        def limited(**inputs):
            if max_bytes is not None:
                inputs = of_bytes(inputs, max_bytes)
            return self.function(**inputs)

        function = tf.function(limited)
        function = function.get_concrete_function(**self.inputs)
        outputs = function.structured_outputs
        check_names(outputs)
        missing = {*self.inputs, *outputs} - set(self.meaning)
        if missing:
            raise ValueError(
                "every input and output needs a line in `meaning`. "
                f"Missing: {', '.join(sorted(missing))}."
            )
        return function


def check_names(tensors):
    """Refuse names that TensorFlow Serving's REST API treats as binary.

    Args:
        tensors: dict from name to tensor or spec.

    Raises:
        ValueError: if the name of a string tensor ends in `_bytes`. The REST
            API would write this tensor in base64.
    """
    for name, tensor in tensors.items():
        if name.endswith("_bytes") and tensor.dtype == tf.string:
            raise ValueError(
                f"the string tensor {name!r} must not end in '_bytes': "
                "TensorFlow Serving would write it in base64."
            )


def string_specs(**ranks):
    """Make specs of string inputs; `ranks` has each input's number of axes."""
    return {
        name: tf.TensorSpec([None] * rank, tf.string, name=name)
        for name, rank in ranks.items()
    }


def id_specs(rank=2):
    """Make the specs of the token id inputs: dict from name to TensorSpec."""
    return {
        name: tf.TensorSpec([None] * rank, tf.int32, name=name) for name in IDS
    }
