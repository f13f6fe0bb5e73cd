"""Time and memory of converting an XLNet-Large with random weights.

    python benchmarks/convert_large.py [--config large] [--work DIR]

Every conversion runs in a process of its own, as the command does. Printed
beside the size of the weights: wall time, and the largest resident memory
above that of a process that has only imported TensorFlow and Keras.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUTES = (("tf1", "keras"), ("keras", "hf"), ("hf", "keras"), ("hf", "tf1"))


def measure(code, *arguments):
    """Runs Python code in a child; gives (seconds, peak GB of memory)."""
    started = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", code + _REPORT, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if child.returncode:
        sys.exit(child.stderr[-2000:])
    peak = json.loads(child.stdout.splitlines()[-1])
    return seconds, peak * 1024 / 1e9


_REPORT = f"""
import {resource.__name__}
print("\\n" + str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""
_IMPORT = "import sys, tensorflow, xlnet_tf"
_MAKE = """
import sys
import xlnet_tf
from xlnet_tf.weights.released import save_tf1
config = xlnet_tf.XLNetConfig.from_size(sys.argv[1])
save_tf1(xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config)), sys.argv[2])
"""
_CONVERT = """
import sys
from xlnet_tf import convert
convert.main(["--from", sys.argv[1], "--to", sys.argv[2],
              "--format", sys.argv[3]])
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="large")
    parser.add_argument("--work", help="directory for the files")
    arguments = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(dir=arguments.work))
    try:
        _, idle = measure(_IMPORT)
        measure(_MAKE, arguments.config, work / "tf1")
        weights = sum(f.stat().st_size for f in (work / "tf1").iterdir()) / 1e9
        print(f"XLNet-{arguments.config}, {weights:.2f} GB of weights\n")
        print("| from | to | seconds | memory, GB | of the weights |")
        print("| --- | --- | --- | --- | --- |")
        for source, target in ROUTES:
            output = work / "new"
            seconds, peak = measure(_CONVERT, work / source, output, target)
            print(
                f"| {source} | {target} | {seconds:.0f} | {peak - idle:.2f} "
                f"| {(peak - idle) / weights:.2f} x |",
                flush=True,
            )
            if (work / target).exists():
                shutil.rmtree(output)
            else:
                output.rename(work / target)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
