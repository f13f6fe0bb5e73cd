"""Generation of text, one token at a time, with keys and values kept."""
