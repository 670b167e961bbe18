"""A cluster of real kernels on one machine."""
