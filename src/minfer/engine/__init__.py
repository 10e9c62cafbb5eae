"""The model as solvers see it: conditioned, laid out, wired, as tables, or as a clique tree."""
