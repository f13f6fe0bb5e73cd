"""What a fine-tuning run leaves: results, predictions, reports, pictures."""
