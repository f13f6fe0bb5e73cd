# Image for pretraining and fine-tuning on NVIDIA GPUs, with the tested versions.
# Build and run it from the root of a checkout:
#
#   docker build -f docker/train-gpu.Dockerfile -t xlnet-train-gpu .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" \
#       xlnet-train-gpu train --recipe quick --records records --output runs/mine
#
# The image was never built or run. The machine needs the NVIDIA driver and container
# toolkit; CUDA itself comes with tensorflow[and-cuda].
FROM python:3.11-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HOME=/tmp \
    TF_CPP_MIN_LOG_LEVEL=1 TF_FORCE_GPU_ALLOW_GROWTH=true

WORKDIR /opt/xlnet_tf
COPY constraints.txt setup.py pyproject.toml README.md LICENSE ./
COPY xlnet_tf xlnet_tf
COPY data_pipeline data_pipeline
COPY saved_models saved_models
# The constraints pin the CPU packages; TensorFlow pins the CUDA packages.
RUN pip install --constraint constraints.txt . 'tensorflow[and-cuda]'

WORKDIR /work
ENTRYPOINT ["xlnet"]
CMD ["--help"]
