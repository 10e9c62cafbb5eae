"""Message passing on a graphics card: CUDA C sources, what launches them, and how models lie there.

Nothing here is imported before a solver is asked for a device.
"""
