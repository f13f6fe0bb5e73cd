"""The backend that computes a run."""

import pytest

from xlnet_tf.training import on_tensorflow
from xlnet_tf.training.backends import make_backend
from xlnet_tf.training.settings import FinetuningSettings


def test_the_backend_of_keras_computes_a_run(monkeypatch):
    settings = FinetuningSettings(strategy="one_device")
    backend = make_backend(settings)
    assert isinstance(backend, on_tensorflow.TensorFlow)
    assert backend.num_replicas == 1
    pytest.importorskip("jax")
    from xlnet_tf.training.on_jax import Jax

    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    backend = make_backend(settings)
    assert isinstance(backend, Jax)
    assert backend.num_replicas == 1 and backend.is_chief


def test_options_of_jax_are_not_for_tensorflow():
    worker = {"coordinator": "host0:2222", "num_workers": 2, "worker_index": 0}
    for given, message in (
        (worker, "--coordinator .*KERAS_BACKEND=jax.*TF_CONFIG.*host0:2222"),
        ({"shard_optimizer": True}, "--shard-optimizer .*KERAS_BACKEND=jax"),
    ):
        with pytest.raises(ValueError, match=message):
            make_backend(FinetuningSettings(**given))
