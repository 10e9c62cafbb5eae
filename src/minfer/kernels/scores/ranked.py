"""A join of two tables in order of rank, and messages of the clauses that it finds.

Rows a and b that agree (they have the same group) are a candidate if q_a q_b >= low. Within a group
the rows b are sorted by falling q, so for each a the loop ends at the first b that is too small: a
candidate costs a step, and what is none costs nothing. Further literals are looked up by a key that
a and b add up to, in a table over all keys or in one with open addressing.

Messages of a clause to its atoms, c = 1 - e^-w, q_j the chance that literal j is false, are factors

    f_i = 1 - c prod_{j != i} q_j       cavity:  q_i <- q_i / (q_i + (1 - q_i) f_i),  then f_i again

whose logs are added up as logs of products, one log for hundreds of factors.
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit

OPS = ("<", "<=", "<>", ">", ">=")
_HIGH, _LOW = 1e200, 1e-200
_MIX = np.uint64(0x9E3779B97F4A7C15)


@jit
def sort_rows(order, group, start, out):
    """Rows by group, those of a group in the reverse of an order; ``start``: (groups + 1) zeros."""
    for row in order:
        start[group[row] + 1] += 1
    for g in range(len(start) - 1):
        start[g + 1] += start[g]
    place = start.copy()
    for k in range(len(order) - 1, -1, -1):
        g = group[order[k]]
        out[place[g]] = order[k]
        place[g] += 1


@jit
def put(keys, ids, table, hashed):
    """Fill a table of ids, -1 where there is nothing: by key, or (``hashed``: keys that are there)
    where a hash leads; whether no key is there twice."""
    if len(hashed) == 0:
        for k in range(len(keys)):
            if table[keys[k]] >= 0:
                return False
            table[keys[k]] = ids[k]
        return True
    mask = len(hashed) - 1
    for k in range(len(keys)):
        at = _place(keys[k], mask)
        while table[at] >= 0:
            if hashed[at] == keys[k]:
                return False
            at = (at + 1) & mask
        table[at] = ids[k]
        hashed[at] = keys[k]
    return True


@jit
def _place(key, mask):
    mixed = np.uint64(key) * _MIX
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))


@jit
def _find(key, table, start, hashed, first, end):
    """The id at a key of the table from ``start`` on, -1 where there is none."""
    if first == end:
        return table[start + key]
    mask = end - first - 1
    at = _place(key, mask)
    while table[start + at] >= 0:
        if hashed[first + at] == key:
            return table[start + at]
        at = (at + 1) & mask
    return np.int32(-1)


@jit
def _holds(op, x, y):
    if op == 0:
        return x < y
    if op == 1:
        return x <= y
    if op == 2:
        return x != y
    if op == 3:
        return x > y
    return x >= y


class Sides(NamedTuple):
    """What is joined: A rows, and B rows by group, those of a group in order of falling q."""

    group: np.ndarray  # i4 (A,)
    a_id: np.ndarray  # i4 (A,)
    a_q: np.ndarray  # f8 (A,)
    start: np.ndarray  # i8 (groups + 1,) where the rows b of a group begin
    b_id: np.ndarray  # i4 (B,)
    b_q: np.ndarray  # f8 (B,)
    place: np.ndarray  # i8 (2,) of both ids among those of a clause


class Lookups(NamedTuple):
    """K tables that are looked up, end to end."""

    a_key: np.ndarray  # i8 (K, A) what a row adds to the key
    b_key: np.ndarray  # i8 (K, B)
    cells: np.ndarray  # i8 (K,) keys are below it
    start: np.ndarray  # i8 (K + 1,)
    table: np.ndarray  # i4 ids, or -1
    hash_start: np.ndarray  # i8 (K + 1,)
    hashed: np.ndarray  # i8 the keys of a table with open addressing; of others none
    positive: np.ndarray  # b1 (K,) of literals
    place: np.ndarray  # i8 (K,) of literals among those of the clause; -1: there must be no row


NO_LOOKUPS = Lookups(
    *(np.zeros((0, 0), np.int64),) * 2, np.zeros(0, np.int64), np.zeros(1, np.int64),
    np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_),
    np.zeros(0, np.int64),
)  # fmt: skip


class Tests(NamedTuple):
    """T comparisons of numbers of a with numbers of b, and pairs of literals that differ."""

    op: np.ndarray  # i8 (T,) a place in OPS
    a: np.ndarray  # i4 (T, A)
    b: np.ndarray  # i4 (T, B)
    differ: np.ndarray  # i8 (D, 2)


@jit
def candidates(at, sides, p, low, high, tests, lookups, out):
    """Ids of further clauses whose u = product of all q is from ``low`` to ``high``; how many.
    ``at``: the row a and the place among the rows b to go on from (-1: the first), moved."""
    group, a_id, a_q, b_start = sides.group, sides.a_id, sides.a_q, sides.start
    b_id, b_q, a_place, b_place = sides.b_id, sides.b_q, sides.place[0], sides.place[1]
    op, a_tests, b_tests, differ = tests.op, tests.a, tests.b, tests.differ
    a_key, b_key, cells, start = lookups.a_key, lookups.b_key, lookups.cells, lookups.start
    table, hash_start, hashed = lookups.table, lookups.hash_start, lookups.hashed
    positive, place = lookups.positive, lookups.place
    n = 0
    a, b = at[0], at[1]
    while a < len(a_id):
        g = group[a]
        if b < 0:
            b = b_start[g]
        qa = a_q[a]
        while b < b_start[g + 1]:
            u = qa * b_q[b]
            if u < low:
                break
            if n == len(out):
                at[0], at[1] = a, b
                return n
            good = True
            for t in range(len(op)):
                if not _holds(op[t], a_tests[t, a], b_tests[t, b]):
                    good = False
                    break
            if good:
                for k in range(len(place)):
                    key = a_key[k, a] + b_key[k, b]
                    found = np.int32(-1)
                    if 0 <= key < cells[k]:
                        found = _find(
                            key, table, start[k], hashed, hash_start[k], hash_start[k + 1]
                        )
                    if (found >= 0) == (place[k] < 0):
                        good = False
                        break
                    if found >= 0:
                        x = p[found]
                        u *= 1.0 - x if positive[k] else x
                        out[n, place[k]] = found
            if good and low <= u <= high:
                out[n, a_place] = a_id[a]
                out[n, b_place] = b_id[b]
                for k in range(len(differ)):
                    if out[n, differ[k, 0]] == out[n, differ[k, 1]]:
                        good = False
                if good:
                    n += 1
            b += 1
        a += 1
        b = -1
    at[0], at[1] = a, -1
    return n


@jit
def add_messages(scope, positive, p, c, floor, cavity, product, out):
    """Multiply messages of clauses into ``product``, its log into ``out`` where that is large; to a
    positive literal, whose atom they speak against, the inverse."""
    n, width = scope.shape
    q = np.empty(width)
    f = np.empty(width)
    for k in range(n):
        for i in range(width):
            x = p[scope[k, i]]
            q[i] = 1.0 - x if positive[i] else x
        for again in range(2 if cavity else 1):
            for i in range(width):
                others = 1.0
                for j in range(width):
                    if j != i:
                        others *= q[j]
                f[i] = max(1.0 - c * others, floor)
            if cavity and again == 0:
                for i in range(width):
                    q[i] /= max(q[i] + (1.0 - q[i]) * f[i], 1e-300)
        for i in range(width):
            atom = scope[k, i]
            x = product[atom] / f[i] if positive[i] else product[atom] * f[i]
            if not _LOW < x < _HIGH:
                out[atom] += math.log(x)
                x = 1.0
            product[atom] = x
