"""Operations that an XLNet cannot do without: its matrix products.

A product of an [m, k] and a [k, n] matrix counts 2mkn. Counted is what the
result depends on, once: keys, values and positions are projected once for both
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
    model, batch_size, num_tokens, memory_length=0, num_targets=0
):
    """Count the operations of forward and backward pass and tied softmax.

    Args:
        as of `forward_flops`; the softmax is over P targets.

    Returns:
        int.
    """
    forward = forward_flops(
        model, batch_size, num_tokens, memory_length, num_targets
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
