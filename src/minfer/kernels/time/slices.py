"""Passes along sequences, slice by slice, eight sequences abreast.

A sequence has slices t = 0, 1, ... with the same variables. Of slice t only the *interface* I_t,
the variables that slice t + 1 mentions, matters to what comes later (Murphy 2002, chapter 3). With
b_t the tables of slice t under its evidence,

    alpha_t(I_t)      = sum over the rest of   alpha_{t-1}(I_{t-1}) b_t     forwards
    beta_{t-1}(I_{t-1}) = sum over the rest of   b_t beta_t(I_t)            backwards
    p(slice t)        = alpha_{t-1} b_t beta_t, normalised

Each sum is a pass over the clique tree of one slice, planned once, whose root is I_t and in which
alpha_{t-1} is an input like the messages of children. Evidence is an input of each variable: its
likelihood given its *givens*, which are the variable itself or, of a variable without children,
its parents, so that a known symbol is a row of its table and no axis of any clique.

There are three kinds of numbers: linear ones, scaled to sum 1 in each message; logarithms, and
logarithms under maxima. Linear ones lose what underflows: the smallest positive entry of any
message is noted, and if products could then have left the range of floats, the sequence is asked
again in logarithms. So zeros are zeros of the model and the evidence, and nothing else.

Going back, the alphas of a block of slices are computed again from one that was kept: with blocks
of sqrt T slices memory is O(sqrt T).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.lanes import (
    aligned,
    choose,
    exp,
    larger,
    load,
    log,
    smaller,
    splat,
    store,
)
from minfer.kernels.compiling.jit import jit

L = 8  # sequences abreast
#: Kinds of numbers.
LINEAR, LOGS, BEST = range(3)
#: What is asked: beliefs given the past, or given all; states by maxima or at random.
FILTER, SMOOTH, DECODE = range(3)
#: The head of a plan, which begins at h: where the next one begins, cliques, sources, where records
#: of cliques and sources begin, values, cells of the largest clique.
NEXT, N_CLIQUES, N_SOURCES, CLIQUES, SOURCES, N_VALUES, LARGEST = range(7)
#: A clique: entries of its message, cells of each, first cell, where its message lies, its inputs.
C_ENTRIES, C_WIDTH, C_FIRST, C_MESSAGE, C_INPUTS, C_INPUTS_END, C_SIZE = range(7)
#: An input: where its entries lie, its map from the clique's cells, its source or -1, its entries.
I_AT, I_MAP, I_SOURCE, I_ENTRIES, I_SIZE = range(5)
#: A source, one for each variable: where its entries lie, how many, where its table lies (-1: the
#: variable is its own given), its states.
S_AT, S_ENTRIES, S_TABLE, S_STATES, S_SIZE = range(5)
#: In place of an observed state: nothing; below it, rows of likelihoods.
NOTHING = -1


class SlicePlans(NamedTuple):
    """The plan of the first slice and, from ``plan[0]`` on, that of those after it; and the numbers
    of both, cells of cliques and tables of sources. All places in them count from the beginning."""

    plan: np.ndarray  # i8
    numbers: np.ndarray  # f8


class Observed(NamedTuple):
    """What is known of each slice, and which slices make up a sequence."""

    states: np.ndarray  # i4 (rows, variables), NOTHING, or -2 - a row of ``likelihoods``
    likelihoods: np.ndarray  # f8 (., most states)
    sequences: np.ndarray  # i8 (a multiple of L, 3) first row, length, first row of the answer
    draws: np.ndarray  # f8 (rows of the answer, cliques and sources) between 0 and 1, for samples


class SliceWork(NamedTuple):
    """What the passes of a slice work on; vectors in lanes but for the first three."""

    plan: np.ndarray
    numbers: np.ndarray
    active: np.ndarray  # b1 (slices, variables), whether something is known
    values: np.ndarray  # of some slices: interfaces, likelihoods, messages up
    down: np.ndarray  # of one slice: what came down to each of these
    cells: np.ndarray  # of one clique


class SliceAnswers(NamedTuple):
    """Answers; what is not asked for has no rows."""

    beliefs: np.ndarray  # f8 (rows, states of the variables asked for)
    path: np.ndarray  # i4 (rows, variables)
    scores: np.ndarray  # f8 (sequences, 3) log score, where it became impossible, smallest entry
    alpha: np.ndarray  # f8 the last interface of all sequences, in lanes
    counts: np.ndarray  # f8 expected counts, as the numbers of both plans lie


@jit
def _times(kind, a, b):
    if kind == LINEAR:
        return a * b
    return a + b


@jit
def _plus(kind, a, b):
    if kind == LINEAR:
        return a + b
    top = larger(a, b)
    if kind == BEST:
        return top
    both = top + log(exp(smaller(a, b) - top) + 1.0)
    return choose(top, splat(a, -np.inf), both, top)


@jit(forceinline=True)
def _scaled(kind, x, first, entries, low):
    """Scale a message to sum 1, or maximum 1; what it was divided by, and the smaller of ``low``
    and its smallest positive linear entry."""
    zero = splat(x, 0.0)
    total = load(x, first * L)
    for k in range(first + 1, first + entries):
        total = _plus(kind, total, load(x, k * L))
    if kind == LINEAR:
        one = splat(x, 1.0)
        inverse = choose(total, zero, one / total, zero)
        for k in range(first, first + entries):
            y = load(x, k * L) * inverse
            store(x, k * L, y)
            low = smaller(low, choose(y, zero, y, one))
        return total, low
    shift = choose(total, splat(x, -np.inf), total, zero)
    for k in range(first, first + entries):
        store(x, k * L, load(x, k * L) - shift)
    return total, low


@jit
def _enter(kind, h, plan, numbers, likelihoods, codes, active, slot, values, base):
    """Likelihoods of the givens of all sources under what is known; which of them matter."""
    never = 0.0 if kind == LINEAR else -np.inf
    unit = 1.0 if kind == LINEAR else 0.0
    for j in range(plan[h + N_SOURCES]):
        s = plan[h + SOURCES] + j * S_SIZE
        table, states, entries = plan[s + S_TABLE], plan[s + S_STATES], plan[s + S_ENTRIES]
        some = kind == BEST and table >= 0
        for lane in range(L):
            some |= codes[j * L + lane] != NOTHING
        active[slot, j] = some
        if not some:
            continue
        for lane in range(L):
            code, at = codes[j * L + lane], (base + plan[s + S_AT]) * L + lane
            if code >= 0 and table >= 0:
                row = table + code
                for p in range(entries):
                    values[at + p * L] = numbers[row + p * states]
                continue
            for p in range(entries):
                x = unit
                if table < 0:
                    if code >= 0:
                        x = unit if code == p else never
                    elif code < NOTHING:
                        x = likelihoods[-2 - code, p]
                elif code < NOTHING or kind == BEST:
                    x = never
                    for q in range(states):
                        y = numbers[table + p * states + q]
                        if code < NOTHING:
                            z = likelihoods[-2 - code, q]
                            y = y * z if kind == LINEAR else y + z
                        if kind == LINEAR:
                            x += y
                        elif kind == BEST or max(x, y) == -np.inf:
                            x = max(x, y)
                        else:
                            x = max(x, y) + np.log1p(np.exp(min(x, y) - max(x, y)))
                values[at + p * L] = x


@jit
def _matters(plan, i, active, slot):
    """Whether an input is a message, or a source of which something is known."""
    return plan[i + I_SOURCE] < 0 or active[slot, plan[i + I_SOURCE]]


@jit(forceinline=True)
def _last(plan, c, active, slot):
    """The last input of a clique that matters; -1 if none does."""
    for i in range(plan[c + C_INPUTS_END] - I_SIZE, plan[c + C_INPUTS] - 1, -I_SIZE):
        if _matters(plan, i, active, slot):
            return i
    return -1


@jit(forceinline=True)
def _product(kind, plan, numbers, c, skip, end, active, slot, values, base, cells):
    """The product of a clique's cells and its inputs but one, up to that before ``end``; whether
    there is any such input, without which nothing is done."""
    first = plan[c + C_FIRST]
    n_cells = plan[c + C_ENTRIES] * plan[c + C_WIDTH]
    begun = False
    for i in range(plan[c + C_INPUTS], end, I_SIZE):
        if i == skip or not _matters(plan, i, active, slot):
            continue
        at, places = base + plan[i + I_AT], plan[i + I_MAP]
        if begun:
            for j in range(n_cells):
                y = load(values, (at + plan[places + j]) * L)
                store(cells, j * L, _times(kind, load(cells, j * L), y))
        else:
            for j in range(n_cells):
                y = load(values, (at + plan[places + j]) * L)
                store(cells, j * L, _times(kind, y, splat(y, numbers[first + j])))
        begun = True
    return begun


@jit
def _up(kind, h, plan, numbers, active, slot, values, base, cells):
    """Messages towards the root; the log of what they were divided by, their smallest entry."""
    score, low = splat(values, 0.0), splat(values, 1.0)
    for k in range(plan[h + N_CLIQUES]):
        c = plan[h + CLIQUES] + k * C_SIZE
        entries, width, first = plan[c + C_ENTRIES], plan[c + C_WIDTH], plan[c + C_FIRST]
        message = base + plan[c + C_MESSAGE]
        last = _last(plan, c, active, slot)
        if last < 0:
            for s in range(entries):
                x = splat(values, numbers[first + s * width])
                for j in range(first + s * width + 1, first + (s + 1) * width):
                    x = _plus(kind, x, splat(values, numbers[j]))
                store(values, (message + s) * L, x)
        else:
            several = _product(
                kind, plan, numbers, c, last, last, active, slot, values, base, cells
            )
            at, places = base + plan[last + I_AT], plan[last + I_MAP]
            for s in range(entries):
                x = splat(values, 0.0)
                for j in range(s * width, (s + 1) * width):
                    y = load(cells, j * L) if several else splat(x, numbers[first + j])
                    y = _times(kind, y, load(values, (at + plan[places + j]) * L))
                    x = y if j == s * width else _plus(kind, x, y)
                store(values, (message + s) * L, x)
        divided, low = _scaled(kind, values, message, entries, low)
        if kind == LINEAR:
            divided = choose(divided, splat(divided, 0.0), log(divided), splat(divided, -np.inf))
        score = score + divided
    return score, low


@jit(forceinline=True)
def _gather(kind, plan, c, i, cells, into):
    """Sum a clique's cells by the entries of one of its inputs."""
    at, places = plan[i + I_AT], plan[i + I_MAP]
    empty = splat(into, 0.0 if kind == LINEAR else -np.inf)
    for k in range(plan[i + I_ENTRIES]):
        store(into, (at + k) * L, empty)
    for j in range(plan[c + C_ENTRIES] * plan[c + C_WIDTH]):
        x = (at + plan[places + j]) * L
        store(into, x, _plus(kind, load(into, x), load(cells, j * L)))


@jit(forceinline=True)
def _with_top(kind, plan, numbers, c, several, cells, down):
    """Cells times what came down; they are the clique's own if no product was made of them."""
    entries, width, first = plan[c + C_ENTRIES], plan[c + C_WIDTH], plan[c + C_FIRST]
    for s in range(entries):
        top = load(down, (plan[c + C_MESSAGE] + s) * L)
        for j in range(s * width, (s + 1) * width):
            y = load(cells, j * L) if several else splat(top, numbers[first + j])
            store(cells, j * L, _times(kind, y, top))


@jit
def _down(kind, h, work, slot, base, wanted, back, live, counted):
    """Messages from the root, where ``down`` has beta, to all that the slice has as inputs: of
    children, of the slice before if it is asked (``back``), and the marginals of wanted sources.
    ``counted`` gets the cliques' beliefs of the lanes that live."""
    plan, numbers, active, values, down, cells = work
    low, zero = splat(values, 1.0), splat(values, 0.0)
    for k in range(plan[h + N_CLIQUES] - 1, -1, -1):
        c = plan[h + CLIQUES] + k * C_SIZE
        n_cells = plan[c + C_ENTRIES] * plan[c + C_WIDTH]
        inputs, end = plan[c + C_INPUTS], plan[c + C_INPUTS_END]
        last, some = -1, counted.size > 0
        for i in range(inputs, end, I_SIZE):
            source = plan[i + I_SOURCE]
            if source >= 0:
                some |= wanted[source] > 0
            elif plan[i + I_AT] > 0 or back:
                several = _product(
                    kind, plan, numbers, c, i, end, active, slot, values, base, cells
                )
                _with_top(kind, plan, numbers, c, several, cells, down)
                _gather(kind, plan, c, i, cells, down)
                _, low = _scaled(kind, down, plan[i + I_AT], plan[i + I_ENTRIES], low)
                last = i
        if not some:
            continue
        if last < 0:
            last = _last(plan, c, active, slot)
            several = last >= 0 and _product(
                kind, plan, numbers, c, last, last, active, slot, values, base, cells
            )
            _with_top(kind, plan, numbers, c, several, cells, down)
        if last >= 0:
            at, places = base + plan[last + I_AT], plan[last + I_MAP]
            for j in range(n_cells):
                y = load(values, (at + plan[places + j]) * L)
                store(cells, j * L, _times(kind, load(cells, j * L), y))
        for i in range(inputs, end, I_SIZE):
            if plan[i + I_SOURCE] >= 0 and wanted[plan[i + I_SOURCE]]:
                _gather(kind, plan, c, i, cells, down)
        if counted.size:
            total = load(cells, 0)
            for j in range(1, n_cells):
                y = load(cells, j * L)
                total = total + y if kind == LINEAR else larger(total, y)
            if kind == LOGS:
                top, total = choose(total, splat(total, -np.inf), total, zero), zero
                for j in range(n_cells):
                    y = exp(load(cells, j * L) - top)
                    store(cells, j * L, y)
                    total = total + y
            total = choose(total, zero, live / total, zero)
            for j in range(n_cells):
                at = (plan[c + C_FIRST] + j) * L
                store(counted, at, load(counted, at) + load(cells, j * L) * total)
    return low


@jit
def _answer(kind, h, work, likelihoods, codes, base, wanted, rows, beliefs, counts):
    """Beliefs of wanted variables from those of their givens, into rows (L,), -1 for none; and
    expected counts of the tables of sources, where there are ``counts``."""
    plan, numbers, _, values, down, _ = work
    column = 0
    zero = splat(values, 0.0)
    for j in range(plan[h + N_SOURCES]):
        if not wanted[j]:
            continue
        s = plan[h + SOURCES] + j * S_SIZE
        first, entries, states = plan[s + S_AT], plan[s + S_ENTRIES], plan[s + S_STATES]
        table = plan[s + S_TABLE]
        total = zero
        if kind == LOGS:
            _scaled(kind, down, first, entries, zero)
            for p in range(first, first + entries):
                store(down, p * L, exp(load(down, p * L)))
        for p in range(first, first + entries):
            total = total + load(down, p * L)
        total = choose(total, zero, splat(values, 1.0) / total, zero)
        for p in range(first, first + entries):
            store(down, p * L, load(down, p * L) * total)
        for lane in range(L):
            r, code = rows[lane], codes[j * L + lane]
            if r < 0:
                continue
            show = wanted[j] == 1
            if table < 0:
                if show:
                    for q in range(states):
                        beliefs[r, column + q] = down[(first + q) * L + lane]
                continue
            if show:
                for q in range(states):
                    beliefs[r, column + q] = 1.0 if q == code else 0.0
            if code >= 0:
                if counts.size:
                    for p in range(entries):
                        counts[table + p * states + code] += down[(first + p) * L + lane]
                continue
            for p in range(entries):
                x = down[(first + p) * L + lane]
                if x <= 0.0:
                    continue
                for q in range(states):
                    y = numbers[table + p * states + q]
                    if code < NOTHING:
                        z = likelihoods[-2 - code, q]
                        of = values[(base + first + p) * L + lane]
                        y = y * z / of if kind == LINEAR else y + z - of
                    if kind != LINEAR:
                        y = np.exp(y)
                    if show:
                        beliefs[r, column + q] += x * y
                    if counts.size and code < NOTHING:
                        counts[table + p * states + q] += x * y
        if wanted[j] == 1:
            column += states


@jit
def _pick(kind, weights, n, draw):
    """The largest of n weights, the first of equal ones; or one of them by chance."""
    best, top = 0, weights[0]
    for k in range(1, n):  # without branches, which would be foretold wrongly
        more = weights[k] > top
        best = k if more else best
        top = weights[k] if more else top
    if kind == BEST:
        return best
    total = 0.0
    for k in range(n):
        if kind == LOGS:
            weights[k] = np.exp(weights[k] - top)
        total += weights[k]
    draw *= total
    for k in range(n):
        draw -= weights[k]
        if draw < 0.0:
            return k
    return best


@jit
def _decode(kind, h, work, slot, base, observed, codes, weights, chosen, path, rows):
    """States of all sequences at one slice, into rows (L,), -1 for none, from that of the
    interface, which the slice after it has left in ``chosen``, where that of the interface before
    is left in turn."""
    plan, numbers, active, values, _, _ = work
    likelihoods, draws = observed[1], observed[3]
    size, most = chosen.size // L, draws.shape[0] - 1
    drawn, step = 0, 1 if draws.shape[1] > 1 else 0
    for k in range(plan[h + N_CLIQUES] - 1, -1, -1):
        c = plan[h + CLIQUES] + k * C_SIZE
        width, end = plan[c + C_WIDTH], plan[c + C_INPUTS_END]
        for lane in range(L):
            if rows[lane] < 0:
                continue
            mine = lane * size
            cell = chosen[mine + plan[c + C_MESSAGE]] * width
            if width > 1:
                for j in range(width):
                    weights[j] = numbers[plan[c + C_FIRST] + cell + j]
                for i in range(plan[c + C_INPUTS], end, I_SIZE):
                    if _matters(plan, i, active, slot):
                        at, places = base + plan[i + I_AT], plan[i + I_MAP] + cell
                        for j in range(width):
                            y = values[(at + plan[places + j]) * L + lane]
                            weights[j] = weights[j] * y if kind == LINEAR else weights[j] + y
                cell += _pick(kind, weights, width, draws[min(rows[lane], most), drawn])
            for i in range(plan[c + C_INPUTS], end, I_SIZE):
                chosen[mine + plan[i + I_AT]] = plan[plan[i + I_MAP] + cell]
        drawn += step
    for j in range(plan[h + N_SOURCES]):
        s = plan[h + SOURCES] + j * S_SIZE
        table, states = plan[s + S_TABLE], plan[s + S_STATES]
        for lane in range(L):
            r, seen = rows[lane], codes[j * L + lane]
            if r < 0:
                continue
            given = chosen[lane * size + plan[s + S_AT]]
            if table < 0:
                path[r, j] = given
            elif seen >= 0:
                path[r, j] = seen
            else:
                for q in range(states):
                    weights[q] = numbers[table + given * states + q]
                    if seen < NOTHING:
                        z = likelihoods[-2 - seen, q]
                        weights[q] = weights[q] * z if kind == LINEAR else weights[q] + z
                path[r, j] = _pick(kind, weights, states, draws[min(r, most), drawn])
        drawn += step


@jit
def _copy(x, first, y, to, n):
    for k in range(n):
        store(y, (to + k) * L, load(x, (first + k) * L))


@jit
def _codes(states, sequences, g, t, codes, rows, live):
    """What is known at time t, and the rows of the answer, -1 of sequences that have ended."""
    for lane in range(L):
        first, length, out = sequences[g + lane, 0], sequences[g + lane, 1], sequences[g + lane, 2]
        running = t < length
        rows[lane] = out + t if running else -1
        live[lane] = 1.0 if running else 0.0
        for j in range(states.shape[1]):
            codes[j * L + lane] = states[first + t, j] if running else NOTHING


@jit
def run_slices(plans, observed, answers, wanted, how):
    """All sequences. ``wanted`` u1 (variables,): 1 beliefs, 2 counts alone; ``how``: the kind of
    numbers, what is asked, slices of a block, whether sequences begin with the first slice, and
    entries of the interface, which is the root of both plans."""
    kind, task, block, fresh, n = how[0], how[1], how[2], how[3] > 0, how[4]
    plan, numbers = plans
    states, likelihoods, sequences, draws = observed
    beliefs, path, scores, alpha, counts = answers
    step = plan[NEXT]
    like = np.zeros(L)
    unit = splat(like, 1.0 if kind == LINEAR else 0.0)
    size = max(plan[N_VALUES], plan[step + N_VALUES])
    longest, n_states = 1, 1
    for g in range(sequences.shape[0]):
        longest = max(longest, sequences[g, 1])
    for j in range(plan[N_SOURCES]):
        n_states = max(n_states, plan[plan[SOURCES] + j * S_SIZE + S_STATES])
    n_kept = 1 if task == FILTER else min(block, longest)
    values, down = aligned(n_kept * size * L, like), aligned(size * L, like)
    n_cells = max(plan[LARGEST], plan[step + LARGEST])
    cells, nothing = aligned(n_cells * L, like), aligned(0, like)
    counted = aligned(numbers.size * L if counts.size else 0, like)
    for x in (counted, values, down):
        for k in range(x.size):
            x[k] = 0.0
    kept = aligned((-(-longest // block) if task != FILTER else 0) * n * L, like)
    active = np.zeros((n_kept, states.shape[1]), np.bool_)
    codes = np.empty(states.shape[1] * L, np.int64)
    work = SliceWork(plan, numbers, active, values, down, cells)
    rows, chosen = np.empty(L, np.int64), np.empty(size * L, np.int64)
    weights, live, found = np.empty(max(n_cells, n_states)), np.empty(L), np.empty(2 * L)
    asked = False
    for j in range(wanted.size):
        asked |= wanted[j] > 0
    for g in range(0, sequences.shape[0], L):
        longest = 0
        for lane in range(L):
            longest = max(longest, sequences[g + lane, 1])
        last = (longest - 1) // block * block if task != FILTER else longest
        if not fresh:
            _copy(alpha, g // L * n, values, 0, n)
        for t in range(longest):
            if task != FILTER and t % block == 0:
                _copy(values, 0, kept, t // block * n, n)
            slot, h = max(t - last, 0), 0 if t == 0 and fresh else step
            base = slot * size
            _codes(states, sequences, g, t, codes, rows, live)
            _enter(kind, h, plan, numbers, likelihoods, codes, active, slot, values, base)
            score, low = _up(kind, h, plan, numbers, active, slot, values, base, cells)
            if task == FILTER and asked:
                for k in range(n, 2 * n):
                    store(down, k * L, unit)
                again = _down(kind, h, work, slot, base, wanted, t < 0, unit, nothing)
                low = smaller(low, again)
                _answer(kind, h, work, likelihoods, codes, base, wanted, rows, beliefs, nothing)
            store(found, 0, score)
            store(found, L, low)
            for lane in range(L):
                if rows[lane] >= 0:
                    scores[g + lane, 0] += found[lane]
                    scores[g + lane, 2] = min(scores[g + lane, 2], found[L + lane])
                    if scores[g + lane, 1] < 0.0 and found[lane] == -np.inf:
                        scores[g + lane, 1] = t
            if t + 1 < longest:
                _copy(values, base + n, values, max(t + 1 - last, 0) * size, n)
        if task == FILTER:
            if alpha.size:
                _copy(values, n, alpha, g // L * n, n)
            continue
        for start in range(last, -1, -block):
            end = min(start + block, longest)
            if start < last:
                _copy(kept, start // block * n, values, 0, n)
                for t in range(start, end):
                    slot, h = t - start, 0 if t == 0 and fresh else step
                    base = slot * size
                    _codes(states, sequences, g, t, codes, rows, live)
                    _enter(kind, h, plan, numbers, likelihoods, codes, active, slot, values, base)
                    _up(kind, h, plan, numbers, active, slot, values, base, cells)
                    if t + 1 < end:
                        _copy(values, base + n, values, base + size, n)
            for t in range(end - 1, start - 1, -1):
                slot, h = t - start, 0 if t == 0 and fresh else step
                base = slot * size
                _codes(states, sequences, g, t, codes, rows, live)
                if task == DECODE:
                    for lane in range(L):
                        r, mine = rows[lane], lane * size
                        if r < 0:
                            continue
                        if t < sequences[g + lane, 1] - 1:
                            chosen[mine + n] = chosen[mine]
                        else:
                            for k in range(n):
                                weights[k] = values[(base + n + k) * L + lane]
                            draw = draws[min(r, draws.shape[0] - 1), draws.shape[1] - 1]
                            chosen[mine + n] = _pick(kind, weights, n, draw)
                    _decode(kind, h, work, slot, base, observed, codes, weights, chosen, path, rows)
                    continue
                for lane in range(L):
                    if t >= sequences[g + lane, 1] - 1:
                        for k in range(n, 2 * n):
                            down[k * L + lane] = 1.0 if kind == LINEAR else 0.0
                alive = load(live, 0)
                low = _down(kind, h, work, slot, base, wanted, t > 0, alive, counted)
                _answer(kind, h, work, likelihoods, codes, base, wanted, rows, beliefs, counts)
                store(found, L, low)
                for lane in range(L):
                    if rows[lane] >= 0:
                        scores[g + lane, 2] = min(scores[g + lane, 2], found[L + lane])
                if t > 0:
                    _copy(down, 0, down, n, n)
    for k in range(counted.size):
        counts[k // L] += counted[k]
