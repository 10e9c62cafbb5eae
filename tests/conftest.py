"""Hypothesis: no deadlines (kernels compile on first use), the same examples every run."""

from hypothesis import settings

settings.register_profile("minfer", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("minfer")
