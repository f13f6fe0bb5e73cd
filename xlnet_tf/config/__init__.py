"""Configs of the models, by the type that a config file names."""

from data_pipeline.base.settings import python_number
from xlnet_tf.config.bert import MODEL_TYPES
from xlnet_tf.config.bert import BertConfig
from xlnet_tf.config.bert import is_of_hugging_face
from xlnet_tf.config.fields import read_config_file
from xlnet_tf.config.xlnet import XLNetConfig

CONFIGS = (XLNetConfig, BertConfig)

__all__ = [
    "CONFIGS",
    "BertConfig",
    "XLNetConfig",
    "config_from_dict",
    "config_from_json",
    "is_bert",
    "python_number",
]


def is_bert(values):
    """Whether the dict of a config file describes a BERT.

    Args:
        values: dict. `model_type` decides; without it, as in the first files
            of BERT, the names of the sizes do.
    """
    model_type = values.get("model_type")
    if model_type is None:
        return is_of_hugging_face(values)
    return model_type in MODEL_TYPES


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
