"""The kernel of GPUs in Pallas' interpreter, against `plain`, on JAX.

    KERAS_BACKEND=jax python -m tests.support.gpu_kernel

prints a line of JSON: by case, the largest error of the output and of each
gradient, as a share of the largest entry. On a machine with a GPU the kernel
runs there.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer
from xlnet_tf.model.kernels import find_kernel
from xlnet_tf.model.kernels import fused
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain
from xlnet_tf.model.kernels.fused.gpu import calls
from xlnet_tf.model.kernels.scores import ScoreRules

B, N, H = 2, 2, 64
REVERSED = np.array([True, False])
# Tokens, memory, targets; directions and streams; what is not as in `rules_of`.
CASES = {
    "everything": ((128, 128, 20, 2), {"is_reversed": REVERSED}),
    "first half": ((256, 64, 40), {"first_half_length": 128}),
    "blocks of one tile": ((192, 64, 5), {}),
    "targets alone": ((128, 128, 8, 1, "query"), {"streams": "query"}),
    "content alone, no masks": (
        (128, 0, 0),
        {"mask": None, "other_segment": None, "dropout": 0.0, "seed": None},
    ),
}


def operands(tokens, memory, targets, directions=1, streams="both"):
    """Inputs of a kernel, of normal numbers."""
    random = np.random.default_rng(0)
    keys = memory + tokens
    rows = targets + (tokens if streams == "both" else 0)
    shapes = (
        (B, N, rows, H),
        *[(N, H)] * 4,
        *[(B, N, keys, H)] * 2,
        (directions, N, keys + tokens, H),
    )
    return [
        jnp.asarray(random.normal(size=shape).astype("float32"))
        for shape in shapes
    ]


def rules_of(inputs, targets, **changes):
    """Masks, segments, positions and dropout, all at once."""
    random = np.random.default_rng(1)
    rows, keys = inputs[0].shape[2], inputs[5].shape[2]
    tokens = inputs[7].shape[2] - keys
    mask = random.random((B, rows, keys)) < 0.6
    mask[1, 3] = False  # a row that sees nothing
    first = changes.get("first_half_length", 0)
    if first:
        mask[:, :first, keys - tokens + first :] = False
    values = {
        "mask": mask,
        "other_segment": random.random((B, rows, keys)) < 0.5,
        "is_reversed": None,
        "target_positions": None,
        "dropout": 0.1,
        "seed": np.array([3, 5], "uint32"),
    }
    if targets:
        positions = random.integers(0, tokens, (B, targets))
        values["target_positions"] = positions.astype("int32")
    values |= changes
    return ScoreRules(
        **{
            name: jnp.asarray(x) if isinstance(x, np.ndarray) else x
            for name, x in values.items()
        }
    )


def results(kernel, inputs, rules):
    """list of float32 arrays, the attended values and all gradients."""
    random = np.random.default_rng(2)
    upstream = random.normal(size=inputs[0].shape).astype("float32")

    def loss(*inputs):
        output = kernel(*inputs, rules)
        return jnp.sum(output.astype("float32") * upstream), output

    arguments = tuple(range(len(inputs)))
    (_, output), gradients = jax.jit(
        jax.value_and_grad(loss, arguments, has_aux=True)
    )(*inputs)
    return [np.asarray(x, "float32") for x in (output, *gradients)]


def errors(expected, found):
    """The largest error of each array, of its largest entry."""
    return [
        float(np.abs(one - two).max() / max(np.abs(one).max(), 1e-9))
        for one, two in zip(expected, found, strict=True)
    ]


def deviations(expected, found):
    """The root of the mean square error of each, of its deviation."""
    return [
        float(np.sqrt(np.mean((one - two) ** 2)) / max(np.std(one), 1e-9))
        for one, two in zip(expected, found, strict=True)
    ]


def of_cases():
    """dict of case to errors; of "recomputed" to those of the same kernel."""
    found = {}
    for name, (shape, changes) in CASES.items():
        inputs = operands(*shape)
        rules = rules_of(inputs, shape[2], **changes)
        expected = results(plain.attend, inputs, rules)
        computed = results(fused.attend, inputs, rules)
        assert np.std(expected[0]) > 0.05
        found[name] = errors(expected, computed)
        if name == "everything":
            narrow = [x.astype("bfloat16") for x in inputs]
            found["bfloat16"] = [
                max(deviations(expected, results(kernel, narrow, rules)))
                for kernel in (fused.attend, memory_efficient.attend)
            ]
            calls._MOST_KEPT, kept = 0, calls._MOST_KEPT
            calls._differentiable.cache_clear()
            again = results(fused.attend, inputs, rules)
            found["recomputed"] = errors(computed, again)
            calls._MOST_KEPT = kept
    return found


def of_model():
    """Errors of loss and all gradients of a model that trains."""
    config = XLNetConfig(
        vocabulary_size=50,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        head_dim=16,
        intermediate_dim=48,
        memory_length=64,
    )
    random = np.random.default_rng(3)
    features = {
        "token_ids": random.integers(9, 50, (2, 64)).astype("int32"),
        "segment_ids": random.integers(0, 2, (2, 64)).astype("int32"),
        "factorization_rank": random.permuted(
            np.tile(np.arange(64, dtype="int32"), (2, 1)), axis=1
        ),
        "target_positions": random.integers(0, 64, (2, 5)).astype("int32"),
        "target_ids": random.integers(9, 50, (2, 5)).astype("int32"),
        "target_weights": np.ones((2, 5), "float32"),
        "memories": tuple(
            random.normal(size=(2, 64, 32)).astype("float32") for _ in range(2)
        ),
        "dropout_seed": np.array([1, 2], "int32"),
    }
    model = XLNetPretrainer(XLNetBackbone(config, seed=0))
    fixed = [v.value for v in model.non_trainable_variables]

    def of_kernel(name):
        model.backbone.attention_kernel = name

        def loss(weights):
            outputs, _ = model.stateless_call(
                weights, fixed, features, training=True
            )
            return outputs["loss"]

        weights = [v.value for v in model.trainable_variables]
        found, gradients = jax.jit(jax.value_and_grad(loss))(weights)
        return [np.asarray(x) for x in (found, *gradients)]

    return errors(of_kernel("plain"), of_kernel("fused"))


def lowered():
    """int, kernels in the program of a step on a GPU, lowered without one."""
    inputs = [x.astype("bfloat16") for x in operands(256, 64, 40)]
    rules = rules_of(inputs, 40, first_half_length=128)

    def loss(*inputs):
        return jnp.sum(fused.attend(*inputs, rules).astype("float32"))

    check = jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")
    exported = jax.export.export(
        jax.jit(jax.grad(loss, tuple(range(8)))),
        platforms=["cuda"],
        disabled_checks=[check],
    )(*inputs)
    return exported.mlir_module().count("@__gpu$xla.gpu.triton")


def of_other_sizes():
    """(error against the other kernel, what is said of it)."""
    inputs = operands(96, 32, 4)
    rules = rules_of(inputs, 4)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = results(fused.attend, inputs, rules)
    expected = results(memory_efficient.attend, inputs, rules)
    return max(errors(expected, found)), [str(one.message) for one in said]


def main():
    """Print everything."""
    jax.config.update("jax_default_matmul_precision", "float32")
    has_gpu = jax.default_backend() == "gpu"
    fused.INTERPRET = None if has_gpu else "gpu"
    found = {**of_cases(), "model": of_model()}
    found["other sizes"] = of_other_sizes()
    # As on a machine that has one.
    fused.INTERPRET, fused._jax_platform = None, lambda: "gpu"
    found["auto"] = find_kernel("auto") is fused.attend
    found["kernels"] = lowered()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
