"""Token ids to rows of the model, in the graph."""
