"""Reading and writing weights: presets and other formats."""
