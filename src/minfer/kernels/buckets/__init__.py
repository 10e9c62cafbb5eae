"""Kernels of mini-buckets and of the search over them."""
