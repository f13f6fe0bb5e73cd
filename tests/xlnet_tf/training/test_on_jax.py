"""Refusals of runs on JAX. Slow tests have the runs."""

import pytest

from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings


def test_what_is_not_there_on_jax_is_refused(monkeypatch):
    """Each line names what is there instead, for runs of both kinds."""
    pytest.importorskip("jax")
    from xlnet_tf.training.on_jax import Jax

    for given, message in (
        ({"precision": "float16"}, "--precision float16 .*bfloat16, or set "),
        ({"profile": True}, "--profile .*leave it out, or set "),
        ({"tpu": "pod"}, "--tpu pod .*on the TPU VM, without --tpu, or set "),
        ({"strategy": "multi_worker"}, "one of auto, .*workers train with "),
        ({"strategy": "tpu"}, "finds no TPU, but a .*--strategy auto"),
    ):
        for cls in (PretrainingSettings, FinetuningSettings):
            with pytest.raises(ValueError, match=message):
                Jax(cls(**given))
    workers = '{"cluster": {"worker": ["a:1", "b:1"]}}'
    monkeypatch.setenv("TF_CONFIG", workers)
    with pytest.raises(ValueError, match="TF_CONFIG .*KERAS_BACKEND=tensorfl"):
        Jax(FinetuningSettings())
