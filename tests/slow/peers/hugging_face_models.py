"""Models of Hugging Face's and ours side by side.

Sizes are those of `tests/support/weight_models.py`. transformers and torch are
imported when they are used, for they need not be installed.
"""

import numpy as np

from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import literal
from tests.support.oracle import randomize
from tests.support.oracle import small_features
from xlnet_tf.weights.hugging_face.writer import save_hugging_face

# Float32 sums in another order, on outputs of size about 1.
TOLERANCE = 1e-5
_THEIR_NAMES = {
    "token_ids": "input_ids",
    "segment_ids": "token_type_ids",
    "padding_mask": "attention_mask",
    "memories": "mems",
    "class_index": "cls_index",
}


def theirs(name, seed=0, **values):
    """A model of theirs, by the name of its class, every weight random."""
    import transformers

    values = {
        "vocab_size": 97,
        "n_layer": 2,
        "n_head": 2,
        "d_model": 38,
        "d_inner": 23,
        "mem_len": None,
        **values,
    }
    return random_weights(
        getattr(transformers, name)(transformers.XLNetConfig(**values)), seed
    )


def random_weights(model, seed=0):
    """A model of theirs with every weight random."""
    import torch

    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter, weight in model.named_parameters():
            weight.normal_(0, 0.15, generator=random)
            if parameter.lower().endswith("norm.weight"):
                weight.add_(1)
    return model.eval()


def features(batch=3, padding="both", memory_length=0, targets=False, seed=0):
    """Features that both know: no `memory_mask`, no `is_reversed`.

    Args:
        batch: int.
        padding: "left", "right", "both" (by row), or None.
        memory_length: int.
        targets: bool, whether to give `perm_mask` and `target_mapping`.
    """
    values = literal(small_features(seed, batch, memory_length))
    for name in ("memory_mask", "is_reversed"):
        values.pop(name, None)
    if not targets:
        del values["perm_mask"], values["target_mapping"]
    if padding is None:
        del values["padding_mask"]
    elif padding != "both":
        width = 2 + np.arange(batch)[:, None] % 3
        column = np.arange(T)
        real = column >= width if padding == "left" else column < T - width
        values["padding_mask"] = real.astype("int32")
    return values


def for_theirs(features):
    """Our features as keyword arguments of theirs, time before batch."""
    import torch

    arguments = {}
    for name, value in features.items():
        if name == "memories":
            value = [torch.tensor(as_numpy(m)).transpose(0, 1) for m in value]
        else:
            value = torch.tensor(value)
            if name.endswith("mask") or name == "target_mapping":
                value = value.float()
            else:
                value = value.long()
        arguments[_THEIR_NAMES.get(name, name)] = value
    return arguments


def call(model, features, **more):
    """What a model of theirs gives for features of ours."""
    import torch

    with torch.no_grad():
        return model(**for_theirs(features), **more)


def agree(model, cls, directory, compare, loading=None, **arguments):
    """Holds a model of theirs and ours to each other, both ways.

    Theirs is saved and read by ours; then ours, with other weights, is saved
    and read by theirs.

    Args:
        model: of theirs.
        cls: class of ours.
        directory: path.
        compare: function of theirs and ours, giving two structures of arrays.
        loading: dict of arguments of their `from_pretrained`, or None.
        **arguments: of `from_preset`.

    Returns:
        (float, float): the largest absolute difference, theirs read by ours
        and ours read by theirs.
    """
    model.save_pretrained(directory / "theirs")
    mine = cls.from_preset(directory / "theirs", **arguments)
    read = largest_difference(*compare(model, mine))
    assert read < TOLERANCE
    randomize(mine, seed=5)
    # Else the same weights twice would pass.
    assert largest_difference(*compare(model, mine)) > 100 * TOLERANCE
    save_hugging_face(mine, directory / "ours")
    again, report = type(model).from_pretrained(
        directory / "ours", output_loading_info=True, **(loading or {})
    )
    assert not any(report.values()), report
    written = largest_difference(*compare(again.eval(), mine))
    assert written < TOLERANCE
    return read, written
