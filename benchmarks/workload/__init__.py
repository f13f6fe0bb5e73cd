"""Work of the contenders: sizes, batches and texts, equal for all."""
