"""Batching rules of an export, derived from the export's settings.

With `--enable_per_model_batching_parameters`, TensorFlow Serving reads
`batching_params.pbtxt` in the directory of a version. For a version without
this file the server does not batch requests.
"""

from data_pipeline.base.files import write_bytes

FILE = "batching_params.pbtxt"
_ROWS = 32  # default rows per batch
_MOST_ROWS = 1024  # maximum rows per request

_RULES = """\
# How TensorFlow Serving joins requests for this export.
# Maximum rows of a request, and of a batch; larger requests are divided.
max_batch_size {{ value: {most_rows} }}
enable_large_batch_splitting {{ value: true }}
max_execution_batch_size {{ value: {rows} }}
# Microseconds that a request waits for other requests.
batch_timeout_micros {{ value: 1000 }}
# Batches that may wait; further requests are refused with UNAVAILABLE.
max_enqueued_batches {{ value: 100 }}
# No `allowed_batch_sizes`: a request without rows would end the server.
# Must be false, or masks would be padded with the first value of a tensor.
pad_variable_length_inputs: false
"""


def write_batching(directory, max_batch=None):
    """Write the batching rules of an export.

    Args:
        directory: path of the SavedModel.
        max_batch: int, maximum number of rows in a batch. Default None: 32.
    """
    rows = max_batch or _ROWS
    rules = _RULES.format(rows=rows, most_rows=max(rows, _MOST_ROWS))
    write_bytes(directory / FILE, rules.encode())
