"""Work of the contenders: equal sizes, batches and texts for all."""
