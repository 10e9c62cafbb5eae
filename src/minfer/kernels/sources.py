"""Pairs of a join whose key product reaches a threshold, without looking at the others.

A join pairs left members a with right members b that share a value. Per value the right members
that the best left member reaches are sorted by key, largest first; bisection then tells how many
of them each left member reaches, key[a] * key[b] >= least. Beyond one pass over the members, work
grows with the number of pairs returned.
"""

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.sorting import sort_by

# Sorting a row's places costs about as much as testing this many for each of them.
_SORT = 64


@jit
def join_pairs(left, left_ptr, right, right_ptr, own, row, symmetric, key, least):
    """Pairs (a, b) with key[a] * key[b] >= least, in the order of their numbers.

    Members lie one value after the other (``left_ptr``, ``right_ptr``), increasing within one.
    ``own[i]`` is the place of the left member i in ``right``, past its end if it is not there; a
    variable is never paired with itself, and in a symmetric join only with later ones. The pair of
    left member i and place p has the number row[i] + p, one less past own[i].
    """
    n_values = left_ptr.shape[0] - 1
    key_left, key_right = key[left], key[right]
    by_key = np.empty(right.shape[0], np.int64)  # places within reach, the largest key first
    by_place = np.empty(right.shape[0], np.int64)  # the same, increasing
    spare = np.empty(right.shape[0], np.int64)
    falling, rising = np.empty(right.shape[0]), np.empty(right.shape[0])  # what they are sorted by
    for p in range(right.shape[0]):
        falling[p], rising[p] = -key_right[p], p
    n_near = np.zeros(n_values, np.int64)
    reach = np.zeros(left.shape[0], np.int64)  # how many of them each left member reaches
    room = 0
    for j in range(n_values):
        best = 0.0
        for i in range(left_ptr[j], left_ptr[j + 1]):
            best = max(best, key_left[i])
        start = stop = right_ptr[j]
        for p in range(right_ptr[j], right_ptr[j + 1]):
            if best * key_right[p] >= least:
                by_place[stop] = p
                stop += 1
        n_near[j] = stop - start
        if stop == start:
            continue
        for p in range(start, stop):
            by_key[p] = by_place[p]
        sort_by(by_key, start, stop, falling, spare)
        for i in range(left_ptr[j], left_ptr[j + 1]):
            low, high = start, stop  # bisection: the first place out of reach
            while low < high:
                q = (low + high) // 2
                if key_left[i] * key_right[by_key[q]] >= least:
                    low = q + 1
                else:
                    high = q
            reach[i] = low - start
            room += reach[i]

    scope = np.empty((room, 2), np.int32)
    ids = np.empty(room, np.int64)
    places = np.empty(by_key.shape[0] + 1, np.int64)
    n = 0
    for j in range(n_values):
        start = right_ptr[j]
        stop = start + n_near[j]
        for i in range(left_ptr[j], left_ptr[j + 1]):
            if reach[i] == 0:
                continue
            m = 0
            if _SORT * reach[i] < n_near[j]:
                m = reach[i]
                for q in range(m):
                    places[q] = by_key[start + q]
                sort_by(places, np.int64(0), m, rising, spare)
            else:
                k = key_left[i]
                for q in range(start, stop):
                    p = by_place[q]
                    places[m] = p
                    m += k * key_right[p] >= least
            mine, a, number = own[i], left[i], row[i]
            for q in range(m):
                p = places[q]
                if p == mine or (symmetric and p < mine):
                    continue
                scope[n, 0] = a
                scope[n, 1] = right[p]
                ids[n] = number + p - (p > mine)
                n += 1
    return scope[:n], ids[:n]
