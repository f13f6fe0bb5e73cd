"""Config classes of the models, and functions that read config files."""

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
    """Make a config from a dict; `model_type` in the dict selects the class.

    Args:
        values: dict, the contents of a config file. If a dict lacks
            `model_type`, the names of the sizes decide: Hugging Face's names
            for BERT mean a BERT, and all other names mean an XLNet.

    Returns:
        XLNetConfig or BertConfig.

    Raises:
        ValueError: if `values` is not the config of an XLNet or a BERT.
    """
    return (BertConfig if is_bert(values) else XLNetConfig).from_dict(values)


def config_from_json(path):
    """Read the config file of an XLNet or a BERT; see `config_from_dict`."""
    return read_config_file(path, config_from_dict)
