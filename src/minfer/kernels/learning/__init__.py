"""Counts and chains that learning needs."""
