"""How Model Garden's objects are nested: paths to each of our variables.

Paths are written as in the keys of a checkpoint, where ".S" is a slash in a
name. Biases and segment encodings are stacked over layers, `[L, N, H]` and
`[L, 2, N, H]`; tied biases have no layer axis. Kernels have our shapes but for
the output projection of `XLNetBase`, which is `[N, H, D]`.
"""

from typing import Any
from typing import NamedTuple

import numpy as np

from xlnet_tf.weights.source import Weight


class Network(NamedTuple):
    """What a class of Model Garden's calls its parts.

    Attributes:
        name: str, the class.
        gelu: str, the form that it computes.
        embedding: str, path of the token embedding, by which it is recognized.
        mask_embedding, segment_encoding: str, paths of what a model never has
            that was never given targets or segments.
        biases: tuple of str, of content, position and segment biases.
        norms: tuple of str, of both layer norms of a layer.
        kernels: tuple of str, of the query, key, value, position and output
            projections of a layer.
        denses: tuple of str, of both dense layers of a layer.
        has_heads_first: bool, whether output projections are [N, H, D].
    """

    name: str
    gelu: str
    embedding: str
    mask_embedding: str
    segment_encoding: str
    biases: tuple
    norms: tuple
    kernels: tuple
    denses: tuple
    has_heads_first: bool = False

    @property
    def optional(self):
        """tuple of str, paths that need not be there."""
        return self.mask_embedding, self.segment_encoding


def _old_network(name, attention, feed_forward):
    projections = tuple(f"{attention}/{{}}/{p}.Skernel" for p in "qkvro")
    return Network(
        name=name,
        gelu="tanh",
        embedding="embedding_lookup/lookup_table",
        mask_embedding="mask_emb.Smask_emb",
        segment_encoding="seg_embed",
        biases=("r_w_bias", "r_r_bias", "r_s_bias"),
        norms=(
            f"{attention}/{{}}/output_layer_norm",
            f"{feed_forward}/{{}}/output_layer_norm",
        ),
        kernels=projections,
        denses=(
            f"{feed_forward}/{{}}/inner_projection_layer",
            f"{feed_forward}/{{}}/output_projection_layer",
        ),
    )


_LAYER = "_transformer_xl/transformer_xl_layers/{}"
NETWORKS = (
    Network(
        name="XLNetBase",
        gelu="erf",
        embedding="_embedding_layer/embeddings",
        mask_embedding="mask_emb.Smask_emb",
        segment_encoding="seg_embed",
        biases=(
            "_transformer_xl/content_attention_bias",
            "_transformer_xl/positional_attention_bias",
            "_transformer_xl/segment_attention_bias",
        ),
        norms=(
            f"{_LAYER}/_attention_layer_norm",
            f"{_LAYER}/_output_layer_norm",
        ),
        kernels=tuple(
            f"{_LAYER}/_attention_layer/_{part}_dense/kernel"
            for part in ("query", "key", "value", "encoding", "output")
        ),
        denses=(f"{_LAYER}/_inner_dense", f"{_LAYER}/_output_dense"),
        has_heads_first=True,
    ),
    _old_network(
        "TransformerXLModel",
        "rel_multihead_layers",
        "h_positionwise_ffn_layers",
    ),
    # In 2019 pretraining kept its layers under names of their own.
    _old_network(
        "TransformerXLModel of two streams",
        "two_stream_layers",
        "g_positionwise_ffn_layers",
    ),
)


def unused_layers(network):
    """Names of lists of layers that are there for another use of the model.

    Of the layers for one stream and those for two, one set is read.
    """
    lists = [
        {path.split("/")[0] for path in (*n.kernels, *n.denses)}
        for n in (network, *NETWORKS)
    ]
    return set().union(*lists[1:]) - lists[0]


class HeadNames(NamedTuple):
    """What a class of Model Garden's calls the parts of its head.

    Attributes:
        tasks: tuple of str, names of our classes that can take it.
        variable: str, path of the variable by which it is recognized, from the
            model that holds the network.
        layers: dict of str to str, our layer -> path of theirs.
        bias: str or None, path of the bias of the LM head.
        transform_gelu: str or None, the form that the LM head computes.
    """

    tasks: tuple
    variable: str
    layers: dict
    bias: str | None = None
    transform_gelu: str | None = None


_SEQUENCE_TASKS = ("XLNetTextClassifier", "XLNetTextRegressor")


def _span_head(head, *paths):
    ours = (
        "start_dense",
        "end_inner",
        "end_norm",
        "end_dense",
        "class_inner",
        "class_dense",
    )
    return HeadNames(
        ("XLNetQuestionAnswering",),
        f"{head}/{paths[0]}/kernel",
        {o: f"{head}/{path}" for o, path in zip(ours, paths, strict=True)},
    )


HEADS = (
    HeadNames(
        ("XLNetPretrainer",),
        "_masked_lm/output_bias.Sbias",
        {
            "transform": "_masked_lm/dense",
            "transform_norm": "_masked_lm/layer_norm",
        },
        bias="_masked_lm/output_bias.Sbias",
        transform_gelu="erf",
    ),
    HeadNames(
        ("XLNetPretrainer",),
        "lmloss_layer/bias",
        {
            "transform": "lmloss_layer/proj_layer",
            "transform_norm": "lmloss_layer/proj_layer_norm",
        },
        bias="lmloss_layer/bias",
        transform_gelu="tanh",
    ),
    HeadNames(
        _SEQUENCE_TASKS,
        "classifier/out_proj/kernel",
        {
            "summary_dense": "classifier/dense",
            "logits_dense": "classifier/out_proj",
        },
    ),
    HeadNames(
        _SEQUENCE_TASKS,
        "cl_loss_layer/proj_layer/kernel",
        {
            "summary_dense": "summarization_layer/proj_layer",
            "logits_dense": "cl_loss_layer/proj_layer",
        },
    ),
    _span_head(
        "span_labeling",
        "start_logits_dense",
        "end_logits_inner_dense",
        "end_logits_layer_norm",
        "end_logits_output_dense",
        "answer_logits_inner",
        "answer_logits_output",
    ),
    _span_head(
        "qa_loss_layer",
        "start_logits_proj_layer",
        "end_logits_proj_layer0",
        "end_logits_layer_norm",
        "end_logits_proj_layer1",
        "answer_class_proj_layer0",
        "answer_class_proj_layer1",
    ),
)


class _HeadsFirst(Weight):
    """A Weight that is [N, H, D] there and [D, N, H] here."""

    __slots__ = ()

    @property
    def shape_there(self):
        """tuple of int, the shape that the format should have."""
        hidden_dim, num_heads, head_dim = self.variable.shape
        return num_heads, head_dim, hidden_dim

    def from_there(self, array):
        """An array of the format, as our variable has it."""
        return np.moveaxis(array, -1, 0)


def backbone_weights(backbone, network, name_of):
    """Where each of our variables is, from the network on.

    Args:
        backbone: XLNetBackbone.
        network: Network.
        name_of: callable, path -> name of the tensor in the checkpoint.

    Returns:
        list of Weight.
    """
    num_layers = len(backbone.blocks)
    weights = [
        Weight(name_of(network.embedding), backbone.token_embedding.embeddings),
        Weight(
            name_of(network.mask_embedding),
            backbone.mask_embedding,
            leading_ones=2,
        ),
    ]
    if backbone.shared_biases is not None:
        weights += _biases(network, backbone.shared_biases, name_of)
    for layer, block in enumerate(backbone.blocks):
        stack = dict(layer=layer, num_layers=num_layers)
        attention = block.attention
        if backbone.shared_biases is None:
            weights += _biases(network, attention.biases, name_of, **stack)
        weights.append(
            Weight(
                name_of(network.segment_encoding),
                attention.segment_encoding,
                **stack,
            )
        )
        weights += _block_weights(
            network, block, lambda path, n=layer: name_of(path.format(n))
        )
    return weights


def _biases(network, biases, name_of, **stack):
    ours = (biases.content_bias, biases.position_bias, biases.segment_bias)
    return [
        Weight(name_of(path), variable, **stack)
        for path, variable in zip(network.biases, ours, strict=True)
    ]


def _block_weights(network, block, name_of):
    attention = block.attention
    *inputs, output = (
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
        attention.position_projection,
        attention.output_projection,
    )
    *input_paths, output_path = network.kernels
    weights = [
        Weight(name_of(path), projection.kernel)
        for path, projection in zip(input_paths, inputs, strict=True)
    ]
    kind = _HeadsFirst if network.has_heads_first else Weight
    weights.append(kind(name_of(output_path), output.kernel))
    norms = block.attention_norm, block.output_norm
    denses = block.intermediate, block.output_dense
    for path, layer in (
        *zip(network.norms, norms, strict=True),
        *zip(network.denses, denses, strict=True),
    ):
        weights += _layer_weights(path, layer, name_of)
    return weights


def head_weights(head, names, name_of):
    """Where each variable of a head is, from the model on.

    Args:
        head: layer, the head of a task of ours.
        names: HeadNames.
        name_of: callable, path -> name of the tensor in the checkpoint.

    Returns:
        list of Weight.
    """
    weights = []
    if names.bias is not None:
        weights.append(Weight(name_of(names.bias), head.bias))
    for ours, path in names.layers.items():
        layer = getattr(head, ours, None)
        if layer is not None:
            weights += _layer_weights(path, layer, name_of)
    return weights


def _layer_weights(path, layer, name_of):
    """Of a dense layer or a layer norm."""
    if hasattr(layer, "gamma"):
        variables: dict[str, Any] = {"gamma": layer.gamma, "beta": layer.beta}
    else:
        variables = {"kernel": layer.kernel}
        if layer.use_bias:
            variables["bias"] = layer.bias
    return [
        Weight(name_of(f"{path}/{name}"), variable)
        for name, variable in variables.items()
    ]
