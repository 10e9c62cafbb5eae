"""The parser's own numba kernels; those of trees, which solvers share, are in `minfer.kernels`."""
