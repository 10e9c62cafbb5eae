"""Arrays in, arrays out: the numba kernels. They know no class of ours; import them late."""
