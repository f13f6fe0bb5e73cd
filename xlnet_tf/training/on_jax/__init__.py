"""Pretraining on Keras' JAX backend; data, files and loop are TensorFlow's."""
