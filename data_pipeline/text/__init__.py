"""Reading of text files as documents and sentences."""
