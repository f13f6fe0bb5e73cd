"""Configs of the models, by the type that a config file names."""

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
    """The config of a dict, of the class that its `model_type` names.

    Args:
        values: dict of a config file; without `model_type` that of an XLNet.

    Returns:
        XLNetConfig or BertConfig.

    Raises:
        ValueError: if the config is not one of these.
    """
    return (BertConfig if is_bert(values) else XLNetConfig).from_dict(values)


def config_from_json(path):
    """Read a config file of any model; see `config_from_dict`."""
    return read_config_file(path, config_from_dict)
