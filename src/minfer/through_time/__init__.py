"""Networks through time: a first slice, a step, and exact answers along sequences."""

from minfer.through_time.dynamic import Dynamic

__all__ = ["Dynamic"]
