"""Download and upload of models of the Hugging Face Hub, `hf://OWNER/NAME`.

The package huggingface_hub downloads a model into its cache. Without a network,
a cached model can still be loaded.
"""

import functools
import pathlib
import re

from data_pipeline.base.limits import first_line

SCHEME = "hf://"
_FORM = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?")
# Do not download files for other frameworks.
_OF_OTHERS = [
    *("tf_model*", "rust_model*", "flax_model*"),
    *("*.onnx", "*.tflite", "*.ot", "*.msgpack"),
]
_PICKLED = "*.bin"


def fetched(path):
    """Download a model or a file of the hub and return its local path.

    Args:
        path: str, hf://OWNER/NAME or hf://OWNER/NAME@REVISION, or the path of a
            file or folder below such a model.

    Returns:
        pathlib.Path in the cache of huggingface_hub.

    Raises:
        ValueError: `path` has another form, or huggingface_hub is not
            installed.
        OSError: the model cannot be downloaded.
    """
    name, revision, rest = parts(path)
    return pathlib.Path(_directory(name, revision), rest or "")


def upload(source, path):
    """Upload a file or directory to a model of the hub, in one commit.

    Other files of the model stay. If the model does not exist on the hub, it is
    created as a public model. For a private model, create it on the hub's
    website first.

    Args:
        source: local pathlib.Path of the file or directory.
        path: str, see `fetched`. A revision in the path must be a branch.

    Raises:
        ValueError: `path` has another form than in `fetched`, huggingface_hub
            is not installed, or `source` is a file but `path` names a whole
            model.
        OSError: the upload fails.
    """
    name, revision, rest = parts(path)
    if not source.is_dir():
        check_names_file(path)
    client = _client(name, "upload a local directory by `hf upload`.").HfApi()
    try:
        client.create_repo(name, exist_ok=True)
        if source.is_dir():
            client.upload_folder(
                repo_id=name,
                folder_path=source,
                path_in_repo=rest,
                revision=revision,
            )
        else:
            client.upload_file(
                repo_id=name,
                path_or_fileobj=source,
                path_in_repo=rest,
                revision=revision,
            )
    except Exception as error:  # noqa: BLE001 as below
        raise OSError(
            f"nothing was uploaded to {path} ({_reason(error)}). Log in by "
            "`hf auth login` with a token that may write there, or write to a "
            f"local directory DIR, and `hf upload {name} DIR`."
        ) from None


def check_names_file(path):
    """Raise ValueError if `path` names a whole model instead of a file."""
    if not parts(path)[2]:
        raise ValueError(f"{path} is a model; give {path}/NAME for a file.")


def parts(path):
    """Split a hub path into model name, revision and path in the model.

    A missing revision or path in the model is None.

    Raises:
        ValueError: `path` has another form than in `fetched`.
    """
    match = _FORM.fullmatch(path.rstrip("/"))
    if not match or match[1].startswith("datasets/"):
        raise ValueError(
            "a model of the Hugging Face Hub is hf://OWNER/NAME or "
            f"hf://OWNER/NAME@REVISION. Received: {path}."
        )
    return match.groups()


def _client(name, otherwise):
    """Import huggingface_hub; raise ValueError if it is not installed."""
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(
            f"{SCHEME}{name} needs huggingface_hub: pip install "
            f"'huggingface_hub>=0.34', or {otherwise}"
        ) from None
    return huggingface_hub


@functools.cache
def _directory(name, revision):
    hub = _client(name, _by_hand(name, revision))
    try:
        # `model_info` sends one request. Without a network, `list_repo_files`
        # would retry for half a minute.
        info = hub.HfApi().model_info(name, revision=revision)
        # Download only one of two formats of the same weights.
        twice = any(
            x.rfilename.endswith(".safetensors") for x in info.siblings or ()
        )
        return hub.snapshot_download(
            name,
            revision=revision,
            ignore_patterns=[*_OF_OTHERS, *([_PICKLED] if twice else [])],
        )
    # The client raises errors of many classes, also of HTTP and of sockets.
    except Exception as error:  # noqa: BLE001
        directory = _cached(hub, name, revision)
        if directory is None:
            raise OSError(
                f"{SCHEME}{name} cannot be fetched ({_reason(error)}). Where "
                f"there is a network, {_by_hand(name, revision)}"
            ) from None
        return directory


def _cached(hub, name, revision):
    """Directory of a model in the cache, str; None if it is not cached."""
    for pickled in ([_PICKLED], []):
        try:
            directory = hub.snapshot_download(
                name,
                revision=revision,
                ignore_patterns=[*_OF_OTHERS, *pickled],
                local_files_only=True,
            )
        except Exception:  # noqa: BLE001 as above
            continue
        if not pickled or any(pathlib.Path(directory).glob("*.safetensors")):
            return directory
    return None


def _reason(error):
    return first_line(error).rstrip(".")


def _by_hand(name, revision):
    at = f" --revision {revision}" if revision else ""
    return f"`hf download {name}{at} --local-dir DIR`, and give DIR."
