"""Code that exports and serves; what it exports lands beside it."""
