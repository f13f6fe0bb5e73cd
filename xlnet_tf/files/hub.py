"""Models of the Hugging Face Hub: `hf://OWNER/NAME`.

They are fetched by huggingface_hub into its cache, where it has them already
the next time, without a network too.
"""

import functools
import pathlib
import re

SCHEME = "hf://"
_FORM = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?")
# What other frameworks read.
_OF_OTHERS = [
    *("tf_model*", "rust_model*", "flax_model*"),
    *("*.onnx", "*.tflite", "*.ot", "*.msgpack"),
]
_PICKLED = "*.bin"


def fetched(path):
    """The local path of a model of the hub, or of a file of one.

    Args:
        path: str, hf://OWNER/NAME, hf://OWNER/NAME@REVISION, or a file or
            folder behind one of these.

    Returns:
        pathlib.Path in the cache of huggingface_hub.

    Raises:
        ValueError: if it is of another form, or huggingface_hub is missing.
        OSError: if it cannot be fetched.
    """
    found = _FORM.fullmatch(path.rstrip("/"))
    if not found or found[1].startswith("datasets/"):
        raise ValueError(
            "a model of the Hugging Face Hub is hf://OWNER/NAME or "
            f"hf://OWNER/NAME@REVISION. Received: {path}."
        )
    name, revision, rest = found.groups()
    return pathlib.Path(_directory(name, revision), rest or "")


@functools.cache
def _directory(name, revision):
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ValueError(
            f"{SCHEME}{name} needs huggingface_hub: pip install "
            f"'xlnet_tf[hub]', or {_by_hand(name, revision)}"
        ) from None
    try:
        names = hub.HfApi().list_repo_files(name, revision=revision)
        # Not the same weights twice.
        twice = any(x.endswith(".safetensors") for x in names)
        return hub.snapshot_download(
            name,
            revision=revision,
            ignore_patterns=[*_OF_OTHERS, *([_PICKLED] if twice else [])],
        )
    # Of the client, of HTTP, of sockets: whatever keeps the files away.
    except Exception as error:  # noqa: BLE001
        directory = _cached(hub, name, revision)
        if directory is None:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise OSError(
                f"{SCHEME}{name} cannot be fetched ({reason}). Where there is "
                f"a network, {_by_hand(name, revision)}"
            ) from None
        return directory


def _cached(hub, name, revision):
    """The directory of a model that was fetched before, str or None."""
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


def _by_hand(name, revision):
    at = f" --revision {revision}" if revision else ""
    return f"`hf download {name}{at} --local-dir DIR`, and give DIR."
