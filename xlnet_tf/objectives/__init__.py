"""Pretraining objectives and the model that is trained on them."""
