"""Data pipeline, without models: text, tokenizers, records, tasks, tf.data.

`data_pipeline.base` has the modules that data_pipeline, xlnet_tf and
saved_models share.

The names in `__init__.pyi` are imported on first use. So the option `--help` of
a command loads neither SentencePiece nor TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
