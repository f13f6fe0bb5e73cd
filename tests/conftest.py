"""Options, devices and data that all tests share."""

import os
import pathlib
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption(
        "--run-slow", action="store_true", help="run tests marked slow too"
    )


def pytest_configure(config):
    # A shell without job control starts what runs in the background with
    # Ctrl-C ignored, and so would be every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    # Two devices for the tests of replicas; only possible before first use.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="slow: give --run-slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared():
    """Path of the data that is too big or not free to be in the project."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"there is no {path.name}/ beside the project")
    return path
