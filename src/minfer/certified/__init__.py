"""Rigorous intervals for single marginals (see docs/reference/how-far-off.md)."""
