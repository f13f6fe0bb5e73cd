"""Examples of tasks: files, splits, batches."""
