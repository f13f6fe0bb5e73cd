"""Configs of the models, by the type in a config file."""

from xlnet_tf.config.bert import BertConfig
from xlnet_tf.config.bert import is_bert
from xlnet_tf.config.fields import read_config_file
from xlnet_tf.config.xlnet import XLNetConfig

CONFIGS = (XLNetConfig, BertConfig)

__all__ = [
    "CONFIGS",
    "BertConfig",
    "XLNetConfig",
    "config_from_dict",
    "config_from_json",
]


def config_from_dict(values):
    """Make the config from a dict, by its `model_type`.

    Args:
        values: dict of a config file; without `model_type` an XLNet.

    Returns:
        XLNetConfig or BertConfig.

    Raises:
        ValueError: if the config is not one of these.
    """
    return (BertConfig if is_bert(values) else XLNetConfig).from_dict(values)


def config_from_json(path):
    """Read a config file of any model; see `config_from_dict`."""
    return read_config_file(path, config_from_dict)
