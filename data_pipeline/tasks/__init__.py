"""Reading of the examples of fine-tuning tasks."""
