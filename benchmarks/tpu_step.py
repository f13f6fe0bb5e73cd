"""Compiles the training step with the TPU compiler, without a TPU.

    python benchmarks/tpu_step.py --config base --batch-size 8
    python benchmarks/tpu_step.py --attention-kernel fused memory_efficient \
        --extrapolate --kernel-cycles

The step is lowered by TensorFlow to StableHLO and compiled by the TPU compiler
of the PyPI package `libtpu`, through JAX's compile-only client. It refuses what
a TPU cannot run or hold, and reports memory, operations, estimated cycles, and
bytes moved: by the compiler's count, and to HBM alone. The text is lowered on
a CPU; what TensorFlow hands to a real TPU may be better. `--topology cpu`
compiles for this machine instead. Of several kernels it prints a table.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
# Chip: bfloat16 operations per second, bytes per second to and from memory,
# and bytes of memory. Source: https://cloud.google.com/tpu/docs.
CHIPS = {
    "v5e": (197e12, 819e9, 16e9),
    "v5p": (459e12, 2765e9, 95e9),
    "v6e": (918e12, 1640e9, 32e9),
}
# Rows of the table: key of a report, its description, and its unit.
QUANTITIES = (
    ("bytes_moved", "bytes, by the compiler's count, GB", 1e9),
    ("hbm_bytes", "bytes to and from HBM, GB", 1e9),
    ("operation_cycles", "cycles of operations, million", 1e6),
    ("kernel_cycles", "cycles of the kernels, million", 1e6),
    ("kernel_cycles_as_released", "the same, records as released", 1e6),
    ("temporary_bytes", "temporary memory, GB", 1e9),
    ("code_bytes", "code, GB", 1e9),
    ("compile_cpu_seconds", "compiling, processor time, s", 1),
)


def lower_training_step(config, training, features):
    """The StableHLO of the step that `xlnet_tf.train` makes on each replica.

    Args:
        config: XLNetConfig or BertConfig.
        training: TrainingConfig.
        features: dict of arrays, a batch of one replica.

    Returns:
        str.
    """
    import orbit
    import tensorflow as tf

    from xlnet_tf.model.kernels import fused
    from xlnet_tf.training import pretraining_step

    fused.COMPILE_FOR = "tpu"
    strategy = tf.distribute.get_strategy()
    model, optimizer, memory = pretraining_step.build(
        config, training, strategy
    )
    trainer = pretraining_step.PretrainingTrainer(
        model,
        optimizer,
        memory,
        None,
        training,
        strategy,
        orbit.utils.create_global_step(),
    )
    features = {name: tf.constant(x) for name, x in features.items()}
    step = tf.function(trainer._replica_step, jit_compile=True)
    return step.experimental_get_compiler_ir(features)(stage="stablehlo")


def of_newer_mlir(text):
    """StableHLO of TensorFlow 2.20 as the MLIR of JAX reads it."""
    # mhlo.copy, an identity, is left in the text.
    text = re.sub(
        r"(%\d+) = mhlo\.copy (%\w+) : (tensor<[^>]*>)",
        r"\1 = stablehlo.reshape \2 : (\3) -> \3",
        text,
    )

    def a_byte_each(found):
        """Truth values, of which eight were in a byte."""
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
    """Compile StableHLO for one core.

    Args:
        text: str.
        topology: key of TOPOLOGIES, or "cpu" for this machine.

    Returns:
        dict of floats: `compile_seconds` of the clock, `compile_cpu_seconds`
        of all threads, `code_bytes`, `argument_bytes`, `temporary_bytes`,
        `flops`, `bytes_moved`.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    # Only one process may run on a TPU, but nothing runs on one here.
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    text = of_newer_mlir(text)
    if topology == "cpu":
        devices = jax.devices()
    else:
        devices = topologies.get_topology_desc(
            platform="tpu", topology_name=TOPOLOGIES[topology]
        ).devices
    begun, cpu_begun = time.monotonic(), time.process_time()
    with mlir.make_ir_context():
        executable = compiler.backend_compile_and_load(
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
    seconds = time.monotonic() - begun
    cpu_seconds = time.process_time() - cpu_begun
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
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
    """Time that operations and bytes need at the chip's own rates.

    Args:
        report: dict of `compile_for_tpu`.
        topology: str, as there.

    Returns:
        dict of floats: `operations_seconds` and `bytes_seconds`, of which the
        longer one is the least that a step can take, and `memory_share` of
        what the step needs in the chip's memory; empty for "cpu".
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
    """Environment variables that make compilers write to a directory.

    Args:
        dump: pathlib.Path, made; programs as text go to its folder `hlo`,
            those of a TPU's cores to `llo`.

    Returns:
        dict, to be set before the compilers are loaded.
    """
    flags = f"--xla_dump_to={dump / 'hlo'} --xla_dump_hlo_as_text"
    return {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump / 'llo'} "
        "--xla_jf_dump_llo_text=true",
    }


def cycles(dump, config, arguments):
    """Traffic and cycles that `tpu_program` finds in a compiled step.

    Args:
        dump: pathlib.Path, of `dump_flags`.
        config: XLNetConfig or BertConfig.
        arguments: options.

    Returns:
        dict: `hbm_bytes`, `operation_cycles`; of Pallas kernels, if there are
        any and it was asked for, `kernel_cycles`, and
        `kernel_cycles_as_released` if the first half of a record sees nothing
        of the second.
    """
    from benchmarks import tpu_program

    if arguments.topology == "cpu":
        return {}
    # The text that an executable gives is refused where its compiler is newer
    # than JAX, as on v6e ("async-update instruction should have 1 operands").
    (program,) = (dump / "hlo").glob("*.after_codegen.txt")
    found = tpu_program.traffic(program.read_text(encoding="utf-8"))
    kernels = found.pop("kernels")
    if kernels and arguments.kernel_cycles:
        width = config.num_heads * config.head_dim
        trips = [
            arguments.batch_size * width // 128,
            arguments.sequence_length // 128,
        ]
        for name, share in (("", 0.0), ("_as_released", 0.5)):
            found[f"kernel_cycles{name}"] = tpu_program.kernel_cycles(
                dump / "llo", kernels, trips, share
            )
    return found


def model_config(arguments):
    """XLNetConfig or BertConfig of the options."""
    import xlnet_tf
    from xlnet_tf.objectives import OBJECTIVES

    if arguments.backbone == "bert":
        is_pseudo = arguments.objective == "pseudo_masked"
        config = xlnet_tf.BertConfig.from_size(
            arguments.config,
            max_positions=arguments.sequence_length,
            relative_position_buckets=32 if is_pseudo else 0,
        )
    else:
        config = xlnet_tf.XLNetConfig.from_size(
            arguments.config,
            memory_length=arguments.memory_length,
            reuse_length=arguments.reuse_length,
            **OBJECTIVES[arguments.objective].config_values,
        )
    if arguments.num_layers is not None:
        config = config.replace(num_layers=arguments.num_layers)
    return config


def batch_of(arguments, vocabulary_size):
    """dict of arrays, the batch of a replica."""
    import numpy as np

    from benchmarks import workload

    features = workload.objective_batch(
        arguments.objective,
        {"vocabulary_size": vocabulary_size},
        arguments.batch_size,
        arguments.sequence_length,
        arguments.num_predict,
    )
    continues = np.ones(arguments.batch_size, bool)
    return {**features, "is_continuation": continues}


def report_of(config, training, arguments, dump):
    """The report of one program; `dump` is emptied first."""
    for name in ("hlo", "llo"):
        shutil.rmtree(dump / name, ignore_errors=True)
        (dump / name).mkdir()
    begun = time.process_time()
    text = lower_training_step(
        config, training, batch_of(arguments, config.vocabulary_size)
    )
    lower_cpu_seconds = time.process_time() - begun
    compiled = compile_for_tpu(text, arguments.topology)
    compiled |= cycles(dump, config, arguments)
    return {
        "lower_cpu_seconds": lower_cpu_seconds,
        "text_lines": text.count("\n"),
        **compiled,
    }


def of_all_layers(two, three, num_layers):
    """Extrapolate the report of two and of three layers to many layers.

    Compile times stay those of three layers.
    """
    grows = (
        *("code_bytes", "argument_bytes", "temporary_bytes", "flops"),
        *("bytes_moved", "hbm_bytes", "operation_cycles"),
        *("kernel_cycles", "kernel_cycles_as_released"),
    )
    return three | {
        name: two[name] + (num_layers - 2) * (three[name] - two[name])
        for name in grows
        if name in three
    }


def table(reports):
    """Lines of Markdown: a row for each quantity, a column for each kernel.

    Args:
        reports: list of dict, those that are printed.
    """
    kernels = [report["attention_kernel"] for report in reports]
    lines = [
        f"| {' | '.join(['', *kernels])} |",
        f"| --- |{' ---: |' * len(kernels)}",
    ]
    for name, what, unit in QUANTITIES:
        cells = [
            f"{report[name] / unit:.4g}" if name in report else ""
            for report in reports
        ]
        if any(cells):
            lines.append(f"| {' | '.join([what, *cells])} |")
    return lines


def main(argv=None):
    """Print reports; an error in the options is one line."""
    arguments, parser = _options(argv)
    from xlnet_tf.model.kernels import check_kernel

    reports = []
    with tempfile.TemporaryDirectory() as folder:
        dump = pathlib.Path(folder)
        flags = dump_flags(dump)
        if not arguments.kernel_cycles:
            del flags["LIBTPU_INIT_ARGS"]
        os.environ.update(flags)  # read once, when a compiler is loaded
        for kernel in arguments.attention_kernel:
            try:  # All, before the first is compiled for minutes.
                check_kernel(kernel)
            except ValueError as error:
                parser.error(str(error))
        for kernel in arguments.attention_kernel:
            try:
                found = _report_of_kernel(kernel, arguments, dump)
            except ValueError as error:
                parser.error(str(error))
            except RuntimeError as error:  # of the compiler
                if len(arguments.attention_kernel) == 1:
                    raise
                found = {"attention_kernel": kernel, "reason": str(error)}
            reports.append(found)
            print(json.dumps(found), flush=True)
    if len(reports) > 1:
        print("\n".join(table(reports)))
    return 0


def _options(argv):
    """Options, and their parser."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--config", default="base")
    add("--objective", default="permutation")
    add("--backbone", default="xlnet", choices=["xlnet", "bert"])
    add("--batch-size", type=int, default=8)
    add("--sequence-length", type=int, default=512)
    add("--memory-length", type=int, default=384)
    add("--reuse-length", type=int, default=256)
    add("--num-predict", type=int, default=85)
    add("--precision", default="bfloat16")
    add("--num-layers", type=int, help="default: the config's")
    add(
        "--extrapolate",
        action="store_true",
        help="compile two and three layers, and count all by them",
    )
    add("--attention-kernel", nargs="+", default=["auto"], metavar="NAME")
    add(
        "--kernel-cycles",
        action="store_true",
        help="count the cycles of Pallas kernels: compiles for longer",
    )
    add("--rematerialize", action="store_true")
    add("--scan-layers", action="store_true")
    add("--topology", default="v5e", choices=["cpu", *sorted(TOPOLOGIES)])
    return parser.parse_args(argv), parser


def _report_of_kernel(kernel, arguments, dump):
    """dict, what is printed of the step with an attention kernel."""
    from xlnet_tf.training.config import TrainingConfig

    training = TrainingConfig(
        objective=arguments.objective,
        batch_size=arguments.batch_size,
        precision=arguments.precision,
        rematerialize=arguments.rematerialize,
        scan_layers=arguments.scan_layers,
        attention_kernel=kernel,
    )
    config = model_config(arguments)
    if arguments.extrapolate:
        found = of_all_layers(
            *(
                report_of(
                    config.replace(num_layers=layers),
                    *(training, arguments, dump),
                )
                for layers in (2, 3)
            ),
            config.num_layers,
        )
    else:
        found = report_of(config, training, arguments, dump)
    names = ("config", "objective", "batch_size", "topology")
    report = {name: getattr(arguments, name) for name in names} | found
    report["attention_kernel"] = kernel
    if not arguments.scan_layers:  # only one turn of a loop is counted
        report |= least_seconds(found, arguments.topology)
    return report


if __name__ == "__main__":
    sys.exit(main())
