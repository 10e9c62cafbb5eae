"""Both passes over a clique tree for many rows at once, a row in each of L = 8 lanes of a vector.

A single row of a first pass, where a call counts microseconds, is the same in one lane.

A *node* is a clique, or a place where some inputs of a clique meet before they meet the clique. Its
cells x have a product psi(x) of tables and *inputs* m_i: the messages of its children and the
fields of some of its variables. With the separator s outermost and the rest r innermost,

    up(s)  = sum_r b(s, r),    b(x) = psi(x) prod_i m_i(x)              towards the roots
    p(x)   = b(x) top(s) / up(s),    top_i(.) = sum_{x ~ .} p(x)        back

where ``top`` of a root is 1. What an input's marginal is (a separator's, a variable's) goes where
the input came from, in a second array, so that one map from cells to entries serves both passes.

Numbers are linear: tables and fields have maximum 1, messages are scaled by powers of two if their
maximum leaves 1e-30..1e30, and a node has at most ``MOST_INPUTS``. So products never overflow. What
underflow may have cost is bounded along the way: with M_i the maximum of an input, mu_i its
smallest positive entry and R = max_s sum_r psi(s, r),

    r_c = R prod M_i (prod (1 + r_i) - 1) / max up    +    cells * LOST * prod max(M_i, 1) / max up

bounds the mass that up(s) lacks, relative to its maximum; the second term only where the product of
all mu_i is below FLOOR, since else no product of positive numbers is lost. All marginals are those
of the measure without the lost mass, so they are wrong by no more than the r of the roots, and a
root without mass means a contradiction if its r is 0. Rows for which r is not tiny are *unsafe*.

Where one variable is asked for, the tree is rooted in a clique that has it, and the first pass is
all there is: ``answer`` names the node whose message is over the variable.

``work`` holds, in vectors, the values (fields, slices, messages) and what is at :func:`_places`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minfer.kernels.arithmetic.lanes import (
    aligned,
    choose,
    exp,
    lanes_of,
    larger,
    load,
    load_as,
    lone,
    smaller,
    splat,
    store,
)
from minfer.kernels.arithmetic.vexp import exp_in_place
from minfer.kernels.compiling import plain as _plain
from minfer.kernels.compiling.jit import jit
from minfer.kernels.compiling.plain import instead

L = 8  # lanes of a vector of doubles
MOST_INPUTS = 8
#: Columns of ``nodes``: its cells, entries of its message, first cell, where the ends of the
#: entries' cells lie, where its message lies, its inputs, whether it is a root.
CELLS, ENTRIES, FIRST, ENDS, MESSAGE, INPUTS, INPUTS_END, ROOT = range(8)
#: Columns of ``inputs``: where its entries lie, its map, the number of the source in ``bounds``.
SOURCE, MAP, BOUND = range(3)
#: Columns of ``tables``: node, map over all its cells, first entry, entries, the first table with
#: the same entries.
T_NODE, T_MAP, T_FIRST, T_SIZE, T_SAME = range(5)
#: Columns of ``slices`` (tables of which rows select a part): first entry, entries of the part, its
#: map into the table, where the part goes, its observed variables (in ``picks``), entries of all.
S_FIRST, S_SIZE, S_MAP, S_INTO, S_PICKS, S_PICKS_END, S_WHOLE = range(7)

SMALLEST = -640.0  # logarithms below this count as lost: e^-640 < LOST
LOST = 1e-277
FLOOR = 1e-280
NOTHING = 1e-290  # entries of messages below this count as 0, so that one may divide by the others
NEGLIGIBLE = 1e-14  # share of the mass that may be lost
SMALL, LARGE = 1e-30, 1e30  # maxima of messages

BOTH_PASSES = -2  # in place of a node: marginals of all variables
UNUSED = 2  # in ``cut``: a variable whose field is zero and is not an input


class PackedTree(NamedTuple):
    """A clique tree; columns are named above."""

    nodes: np.ndarray  # i8 (C, 8)
    inputs: np.ndarray  # i8 (I, 3)
    tables: np.ndarray  # i8 (T, 5)
    slices: np.ndarray  # i8 (., 7)
    picks: np.ndarray  # i8 (., 2) an observed variable, and its step in the table
    maps: np.ndarray  # i4 those of inputs and, by separator entry of a node, where its cells end
    cut: np.ndarray  # u1 (V,) 1: taken out of the model, observed states select slices; UNUSED
    answer: int  # the node whose message is all that is asked for, -1: log Z only, BOTH_PASSES


class RowNumbers(NamedTuple):
    """What all rows share."""

    psi: np.ndarray  # f8 products of tables, cell by cell of all nodes
    shared: np.ndarray  # f8 (7, .) low, most of nodes; low, lost, top of fields; ... of slices
    card: np.ndarray  # i4 (V,)
    off: np.ndarray  # i8 (V+1,)
    log_field: np.ndarray  # f8 (sum S,)
    field: np.ndarray  # f8 (sum S,) its exponentials, each variable's maximum 1
    table: np.ndarray  # f8 of tables that rows select slices of: the same


class RowInputs(NamedTuple):
    """What N rows bring; an array that is not given has no rows."""

    evidence: np.ndarray  # i4 (N, V) observed states, -1 where free
    field: np.ndarray  # f8 (N, sum S) added to the field
    log_psi: np.ndarray  # f8 (N, .) tables of their own


class SolvedRows(NamedTuple):
    """Answers, one line a row. Where ``unsafe`` they are NaN and another solver has to be asked."""

    probs: np.ndarray  # f8 (N, sum S); NaN where impossible
    log_z: np.ndarray  # f8 (N,) minus infinity where impossible
    unsafe: np.ndarray  # b1 (N,)
    joints: np.ndarray  # f8 (N, cells of all tables end to end), if asked for, else no rows


# ---------------------------------------------------------------- structure


@instead(_plain.at)
@intrinsic
def _at(context, array, i):
    """Number i >= 0 of an array, row by row, as an int64 or a float64: no look at whether i counts
    from the end."""
    wide = types.float64 if array.dtype == types.float64 else types.int64

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        x = builder.load(builder.gep(data, [args[1]]))
        return x if array.dtype == wide else builder.sext(x, ir.IntType(64))

    return wide(array, types.intp), codegen


@jit
def index_maps(card, node_ptr, node_var, which, scope_ptr, scope_var, start, maps):
    """maps[start[i] + x] = where cell x of node which[i] lies in a table over scope i.

    Cells and entries are row-major, the last variable fastest.
    """
    stride = np.zeros(card.size, np.int64)
    for i in range(which.size):
        lo, hi = scope_ptr[i], scope_ptr[i + 1]
        step = 1
        for k in range(hi - 1, lo - 1, -1):
            stride[scope_var[k]] = step
            step *= card[scope_var[k]]
        at = start[i]
        maps[at] = 0
        size = 1
        for k in range(node_ptr[which[i] + 1] - 1, node_ptr[which[i]] - 1, -1):
            v = node_var[k]
            for q in range(1, card[v]):
                for j in range(size):
                    maps[at + q * size + j] = maps[at + j] + q * stride[v]
            size *= card[v]
        for k in range(lo, hi):
            stride[scope_var[k]] = 0


# ---------------------------------------------------------------- numbers that all rows share


@jit
def shared_products(nodes, tables, maps, log_psi, psi, live, top, low, most):
    """psi of all cells with maximum 1, and which are not zero; returns how many are zero. By node:
    the log of what psi was divided by (minus infinity if there is nothing), the smallest positive
    entry (0 if some are lost), R."""
    psi[:] = 0.0
    for t in range(tables.shape[0]):
        node = tables[t, T_NODE]
        at, first, to = tables[t, T_MAP], tables[t, T_FIRST], nodes[node, FIRST]
        for j in range(nodes[node, CELLS]):
            psi[to + j] += log_psi[first + maps[at + j]]
    n_zero = 0
    for c in range(nodes.shape[0]):
        first = nodes[c, FIRST]
        part = psi[first : first + nodes[c, CELLS]]
        most[c] = 0.0
        low[c] = 1.0
        top[c] = part.max()
        shift = top[c] if top[c] > -np.inf else 0.0
        for j in range(part.size):
            part[j] -= shift
            positive = part[j] > -np.inf
            live[first + j] = positive
            n_zero += not positive
            if part[j] < SMALLEST:
                part[j] = -np.inf
                if positive:
                    low[c] = 0.0
        exp_in_place(part)
        width = part.size // nodes[c, ENTRIES]
        for s in range(nodes[c, ENTRIES]):
            total = 0.0
            for j in range(s * width, (s + 1) * width):
                total += part[j]
                if part[j] > 0.0:
                    low[c] = min(low[c], part[j])
            most[c] = max(most[c], total)
    return n_zero


@jit
def _linear(logs, lo, hi, out):
    """exp(logs - top) from lo to hi, top their maximum; top, the smallest positive entry, and LOST
    where one is too small to be there."""
    top = -np.inf
    for k in range(lo, hi):
        top = max(top, logs[k])
    low, lost = 1.0, 0.0
    for k in range(lo, hi):
        out[k] = 0.0
        if logs[k] > -np.inf:
            x = logs[k] - top
            if x >= SMALLEST:
                out[k] = np.exp(x)
                low = min(low, out[k])
            else:
                lost = LOST
    return top, low, lost


@jit
def shared_fields(off, log_field, field, top, low, lost):
    """The same for fields; ``lost``: LOST where an entry is."""
    for v in range(off.size - 1):
        top[v], low[v], lost[v] = _linear(log_field, off[v], off[v + 1], field)


@jit
def shared_slices(slices, log_psi, table, low, lost):
    """The same for tables of which rows select a part; returns the sum of the maxima's logs."""
    total = 0.0
    for t in range(slices.shape[0]):
        lo = slices[t, S_FIRST]
        top, low[t], lost[t] = _linear(log_psi, lo, lo + slices[t, S_WHOLE], table)
        total += top
    return total


@jit
def reached_entries(slices, picks, maps, card, log_psi, reached):
    """Entries of the parts, u1 end to end, that some observed states make positive."""
    at = 0
    for t in range(slices.shape[0]):
        n_states = 1
        for p in range(slices[t, S_PICKS], slices[t, S_PICKS_END]):
            n_states *= card[picks[p, 0]]
        for k in range(slices[t, S_SIZE]):
            reached[at] = 0
            for joint in range(n_states):
                i, rest = slices[t, S_FIRST] + maps[slices[t, S_MAP] + k], joint
                for p in range(slices[t, S_PICKS], slices[t, S_PICKS_END]):
                    states = card[picks[p, 0]]
                    i += (rest % states) * picks[p, 1]
                    rest //= states
                if log_psi[i] > -np.inf:
                    reached[at] = 1
                    break
            at += 1


@jit
def live_cells(nodes, inputs, maps, entered, live):
    """Cells that some row may reach: those that are not zero and agree with such of neighbours.
    ``live`` u1 of all cells: those of positive psi before; ``entered`` u1 of the entries of fields
    and slices: those that may be positive. Returns how many are left."""
    n_fields = entered.size
    n = nodes.shape[0]
    size = n_fields
    for c in range(n):
        size = max(size, nodes[c, MESSAGE] + nodes[c, ENTRIES])
    up = np.ones(size, np.uint8)
    for k in range(n_fields):
        up[k] = entered[k]
    for c in range(n):
        first, width = nodes[c, FIRST], nodes[c, CELLS] // nodes[c, ENTRIES]
        for j in range(nodes[c, CELLS]):
            alive = live[first + j] > 0
            for i in range(nodes[c, INPUTS], nodes[c, INPUTS_END]):
                alive = alive and up[inputs[i, SOURCE] + maps[inputs[i, MAP] + j]] > 0
            live[first + j] = alive
        for s in range(nodes[c, ENTRIES]):
            alive = False
            for j in range(s * width, (s + 1) * width):
                alive = alive or live[first + j] > 0
            up[nodes[c, MESSAGE] + s] = alive
    for c in range(n):  # from here on: what the parents have
        if not nodes[c, ROOT]:
            for s in range(nodes[c, ENTRIES]):
                up[nodes[c, MESSAGE] + s] = 0
    count = 0
    for c in range(n - 1, -1, -1):
        first, width = nodes[c, FIRST], nodes[c, CELLS] // nodes[c, ENTRIES]
        for j in range(nodes[c, CELLS]):
            if up[nodes[c, MESSAGE] + j // width] == 0:
                live[first + j] = 0
            if live[first + j]:
                count += 1
                for i in range(nodes[c, INPUTS], nodes[c, INPUTS_END]):
                    if inputs[i, SOURCE] >= n_fields:
                        up[inputs[i, SOURCE] + maps[inputs[i, MAP] + j]] = 1
    return count


@jit
def without_dead(nodes, inputs, maps, psi, live, nodes2, inputs2, maps2, psi2):
    """The same nodes with only their live cells: fills the arrays that end in 2."""
    cell, at = 0, 0
    for c in range(nodes.shape[0]):
        first, width = nodes[c, FIRST], nodes[c, CELLS] // nodes[c, ENTRIES]
        nodes2[c] = nodes[c]
        nodes2[c, FIRST] = cell
        nodes2[c, ENDS] = at
        count = 0
        for s in range(nodes[c, ENTRIES]):
            for j in range(s * width, (s + 1) * width):
                if live[first + j]:
                    psi2[cell + count] = psi[first + j]
                    count += 1
            maps2[at + s] = count
        at += nodes[c, ENTRIES]
        nodes2[c, CELLS] = count
        cell += count
        for i in range(nodes[c, INPUTS], nodes[c, INPUTS_END]):
            inputs2[i] = inputs[i]
            inputs2[i, MAP] = at
            for j in range(nodes[c, CELLS]):
                if live[first + j]:
                    maps2[at] = maps[inputs[i, MAP] + j]
                    at += 1


# ---------------------------------------------------------------- what rows bring


@jit
def _places(n_values, n_bounds, n):
    """Where in ``work``, behind the values, parts begin, and its end: of all inputs and nodes M, mu
    and r; of nodes the logs of their scales, the scales, their smallest positive psi, and R."""
    b, c = n_values, n_values + 3 * n_bounds
    return b, b + n_bounds, b + 2 * n_bounds, c, c + n, c + 2 * n, c + 3 * n, c + 4 * n


@jit
def _enter_shared(nodes, n_slices, n_variables, shared, own, work, place, like):
    """Bounds of slices and nodes that do not depend on the row."""
    lanes = lanes_of(like)
    largest, small, miss, _, _, low, most, end = place
    for k in range(largest * lanes, end * lanes):
        work[k] = 1.0
    for t in range(n_slices):
        store(work, (small + n_variables + t) * lanes, splat(like, shared[5, t]))
        store(work, (miss + n_variables + t) * lanes, splat(like, shared[6, t]))
    for c in range(nodes.shape[0]):
        bound = shared[1, c]
        if own:  # what psi <= 1 allows
            bound = np.float64(nodes[c, CELLS] // nodes[c, ENTRIES])
        store(work, (low + c) * lanes, splat(like, shared[0, c]))
        store(work, (most + c) * lanes, splat(like, bound))


@jit
def _enter_states(off, evidence, r0, log_field, field, cut, shared, work, place, constant):
    """Fields of a block of rows that bring evidence at most: an observed state alone has 1."""
    last = evidence.shape[0] - 1
    small, miss = place[1], place[2]
    for v in range(off.size - 1):
        if cut[v] == UNUSED:
            continue
        lo, hi = off[v], off[v + 1]
        for k in range(lo, hi):
            store(work, k * L, splat(work, field[k]))
        store(work, (small + v) * L, splat(work, shared[2, v]))
        store(work, (miss + v) * L, splat(work, shared[3, v]))
        for lane in range(L):
            x = evidence[min(r0 + lane, last), v]
            if x >= 0:
                work[(small + v) * L + lane] = 1.0
                work[(miss + v) * L + lane] = 0.0
                if shared[4, v] > -np.inf:
                    constant[lane] += log_field[lo + x] - shared[4, v]
                for k in range(lo, hi):
                    work[k * L + lane] = 0.0
                work[(lo + x) * L + lane] = 1.0


@jit
def _enter_fields(off, evidence, given, r0, log_field, work, place, constant):
    """Fields of a block of rows that bring fields of their own, and perhaps evidence."""
    last = given.shape[0] - 1
    small, miss = place[1], place[2]
    for v in range(off.size - 1):
        lo, hi = off[v], off[v + 1]
        for lane in range(L):
            r = min(r0 + lane, last)
            x = evidence[r, v] if evidence.shape[0] else -1
            most, least = -np.inf, np.inf
            for k in range(lo, hi):
                y = log_field[k] + given[r, k] if x < 0 or k == lo + x else -np.inf
                work[k * L + lane] = y
                most = max(most, y)
                if y > -np.inf:
                    least = min(least, y)
            constant[lane] += most
            lost = least - most < SMALLEST
            work[(small + v) * L + lane] = 0.0 if lost else np.exp(least - most)
            work[(miss + v) * L + lane] = LOST if lost else 0.0
            for k in range(lo, hi):
                y = work[k * L + lane] - most
                work[k * L + lane] = y if y >= SMALLEST else -np.inf
        for k in range(lo, hi):
            store(work, k * L, exp(load(work, k * L)))


@jit
def _enter_slices(slices, picks, maps, table, evidence, r0, values):
    """The parts of tables that the observed states select."""
    last = evidence.shape[0] - 1
    for t in range(slices.shape[0]):
        at, into = slices[t, S_MAP], slices[t, S_INTO]
        for lane in range(L):
            r = min(r0 + lane, last)
            first = slices[t, S_FIRST]
            for p in range(slices[t, S_PICKS], slices[t, S_PICKS_END]):
                first += evidence[r, picks[p, 0]] * picks[p, 1]
            for k in range(slices[t, S_SIZE]):
                values[(into + k) * L + lane] = table[first + maps[at + k]]


@jit
def _enter_weights(nodes, tables, maps, log_psi, r0, linear, bounds, belief, work, low, constant):
    """psi of rows that bring tables of their own, into ``belief``, with the bounds of nodes.
    ``linear``: the tables' entries, each table with maximum 1; ``bounds``: by table, the log of its
    maximum and its smallest entry, for those that share their entries with others."""
    last = log_psi.shape[0] - 1
    for lane in range(L):
        row = log_psi[min(r0 + lane, last)]
        for k in range(row.size):
            linear[k * L + lane] = row[k]
    nothing = splat(belief, -np.inf)
    one, zero, limit = splat(belief, 1.0), splat(belief, 0.0), splat(belief, SMALLEST)
    for c in range(nodes.shape[0]):
        store(work, (low + c) * L, one)
    for j in range(belief.size // L):
        store(belief, j * L, one)
    total = load(constant, 0)
    for t in range(tables.shape[0]):
        node, first, same = tables[t, T_NODE], tables[t, T_FIRST], tables[t, T_SAME]
        if same == t:
            top, least = nothing, one
            for k in range(first, first + tables[t, T_SIZE]):
                top = larger(top, load(linear, k * L))
            shift = choose(top, nothing, top, zero)
            for k in range(first, first + tables[t, T_SIZE]):
                x = load(linear, k * L) - shift
                y = choose(limit, x, zero, exp(x))
                store(linear, k * L, y)
                least = smaller(least, choose(x, nothing, y, one))
            store(bounds, 2 * t * L, top)
            store(bounds, (2 * t + 1) * L, least)
        total = total + load(bounds, 2 * same * L)
        least = load(work, (low + node) * L) * load(bounds, (2 * same + 1) * L)
        store(work, (low + node) * L, least)
        at, to = tables[t, T_MAP], nodes[node, FIRST]
        for j in range(nodes[node, CELLS]):
            x = load(linear, (first + _at(maps, at + j)) * L)
            store(belief, (to + j) * L, load(belief, (to + j) * L) * x)
    store(constant, 0, total)


# ---------------------------------------------------------------- the two passes


@jit
def _cell(psi, belief, j, own, like):
    """psi of a cell, in all lanes; ``own``: each row's."""
    if own:
        return load_as(like, belief, j * lanes_of(like))
    return splat(like, _at(psi, j))


@jit
def _up(nodes, inputs, maps, psi, own, keep, todo, work, place, belief, like):
    """Messages of the nodes ``todo``, children first; ``keep``: cells, for the way back."""
    lanes = lanes_of(like)
    largest, small, miss, logs, scale, low, most, _ = place
    bound0 = small - largest - nodes.shape[0]
    zero, one = splat(like, 0.0), splat(like, 1.0)
    floor, huge, nothing = splat(like, FLOOR), splat(like, 1e300), splat(like, NOTHING)
    for c in todo:
        first, ends, message = nodes[c, FIRST], nodes[c, ENDS], nodes[c, MESSAGE]
        i0, i1 = nodes[c, INPUTS], nodes[c, INPUTS_END]
        top, least = zero, huge
        j = 0
        for s in range(nodes[c, ENTRIES]):
            total = zero
            end = _at(maps, ends + s)
            while j < end:
                x = _cell(psi, belief, first + j, own, like)
                for i in range(i0, i1):
                    k = _at(inputs, 3 * i + SOURCE) + _at(maps, _at(inputs, 3 * i + MAP) + j)
                    x = x * load_as(like, work, k * lanes)
                if keep:
                    store(belief, (first + j) * lanes, x)
                total = total + x
                j += 1
            store(work, (message + s) * lanes, choose(total, nothing, total, zero))
            top = larger(top, total)
            least = smaller(least, choose(total, zero, total, huge))
        # what may be lost
        least_cell = load_as(like, work, (low + c) * lanes)
        product, above = one, one
        missing = zero
        for i in range(i0, i1):
            b = inputs[i, BOUND]
            x = load_as(like, work, (largest + b) * lanes)
            product = product * x
            above = above * larger(x, one)
            least_cell = least_cell * smaller(load_as(like, work, (small + b) * lanes), one)
            missing = missing + load_as(like, work, (miss + b) * lanes)
        fresh = choose(floor, least_cell, above * (LOST * nodes[c, CELLS]), zero)
        missing = load_as(like, work, (most + c) * lanes) * product * missing * 2.0 + fresh
        missing = choose(missing, zero, missing / top, zero)
        # into the range of numbers
        at = (scale + c) * lanes
        store(work, at, top)
        bad = False
        for k in range(at, at + lanes):
            bad = bad or (work[k] < SMALL and work[k] > 0.0) or work[k] > LARGE
        factor = one
        store(work, (logs + c) * lanes, zero)
        if bad:
            for lane in range(lanes):
                height = work[at + lane]
                work[at + lane] = 1.0
                if (height < SMALL and height > 0.0) or height > LARGE:
                    power = np.floor(np.log2(height))
                    work[at + lane] = 2.0**-power
                    work[(logs + c) * lanes + lane] = power * np.log(2.0)
            factor = load_as(like, work, at)
            for s in range(nodes[c, ENTRIES]):
                total = load_as(like, work, (message + s) * lanes) * factor
                store(work, (message + s) * lanes, choose(total, nothing, total, zero))
        store(work, at, factor)
        store(work, (largest + bound0 + c) * lanes, top * factor)
        store(work, (small + bound0 + c) * lanes, least * factor)
        store(work, (miss + bound0 + c) * lanes, missing)


@jit
def _sum_up(nodes, work, place, found, at, like):
    """What a first pass found is added to found[at:], log Z by lane; behind that, the largest r."""
    lanes = lanes_of(like)
    miss, logs = place[3] - nodes.shape[0], place[3]
    lacking = splat(like, 0.0)
    for c in range(nodes.shape[0]):
        log_z = load_as(like, found, at) + load_as(like, work, (logs + c) * lanes)
        store(found, at, log_z)
        lacking = larger(load_as(like, work, (miss + c) * lanes), lacking)  # the roots' unless NaN
        if nodes[c, ROOT]:
            total = splat(like, 0.0)
            for s in range(nodes[c, MESSAGE], nodes[c, MESSAGE] + nodes[c, ENTRIES]):
                total = total + load_as(like, work, s * lanes)
            store(found, at + lanes, total)
            for k in range(at, at + lanes):
                found[k] += np.log(found[k + lanes])
    store(found, at + lanes, lacking)


@jit
def _down(nodes, inputs, maps, work, belief, scale, out, keep):
    """Marginals of all separators and variables, parents first; ``keep``: of nodes, as beliefs."""
    zero, one = splat(work, 0.0), splat(work, 1.0)
    for c in range(nodes.shape[0] - 1, -1, -1):
        first, ends, message = nodes[c, FIRST], nodes[c, ENDS], nodes[c, MESSAGE]
        i0, i1 = nodes[c, INPUTS], nodes[c, INPUTS_END]
        if i1 == i0 and not keep:
            continue
        factor = load(work, (scale + c) * L)
        j = 0
        for s in range(nodes[c, ENTRIES]):
            up = load(work, (message + s) * L)
            top = one if nodes[c, ROOT] else load(out, (message + s) * L)
            ratio = choose(up, zero, factor / up * top, zero)
            end = _at(maps, ends + s)
            while j < end:
                v = load(belief, (first + j) * L) * ratio
                if keep:
                    store(belief, (first + j) * L, v)
                for i in range(i0, i1):
                    k = (_at(inputs, 3 * i + SOURCE) + _at(maps, _at(inputs, 3 * i + MAP) + j)) * L
                    store(out, k, load(out, k) + v)
                j += 1


@jit
def _table_marginals(nodes, tables, maps, belief, sums, joints, r0):
    """Marginals of the tables, end to end as they are listed, each with total 1."""
    at = 0
    zero = splat(belief, 0.0)
    for t in range(tables.shape[0]):
        node, size = tables[t, T_NODE], tables[t, T_SIZE]
        first, map0 = nodes[node, FIRST], tables[t, T_MAP]
        for k in range(size):
            store(sums, k * L, zero)
        total = zero
        for j in range(nodes[node, CELLS]):
            k = maps[map0 + j] * L
            x = load(belief, (first + j) * L)
            total = total + x
            store(sums, k, load(sums, k) + x)
        for k in range(size):
            store(sums, k * L, load(sums, k * L) / total)
        for lane in range(min(L, joints.shape[0] - r0)):
            for k in range(size):
                joints[r0 + lane, at + k] = sums[k * L + lane]
        at += size


@jit
def _observed(card, evidence, seen):
    """Which variables some row observes, ``seen`` u1. Returns a row with a wrong state, or -1."""
    for r in range(evidence.shape[0]):
        wrong = False
        for v in range(evidence.shape[1]):
            x = evidence[r, v]
            seen[v] |= x >= 0
            wrong |= x >= card[v]
        if wrong:
            return r
    return -1


@jit
def _touched(nodes, inputs, n_slices, seen):
    """Nodes whose message depends on the row: below them is a slice, or a variable in ``seen``."""
    n_variables = seen.size
    touched = np.zeros(nodes.shape[0], np.bool_)
    for c in range(nodes.shape[0]):
        for i in range(nodes[c, INPUTS], nodes[c, INPUTS_END]):
            b = inputs[i, BOUND]
            if b < n_variables:
                touched[c] |= seen[b] > 0
            elif b < n_variables + n_slices:
                touched[c] = True
            else:
                touched[c] |= touched[b - n_variables - n_slices]
    return touched


@jit
def run_rows(tree, numbers, rows, constant, solved):
    """All rows; returns one whose evidence has a state that is none, or -1."""
    nodes, inputs, tables, slices, picks, maps, cut, answer = tree
    psi, shared, card, off, log_field, field, table = numbers
    evidence, given, log_psi = rows
    probs, log_z, unsafe, joints = solved
    n, n_variables, n_slices = nodes.shape[0], off.size - 1, slices.shape[0]
    seen = np.zeros(n_variables, np.uint8)
    wrong = _observed(card, evidence, seen)
    if wrong >= 0:
        return wrong
    n_rows, n_states = probs.shape[0], off[n_variables]
    n_values = n_states
    keep = answer == BOTH_PASSES
    for t in range(n_slices):
        n_values += slices[t, S_SIZE]
    n_cells = 0
    for c in range(n):
        n_values += nodes[c, ENTRIES]
        n_cells += nodes[c, CELLS]
    largest = 0
    for t in range(tables.shape[0]):
        largest = max(largest, tables[t, T_SIZE])
    like = np.zeros(L)
    zero, one = splat(like, 0.0), splat(like, 1.0)
    own = log_psi.shape[0] > 0
    place = _places(n_values, n_variables + n_slices + n, n)
    work = aligned(place[7] * L, like)
    out = aligned(n_values * L if keep else 0, like)
    belief = aligned(n_cells * L if keep else 0, like)
    sums = aligned(largest * L if joints.shape[0] else 0, like)
    linear = aligned(log_psi.shape[1] * L if own else 0, like)
    tops = aligned(2 * tables.shape[0] * L if own else 0, like)
    found = np.empty(2 * L)  # log Z, and what it may lack
    _enter_shared(nodes, n_slices, n_variables, shared, own, work, place, zero)
    todo = np.arange(n)
    again = todo
    if not own and not given.shape[0] and not joints.shape[0]:
        again = np.flatnonzero(_touched(nodes, inputs, n_slices, seen))
    if not given.shape[0]:
        for v in range(n_variables):
            constant += shared[4, v]
    steady = not evidence.shape[0] and not given.shape[0]
    nobody = np.full((1, n_variables), -1, np.int32)
    for r0 in range(0, n_rows, L):
        found[:] = constant
        if given.shape[0]:
            _enter_fields(off, evidence, given, r0, log_field, work, place, found)
        elif r0 == 0 or not steady:
            _enter_states(
                off, nobody if steady else evidence, 0 if steady else r0, log_field, field, cut,
                shared, work, place, found,
            )  # fmt: skip
        if n_slices:
            _enter_slices(slices, picks, maps, table, evidence, r0, work)
        if own:
            _enter_weights(
                nodes, tables, maps, log_psi, r0, linear, tops, belief, work, place[5], found
            )
        _up(nodes, inputs, maps, psi, own, keep, todo, work, place, belief, zero)
        todo = again
        _sum_up(nodes, work, place, found, 0, zero)
        for r in range(r0, min(r0 + L, n_rows)):
            log_z[r] = found[r - r0]
            unsafe[r] = not (found[L + r - r0] < NEGLIGIBLE and log_z[r] < np.inf)
            if unsafe[r]:
                log_z[r] = np.nan
        if not keep:
            first = nodes[answer, MESSAGE] if answer >= 0 else 0
            for r in range(r0, min(r0 + L, n_rows)):
                mass = 0.0 if log_z[r] > -np.inf else np.nan
                for k in range(probs.shape[1]):
                    mass += work[(first + k) * L + r - r0]
                for k in range(probs.shape[1]):
                    probs[r, k] = work[(first + k) * L + r - r0] / mass
            continue
        for k in range(n_values):
            store(out, k * L, zero)
        _down(nodes, inputs, maps, work, belief, place[4], out, joints.shape[0] > 0)
        for v in range(n_variables):
            if not cut[v]:
                total = zero
                for k in range(off[v], off[v + 1]):
                    total = total + load(out, k * L)
                total = one / total
                for k in range(off[v], off[v + 1]):
                    store(out, k * L, load(out, k * L) * total)
            else:
                for k in range(off[v], off[v + 1]):
                    store(out, k * L, load(work, k * L))
        if joints.shape[0]:
            _table_marginals(nodes, tables, maps, belief, sums, joints, r0)
        for r in range(r0, min(r0 + L, n_rows)):
            if log_z[r] > -np.inf:
                for k in range(n_states):
                    probs[r, k] = out[k * L + r - r0]
            else:
                probs[r] = np.nan
                if joints.shape[0]:
                    joints[r] = np.nan
    return -1


# ---------------------------------------------------------------- one row


@jit
def start_one(nodes, inputs, slices, maps, psi, shared, field, n_variables):
    """What all single rows of a first pass have in common: ``work``, with room for a constant
    behind it; and the nodes that are left to the row, those below which there is a slice."""
    n, n_slices = nodes.shape[0], slices.shape[0]
    n_values = field.size
    for t in range(n_slices):
        n_values += slices[t, S_SIZE]
    for c in range(n):
        n_values += nodes[c, ENTRIES]
    place = _places(n_values, n_variables + n_slices + n, n)
    base = np.zeros(place[7] + 1)
    like = lone(base)
    for k in range(field.size):  # a slice would compile 3 s of error texts
        base[k] = field[k]
    _enter_shared(nodes, n_slices, n_variables, shared, False, base, place, like)
    for v in range(n_variables):
        base[place[1] + v] = shared[2, v]
        base[place[2] + v] = shared[3, v]
    touched = _touched(nodes, inputs, n_slices, np.zeros(n_variables, np.uint8))
    alike = np.flatnonzero(~touched)
    _up(nodes, inputs, maps, psi, False, False, alike, base, place, base, like)
    return base, np.flatnonzero(touched)


@jit
def one_row(nodes, inputs, slices, picks, maps, psi, table, todo, base, answer, states, out):
    """One row of a first pass into ``out``: probabilities of the answer, log Z, and its r; whether
    it is unsafe. ``states`` are those of the observed variables, in the order that ``picks`` has
    them in."""
    n, width = nodes.shape[0], out.size - 2
    out[width], out[width + 1] = base[base.size - 1], 0.0
    if n == 0:
        return False
    work = base.copy()
    for t in range(slices.shape[0]):
        first, into, at = slices[t, S_FIRST], slices[t, S_INTO], slices[t, S_MAP]
        for p in range(slices[t, S_PICKS], slices[t, S_PICKS_END]):
            first += states[picks[p, 0]] * picks[p, 1]
        for k in range(slices[t, S_SIZE]):
            work[into + k] = table[first + maps[at + k]]
    n_values = nodes[n - 1, MESSAGE] + nodes[n - 1, ENTRIES]
    place = _places(n_values, (base.size - 1 - n_values - 4 * n) // 3, n)
    like = lone(base)
    _up(nodes, inputs, maps, psi, False, False, todo, work, place, work, like)
    _sum_up(nodes, work, place, out, width, like)
    if width:
        first, mass = nodes[answer, MESSAGE], 0.0
        for k in range(width):
            mass += work[first + k]
        for k in range(width):
            out[k] = work[first + k] / mass
    return not (out[width + 1] < NEGLIGIBLE and out[width] < np.inf)
