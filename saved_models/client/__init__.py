"""Clients of exports: REST, gRPC, and an export in this process."""
