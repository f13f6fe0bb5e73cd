"""The backbone that belongs to a config."""

from xlnet_tf.config import BertConfig
from xlnet_tf.config import XLNetConfig
from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.model.bert.backbone import BertBackbone

# Class of a config -> class of the backbone.
BACKBONES = {
    XLNetConfig: XLNetBackbone,
    BertConfig: BertBackbone,
}


def make_backbone(config, **arguments):
    """Make the backbone of a config.

    Args:
        config: XLNetConfig or BertConfig.
        **arguments: of the backbone's class, such as `seed` and `dtype`.

    Returns:
        XLNetBackbone or BertBackbone.

    Raises:
        TypeError: if it is no such config.
    """
    if type(config) not in BACKBONES:
        known = " or ".join(cls.__name__ for cls in BACKBONES)
        raise TypeError(
            f"`config` must be a {known}. "
            f"Received: config={type(config).__name__}."
        )
    return BACKBONES[type(config)](config, **arguments)
