"""What ``minfer warmup`` compiles and ``minfer doctor`` checks."""
