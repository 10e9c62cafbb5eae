"""Sums over dependency trees."""
