"""Generation of text, token by token, with a cache of keys and values."""
