"""Padding for a kernel that needs multiples of 128, for any sizes.

The padding consists of heads of zeros, masked tokens after the tokens, and
masked memory before the memory. The results for the padding are cut off.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets, N heads,
H head dim, R = K + T distances.
"""

from keras import ops

from xlnet_tf.model.kernels.contract import AttentionInputs

SIZE = 128


def padded(kernel):
    """Make a kernel that pads its inputs to multiples of 128.

    Args:
        kernel: function, an attention kernel.

    Returns:
        function, an attention kernel for any sizes if 128 is divisible by H. It
        supports no dropout.
    """

    def attend(inputs, rules):
        query, *vectors, key, value, position = inputs
        assert rules.seed is None
        num_heads, num_rows, head_dim = query.shape[1:]
        num_keys = key.shape[2]
        tokens = position.shape[2] - num_keys
        behind = -tokens % SIZE
        before = -(num_keys + behind) % SIZE
        content = tokens if rules.streams == "both" else 0
        heads = -num_heads % (SIZE // head_dim)

        def pad(tensor, **axes):
            """Pad by (zeros before, zeros after) for each given axis."""
            axes = {int(name[1:]): sizes for name, sizes in axes.items()}
            widths = [axes.get(i, (0, 0)) for i in range(tensor.ndim)]
            return ops.pad(tensor, widths)

        def with_rows(tensor, axis):
            """Insert rows of padding between the tokens and the targets."""
            if not content:
                return tensor
            first, rest = ops.split(tensor, [content], axis=axis)
            first = pad(first, **{f"_{axis}": (0, behind)})
            return ops.concatenate([first, rest], axis=axis)

        def by_pair(tensor):
            """Pad a mask [B or 1, Q, K] with False; return None for None."""
            if tensor is None:
                return None
            tensor = with_rows(ops.cast(tensor, "int32"), 1)
            return ops.cast(pad(tensor, _2=(before, behind)), "bool")

        mask = rules.mask
        if mask is None:
            mask = ops.ones([1, num_rows, num_keys], "bool")
        keys = dict(_1=(0, heads), _2=(before, behind))
        padded_inputs = AttentionInputs(
            with_rows(pad(query, _1=(0, heads)), 2),
            *(pad(vector, _0=(0, heads)) for vector in vectors),
            *(pad(x, **keys) for x in (key, value)),
            # The distances from K + `before` + `behind` down.
            pad(position, _1=(0, heads), _2=(before + behind, behind)),
        )
        attended = kernel(
            padded_inputs,
            rules._replace(
                mask=by_pair(mask), other_segment=by_pair(rules.other_segment)
            ),
        )
        attended = attended[:, :num_heads]
        if not content:
            return attended
        return ops.concatenate(
            [attended[:, :, :tokens], attended[:, :, tokens + behind :]], axis=2
        )

    return attend
