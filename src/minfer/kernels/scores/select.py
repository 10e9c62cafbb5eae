"""Selection by gain: the objectives' one piece of work, in linear time.

``drop_smallest`` is radix selection: gains are dealt into buckets by their leading bits, the bucket
in which the limit is crossed is dealt again by the first bits in which its gains differ, until it
holds few gains or equal ones. The bits of a non-negative float, read as an integer, order as the
float does; negative numbers (and minus zero) go into bucket 0. Four lanes per bucket keep the
additions of equal neighbours from waiting for one another, and sums are compensated (Kahan), so
that a million equal numbers add up to the last digits.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.sorting import sort_by
from minfer.kernels.compiling.jit import jit

LANES = 4
MANY = 1 << 15  # values that are worth 2^13 buckets at a time rather than 2^11
FEW = 256  # values that are sorted rather than dealt
ALL, JOINT, SIZE, DIVERGENCE = 0, 1, 2, 3  # objectives


@jit
def deal(bits, values, shift, mask, counts, sums, lost):
    """Count and sum of the values in each bucket, the bits of ``mask`` above ``shift``. ``counts``,
    ``sums`` and ``lost``, what rounding took from the sums, are zeros (4 (mask + 1),) before, of
    bucket b entries 4b to 4b + 3."""
    for i in range(len(values)):
        b = ((max(bits[i], 0) >> shift) & mask) * LANES + (i & (LANES - 1))
        counts[b] += 1
        before = sums[b]
        add = values[i] - lost[b]
        after = before + add
        lost[b] = (after - before) - add
        sums[b] = after


@jit
def gather(bits, values, shift, mask, bucket, out):
    """The values of one bucket, in order; out : (their number + 1,), its last entry is scratch."""
    j = 0
    for i in range(len(values)):
        out[j] = values[i]
        j += ((max(bits[i], 0) >> shift) & mask) == bucket


@jit
def crossed(counts, sums, spent, limit, by_number):
    """The bucket in which the total passes the limit, or the last one, and the total before it."""
    last, before_last = 0, spent
    for b in range(counts.shape[0] // LANES):
        size = 0
        total = 0.0
        for lane in range(LANES):
            size += counts[LANES * b + lane]
            total += sums[LANES * b + lane]
        if size > 0:
            last, before_last = b, spent
            spent += size if by_number else total
            if not spent <= limit:
                break
    return last, before_last


@jit
def drop_smallest(gains, limit, by_number, few, keep):
    """Drop the smallest gains while their sum (their number) is within a limit: ``keep`` (F,). Of
    equal gains at the threshold the later ones are dropped. At most ``few`` are sorted."""
    n = gains.shape[0]
    if n == 0:
        return
    rest = gains
    spent = 0.0
    width = 63  # bits in which the rest may differ
    while rest.size > few and width > 0:
        digit = 13 if rest.size > MANY else 11
        mask = (1 << digit) - 1
        shift = max(width - digit, 0)
        bits = rest.view(np.int64)
        counts = np.zeros(LANES << digit, np.int64)
        sums = np.zeros(LANES << digit)
        lost = np.zeros(LANES << digit)
        deal(bits, rest, shift, mask, counts, sums, lost)
        bucket, spent = crossed(counts, sums, spent, limit, by_number)
        size = 0
        for lane in range(LANES):
            size += counts[LANES * bucket + lane]
        out = np.empty(size + 1)
        gather(bits, rest, shift, mask, bucket, out)
        rest = out[:size]
        bits = rest.view(np.int64)
        differ = np.int64(0)
        for i in range(size):
            differ |= max(bits[i], 0) ^ max(bits[0], 0)
        width = 0
        while differ >> width:
            width += 1
    low = high = rest[0]
    for x in rest:
        low, high = min(low, x), max(high, x)
    dropped = 0
    ties = 0
    if low == high:
        each = 1.0 if by_number else low
        dropped = rest.size if each <= 0.0 else int(min((limit - spent) / each, rest.size))
        ties = dropped
    else:
        order = np.empty(rest.size, np.int64)
        for k in range(rest.size):
            order[k] = k
        sort_by(order, 0, rest.size, rest, np.empty(rest.size, np.int64))
        out = np.empty(rest.size)
        for k in range(rest.size):
            out[k] = rest[order[k]]
        rest = out
        while dropped < rest.size:
            spent += 1.0 if by_number else rest[dropped]
            if not spent <= limit:
                break
            dropped += 1
        while dropped < rest.size and ties < dropped and rest[dropped - 1 - ties] == rest[dropped]:
            ties += 1
    if dropped == rest.size:
        for i in range(n):
            keep[i] = gains[i] > high
        return
    threshold = rest[dropped]  # the smallest gain that is kept
    for i in range(n):
        keep[i] = gains[i] >= threshold
    i = n - 1
    while ties > 0:
        if gains[i] == threshold:
            keep[i] = False
            ties -= 1
        i -= 1


@jit
def drop_sorted(gains, limit, by_number, keep):
    """As ``drop_smallest`` by sorting everything, as the paper has it: to be timed beside it."""
    n = gains.shape[0]
    order = np.empty(n, np.int64)
    for k in range(n):
        keep[k] = True
        order[k] = n - 1 - k  # of equal ones the later first
    sort_by(order, 0, n, gains, np.empty(n, np.int64))
    spent = 0.0
    for k in range(n):
        spent += 1.0 if by_number else gains[order[k]]
        if not spent <= limit:
            break
        keep[order[k]] = False


@jit
def choose(objective, parameter, by_sorting, gains, keep):
    """What an objective keeps: ``keep`` (F,). Infinite gains are kept and count in no budget.
    ``parameter``: the least gain of JOINT, the divergence that SIZE may drop, the number of factors
    that DIVERGENCE may keep. ``by_sorting``: as the paper does it."""
    n = gains.shape[0]
    if objective in (ALL, JOINT):
        for i in range(n):
            keep[i] = objective == ALL or gains[i] >= parameter
        return
    limit = min(parameter, np.finfo(np.float64).max)
    if objective == DIVERGENCE:
        free = 0
        for i in range(n):
            free += gains[i] < np.inf
        limit = free - min(parameter, free)
    if by_sorting:
        drop_sorted(gains, limit, objective == DIVERGENCE, keep)
    else:
        drop_smallest(gains, limit, objective == DIVERGENCE, FEW, keep)
