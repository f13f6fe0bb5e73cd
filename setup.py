"""Metadata of the distribution; settings of tools are in pyproject.toml."""

import pathlib
import re

from setuptools import find_packages
from setuptools import setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "([^"]+)"', (HERE / "xlnet_tf" / "version.py").read_text()
)[1]

PACKAGES = ("xlnet_tf", "data_pipeline", "saved_models")

# The lower ends are what was tried on Python 3.10, the upper ones on 3.11 and
# 3.12; constraints-3.10.txt and constraints.txt have the exact versions.
REQUIRED = [
    "tensorflow>=2.20,<2.21",
    "tensorflow-text>=2.20,<2.21",
    # Advisories on loading `.keras` files name all before 3.15.1; 3.12.4 is
    # the last for Python 3.10.
    'keras>=3.12.4,<3.16; python_version < "3.11"',
    'keras>=3.15.1,<3.16; python_version >= "3.11"',
    "tf-models-official>=2.20,<2.21",
    "sentencepiece>=0.2.3,<0.3",
    "numpy>=2.2,<3",
    "h5py",
    "safetensors",
    "tqdm",
    "matplotlib",
    "wrapt",
    # Public names, by a stub.
    "lazy_loader>=0.4",
    "pyyaml",
    "fsspec",
    # Paths in buckets, by tf.io.gfile.
    "etils[epath]",
    # Older ones may lock a file that was removed meanwhile.
    "filelock>=4.1",
    "google-crc32c",
    "urllib3>=2",
    # Metrics; they come with tf-models-official too.
    "scikit-learn",
    "scipy",
    "seqeval",
    "sacrebleu",
    "rouge-score",
    # TensorFlow Datasets, which tf-models-official brings, imports it and does
    # not say so.
    "importlib-resources",
]

EXTRAS = {
    "beam": ["apache-beam>=2.77,<3"],
    # Parquet, Arrow, Feather and .zst.
    "formats": ["pyarrow>=16"],
    # Models by hf://OWNER/NAME.
    "hub": ["huggingface_hub>=0.34"],
    "serving": ["tensorflow-serving-api>=2.20,<2.21"],
    # `export(format="onnx")` of models, and what runs the files.
    "onnx": ["tf2onnx>=1.17", "onnxruntime>=1.23"],
    "parity": ["torch>=2.13,<3", "transformers>=5.23,<6"],
    # export --runtime openvino.
    "openvino": ["openvino>=2026.0"],
    "jax": ["jax>=0.6.2"],
    # The TPU compiler. To train on a TPU, tensorflow-tpu takes the place of
    # tensorflow, which no extra can say: docs/training.md has the commands.
    "tpu": ["jax>=0.10", "libtpu"],
    "bench": [
        "psutil",
        "torch>=2.13,<3",
        "transformers>=5.23,<6",
        # 0.32 asks for another kagglesdk than the kaggle of Model Garden.
        'keras-hub>=0.29; python_version >= "3.11"',
    ],
    # pytest-xdist 3.8 loses its groups with pytest 9.2. nbclient and ipykernel
    # run the tutorials, keras-tuner is of an example, build and twine make and
    # check what a release uploads.
    "dev": [
        "pytest<9.2",
        "pytest-xdist",
        "mypy",
        "ruff",
        "pre-commit",
        "nbclient",
        "ipykernel",
        "keras-tuner",
        "build",
        "twine",
    ],
    # The site: `make docs`.
    "docs": ["mkdocs-material", "mkdocstrings[python]", "jupytext"],
}

setup(
    name="xlnet_tf",
    version=VERSION,
    description="XLNet for TensorFlow and Keras 3: pretrain, fine-tune, serve.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    # As in CITATION.cff. The project has no public address yet, so that there
    # are no `project_urls`.
    author="The xlnet_tf authors",
    keywords=[
        "XLNet",
        "Transformer-XL",
        "TensorFlow",
        "Keras",
        "language model",
    ],
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    packages=find_packages(
        include=[f"{name}{end}" for name in PACKAGES for end in ("", ".*")]
    ),
    # An editable install then is a path, which every tool follows.
    package_dir={"": "."},
    package_data={
        "data_pipeline": ["py.typed", "*.pyi"],
        "saved_models": ["py.typed", "*.pyi", "serving/*"],
        "xlnet_tf": [
            "py.typed",
            "*.pyi",
            "presets/*/*",
            "presets/*/assets/tokenizer/*",
        ],
    },
    install_requires=REQUIRED,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["xlnet = xlnet_tf.__main__:main"]},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
