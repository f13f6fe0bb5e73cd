"""Arithmetic of a training step: its operations and its memory.

Operations are those that an XLNet cannot do without: its matrix products. A
product of an [m, k] and a [k, n] matrix counts 2mkn. Counted is what the result
depends on, once: keys, values and positions are projected once for both
streams, positions once for the whole batch, one score for each pair of row and
key (not for each distance), and only the rows that something reads: of the
query stream the P targets, and in the last layer of a pretraining step nothing
else. Element-wise work, softmax, normalisation, dropout, the look-up of
embeddings and the optimizer count nothing; no pair of row and key is left out
for being masked. An implementation that computes more than this gets no credit
for it.

All K + T distances are counted, in inference too, where those of one sign are
enough: there an implementation that makes do with them gets credit for work
that it did not do.

Backwards, each product costs two like it: one for the gradient of each factor.
Memory and position encodings are constants, so their projections cost one.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
N heads, H head dim, D model dim, F feed-forward dim, V vocabulary.
"""

import typing


def forward_flops(
    model, batch_size, num_tokens, memory_length=0, num_targets=0
):
    """Count the operations of the layers in a forward pass, without a head.

    Args:
        model: dict of the fields of XLNetConfig that hold sizes.
        batch_size, num_tokens, memory_length, num_targets: ints, B, T, M, P.

    Returns:
        int.
    """
    width = model["num_heads"] * model["head_dim"]
    num_keys = memory_length + num_tokens
    total = 0
    for layer in range(model["num_layers"]):
        rows = num_tokens + num_targets
        if num_targets and layer == model["num_layers"] - 1:
            rows = num_targets
        products = (
            # queries, output; keys, values; content, position, value by pair
            2 * batch_size * rows * model["hidden_dim"] * width
            + 2 * batch_size * num_keys * model["hidden_dim"] * width
            + 3 * batch_size * rows * num_keys * width
            + 2
            * batch_size
            * rows
            * model["hidden_dim"]
            * model["intermediate_dim"]
        )
        total += 2 * products + _position_flops(model, num_tokens, num_keys)
    return total


def training_step_flops(
    model,
    batch_size,
    num_tokens,
    memory_length=0,
    num_targets=0,
    reads_query=True,
):
    """Count the operations of forward and backward pass and tied softmax.

    Args:
        as of `forward_flops`; the softmax is over P targets.
        reads_query: bool, whether the targets have rows of their own, those of
            the query stream (default), or are predicted from those of tokens.

    Returns:
        int.
    """
    forward = forward_flops(
        model,
        batch_size,
        num_tokens,
        memory_length,
        num_targets if reads_query else 0,
    )
    forward += (
        2
        * batch_size
        * num_targets
        * model["hidden_dim"]
        * model["vocabulary_size"]
    )
    width = model["num_heads"] * model["head_dim"]
    of_memory = 4 * batch_size * memory_length * model["hidden_dim"] * width
    of_constants = of_memory + _position_flops(
        model, num_tokens, memory_length + num_tokens
    )
    return 3 * forward - model["num_layers"] * of_constants


def _position_flops(model, num_tokens, num_keys):
    """Count the operations that project all distances in one layer."""
    width = model["num_heads"] * model["head_dim"]
    return 2 * (num_keys + num_tokens) * model["hidden_dim"] * width


class Work(typing.NamedTuple):
    """Work of a training step.

    Attributes:
        flops: float, operations of its matrix products.
        elements: float, values of the activations, of the scores of attention
            and of the logits, and the weights: each is computed, read again
            for the gradients, or updated.
    """

    flops: float
    elements: float


def pretraining_work(model, batch_size, num_tokens, num_targets):
    """Work of a pretraining step; a BERT's scores count like an XLNet's.

    Args:
        model: XLNetPretrainer.
        batch_size, num_tokens, num_targets: ints, B, T and P.

    Returns:
        Work.
    """
    if model.objectives[0].name == "pseudo_masked":
        num_tokens += 2 * num_targets  # a pseudo mask and the token of each
    return _work(
        model, batch_size, num_tokens, model.config.memory_length, num_targets
    )


def finetuning_work(task, batches, num_trained):
    """Work of a mean step of fine-tuning, without that of a small head.

    Args:
        task: Task.
        batches: data_pipeline Batches of its training rows.
        num_trained: int, the parameters that training changes: beside adapters
            the gradients of kernels, a third of the operations, are left out.

    Returns:
        Work.
    """
    rows = batches.batch_size * (batches.encoded.options or 1)
    length, memory = batches.mean_length(), 0
    if task.segment_length:  # reads a row in parts
        rows *= length / task.segment_length
        length, memory = task.segment_length, task.config.memory_length
    targets = batches.encoded.dense.get("target_positions")
    num_targets = 0 if targets is None else targets.shape[1]
    if getattr(task, "next_token", None) == "pseudo":
        length += num_targets
    work = _work(task, rows, length, memory, num_targets)
    share = (2 + num_trained / task.count_params()) / 3
    return work._replace(flops=work.flops * share)


def _work(model, batch_size, num_tokens, memory_length, num_targets):
    sizes, reads_query = model.config.to_dict(), model.reads_query
    flops = training_step_flops(
        sizes, batch_size, num_tokens, memory_length, num_targets, reads_query
    )
    rows = num_tokens + (num_targets if reads_query else 0)
    of_row = 12 * sizes["hidden_dim"] + 3 * sizes["intermediate_dim"]
    scores = sizes["num_heads"] * (memory_length + num_tokens)
    of_layers = sizes["num_layers"] * rows * (of_row + scores)
    logits = num_targets * sizes["vocabulary_size"]
    elements = batch_size * (of_layers + logits) + model.count_params()
    return Work(flops, elements)


def expected_bytes(model, batch_size, num_tokens, num_targets):
    """Estimate the memory that a pretraining step takes on one replica.

    Args:
        model: XLNetPretrainer.
        batch_size: int, B, rows that are computed at a time.
        num_tokens, num_targets: ints, T and P.

    Returns:
        int.
    """
    of_weights = 16 * model.count_params()  # with gradients and two moments
    of_activations = model.backbone.expected_bytes(
        batch_size, num_tokens, num_targets if model.reads_query else 0
    )
    of_logits = 12 * batch_size * num_targets * model.config.vocabulary_size
    return of_weights + of_activations + of_logits
