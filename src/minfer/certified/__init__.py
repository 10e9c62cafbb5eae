"""Rigorous intervals for single marginals (see docs/how-far-off.md)."""
