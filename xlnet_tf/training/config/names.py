"""Names that options take, checked before anything heavy is loaded."""

from data_pipeline.command_line import near
from xlnet_tf.config.fields import SIZES
from xlnet_tf.files import as_path

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def check_strategy(name):
    """Refuses the name of a distribution strategy that is unknown.

    Args:
        name: str.

    Raises:
        ValueError: it is none of `STRATEGIES`.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: "
            f"strategy={name!r}{near(name, STRATEGIES) or '.'}"
        )


def check_config(name):
    """Refuses a `--config` that is neither a size nor a JSON file by its name.

    Args:
        name: str.

    Raises:
        ValueError: it is another.
    """
    if name in SIZES or as_path(name).suffix == ".json":
        return
    hint = near(name, SIZES)
    if as_path(name).is_dir():
        hint = f"; to start from the weights of a preset give --preset {name}."
    raise ValueError(
        f"--config is one of {', '.join(SIZES)}, or a JSON file. Received: "
        f"--config {name[:200]}{hint or '.'}"
    )
