"""The C++ program beside this file: compiled here, asked through files."""

import functools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_text

SOURCES = pathlib.Path(__file__).parent
OPS = (
    pathlib.Path(tensorflow_text.__file__).parent
    / "python/ops/_sentencepiece_tokenizer.so"
)


@functools.cache
def _build_directory():
    return tempfile.TemporaryDirectory()


@functools.cache
def program():
    """Path of the compiled program; skips where there is no compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        import pytest  # which the benchmark does without

        pytest.skip("there is no C++ compiler")
    libraries = pathlib.Path(tf.sysconfig.get_lib())
    binary = pathlib.Path(_build_directory().name) / "serve"
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
        + [str(SOURCES / "serve.cc"), "-o", str(binary)]
        + ["-isystem", tf.sysconfig.get_include(), f"-L{libraries}"]
        + ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
        + [f"-Wl,-rpath,{libraries}", "-pthread"],
        check=True,
    )
    return binary


def run_program(export, *options, check=True):
    """Runs the program on an export; gives what it printed."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONPATH", None)
    result = subprocess.run(
        [program(), export, OPS, *map(str, options)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if check:
        assert result.returncode == 0, result.stderr
    return result


def ask_program(export, requests, directory):
    """Answers of the program to requests.

    Args:
        export: path of a SavedModel.
        requests: list of (signature, dict of name to NumPy array).
        directory: path for the files between.

    Returns:
        list of dicts of name to NumPy array, or of str: the error.
    """
    asked, answered = directory / "requests", directory / "answers"
    asked.write_bytes(b"".join(map(_request, requests)))
    run_program(export, "--requests", asked, "--answers", answered)
    answers = list(_read_answers(answered.read_bytes()))
    assert len(answers) == len(requests)
    return answers


def check_same(answer, expected):
    """The program's answer is Python's: strings exactly, numbers to 1e-5.

    Args:
        answer: dict of name to NumPy array, of `ask_program`.
        expected: the same, of TensorFlow in Python.
    """
    assert not isinstance(answer, str), answer
    assert set(answer) == set(expected)
    for name, array in expected.items():
        assert answer[name].dtype == array.dtype
        assert answer[name].shape == array.shape
        if array.dtype == object:
            np.testing.assert_array_equal(answer[name], array)
        else:
            np.testing.assert_allclose(answer[name], array, atol=1e-5)


def load_lines(export, requests, directory, count, concurrency):
    """What the program measures, a dict for each number of threads."""
    asked = directory / "requests"
    asked.write_bytes(b"".join(map(_request, requests)))
    result = run_program(
        export,
        *("--requests", asked, "--load", count),
        *("--concurrency", ",".join(map(str, concurrency))),
    )
    return [json.loads(line) for line in result.stdout.splitlines()]


def ask_under_load(export, requests, directory, count, concurrency):
    """Answers of the program to requests, before and while it is under load.

    Args:
        export, requests, directory: see `ask_program`.
        count: int, how many requests are sent at once: the given ones over
            and over.
        concurrency: int, threads.

    Returns:
        (answers, measured): those before, see `ask_program`, and the dict of
        `load_lines`, whose `other` lists the numbers of the requests whose
        answers under load were not the same to the last bit.
    """
    asked, answered = directory / "requests", directory / "answers"
    asked.write_bytes(b"".join(map(_request, requests)))
    result = run_program(
        export,
        *("--requests", asked, "--answers", answered),
        *("--load", count, "--concurrency", concurrency),
    )
    answers = list(_read_answers(answered.read_bytes()))
    assert len(answers) == len(requests)
    return answers, json.loads(result.stdout)


def _request(request):
    signature, tensors = request
    content = _text(signature.encode()) + struct.pack("<I", len(tensors))
    for name, array in tensors.items():
        array = np.asarray(array)
        is_text = array.dtype.kind in "SOU"
        dtype = tf.string if is_text else tf.as_dtype(array.dtype)
        content += _text(name.encode())
        content += struct.pack("<II", dtype.as_datatype_enum, array.ndim)
        content += struct.pack(f"<{array.ndim}q", *array.shape)
        if is_text:
            content += b"".join(_text(text) for text in array.reshape(-1))
        else:
            content += array.tobytes()
    return content


def _text(content):
    if isinstance(content, str):
        content = content.encode()
    return struct.pack("<I", len(content)) + content


def _read_answers(content):
    place = 0

    def numbers(form):
        nonlocal place
        values = struct.unpack_from(f"<{form}", content, place)
        place += struct.calcsize(f"<{form}")
        return values

    def text():
        nonlocal place
        (length,) = numbers("I")
        place += length
        return content[place - length : place]

    while place < len(content):
        (code,), message, (count,) = numbers("I"), text(), numbers("I")
        outputs = {}
        for _ in range(count):
            name, (kind, rank) = text().decode(), numbers("II")
            shape = numbers(f"{rank}q")
            size = int(np.prod(shape))
            if tf.as_dtype(kind) == tf.string:
                array = np.array([text() for _ in range(size)], object)
            else:
                dtype = np.dtype(tf.as_dtype(kind).as_numpy_dtype)
                array = np.frombuffer(content, dtype, size, place)
                place += array.nbytes
            outputs[name] = array.reshape(shape)
        yield message.decode() if code else outputs
