"""Which states hard zeros exclude: generalised arc consistency over tables and automata.

No number is multiplied or added here, so that nothing can be lost: a state stays *alive* as long as
every factor over its variable allows it together with some states of the others that are alive. A
factor is looked at again when a state of one of its variables has gone.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit


class HardFactors(NamedTuple):
    """F factors that may forbid something, T tables before M automata."""

    fptr: np.ndarray  # i8 (F+1,) scopes end to end
    scope: np.ndarray  # i4
    vptr: np.ndarray  # i8 (V+1,) factors of a variable
    vfac: np.ndarray  # i4
    toff: np.ndarray  # i8 (T,) where the cells of a table begin
    cells: np.ndarray  # u1 1 where something is allowed
    literal: np.ndarray  # automata: see :class:`minfer.engine.layout.AutomatonArrays`
    step_at: np.ndarray
    step: np.ndarray
    start: np.ndarray
    n_states: np.ndarray
    final_at: np.ndarray
    final: np.ndarray  # u1 1 where an end is allowed


@jit
def propagate(off, alive, hard, waits):
    """Put out, in ``alive``, what factors exclude; the variable without a state left, or -1.
    ``waits`` (F,) marks factors to look at; none is left in the end."""
    fptr, scope, vptr, vfac, toff, cells = hard[:6]
    literal, step_at, step, start, n_states, final_at, final = hard[6:]
    n_factors, n_tables = fptr.shape[0] - 1, toff.shape[0]
    first = fptr[n_tables]  # of the places of automata
    arity = width = most = 1
    for f in range(n_factors):
        lo, hi = fptr[f], fptr[f + 1]
        arity = max(arity, hi - lo)
        total = 0
        for p in range(lo, hi):
            total += off[scope[p] + 1] - off[scope[p]]
        width = max(width, total)
        if f >= n_tables:
            most = max(most, (hi - lo + 1) * n_states[f - n_tables])
    seen = np.empty(width, np.uint8)  # states of a factor's variables, end to end
    state = np.empty(arity, np.int64)
    forth = np.empty(most, np.uint8)
    back = np.empty(most, np.uint8)
    queue = np.empty(n_factors, np.int64)
    head = size = 0
    for f in range(n_factors):
        if waits[f] > 0:
            queue[size] = f
            size += 1
    while size > 0:
        f = queue[head]
        head = (head + 1) % n_factors
        size -= 1
        waits[f] = 0
        lo, hi = fptr[f], fptr[f + 1]
        total = 0
        for p in range(lo, hi):
            total += off[scope[p] + 1] - off[scope[p]]
            state[p - lo] = 0
        for i in range(total):
            seen[i] = 0
        if f < n_tables:
            cell, more = toff[f], True
            while more:
                ok = cells[cell] > 0
                if ok:
                    for p in range(lo, hi):
                        ok = ok and alive[off[scope[p]] + state[p - lo]] > 0
                if ok:
                    at = 0
                    for p in range(lo, hi):
                        seen[at + state[p - lo]] = 1
                        at += off[scope[p] + 1] - off[scope[p]]
                cell += 1
                more = False
                for k in range(hi - lo):
                    p = hi - 1 - k
                    state[p - lo] += 1
                    if state[p - lo] < off[scope[p] + 1] - off[scope[p]]:
                        more = True
                        break
                    state[p - lo] = 0
        else:
            m = f - n_tables
            K = n_states[m]
            for k in range(K):
                forth[k] = 1 if k == start[m] else 0
                back[(hi - lo) * K + k] = final[final_at[m] + k]
            for p in range(lo, hi):
                at = (p - lo) * K
                no, yes = _values(alive, off[scope[p]], off[scope[p] + 1], literal[p - first])
                for k in range(K):
                    forth[at + K + k] = 0
                for k in range(K):
                    to = step_at[p - first] + 2 * k
                    if forth[at + k] > 0 and no and step[to] >= 0:
                        forth[at + K + step[to]] = 1
                    if forth[at + k] > 0 and yes and step[to + 1] >= 0:
                        forth[at + K + step[to + 1]] = 1
            end = total
            for i in range(hi - lo):
                p = hi - 1 - i
                at = (p - lo) * K
                no, yes = _values(alive, off[scope[p]], off[scope[p] + 1], literal[p - first])
                may_no = may_yes = False
                for k in range(K):
                    to = step_at[p - first] + 2 * k
                    a = no and step[to] >= 0 and back[at + K + max(step[to], 0)] > 0
                    b = yes and step[to + 1] >= 0 and back[at + K + max(step[to + 1], 0)] > 0
                    back[at + k] = 1 if a or b else 0
                    may_no = may_no or (a and forth[at + k] > 0)
                    may_yes = may_yes or (b and forth[at + k] > 0)
                end -= off[scope[p] + 1] - off[scope[p]]
                for s in range(off[scope[p] + 1] - off[scope[p]]):
                    may = may_yes if s == literal[p - first] else may_no
                    seen[end + s] = 1 if may else 0
        at = 0
        for p in range(lo, hi):
            v = scope[p]
            left, changed = False, False
            for s in range(off[v], off[v + 1]):
                if alive[s] > 0 and seen[at] == 0:
                    alive[s] = 0
                    changed = True
                left = left or alive[s] > 0
                at += 1
            if not left:
                return v
            for k in range(vptr[v], vptr[v + 1] if changed else vptr[v]):
                if vfac[k] != f and waits[vfac[k]] == 0:
                    waits[vfac[k]] = 1
                    queue[(head + size) % n_factors] = vfac[k]
                    size += 1
    return -1


@jit
def _values(alive, lo, hi, literal):
    """Whether a literal may be false, and true."""
    no = False
    for s in range(lo, hi):
        no = no or (alive[s] > 0 and s != lo + literal)
    return no, alive[lo + literal] > 0
