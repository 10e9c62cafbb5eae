"""Bounds by buckets, and a search that uses them."""
