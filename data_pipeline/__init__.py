"""Text -> TFRecord -> tf.data, without the model.

`data_pipeline.base` is the ground floor of all three packages.

The names in `__init__.pyi` are imported on first use, so that `--help` of the
commands loads neither SentencePiece nor TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
