"""Default learning rates for fine-tuning."""

RATE = 2e-5  # the paper's learning rate for Base and Large
# Models of this width or less hardly learn at `RATE`; see docs/finetuning.md.
SMALL_WIDTH = 256
RATE_OF_SMALL = 5e-4


def is_small(width):
    """Whether a model is so narrow that the paper's learning rate is too small.

    Args:
        width: int, `hidden_dim` of the model's config.
    """
    return width <= SMALL_WIDTH


def default_rate(width, usual=RATE):
    """Return the default learning rate for fine-tuning a model, float.

    Args:
        width: int, `hidden_dim` of the model's config.
        usual: float, learning rate for wider models. Default 2e-5.
    """
    return RATE_OF_SMALL if is_small(width) else usual
