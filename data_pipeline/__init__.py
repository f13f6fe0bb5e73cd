"""Text -> TFRecord -> tf.data; knows nothing of the model.

`data_pipeline.Tokenizer` is imported on first use, so that the command lines
answer `--help` without loading SentencePiece or TensorFlow.
"""

from data_pipeline import cpp_log

if cpp_log.is_command():
    cpp_log.set_level()

__all__ = ["Tokenizer"]


def __getattr__(name):
    if name == "Tokenizer":
        from data_pipeline.tokenization.tokenizer import Tokenizer

        return Tokenizer
    raise AttributeError(f"module 'data_pipeline' has no attribute {name!r}")
