"""Command that compiles the training step for a TPU, without a TPU.

    python benchmarks/tpu_step.py --config base --batch-size 8
    python benchmarks/tpu_step.py --attention-kernel fused memory_efficient \
        --extrapolate --kernel-cycles
    python benchmarks/tpu_step.py --task classification --num-layers 2

TensorFlow lowers the pretraining step to StableHLO. With `--task`, JAX lowers a
fine-tuning step instead. The TPU compiler in the PyPI package `libtpu` compiles
the step, through JAX's compile-only client. The compiler refuses a step that a
TPU cannot run or that exceeds the memory of the TPU. The command reports
memory, operations, estimated cycles, and two counts of the bytes moved: the
compiler's count, and the bytes to and from HBM. The step is lowered on a CPU;
lowering on a real TPU may give better figures. `--topology cpu` compiles for
this machine instead of a TPU. For several kernels the command prints a table.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from benchmarks.tpu import compiler
from benchmarks.tpu import program

# Rows of the table: (key in the report, description, divisor for the unit).
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


def cycles(dump, config, arguments):
    """Count memory traffic and cycles of a compiled step with `tpu.program`.

    Args:
        dump: pathlib.Path, see `compiler.dump_flags`.
        config: XLNetConfig or BertConfig.
        arguments: options of the command.

    Returns:
        dict of `hbm_bytes` and `operation_cycles`; {} for the topology "cpu".
        With `--kernel-cycles`, a step with Pallas kernels also has
        `kernel_cycles` and `kernel_cycles_as_released`. In the second count,
        the first half of a record does not attend to the second half.
    """
    if arguments.topology == "cpu":
        return {}
    # Read the program from the dump. JAX cannot return the text of an
    # executable from a newer compiler, as on v6e ("async-update instruction
    # should have 1 operands").
    (file,) = (dump / "hlo").glob("*.after_codegen.txt")
    found = program.traffic(file.read_text(encoding="utf-8"))
    kernels = found.pop("kernels")
    if kernels and arguments.kernel_cycles:
        width = config.num_heads * config.head_dim
        trips = [
            arguments.batch_size * width // 128,
            arguments.sequence_length // 128,
        ]
        for name, share in (("", 0.0), ("_as_released", 0.5)):
            found[f"kernel_cycles{name}"] = program.kernel_cycles(
                dump / "llo", kernels, trips, share
            )
    return found


def model_config(arguments):
    """Make an XLNetConfig or a BertConfig from the options."""
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


def settings_of(arguments, **others):
    """Make the settings of the run whose step is compiled."""
    from xlnet_tf.training.settings import FinetuningSettings
    from xlnet_tf.training.settings import PretrainingSettings

    for name in ("batch_size", "precision", "rematerialize"):
        others[name] = getattr(arguments, name)
    if arguments.task:
        settings = FinetuningSettings(learning_rate=1e-5, **others)
        return settings.resolve(steps_per_epoch=100)
    return PretrainingSettings(objective=arguments.objective, **others)


def batch_of(arguments, vocabulary_size):
    """Make the batch of one replica, a dict of arrays."""
    import numpy as np

    from benchmarks.workload import batches

    if arguments.task:
        return batches.task_batch(
            arguments.task,
            {"vocabulary_size": vocabulary_size},
            arguments.batch_size,
            arguments.sequence_length,
        )
    features = batches.objective_batch(
        arguments.objective,
        {"vocabulary_size": vocabulary_size},
        arguments.batch_size,
        arguments.sequence_length,
        arguments.num_predict,
    )
    continues = np.ones(arguments.batch_size, bool)
    return {**features, "is_continuation": continues}


def report_of(config, training, arguments, dump):
    """Compile one step and report its figures; `dump` is emptied first."""
    for name in ("hlo", "llo"):
        shutil.rmtree(dump / name, ignore_errors=True)
        (dump / name).mkdir()
    batch = batch_of(arguments, config.vocabulary_size)
    if arguments.task:
        compiled = compiler.compile_task_step(
            arguments.task, config, training, batch, arguments.topology
        )
        return compiled | cycles(dump, config, arguments)
    begun = time.process_time()
    text = compiler.lower_training_step(config, training, batch)
    lower_cpu_seconds = time.process_time() - begun
    compiled = compiler.compile_for_tpu(text, arguments.topology)
    compiled |= cycles(dump, config, arguments)
    return {
        "lower_cpu_seconds": lower_cpu_seconds,
        "text_lines": text.count("\n"),
        **compiled,
    }


def of_all_layers(two, three, num_layers):
    """Extrapolate the reports of 2 and of 3 layers to `num_layers` layers.

    Compile times are not extrapolated: the result has the compile times of 3
    layers.
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
    """Make a table in Markdown: a row per quantity, a column per kernel.

    Args:
        reports: list of dict, one report for each kernel.
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
    """Run the command; see the module docstring."""
    arguments, parser = _options(argv)
    if arguments.task:
        arguments.memory_length = arguments.reuse_length = 0
        os.environ["KERAS_BACKEND"] = "jax"
    from xlnet_tf.model.kernels import check_kernel

    reports = []
    with tempfile.TemporaryDirectory() as folder:
        dump = pathlib.Path(folder)
        flags = compiler.dump_flags(dump)
        if not arguments.kernel_cycles:
            del flags["LIBTPU_INIT_ARGS"]
        os.environ.update(flags)  # compilers read them only when loaded
        for kernel in arguments.attention_kernel:
            try:  # check all kernels before a compilation of minutes
                check_kernel(kernel)
            except ValueError as error:
                parser.error(str(error))
        for kernel in arguments.attention_kernel:
            try:
                found = _report_of_kernel(kernel, arguments, dump)
            except ValueError as error:
                parser.error(str(error))
            except RuntimeError as error:  # the compiler's error
                if len(arguments.attention_kernel) == 1:
                    raise
                found = {"attention_kernel": kernel, "reason": str(error)}
            reports.append(found)
            print(json.dumps(found), flush=True)
    if len(reports) > 1:
        print("\n".join(table(reports)))
    return 0


def _options(argv):
    """Parse the options; return the options and the parser."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--config", default="base")
    add("--objective", default="permutation")
    add(
        "--task",
        choices=("classification", "question_answering"),
        help="a fine-tuning step on Keras' JAX backend; without memory",
    )
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
        help="compile two and three layers, and extrapolate to all layers",
    )
    add("--attention-kernel", nargs="+", default=["auto"], metavar="NAME")
    add(
        "--kernel-cycles",
        action="store_true",
        help="count the cycles of Pallas kernels; takes longer",
    )
    add("--rematerialize", action="store_true")
    add(
        "--topology",
        default="v5e",
        choices=["cpu", *sorted(compiler.TOPOLOGIES)],
    )
    return parser.parse_args(argv), parser


def _report_of_kernel(kernel, arguments, dump):
    """Make the report, a dict, for the step with one attention kernel."""
    training = settings_of(arguments, attention_kernel=kernel)
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
    trained = "task" if arguments.task else "objective"
    names = ("config", trained, "batch_size", "topology")
    report = {name: getattr(arguments, name) for name in names} | found
    report["attention_kernel"] = kernel
    return report | compiler.least_seconds(found, arguments.topology)


if __name__ == "__main__":
    sys.exit(main())
