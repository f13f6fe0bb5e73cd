"""Backbone class of each config class, and a function to make a backbone."""

from xlnet_tf.config import BertConfig
from xlnet_tf.config import XLNetConfig
from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.model.bert.backbone import BertBackbone

# Config class -> backbone class.
BACKBONES = {
    XLNetConfig: XLNetBackbone,
    BertConfig: BertBackbone,
}


def make_backbone(config, **arguments):
    """Make the backbone that a config describes.

    Args:
        config: XLNetConfig or BertConfig.
        **arguments: arguments of the backbone's constructor, such as `seed` and
            `dtype`.

    Returns:
        XLNetBackbone or BertBackbone.

    Raises:
        TypeError: if `config` is neither an XLNetConfig nor a BertConfig.
    """
    if type(config) not in BACKBONES:
        known = " or ".join(cls.__name__ for cls in BACKBONES)
        raise TypeError(
            f"`config` must be a {known}. "
            f"Received: config={type(config).__name__}."
        )
    return BACKBONES[type(config)](config, **arguments)
