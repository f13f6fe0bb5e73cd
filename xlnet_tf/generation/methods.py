"""Helpers of the methods `generate`, `score` and `fill` of models."""

import warnings

import keras


def generate_texts(generator, inputs, keeps_prompt):
    """Generate texts for one prompt or for a list of prompts.

    Args:
        generator: TextGenerator.
        inputs: str, or list of str.
        keeps_prompt: bool, whether a text begins with its prompt.

    Returns:
        str for one prompt, list of str for a list of prompts. With
        `num_sequences` above 1, a list of str replaces each str. For an
        invalid prompt in a list the entry is None, and a warning is issued.

    Raises:
        ValueError: if the only prompt is invalid.
    """
    is_single = isinstance(inputs, str)
    is_one = generator.settings.num_sequences == 1
    results = []
    for prompt, found in generator.all(texts_of(inputs)):
        if not isinstance(found, ValueError):
            begin = prompt if keeps_prompt else ""
            found = [begin + following(begin, text.text) for text in found]
            found = found[0] if is_one else found
        results.append(found)
    return answers(results, is_single, stacklevel=4)


def texts_of(inputs):
    """Convert the user's input to a list of str; a str is one text.

    Raises:
        TypeError: if `inputs` is neither a str nor a list of str.
    """
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, bytes) or not hasattr(inputs, "__iter__"):
        raise TypeError(
            f"expected a str or a list of str. Received: {inputs!r} of type "
            f"{type(inputs).__name__}."
        )
    return list(inputs)


def following(prompt, text):
    """Remove the leading space of a text if its prompt ends with a space."""
    has_blank = prompt[-1:].isspace() and text.startswith(" ")
    return text[1:] if has_blank else text


def answers(results, is_single, stacklevel=3):
    """Replace each error in results by None and a warning.

    Args:
        results: list of answers; a ValueError stands for an invalid input.
        is_single: bool, whether the input was one str, not a list.
        stacklevel: int, see `warnings.warn`.

    Returns:
        the only result if `is_single`, else the list of results.

    Raises:
        ValueError: if `is_single` and the only result is an error.
    """
    if is_single:
        (result,) = results
        if isinstance(result, ValueError):
            raise result
        return result
    for result in results:
        if isinstance(result, ValueError):
            warnings.warn(str(result), stacklevel=stacklevel)
    return [None if isinstance(x, ValueError) else x for x in results]


def check_can_read(model, method):
    """Refuse raw strings if the model or the backend cannot read them.

    Args:
        model: Task.
        method: str, name of the called method, for messages.

    Raises:
        NotImplementedError: if the backend is neither TensorFlow nor JAX.
        ValueError: if the model has no preprocessor.
    """
    if keras.backend.backend() not in ("tensorflow", "jax"):
        raise NotImplementedError(
            f"`{method}` needs the TensorFlow or the JAX backend. Received: "
            f"KERAS_BACKEND={keras.backend.backend()}."
        )
    if model.preprocessor is None:
        raise ValueError(
            f"`{method}` needs the tokenizer that the model was trained "
            "with: give the model a `preprocessor`, or load it with "
            "`from_preset` from a directory with a tokenizer."
        )
