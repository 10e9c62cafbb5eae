"""Passes along sequences."""
