"""Progress of a run: its log, its evaluations, its best weights."""
