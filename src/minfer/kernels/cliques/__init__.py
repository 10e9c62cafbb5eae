"""Clique trees: elimination orders and the passes over a tree."""
