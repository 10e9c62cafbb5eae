"""How kernels are compiled, kept, checked and shipped."""
