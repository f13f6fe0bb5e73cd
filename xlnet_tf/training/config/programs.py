"""The directory of programs that XLA has compiled."""

import os


def keep_programs(directory):
    """Let TensorFlow keep what XLA compiles, for the next start.

    Call it before TensorFlow is imported.

    Args:
        directory: path, or None or "" to keep nothing.
    """
    if not directory:
        return
    path = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    flag = f'--tf_xla_persistent_cache_directory="{path}"'
    others = os.environ.get("TF_XLA_FLAGS", "")
    os.environ["TF_XLA_FLAGS"] = f"{others} {flag}".strip()
