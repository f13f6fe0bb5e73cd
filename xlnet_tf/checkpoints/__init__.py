"""Reading and writing other people's weights: one name table each."""
