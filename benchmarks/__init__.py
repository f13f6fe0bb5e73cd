"""This library beside its peers: same machine, same inputs, same run."""
