"""Keys of contents, numbers without a range, and the hash table that both stages look nodes up in.

A number is v 2^(256 e) with v = 0 or 2^-256 < v <= 2^256. A content is hashed to 128 bits; numbers
enter rounded *relatively*, to a mantissa of 44 bits and an exponent, so that contents with equal
keys agree to 2^-44 = 6e-14. Of N contents some two that differ share a key with probability at
most about N^2 / 2^129: 1e-24 for 1e7.
"""

from __future__ import annotations

import math

import numpy as np

from minfer.kernels.compiling.jit import jit

BIG, SMALL = 2.0**256, 2.0**-256
#: A weight that would be smaller stands as this.
LEAST = 1e-300
_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(30)
_D, _E = np.uint64(0xBF58476D1CE4E5B9), np.uint64(27)
#: What :func:`rounded` makes of 1.
ONE = np.int64((1 << 43) + (1 << 46))


@jit
def mix(a, b):
    """A 64-bit hash of two 64-bit numbers."""
    x = a ^ (b * _A)
    x = (x ^ (x >> _C)) * _B
    x = (x ^ (x >> _E)) * _D
    return x ^ (x >> np.uint64(31))


@jit
def rounded(v, e):
    """44 bits of mantissa, and the exponent, of v 2^(256 e) > 0 in one integer."""
    m, power = math.frexp(v)
    q = np.int64(m * 17592186044416.0 + 0.5)
    power += 256 * e
    if q == 17592186044416:
        q >>= 1
        power += 1
    return q + np.int64(power) * 70368744177664


@jit
def times(v, e, w, d):
    """The product of two numbers."""
    v *= w
    e += d
    if v < SMALL:
        if v == 0.0:
            return 0.0, 0
        v *= BIG
        e -= 1
    elif v > BIG:
        v *= SMALL
        e += 1
    return v, e


@jit
def plus(v, e, w, d):
    """The sum of two numbers."""
    if w == 0.0:
        return v, e
    if v == 0.0 or d > e + 1:
        return w, d
    if d == e:
        v += w
    elif d == e + 1:
        v, e = v * SMALL + w, d
    elif d == e - 1:
        v += w * SMALL
    if v > BIG:
        v *= SMALL
        e += 1
    return v, e


@jit
def share(v, e, w, d):
    """v 2^(256 e) / (w 2^(256 d)) <= 1, about, as a float, at least LEAST."""
    r = v / w
    while e < d and r > 0.0:
        r *= SMALL
        e += 1
    if e > d:
        r *= BIG
    return max(r, LEAST)


@jit
def find(slots, key1, key2, k1, k2):
    """The item with a key, or minus one less the free slot where it would go; slots: (a power of
    2,), an item or -1."""
    last = slots.size - 1
    i = np.int64(k1 & np.uint64(last))
    while slots[i] >= 0:
        item = slots[i]
        if key1[item] == k1 and key2[item] == k2:
            return np.int64(item)
        i = (i + 1) & last
    return -1 - i


@jit
def fill_slots(slots, key1, n):
    """Put the items 0..n-1, whose keys all differ, into empty slots."""
    last = slots.size - 1
    for item in range(n):
        i = np.int64(key1[item] & np.uint64(last))
        while slots[i] >= 0:
            i = (i + 1) & last
        slots[i] = item
