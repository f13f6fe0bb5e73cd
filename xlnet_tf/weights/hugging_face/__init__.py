"""Directories in Hugging Face's format: readers of XLNet, BERT and MPNet."""

from data_pipeline.base.files import read_json_object
from xlnet_tf.config.bert import is_bert
from xlnet_tf.weights.hugging_face.bert import BertSource
from xlnet_tf.weights.hugging_face.mpnet import MPNetSource
from xlnet_tf.weights.hugging_face.source import CONFIG_FILE
from xlnet_tf.weights.hugging_face.xlnet import XLNetSource


def open_directory(path):
    """Open a directory written by `save_pretrained`.

    Args:
        path: path of the directory.

    Returns:
        HuggingFaceSource.
    """
    values = read_json_object(path / CONFIG_FILE)
    if values.get("model_type") == "mpnet":
        return MPNetSource(path)
    return (BertSource if is_bert(values) else XLNetSource)(path)
