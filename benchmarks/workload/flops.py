"""Number of necessary operations of XLNet, counted as matrix products.

A product of an [m, k] and a [k, n] matrix counts 2mkn operations. We count the
matrix products that the result needs, each once. Both streams share one
projection of keys, values and positions; positions are projected once for the
whole batch. Position scores count per pair of query row and key, not per
distance. Masked pairs count as well. Only the query rows that the result needs
count: in the query stream the P targets, and in the last layer of a pretraining
step only the P targets. Element-wise work, softmax, normalisation, dropout, the
look-up of embeddings and the optimizer do not count. Further work of an
implementation does not count either.

The projection of all K + T distances counts in training and in inference. In
inference, distances of one sign can be enough. So an implementation that
projects only one sign is credited with work that is not done.

In the backward pass, each product costs two products of the same size, one for
the gradient of each factor. Memory and position encodings are constants, so
the backward pass of their projections costs only one product.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets, N heads,
H width of a head, D width of the model, F width of the feed-forward layer, V
size of the vocabulary.
"""


def forward_flops(
    model, batch_size, num_tokens, memory_length=0, num_targets=0
):
    """Count the operations of the layers in a forward pass, without a head.

    Args:
        model: dict of the XLNetConfig fields that are sizes.
        batch_size, num_tokens, memory_length, num_targets: ints, B, T, M, P.

    Returns:
        int, number of operations.
    """
    width = model["num_heads"] * model["head_dim"]
    num_keys = memory_length + num_tokens
    total = 0
    for layer in range(model["num_layers"]):
        rows = num_tokens + num_targets
        if num_targets and layer == model["num_layers"] - 1:
            rows = num_targets
        products = (
            # queries and output; keys and values; per pair of row and key:
            # content score, position score, value
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
    """Count the operations of a pretraining step, with the tied softmax.

    Args: see `forward_flops`; the softmax is computed for P targets.

    Returns:
        int, number of operations.
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
    """Count the operations of projecting all distances in one layer."""
    width = model["num_heads"] * model["head_dim"]
    return 2 * (num_keys + num_tokens) * model["hidden_dim"] * width
