"""Comparison of the GPU's kernel, in Pallas' interpreter, with `plain` on JAX.

    KERAS_BACKEND=jax python -m tests.support.gpu_kernel

prints a line of JSON. For each case it has the largest error of the output and
of each gradient, divided by the array's largest entry. If the machine has a
GPU, the kernel runs on the GPU.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from tests.support import kernel_inputs
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer
from xlnet_tf.model.kernels import find_kernel
from xlnet_tf.model.kernels import fused
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain
from xlnet_tf.model.kernels.contract import AttentionInputs
from xlnet_tf.model.kernels.contract import AttentionRules
from xlnet_tf.model.kernels.pallas import gpu

REVERSED = np.array([True, False])
NOTHING = {"mask": None, "other_segment": None, "dropout": 0.0, "seed": None}
# Tokens, memory, targets; directions and streams; changes to `rules_of`.
CASES = {
    "everything": ((128, 128, 20, 2), {"is_reversed": REVERSED}),
    "first half": (
        (256, 64, 40, 2),
        {"first_half_length": 128, "is_reversed": REVERSED},
    ),
    "first half of no whole tiles": (
        (192, 64, 33),
        {"first_half_length": 96, "other_segment": None},
    ),
    "more targets than tokens": ((64, 0, 70), {"mask": None}),
    "targets alone": ((128, 128, 1, 1, "query"), {"streams": "query"}),
    "content alone, no masks": ((128, 0, 0), NOTHING),
    "one mask of all examples": (
        (64, 64, 0),
        {"mask": np.tri(64, 128, 64, dtype=bool)[None]},
    ),
    "no rows": (
        (64, 0, 0, 1, "query"),
        {
            **NOTHING,
            "streams": "query",
            "target_positions": np.zeros((2, 0), "int32"),
        },
    ),
}


def operands(*sizes):
    """Tensors of `kernel_inputs`."""
    return [jnp.asarray(x) for x in kernel_inputs.operands(*sizes)]


def rules_of(inputs, targets, **changes):
    """AttentionRules of `kernel_inputs`."""
    values = kernel_inputs.rules_of(inputs, targets, **changes)
    return AttentionRules(
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
        output = kernel(AttentionInputs(*inputs), rules)
        return jnp.sum(output.astype("float32") * upstream), output

    arguments = tuple(range(len(inputs)))
    (_, output), gradients = jax.jit(
        jax.value_and_grad(loss, arguments, has_aux=True)
    )(*inputs)
    return [np.asarray(x, "float32") for x in (output, *gradients)]


def errors(expected, found):
    """Largest error of each array, divided by its largest entry; may be NaN."""
    return [
        float(np.max(np.abs(one - two)) / max(np.max(np.abs(one)), 1e-9))
        for one, two in zip(expected, found, strict=True)
        if one.size
    ]


def deviations(expected, found):
    """RMS error of each array, divided by the array's standard deviation."""
    return [
        float(np.sqrt(np.mean((one - two) ** 2)) / np.std(one))
        for one, two in zip(expected, found, strict=True)
    ]


def of_cases():
    """Errors of output and gradients, a dict by case."""
    found = {}
    for name, (shape, changes) in CASES.items():
        inputs = operands(*shape)
        rules = rules_of(inputs, shape[2], **changes)
        expected = results(plain.attend, inputs, rules)
        computed = results(fused.attend, inputs, rules)
        found[name] = errors(expected, computed)
    return found


def of_narrow_types():
    """Deviations from `plain` in float32, a dict by type and kernel."""
    inputs = operands(128, 128, 20)
    rules = rules_of(inputs, 20)
    expected = results(plain.attend, inputs, rules)
    kernels = {"fused": fused.attend, "other": memory_efficient.attend}
    return {
        f"{dtype} {name}": deviations(
            expected, results(kernel, [x.astype(dtype) for x in inputs], rules)
        )
        for dtype in ("bfloat16", "float16")
        for name, kernel in kernels.items()
    }


def of_a_broken_promise():
    """Largest error of `first_half_length` alone against a mask, float."""
    inputs = operands(256, 0, 0)
    rules = rules_of(inputs, 0)
    hidden = np.array(rules.mask)
    hidden[:, :128, 128:] = False
    expected = results(
        plain.attend, inputs, rules._replace(mask=jnp.asarray(hidden))
    )
    promised = rules._replace(first_half_length=128)
    found = results(fused.attend, inputs, promised)
    return float(np.max(errors(expected, found)))


def barriers_of_gradient(most_kept):
    """Number of barriers in a step's program, with this `gpu._MOST_KEPT`."""
    gpu._MOST_KEPT, kept = most_kept, gpu._MOST_KEPT
    gpu._attended.cache_clear()
    inputs = operands(64, 0, 0)
    rules = rules_of(inputs, 0, **NOTHING)

    def loss(*inputs):
        return jnp.sum(fused.attend(AttentionInputs(*inputs), rules) ** 2)

    step = jax.jit(jax.value_and_grad(loss, argnums=tuple(range(8))))
    program = step.lower(*inputs).as_text()
    gpu._MOST_KEPT = kept
    gpu._attended.cache_clear()
    return program.count("optimization_barrier")


def of_model():
    """Errors of the loss and all gradients of a model in training."""
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
    """Number of kernels in a step that is lowered for a GPU without a GPU."""
    inputs = [x.astype("bfloat16") for x in operands(256, 64, 40)]
    rules = rules_of(inputs, 40, first_half_length=128)

    def loss(*inputs):
        return jnp.sum(
            fused.attend(AttentionInputs(*inputs), rules).astype("float32")
        )

    check = jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")
    exported = jax.export.export(
        jax.jit(jax.grad(loss, tuple(range(8)))),
        platforms=["cuda"],
        disabled_checks=[check],
    )(*inputs)
    return exported.mlir_module().count("@__gpu$xla.gpu.triton")


def of_other_sizes():
    """Error against `memory_efficient`, and the warnings, for other sizes."""
    inputs = operands(96, 32, 4)
    rules = rules_of(inputs, 4)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = results(fused.attend, inputs, rules)
    expected = results(memory_efficient.attend, inputs, rules)
    error = float(np.max(errors(expected, found)))
    return error, [str(one.message) for one in said]


def of_an_old_gpu():
    """Reason, str, why the kernel refuses GPUs before Ampere."""
    capability, gpu._capability = gpu._capability, lambda: 7.5
    found = gpu.why_unsupported((2, 2, 64, 64), 64, 64, "float32")
    gpu._capability = capability
    return found


def main():
    """Print the results of all comparisons."""
    jax.config.update("jax_default_matmul_precision", "float32")
    has_gpu = jax.default_backend() == "gpu"
    fused.INTERPRET = None if has_gpu else "gpu"
    found = {"cases": of_cases(), "model": of_model()}
    found["narrow types"] = of_narrow_types()
    found["broken promise"] = of_a_broken_promise()
    found["barriers"] = [barriers_of_gradient(most) for most in (2**28, 0)]
    found["other sizes"] = of_other_sizes()
    found["old"] = of_an_old_gpu()
    # As on a machine that has one.
    fused.INTERPRET, fused.COMPILE_FOR = None, "gpu"
    fused.has_accelerator = lambda: True
    found["auto"] = find_kernel("auto") is fused.attend
    found["kernels"] = lowered()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
