"""Loader of SavedModels and OpenVINO exports into this process."""

import os

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import local_copy
from saved_models.client.local import Predictor
from saved_models.client.local import load_saved_model
from saved_models.versions import NETWORK_FILE
from saved_models.versions import check_format
from saved_models.versions import latest_version


def load(
    directory: str | os.PathLike, verify: bool = True, trust: bool = False
) -> Predictor:
    """Load an export into this process.

    Args:
        directory: str or path, NAME/VERSION, or NAME for the largest version of
            the export. The path is local, gs:// or any other URL that fsspec
            supports.
        verify: bool, whether to compare the files with the export's
            `SHA256SUMS`. Default True.
        trust: bool, whether to allow all operations in a SavedModel. A
            SavedModel is a program, and its operations may read and write
            files. Default False: allow only the operations in this package's
            exports. OpenVINO's networks cannot access files.

    Returns:
        Predictor.

    Raises:
        FileNotFoundError: if the directory has no export.
        ValueError: if the export is damaged, is in another version of the
            export format, has operations that are not allowed, or cannot be
            loaded.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 26)
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig(26, 1, 2, 8, 8))
    saved_models.export_model(backbone, tokenizer, "tiny/1", memory_length=0)
    embedding = saved_models.load("tiny")(["who sat"])["mean_embedding"]
    ```
    """
    path = latest_version(directory)
    if verify:
        verify_checksums(path)
    check_format(path)
    if not (path / NETWORK_FILE).is_file():
        return load_saved_model(path, trust)
    from saved_models.openvino import load_network

    with local_copy(path) as local:  # OpenVINO cannot read buckets
        return load_network(local)
