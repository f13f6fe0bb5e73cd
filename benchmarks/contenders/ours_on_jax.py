"""Contenders with this library on Keras' JAX backend, on accelerators.

A program is two functions: the first starts a step, and the second waits for
the result of the last step.

Shapes: B batch, T tokens, M memory length, P targets.
"""

import functools

import jax
import jax.numpy as jnp
import keras

from benchmarks.workload import batches
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule

FEATURES = (
    "token_ids",
    "segment_ids",
    "factorization_rank",
    "target_positions",
    "target_ids",
    "target_weights",
)


def device_name():
    """Name of the device, from its driver."""
    return jax.devices()[0].device_kind


def peak_bytes():
    """Peak of the device memory in bytes, or None if unknown."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def training_step(
    model,
    batch_size,
    num_tokens,
    num_targets,
    memory_length,
    precision="bfloat16",
    rematerialize=False,
    attention_kernel="auto",
):
    """Set up a pretraining step with gradient clipping, AdamW and memory."""
    half = batches.first_half(num_tokens, memory_length)
    network = _pretrainer(
        XLNetConfig(**model, memory_length=memory_length, reuse_length=half),
        precision,
        rematerialize=rematerialize,
        attention_kernel=attention_kernel,
    )
    optimizer = AdamW(WarmupSchedule(1e-5, 10**6), global_clipnorm=0.25)
    optimizer.build(network.trainable_variables)
    fixed = [v.value for v in network.non_trainable_variables]
    batch = batches.pretraining_batch(
        model, batch_size, num_tokens, num_targets, first_half_length=half
    )
    features = {name: jnp.asarray(batch[name]) for name in FEATURES}

    def loss_of(weights, memories, number):
        inputs = {**features, "dropout_seed": jnp.stack([number, number])}
        if memory_length:
            inputs["memories"] = memories
        outputs, _ = network.stateless_call(
            weights,
            fixed,
            inputs,
            training=True,
            first_half_length=half,
        )
        return outputs["loss"], outputs.get("memories", ())

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state):
        weights, moments, memories, number = state
        (loss, memories), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            weights, memories, number
        )
        weights, moments = optimizer.stateless_apply(
            moments, gradients, weights
        )
        return (weights, moments, memories, number + 1), loss

    memories = ()
    if memory_length:
        memories = tuple(
            jnp.asarray(memory, network.compute_dtype)
            for memory in batches.zero_memories(
                model, batch_size, memory_length
            )
        )
    state = (
        [v.value for v in network.trainable_variables],
        [v.value for v in optimizer.variables],
        memories,
        jnp.asarray(1, "int32"),
    )
    loss = None

    def run():
        nonlocal state, loss
        state, loss = step(state)

    return run, lambda: float(loss)


def inference(
    model,
    batch_size,
    num_tokens,
    precision="bfloat16",
    attention_kernel="auto",
):
    """Set up inference of the content stream, with weights in `precision`."""
    backbone = XLNetBackbone(
        XLNetConfig(**model),
        seed=0,
        attention_kernel=attention_kernel,
        dtype=precision,
    )
    token_ids, segment_ids = map(
        jnp.asarray, batches.token_batch(model, batch_size, num_tokens)
    )
    fixed = [v.value for v in backbone.non_trainable_variables]
    weights = [v.value for v in backbone.trainable_variables]

    @jax.jit
    def forward(weights, token_ids, segment_ids):
        features = {"token_ids": token_ids, "segment_ids": segment_ids}
        outputs, _ = backbone.stateless_call(
            weights, fixed, features, training=False
        )
        return outputs["content"]

    content = None

    def run():
        nonlocal content
        content = forward(weights, token_ids, segment_ids)

    return run, lambda: float(content[0, 0, 0])


def check_backend():
    """Refuse all backends of Keras except JAX.

    Raises:
        RuntimeError: if Keras runs on another backend.
    """
    backend = keras.backend.backend()
    if backend != "jax":
        raise RuntimeError(
            "this program needs the environment variable KERAS_BACKEND=jax. "
            f"Received: KERAS_BACKEND={backend}."
        )


def _pretrainer(config, precision, **options):
    """Make an XLNetPretrainer with float32 weights."""
    keras.utils.set_random_seed(0)
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    return XLNetPretrainer(
        XLNetBackbone(config, seed=0, dtype=policy, **options)
    )
