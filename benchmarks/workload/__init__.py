"""Work that every contender gets alike: sizes, batches and texts."""
