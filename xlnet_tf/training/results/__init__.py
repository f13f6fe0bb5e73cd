"""Results of a fine-tuning run: metrics, predictions, reports, pictures."""
