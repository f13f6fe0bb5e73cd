"""Clients of exports: over REST, over gRPC, and in the same process."""
