"""Lowering of a training step to StableHLO, and compilation for a TPU."""

import itertools
import math
import os
import re
import time

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
# From a chip to bfloat16 operations per second, memory bandwidth in bytes per
# second, and bytes of memory. Source: https://cloud.google.com/tpu/docs.
CHIPS = {
    "v5e": (197e12, 819e9, 16e9),
    "v5p": (459e12, 2765e9, 95e9),
    "v6e": (918e12, 1640e9, 32e9),
}


def lower_training_step(config, training, features):
    """Lower one replica's training step of `xlnet_tf.train` to StableHLO.

    Args:
        config: XLNetConfig or BertConfig.
        training: PretrainingSettings of the run.
        features: dict of arrays, the batch of one replica.

    Returns:
        str, the program as text.
    """
    import tensorflow as tf

    from xlnet_tf.model.kernels import fused
    from xlnet_tf.training import pretrain
    from xlnet_tf.training.devices import make_step_counter
    from xlnet_tf.training.on_tensorflow import Steps
    from xlnet_tf.training.on_tensorflow import make_memory

    fused.COMPILE_FOR = "tpu"
    strategy = tf.distribute.get_strategy()
    model, optimizer = pretrain.build(config, training, strategy)
    steps = Steps(
        *(model, optimizer, make_memory(model, training, strategy)),
        pretrain.training_loss(model),
        None,
        *(training, make_step_counter(strategy), strategy),
    )
    features = {name: tf.constant(x) for name, x in features.items()}
    step = tf.function(steps.replica_step, jit_compile=True)
    return step.experimental_get_compiler_ir(features)(stage="stablehlo")


def of_newer_mlir(text):
    """Convert StableHLO from TensorFlow 2.20 to the syntax that JAX reads."""
    # TensorFlow leaves mhlo.copy, an identity, in the text.
    text = re.sub(
        r"(%\d+) = mhlo\.copy (%\w+) : (tensor<[^>]*>)",
        r"\1 = stablehlo.reshape \2 : (\3) -> \3",
        text,
    )

    def a_byte_each(found):
        """Unpack truth values from eight per byte to one per byte."""
        packed, shape = found.groups()
        count = math.prod(map(int, shape.split("x")))
        bits = (
            byte >> place & 1
            for byte in bytes.fromhex(packed)
            for place in range(8)
        )
        values = bytes(itertools.islice(bits, count)).hex().upper()
        return f'dense<"0x{values}"> : tensor<{shape}xi1>'

    return re.sub(
        r'dense<"0x([0-9A-F]+)"> : tensor<([0-9x]+)xi1>', a_byte_each, text
    )


def compile_for_tpu(text, topology="v5e"):
    """Compile StableHLO for one core of a TPU.

    Args:
        text: str, the program as text.
        topology: str, key of TOPOLOGIES, or "cpu" for this machine.

    Returns:
        dict of floats: `compile_seconds` (wall-clock), `compile_cpu_seconds`
        (of all threads), `code_bytes`, `argument_bytes`, `temporary_bytes`,
        `flops` and `bytes_moved`.
    """
    devices = _devices(topology)
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir

    text = of_newer_mlir(text)

    def compiled():
        with mlir.make_ir_context():
            return compiler.backend_compile_and_load(
                devices[0].client,
                ir.Module.parse(text),
                xla_client.DeviceList(tuple(devices[:1])),
                compiler.get_compile_options(
                    num_replicas=1,
                    num_partitions=1,
                    device_assignment=np.array([[0]]),
                ),
                [],
            )

    return _figures(compiled, lambda x: x.get_compiled_memory_stats())


def compile_task_step(kind, config, training, features, topology="v5e"):
    """Compile a fine-tuning step as `xlnet_tf.finetune` does for a JAX device.

    Args:
        kind: str, name of a TaskKind.
        config: XLNetConfig or BertConfig.
        training: FinetuningSettings, the result of `resolve`.
        features: dict of arrays, a batch.
        topology: see `compile_for_tpu`.

    Returns:
        dict, see `compile_for_tpu`.
    """
    chips = _devices(topology)
    import jax
    import numpy as np

    from xlnet_tf.model.backbones import make_backbone
    from xlnet_tf.model.kernels import fused
    from xlnet_tf.tasks import task_kind
    from xlnet_tf.training import finetune
    from xlnet_tf.training import on_jax
    from xlnet_tf.training.update import make_optimizer

    fused.COMPILE_FOR = None if topology == "cpu" else "tpu"
    kind = task_kind(kind)
    backbone = make_backbone(
        config,
        rematerialize=training.rematerialize,
        attention_kernel=training.attention_kernel,
        dtype=training.policy,
    )
    classes = {"num_classes": 2} if kind.name == "classification" else {}
    model = kind.model_class(backbone, **classes)
    optimizer = make_optimizer(model, training)
    devices = on_jax.Devices(chips[:1])
    loss = finetune.training_loss(kind(model))
    step = on_jax.make_step(model, optimizer, loss, training, devices)
    inputs = (
        on_jax.values(model.trainable_variables),
        on_jax.values(optimizer.variables),
        on_jax.values(on_jax.untrained(model)),
        features,
        np.zeros([1, training.gradient_accumulation_steps, 2], np.int32),
    )
    lowered = step.lower(
        *jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), inputs)
    )
    return _figures(lowered.compile, lambda x: x.memory_analysis())


def _devices(topology):
    """Devices of a topology: real CPUs, or TPUs described for the compiler."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    # The lock for one process per TPU is unnecessary, because nothing runs on a
    # TPU here.
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    import jax
    from jax.experimental import topologies

    if topology == "cpu":
        return jax.devices()
    return topologies.get_topology_desc(
        platform="tpu", topology_name=TOPOLOGIES[topology]
    ).devices


def _figures(compiled, memory_of):
    """Make the dict that `compile_for_tpu` returns.

    Args:
        compiled: callable without arguments that compiles and returns a
            program.
        memory_of: callable from a program to the memory statistics.
    """
    begun, cpu_begun = time.monotonic(), time.process_time()
    executable = compiled()
    seconds = time.monotonic() - begun
    cpu_seconds = time.process_time() - cpu_begun
    memory, cost = memory_of(executable), executable.cost_analysis()
    return {
        "compile_seconds": seconds,
        "compile_cpu_seconds": cpu_seconds,
        "code_bytes": memory.generated_code_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "flops": cost["flops"],
        "bytes_moved": cost["bytes accessed"],
    }


def least_seconds(report, topology):
    """Compute the minimum time of a step from the chip's highest rates.

    Args:
        report: dict, the result of `compile_for_tpu`.
        topology: str, see `compile_for_tpu`.

    Returns:
        dict of `operations_seconds`, `bytes_seconds` and `memory_share`, the
        share of the chip's memory that the step needs. A step takes at least
        the longer of the two times. The dict is empty for "cpu".
    """
    if topology not in CHIPS:
        return {}
    flops, bandwidth, memory = CHIPS[topology]
    parts = ("argument_bytes", "temporary_bytes", "code_bytes")
    return {
        "operations_seconds": report["flops"] / flops,
        "bytes_seconds": report["bytes_moved"] / bandwidth,
        "memory_share": sum(report[part] for part in parts) / memory,
    }


def dump_flags(dump):
    """Make the environment variables with which compilers dump programs.

    Args:
        dump: pathlib.Path of a directory. Programs as text are written to
            the folder `hlo` in this directory, and programs of a TPU's cores to
            the folder `llo`.

    Returns:
        dict of variables, to set before the compilers are loaded.
    """
    flags = f"--xla_dump_to={dump / 'hlo'} --xla_dump_hlo_as_text"
    return {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump / 'llo'} "
        "--xla_jf_dump_llo_text=true",
    }
