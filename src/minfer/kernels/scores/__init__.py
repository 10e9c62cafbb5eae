"""Gains of factors, and selection by them."""
