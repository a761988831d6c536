"""A finished library or wheel with the device code of further architectures, proven to fit."""
