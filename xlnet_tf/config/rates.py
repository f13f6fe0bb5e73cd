"""Default learning rates for fine-tuning."""

RATE = 2e-5  # of the paper, for Base and Large
# Models up to this width hardly learn at that rate; see docs/finetuning.md.
SMALL_WIDTH = 256
RATE_OF_SMALL = 5e-4


def is_small(width):
    """Whether a model needs a larger learning rate than the paper's.

    Args:
        width: int, the `hidden_dim` of its config.
    """
    return width <= SMALL_WIDTH


def default_rate(width, usual=RATE):
    """Default learning rate for fine-tuning a model, float.

    Args:
        width: int, the `hidden_dim` of its config.
        usual: float, the rate for models of Base's size. Default 2e-5.
    """
    return RATE_OF_SMALL if is_small(width) else usual
