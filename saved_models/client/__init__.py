"""Clients of exports: in process, REST, gRPC."""
