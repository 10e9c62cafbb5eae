"""Radix selection: numbers dealt into buckets by their leading bits.

The bits of a non-negative float, read as an integer, order as the float does; negative numbers
(and minus zero) go into bucket 0. Four lanes per bucket keep the additions of equal neighbours
from waiting for one another, and sums are compensated (Kahan), so that a million equal numbers add
up to the last digits.
"""

from __future__ import annotations

from minfer.kernels._jit import jit

DIGIT = 13  # bits per level: 4 buckets per power of two on the first
LANES = 4
_MASK = (1 << DIGIT) - 1


@jit
def deal(bits, values, shift, counts, sums, lost):
    """Count and sum of the values in each bucket, the 13 bits above ``shift``.

    counts, sums, lost : (4 << 13,), zeroed by the caller; bucket b owns entries 4b to 4b + 3;
    ``lost`` is what rounding took from the sums.
    """
    for i in range(len(values)):
        b = ((max(bits[i], 0) >> shift) & _MASK) * LANES + (i & (LANES - 1))
        counts[b] += 1
        before = sums[b]
        add = values[i] - lost[b]
        after = before + add
        lost[b] = (after - before) - add
        sums[b] = after


@jit
def gather(bits, values, shift, bucket, out):
    """The values of one bucket, in order; out : (their number + 1,), its last entry is scratch."""
    j = 0
    for i in range(len(values)):
        out[j] = values[i]
        j += ((max(bits[i], 0) >> shift) & _MASK) == bucket
