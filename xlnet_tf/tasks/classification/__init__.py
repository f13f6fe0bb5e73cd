"""Classes of texts and of words, and numbers for texts."""
