"""Dependency parsing: tree factors, decoders and exact answers to measure against."""
