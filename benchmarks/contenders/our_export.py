"""Contenders that run our SavedModel, or the Keras model that was exported.

All contenders read the same texts of about `num_tokens` tokens, as raw text or
as token ids. The SavedModel's tokenizer makes the token ids.
"""

import pathlib
import tempfile

import tensorflow as tf

import saved_models
from benchmarks.workload.texts import read_lines
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.export import export_model
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextClassifierPreprocessor

FRAMEWORK = "tensorflow"


def text_in(files, model, batch_size, num_tokens):
    """Set up the SavedModel to embed raw texts."""
    _, export, texts, _ = _exported(files, model, batch_size, num_tokens)
    embed = export.signatures["embed"]
    return lambda: embed(text=texts)["embeddings"].numpy()


def ids_in(files, model, batch_size, num_tokens):
    """Set up the SavedModel to embed token ids."""
    _, export, _, features = _exported(files, model, batch_size, num_tokens)
    embed = export.signatures["embed_ids"]
    return lambda: embed(**features)["embeddings"].numpy()


def bare_forward(files, model, batch_size, num_tokens):
    """Set up the Keras model to embed token ids."""
    pretrainer, _, _, features = _exported(files, model, batch_size, num_tokens)

    @tf.function
    def forward(features):
        return pretrainer.backbone(features, training=False)["content"]

    return lambda: forward(features).numpy()


def answers(files, model, batch_size, num_tokens, **settings):
    """Set up the SavedModel of a classifier to classify raw texts.

    Returns:
        callable. Its attribute `facts` has the largest difference between the
        SavedModel's and the Keras model's probabilities.
    """
    tokenizer = Tokenizer(files["tokenizer"])
    sizes = {**model, "vocabulary_size": tokenizer.vocabulary_size}
    classifier = XLNetTextClassifier(
        XLNetBackbone(XLNetConfig(**sizes), seed=0), num_classes=2
    )
    classifier.preprocessor = XLNetTextClassifierPreprocessor(
        tokenizer, sequence_length=num_tokens
    )
    with tempfile.TemporaryDirectory(dir=files["directory"]) as directory:
        path = pathlib.Path(directory) / "1"
        export_model(classifier, tokenizer, path, **settings)
        export = saved_models.load(path)
    texts = _texts(files, tokenizer, batch_size, num_tokens)
    logits = classifier(classifier.preprocessor(texts))
    difference = export(texts)["scores"] - tf.nn.softmax(logits)

    def run():
        return export(texts)

    run.facts = {"largest_difference": float(abs(difference.numpy()).max())}
    return run


def _exported(files, model, batch_size, num_tokens):
    """Make a pretrainer, its SavedModel, texts and the texts' features."""
    tokenizer = Tokenizer(files["tokenizer"])
    sizes = {**model, "vocabulary_size": tokenizer.vocabulary_size}
    pretrainer = XLNetPretrainer(XLNetBackbone(XLNetConfig(**sizes)))
    with tempfile.TemporaryDirectory(dir=files["directory"]) as directory:
        path = pathlib.Path(directory) / "1"
        export_model(pretrainer, tokenizer, path, sequence_length=num_tokens)
        export = tf.saved_model.load(str(path))
    texts = tf.constant(_texts(files, tokenizer, batch_size, num_tokens))
    outputs = export.signatures["embed"](text=texts)
    token_ids = outputs["token_ids"]
    features = {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": outputs["padding_mask"],
    }
    return pretrainer, export, texts, features


def _texts(files, tokenizer, count, num_tokens):
    """Make `count` texts of about `num_tokens` tokens each."""
    ids = tokenizer.encode(" ".join(read_lines(files["text"])))
    return [
        tokenizer.decode(ids[row * num_tokens : (row + 1) * num_tokens])
        for row in range(count)
    ]
