"""Text files to documents and sentences."""
