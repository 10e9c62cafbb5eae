"""Factors folded along an order: what is left of each after its first variables are decided.

A factor becomes a layered automaton that reads its variables in the order of the search. A state of
layer j stands for all ways to decide j variables that leave the same function of the others, up to
a number; its edges say what number each value multiplies and where it leads. Its *content* is a
128-bit hash of that function, variables included. Where all its edges lead to one state the
function is a product, and the hash the sum of the parts' hashes, so that equal products of factors
meet whatever factors they come from: this is what makes the search lift. Machines fold in the same
way, reachable states in place of cells.

What zeros forbid is told for any partial assignment, whatever its order: of a small table by an
index with a digit more for each variable (not known yet), of a machine whose literals commute by
how many it read and its state. Factors with the same zeros share that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.circuits.keys import ONE, fill_slots, find, mix, rounded, times
from minfer.kernels.compiling.jit import jit


class FoldableMachines(NamedTuple):
    """M machines whose literals may be read in any order, over P places in all."""

    fptr: NDArray[np.int64]  # (M+1,)
    position: NDArray[np.int32]  # (P,) of the variable, sorted within each machine
    literal: NDArray[np.int32]  # (P,) the state that makes it true; -1 - s: every other than s
    last: NDArray[np.bool_]  # (P,) it has a step of its own
    kind: NDArray[np.int32]  # (M,) machines of a kind share steps
    start: NDArray[np.int32]  # (M,)
    foff: NDArray[np.int64]  # (M,) where the end weights begin
    final: NDArray[np.float64]
    final_e: NDArray[np.int32]
    koff: NDArray[np.int64]  # (kinds+1,) in states
    step: NDArray[np.int32]  # (states, 4) after a literal read 0, 1; after the last one, 0, 1


class FoldedArrays(NamedTuple):
    """Layered automata of F factors, P states and E edges in all."""

    first: NDArray[np.int32]  # (F,) the state before anything is decided
    eptr: NDArray[np.int32]  # (P,) where its edges begin, one for each value of the next variable
    content: NDArray[np.uint64]  # (P, 2) 0 before the first and after the last variable
    node: NDArray[np.int32]  # (P,) of a last state, -1: none
    to: NDArray[np.int32]  # (E,) -1: zero
    weight: NDArray[np.float64]  # (E,)
    weight_e: NDArray[np.int32]
    scale: NDArray[np.float64]  # (F,) of the whole factor; 0: it is zero
    scale_e: NDArray[np.int32]


@jit
def reads(value, literal):
    """What a literal is, 0 or 1, at a value of its variable."""
    if literal >= 0:
        return 1 if value == literal else 0
    return 0 if value == -1 - literal else 1


class _Pool(NamedTuple):
    eptr: NDArray[np.int32]
    content: NDArray[np.uint64]
    h1: NDArray[np.uint64]
    h2: NDArray[np.uint64]
    node: NDArray[np.int32]
    key1: NDArray[np.uint64]
    key2: NDArray[np.uint64]


@jit
def _wider(p, size):
    """The same pool with room for more states."""
    n = p.eptr.size
    q = _Pool(
        np.empty(size, np.int32), np.empty((size, 2), np.uint64), np.empty(size, np.uint64),
        np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(size, np.uint64),
        np.empty(size, np.uint64),
    )  # fmt: skip
    for i in range(n):
        q.content[i, 0], q.content[i, 1] = p.content[i, 0], p.content[i, 1]
        q.eptr[i], q.h1[i] = p.eptr[i], p.h1[i]
        q.h2[i], q.node[i], q.key1[i], q.key2[i] = p.h2[i], p.node[i], p.key1[i], p.key2[i]
    return q


@jit
def _content(pool, state, salt, card, to, part):
    """Hash of a state: of (value, rounded number, hash behind it), or, where all values lead to one
    state, the sum of that state's and of the numbers' alone. ``part`` (card,) rounded numbers, 0:
    zero."""
    behind, alike, plain = -1, True, True
    for a in range(card):
        if part[a] == 0:
            plain = False
            continue
        if part[a] != ONE:
            plain = False
        if behind < 0:
            behind = to[a]
        elif to[a] != behind:
            alike = False
    h1, h2 = mix(salt, np.uint64(11)), mix(salt, np.uint64(23))
    for a in range(card):
        h1, h2 = mix(h1, np.uint64(part[a])), mix(h2, np.uint64(part[a]))
        if not alike and part[a] != 0:
            h1, h2 = mix(h1, pool.h1[to[a]]), mix(h2, pool.h2[to[a]])
    if alike:
        if plain:
            h1, h2 = np.uint64(0), np.uint64(0)
        h1, h2 = h1 + pool.h1[behind], h2 + pool.h2[behind]
    pool.h1[state], pool.h2[state] = h1, h2
    pool.content[state, 0], pool.content[state, 1] = h1, h2


@jit
def fold(position, fptr, scope, toff, value, value_e, node, card, m, most):
    """Fold tables, then machines. position (V,) of variables in the order; card (n,) by position;
    tables by their variables, row-major; ``node`` of a cell or -1. Returns FoldedArrays and
    whether they have more than ``most`` edges (then they are not finished)."""
    n_tables = toff.size
    n = n_tables + m.kind.size
    first, scale, scale_e = np.empty(n, np.int32), np.zeros(n), np.zeros(n, np.int32)
    none = np.empty(0, np.uint64)
    none32 = np.empty(0, np.int32)
    pool = _wider(_Pool(none32, np.empty((0, 2), np.uint64), none, none, none32, none, none), 1024)
    to, weight, weight_e = np.empty(1024, np.int32), np.empty(1024), np.empty(1024, np.int32)
    n_states, n_edges = 0, 0
    slots = np.full(4096, -1, np.int32)
    ids, v, e = np.empty(1024, np.int32), np.empty(1024), np.empty(1024, np.int64)
    ids2, v2, e2 = np.empty(1024, np.int32), np.empty(1024), np.empty(1024, np.int64)
    widest, longest = 1, 1
    for x in range(card.size):
        widest = max(widest, card[x])
    for f in range(n_tables):
        longest = max(longest, fptr[f + 1] - fptr[f])
    part = np.empty(widest, np.int64)
    where, size, stride = (
        np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64),
    )  # fmt: skip
    digit = np.empty(longest, np.int64)
    reach = np.zeros(1, np.bool_)
    for f in range(n):
        is_table = f < n_tables
        g = f - n_tables
        lo = fptr[f] if is_table else m.fptr[g]
        k = (fptr[f + 1] if is_table else m.fptr[g + 1]) - lo
        k0 = m.koff[0] if is_table else m.koff[m.kind[g]]
        n_auto = 0 if is_table else m.koff[m.kind[g] + 1] - k0
        # the last layer: cells, or states of the machine
        cells = 1
        if is_table:
            for j in range(k - 1, -1, -1):
                size[j] = card[position[scope[lo + j]]]
                stride[j] = cells
                cells *= size[j]
                where[j] = position[scope[lo + j]]
            for j in range(1, k):  # in the order of the search
                w, s, t, q = where[j], size[j], stride[j], j
                while q > 0 and where[q - 1] > w:
                    where[q], size[q], stride[q] = where[q - 1], size[q - 1], stride[q - 1]
                    q -= 1
                where[q], size[q], stride[q] = w, s, t
        else:
            cells = n_auto
            reach = np.zeros((k + 1) * n_auto, np.bool_)
            reach[m.start[g]] = True
            for j in range(k):
                late = 2 if m.last[lo + j] else 0
                for s in range(n_auto):
                    if reach[j * n_auto + s]:
                        for bit in range(2):
                            then = m.step[k0 + s, late + bit]
                            if then >= 0:
                                reach[(j + 1) * n_auto + then] = True
        if cells > ids.size:
            ids, v, e = np.empty(cells, np.int32), np.empty(cells), np.empty(cells, np.int64)
            ids2, v2, e2 = np.empty(cells, np.int32), np.empty(cells), np.empty(cells, np.int64)
        if n_states + cells + 1 > pool.eptr.size:
            pool = _wider(pool, 2 * (n_states + cells + 1))
        p = toff[f] if is_table else m.foff[g]
        for j in range(k if is_table else 0):
            digit[j] = 0
        for cell in range(cells):
            if is_table:
                v[cell], e[cell], item = value[p], value_e[p], node[p]
            else:
                item = -1
                v[cell], e[cell] = m.final[p + cell], m.final_e[p + cell]
                if not reach[k * n_auto + cell]:
                    v[cell] = 0.0
            ids[cell] = -1
            if v[cell] > 0.0:
                k1 = mix(np.uint64(f), np.uint64(item + 1))
                k2 = mix(np.uint64(item + 1), np.uint64(f))
                found = find(slots, pool.key1, pool.key2, k1, k2)
                if found < 0:
                    slots[-1 - found] = n_states
                    found = n_states
                    pool.key1[found], pool.key2[found] = k1, k2
                    pool.eptr[found], pool.node[found] = n_edges, item
                    pool.h1[found], pool.h2[found] = np.uint64(0), np.uint64(0)
                    if item >= 0:
                        pool.h1[found] = mix(np.uint64(item), np.uint64(77))
                        pool.h2[found] = mix(np.uint64(item), np.uint64(99))
                    pool.content[found, 0] = pool.content[found, 1] = np.uint64(0)
                    n_states += 1
                    if 2 * n_states > slots.size:
                        slots = np.full(2 * slots.size, -1, np.int32)
                        fill_slots(slots, pool.key1, n_states)
                ids[cell] = found
            if is_table:
                j = k - 1
                while j >= 0:
                    digit[j] += 1
                    p += stride[j]
                    if digit[j] < size[j]:
                        break
                    p -= stride[j] * size[j]
                    digit[j] = 0
                    j -= 1
        # layer by layer up to the first
        for j in range(k - 1, -1, -1):
            x = where[j] if is_table else m.position[lo + j]
            width = card[x]
            cells = cells // width if is_table else n_auto
            if n_states + cells > pool.eptr.size:
                pool = _wider(pool, 2 * (n_states + cells))
            if n_edges + cells * width > to.size:
                more = 2 * (n_edges + cells * width)
                to2, w2, d2 = np.empty(more, np.int32), np.empty(more), np.empty(more, np.int32)
                for i in range(n_edges):
                    to2[i], w2[i], d2[i] = to[i], weight[i], weight_e[i]
                to, weight, weight_e = to2, w2, d2
            late = 2 if not is_table and m.last[lo + j] else 0
            for cell in range(cells):
                ids2[cell], v2[cell], e2[cell] = -1, 0.0, 0
                if not is_table and not reach[j * n_auto + cell]:
                    continue
                top, top_e = 0.0, 0
                for a in range(width):
                    if is_table:
                        b = cell * width + a
                    else:
                        b = np.int64(m.step[k0 + cell, late + reads(a, m.literal[lo + j])])
                    to[n_edges + a] = -1
                    part[a] = 0
                    if b >= 0 and v[b] > 0.0:
                        to[n_edges + a], weight[n_edges + a] = ids[b], v[b]
                        weight_e[n_edges + a] = e[b]
                        if top == 0.0 or e[b] > top_e or (e[b] == top_e and v[b] > top):
                            top, top_e = v[b], e[b]
                if top == 0.0:
                    continue
                v2[cell], e2[cell] = top, top_e
                k1 = mix(np.uint64(f), np.uint64(j + 2))
                k2 = mix(np.uint64(j + 2), np.uint64(f))
                for a in range(width):
                    i = n_edges + a
                    if to[i] >= 0:
                        r, d = times(weight[i] / top, np.int64(weight_e[i]) - top_e, 1.0, 0)
                        weight[i], weight_e[i] = r, d
                        part[a] = rounded(r, d)
                        k1, k2 = mix(k1, np.uint64(to[i])), mix(k2, np.uint64(to[i]))
                    k1, k2 = mix(k1, np.uint64(part[a])), mix(k2, np.uint64(part[a]))
                found = find(slots, pool.key1, pool.key2, k1, k2)
                if found < 0:
                    slots[-1 - found] = n_states
                    found = n_states
                    n_states += 1
                    pool.key1[found], pool.key2[found] = k1, k2
                    pool.eptr[found], pool.node[found] = n_edges, -1
                    _content(
                        pool, found, np.uint64(x + 1), width, to[n_edges : n_edges + width], part
                    )
                    n_edges += width
                    if 2 * n_states > slots.size:
                        slots = np.full(2 * slots.size, -1, np.int32)
                        fill_slots(slots, pool.key1, n_states)
                ids2[cell] = found
            ids, ids2 = ids2, ids
            v, v2 = v2, v
            e, e2 = e2, e
            if n_edges > most:
                break
        if n_edges > most:
            break
        start = 0 if is_table else np.int64(m.start[g])
        first[f], scale[f], scale_e[f] = ids[start], v[start], e[start]
        if v[start] > 0.0:
            pool.content[ids[start], 0] = pool.content[ids[start], 1] = np.uint64(0)
    folded = FoldedArrays(
        first, pool.eptr[:n_states].copy(), pool.content[:n_states].copy(),
        pool.node[:n_states].copy(), to[:n_edges].copy(), weight[:n_edges].copy(),
        weight_e[:n_edges].copy(), scale, scale_e,
    )  # fmt: skip
    return folded, n_edges > most


class SupportArrays(NamedTuple):
    """What zeros forbid, by partial assignment. Factors that forbid nothing are not listed.

    Factor g has an index, ``start[g]`` before anything is known. At [by + index] ``what`` says 0:
    nothing, 1: some variable is left fewer values, 2: nothing is possible; ``masks`` has at
    [into + index * width + place] the values left to a place of a table (0: all), or, by class, to
    a machine's literals (bit 1: false, bit 2: true).
    """

    start: NDArray[np.int32]  # (G,)
    factor: NDArray[np.int64]  # (G, 4) by, into, and its first place and where they end
    place: NDArray[np.int64]  # (., 3) variable, step, base: a table's index grows by base + value
    #   * step; the step of a machine is -1 - the class, and the base is the literal
    what: NDArray[np.uint8]
    masks: NDArray[np.uint64]
    after: NDArray[np.int32]  # of machines: [(by + index) * 4 + class * 2 + literal], the index


@jit
def _longer(a, n):
    if n <= a.size:
        return a
    out = np.zeros(max(n, 2 * a.size), np.int64)
    for i in range(a.size):
        out[i] = a[i]
    return out


@jit
def supports(position, fptr, scope, toff, value, card, m, most_each, most):
    """SupportArrays of tables and machines; of tables whose index has at most ``most_each`` values,
    of all as long as there are at most ``most``."""
    n_tables, n_machines = toff.size, m.kind.size
    n = n_tables + n_machines
    places = scope.size + m.position.size
    start, factor = np.zeros(n, np.int32), np.empty((n, 4), np.int64)
    place = np.empty((places, 3), np.int64)
    kept, n_places, n_what, n_masks = 0, 0, 0, 0
    what, masks = np.zeros(1024, np.int64), np.zeros(1024, np.int64)  # made small at the end
    after = np.zeros(64, np.int64)
    key1, key2 = np.empty(n, np.uint64), np.empty(n, np.uint64)
    slots_size = 64
    while slots_size < 2 * n:
        slots_size *= 2
    slots = np.full(slots_size, -1, np.int32)
    known_by, known_into = np.empty(n, np.int64), np.empty(n, np.int64)
    n_known = 0
    for f in range(n_tables):
        lo, k = fptr[f], fptr[f + 1] - fptr[f]
        cells, size, wide = 1, 1.0, False
        for j in range(k):
            c = card[position[scope[lo + j]]]
            cells *= c
            size *= c + 1
            wide = wide or c > 62
        zeros = False
        for i in range(toff[f], toff[f] + cells):
            if value[i] == 0.0:
                zeros = True
                break
        if not zeros or wide or size > most_each:
            continue
        k1, k2 = np.uint64(3), np.uint64(5)
        for j in range(k):
            c = np.uint64(card[position[scope[lo + j]]])
            k1, k2 = mix(k1, c), mix(k2, c)
        word = np.uint64(1)
        for i in range(cells):
            word = (word << np.uint64(1)) | np.uint64(1 if value[toff[f] + i] == 0.0 else 0)
            if i % 60 == 59 or i == cells - 1:
                k1, k2 = mix(k1, word), mix(k2, word)
                word = np.uint64(1)
        # the index: the last place fastest, its last digit: not known
        n_index = np.int64(size)
        grow = 1
        for j in range(k - 1, -1, -1):
            c = card[position[scope[lo + j]]]
            place[n_places + j, 0] = position[scope[lo + j]]
            place[n_places + j, 1], place[n_places + j, 2] = grow, -c * grow
            grow *= c + 1
        found = find(slots, key1, key2, k1, k2)
        if found < 0:
            if n_masks + n_index * k > most:
                continue
            slots[-1 - found] = n_known
            found = n_known
            n_known += 1
            key1[found], key2[found] = k1, k2
            known_by[found], known_into[found] = n_what, n_masks
            what, masks = _longer(what, n_what + n_index), _longer(masks, n_masks + n_index * k)
            for i in range(n_index):  # those with one more digit known come before
                rest, cell, open_place = i, 0, -1
                for j in range(k):
                    c = card[place[n_places + j, 0]]
                    digit = rest // place[n_places + j, 1]
                    rest -= digit * place[n_places + j, 1]
                    if digit == c:
                        open_place = j
                    cell = cell * c + min(digit, c - 1)
                if open_place < 0:
                    what[n_what + i] = 2 if value[toff[f] + cell] == 0.0 else 0
                    continue
                rest, some = i, False
                for j in range(k):
                    c = card[place[n_places + j, 0]]
                    digit = rest // place[n_places + j, 1]
                    rest -= digit * place[n_places + j, 1]
                    if digit < c:
                        continue
                    mask, all_values = 0, (1 << c) - 1
                    for a in range(c):
                        if what[n_what + i - (c - a) * place[n_places + j, 1]] != 2:
                            mask |= 1 << a
                    if mask != all_values:
                        some = True
                        masks[n_masks + i * k + j] = mask
                    if mask == 0:
                        what[n_what + i] = 2
                if some and what[n_what + i] != 2:
                    what[n_what + i] = 1
            n_what += n_index
            n_masks += n_index * k
        start[kept], factor[kept, 0], factor[kept, 1] = (
            n_index - 1, known_by[found], known_into[found],
        )  # fmt: skip
        factor[kept, 2], factor[kept, 3] = n_places, n_places + k
        kept += 1
        n_places += k
    for g in range(n_machines):
        lo, k = m.fptr[g], m.fptr[g + 1] - m.fptr[g]
        k0 = m.koff[m.kind[g]]
        n_auto = m.koff[m.kind[g] + 1] - k0
        early, wide = 0, False
        k1, k2 = mix(np.uint64(m.kind[g]), np.uint64(7)), mix(np.uint64(m.kind[g]), np.uint64(9))
        for j in range(k):
            wide = wide or card[m.position[lo + j]] > 62
            early += 0 if m.last[lo + j] else 1
        zeros = False
        for s in range(n_auto):
            zero = m.final[m.foff[g] + s] == 0.0
            forbids = zero
            for bit in range(4):
                forbids = forbids or m.step[k0 + s, bit] < 0
            zeros = zeros or forbids
            bit = np.uint64(1 if zero else 0)
            k1, k2 = mix(k1, bit), mix(k2, bit)
        k1, k2 = mix(k1, np.uint64(k)), mix(k2, np.uint64(k))
        if wide or not zeros:
            continue
        n_index = (early + 1) * n_auto
        found = find(slots, key1, key2, k1, k2)
        if found < 0:
            if n_masks + 2 * n_index > most:
                continue
            slots[-1 - found] = n_known
            found = n_known
            n_known += 1
            key1[found], key2[found] = k1, k2
            known_by[found], known_into[found] = n_what, n_masks
            what, masks = _longer(what, n_what + n_index), _longer(masks, n_masks + 2 * n_index)
            after = _longer(after, 4 * (n_what + n_index))
            has_last = early < k
            for i in range(n_index - 1, -1, -1):
                read, s = i // n_auto, i % n_auto
                # what is still to read: early ones, and the last where a step with it exists
                still = has_last and (m.step[k0 + s, 2] != s or m.step[k0 + s, 3] != s)
                fine, some = False, False
                for late in range(2):
                    mask = 0
                    for bit in range(2):
                        then, at = m.step[k0 + s, 2 * late + bit], -1
                        if late == 0 and read < early and then >= 0:
                            at = (read + 1) * n_auto + then
                        if late == 1 and still and then >= 0:
                            at = read * n_auto + then
                        after[4 * (n_what + i) + 2 * late + bit] = at
                        if at >= 0 and what[n_what + at] != 2:
                            mask |= 1 << bit
                    masks[n_masks + 2 * i + late] = mask
                    waits = read < early if late == 0 else still
                    some = some or (waits and mask != 3)
                    fine = fine or mask != 0
                if read == early and not still:
                    fine = m.final[m.foff[g] + s] > 0.0
                what[n_what + i] = 2 if not fine else (1 if some else 0)
            n_what += n_index
            n_masks += 2 * n_index
        start[kept], factor[kept, 0], factor[kept, 1] = (
            m.start[g], known_by[found], known_into[found],
        )  # fmt: skip
        factor[kept, 2], factor[kept, 3] = n_places, n_places + k
        for j in range(k):
            place[n_places + j, 0] = m.position[lo + j]
            place[n_places + j, 1] = -2 if m.last[lo + j] else -1
            place[n_places + j, 2] = m.literal[lo + j]
        kept += 1
        n_places += k
    what8, masks64 = np.empty(n_what, np.uint8), np.empty(n_masks, np.uint64)
    after32 = np.empty(after.size, np.int32)
    for i in range(n_what):
        what8[i] = what[i]
    for i in range(n_masks):
        masks64[i] = np.uint64(masks[i])
    for i in range(after.size):
        after32[i] = after[i]
    return SupportArrays(
        start[:kept].copy(), factor[:kept].copy(), place[:n_places].copy(), what8, masks64, after32
    )  # fmt: skip
