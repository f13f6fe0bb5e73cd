"""Pictures of masks, attention and training, as Matplotlib figures."""

from xlnet_tf.pictures.attention import Attention
from xlnet_tf.pictures.attention import draw_attention
from xlnet_tf.pictures.attention import draw_distances
from xlnet_tf.pictures.attention import read_attention
from xlnet_tf.pictures.curves import draw_curves
from xlnet_tf.pictures.masks import draw_masks
from xlnet_tf.pictures.masks import draw_pseudo_masks
from xlnet_tf.pictures.masks import make_order

__all__ = [
    "Attention",
    "draw_attention",
    "draw_curves",
    "draw_distances",
    "draw_masks",
    "draw_pseudo_masks",
    "make_order",
    "read_attention",
]
