"""Model inputs from token ids, as TensorFlow ops."""
