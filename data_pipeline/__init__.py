"""Text -> TFRecord -> tf.data; knows nothing of the model.

`data_pipeline.Tokenizer` is imported on first use, so that the command lines
answer `--help` without loading SentencePiece or TensorFlow.
"""

import os
import sys

if sys.argv and (
    sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("xlnet-")
):
    # One of our commands is starting: see xlnet_tf/cpp_log.py.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__all__ = ["Tokenizer"]


def __getattr__(name):
    if name == "Tokenizer":
        from data_pipeline.tokenizer import Tokenizer

        return Tokenizer
    raise AttributeError(f"module 'data_pipeline' has no attribute {name!r}")
