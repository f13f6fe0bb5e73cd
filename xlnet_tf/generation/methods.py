"""Shared parts of the methods `generate`, `score` and `fill`."""

import warnings

import keras


def generate_texts(generator, inputs, keeps_prompt):
    """Generate texts in the form that `generate` of a model returns.

    Args:
        generator: TextGenerator.
        inputs: str, or list of str.
        keeps_prompt: bool, whether a text begins with its prompt.

    Returns:
        str for a str, list of str for a list; with `num_sequences` above 1
        lists of str instead. For an unreadable prompt in a list None, with a
        warning that gives the reason.

    Raises:
        ValueError: if the only prompt is unreadable.
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
    """The user's texts as a list; a str is one text.

    Raises:
        TypeError: if it is neither.
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
    """A text without a leading blank if its prompt ends with one."""
    has_blank = prompt[-1:].isspace() and text.startswith(" ")
    return text[1:] if has_blank else text


def answers(results, is_single, stacklevel=3):
    """Results, with None and a warning for each unreadable input.

    Args:
        results: list of answers, some of them ValueErrors.
        is_single: bool, whether there was one input, not a list.
        stacklevel: int, see `warnings.warn`.

    Returns:
        list, or the only result.

    Raises:
        ValueError: if the only result is one.
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
    """Refuse raw strings for a model without support for them.

    Args:
        model: Task.
        method: str, the called method, for messages.

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
