"""Search of hard clauses over binary variables: components are found anew after each decision,
conflicts are learned, and what was done is a circuit.

    solve(component): its key is known: that node;  else decide a variable and, for each of its
        values, propagate; the variables left fall into components: their product; a node of both.

(Component caching: Sang et al. 2004, Thurley 2006; decisions that mix a tree decomposition with
activity: Korhonen & Jarvisalo 2021.) A component is known by its open variables and by what is
left of its clauses, by contents, so that rests meet wherever they come from; rests of clauses that
follow from shorter ones are left out, so that what says the same meets, and falls apart sooner.

What was learned follows from all clauses together, so it may say of a component what is only true
because another one has no solution. Hence nothing is counted before a solution is known: of all
clauses at first (``phase``), which agrees with the first value of each decision; before the second
value is counted, one of each component that it leaves is looked for, with restarts. A value that
has none is left out. So all components below a decision have solutions, and then what was learned
says nothing of one that its own clauses do not imply.

Literals are 2 v + state. Reasons of what is implied: a clause of the arena, -2 - the other literal
of a clause of two, -1: decided. A clause of the arena at c: the next ones that watch its first and
second literal, its length, 0 or its levels when it was learned, the conflict that used it last, and
its literals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.circuits.keys import LEAST, find, mix, plus, share, times
from minfer.kernels.compiling.jit import jit


class ClauseArrays(NamedTuple):
    """n binary variables, B clauses of two literals, C longer ones."""

    weight: NDArray[np.float64]  # (2n,) of literals
    weight_e: NDArray[np.int64]
    both: NDArray[np.float64]  # (n,) the sum of both
    both_e: NDArray[np.int64]
    prior: NDArray[np.float64]  # (n,) the higher, the earlier it should be decided
    salt: NDArray[np.uint64]  # (2n, 2)
    two_ptr: NDArray[np.int32]  # (2n+1,)
    two: NDArray[np.int32]  # (2B,) what a literal implies by a clause of two
    occurs_ptr: NDArray[np.int32]  # (n+1,)
    occurs: NDArray[np.int32]  # longer clauses of a variable
    start: NDArray[np.int32]  # (C+1,)
    literal: NDArray[np.int32]


class ClauseState(NamedTuple):
    """Where a search stands."""

    now: NDArray[np.int64]  # see the constants below
    value: NDArray[np.int8]  # (2n,) of a literal: 1 true, -1 false, 0 open
    level: NDArray[np.int32]  # (n,)
    reason: NDArray[np.int32]  # (n,)
    trail: NDArray[np.int32]  # (n,) literals that are true, in turn
    activity: NDArray[np.float64]  # (n + 1,) the last one: what a conflict adds
    often: NDArray[np.int32]  # (n,) open clauses of more than two literals, when last looked at
    seen: NDArray[np.int64]  # (n,) the last look that saw a variable
    met: NDArray[np.int64]  # (C,) the same of clauses
    mark: NDArray[np.int8]  # (n + 1,) while a conflict is analysed
    learned: NDArray[np.int32]  # (n + 1,)
    units: NDArray[np.int32]  # (n,) literals learned
    found: NDArray[np.int32]  # (C,)
    rest: NDArray[np.int32]  # what is left of clauses when they were looked at last: literals,
    rest_at: NDArray[np.int32]  # (C,) where they begin,
    rest_n: NDArray[np.int32]  # (C,) how many,
    rest_key: NDArray[np.uint64]  # (C, 2) the sum of their salts,
    rest_of: NDArray[np.uint64]  # (C,) and a bit of 64 for each
    head: NDArray[np.int32]  # (2n,) the first that watches a literal: 2 c + place
    arena: NDArray[np.int32]
    pool: NDArray[np.int32]  # components: variables, clauses
    part: NDArray[np.int64]  # (., 3) where a component begins, its variables, its clauses
    part_key: NDArray[np.uint64]  # (., 2)
    phase: NDArray[np.int8]  # (n,) states of a solution of what is to be searched
    guess: NDArray[np.int8]  # (n,) while a solution is looked for
    bound: NDArray[np.int32]  # (n + 2,) lengths of the trail, before each level
    frame: NDArray[np.int64]  # (n + 2, 13)
    number: NDArray[np.float64]  # (n + 2, 2) of the first value, of the one under way
    number_e: NDArray[np.int64]
    kids: NDArray[np.int32]


class ClauseNodes(NamedTuple):
    """Nodes found so far, after three of each variable; with room for more."""

    variable: NDArray[np.int32]  # (N,)
    eptr: NDArray[np.int64]  # (N+1,)
    key1: NDArray[np.uint64]  # (N - 3n,)
    key2: NDArray[np.uint64]
    total: NDArray[np.float64]  # (N - 3n,)
    total_e: NDArray[np.int64]
    state: NDArray[np.int32]  # (E,)
    weight: NDArray[np.float64]
    cptr: NDArray[np.int64]  # (E+1,)
    child: NDArray[np.int32]
    slots: NDArray[np.int32]


# places of ClauseState.now
DEPTH, MODE, NODES, EDGES, CHILDREN, FOUND, N_TRAIL, HEAD, N_POOL, N_PART, N_KIDS, N_ARENA = range(
    12
)
LOOK, CONFLICTS, CULPRIT, FIRST, SECOND, N_UNITS, GIVEN, STEPS, HITS, RAISED, AGAIN = range(12, 23)
N_NOW = 23
_ENTER, _BRANCH, _SPLIT, _CHECK, _BELOW, _FALSE, _STORE, _UP = range(8)
ROOT_MODE = _SPLIT
#: Why a slice ended.
PAUSED, SOLVED, NO_ROOM, NO_SLOTS, NO_POOL, NO_ARENA, IMPOSSIBLE, WRONG = range(8)
# places of a frame: its component, decision and kind; lengths of the trail, of the pool and of its
# components before; the component below under way, the first and the last; children of both values;
# the component that is looked at for a solution; and the trail when components were found
_PART, _LITERAL, KIND, _TRAIL, _POOL, _PARTS, NEXT, FROM, END, _KID, _KID2, _CHECKED, _ALL = range(
    13
)
N_FRAME = 13
# kinds of frames: the first value of a decision, the second, the root
_FIRST, _SECOND, _ROOT = range(3)
#: What an open clause of a variable adds to what speaks for deciding it, beside its activity.
_OFTEN = 0.1
#: What is left of a clause is compared with others up to so many literals.
_SHORT = 4


def root_frame(pool: int) -> NDArray[np.int64]:
    """The frame of the root, whose component is the first of the pool."""
    frame = np.zeros(N_FRAME, np.int64)
    frame[KIND], frame[_POOL], frame[_PARTS] = _ROOT, pool, 1
    return frame


#: Before the literals of a clause in the arena.
HEADER = 5
_LENGTH, _LEVELS, _USED = 2, 3, 4


@jit
def _follow(now, value, level, reason, trail, head, arena, two_ptr, two, lev):
    """Propagate what the trail has not told yet. Returns a clause that is false: of the arena, -2
    of two literals, FIRST and SECOND; or -1."""
    q, n, culprit = now[HEAD], now[N_TRAIL], -1
    while q < n and culprit == -1:
        p = np.int64(trail[q])
        q += 1
        wrong = p ^ 1
        for k in range(two_ptr[p], two_ptr[p + 1]):
            m = np.int64(two[k])
            if value[m] == 0:
                value[m], value[m ^ 1] = 1, -1
                level[m >> 1], reason[m >> 1] = lev, -2 - wrong
                trail[n] = m
                n += 1
            elif value[m] < 0:
                now[FIRST], now[SECOND], culprit = m, wrong, -2
                break
        if culprit != -1:
            break
        w, place = np.int64(head[wrong]), -1
        while w >= 0:
            c, s = w >> 1, w & 1
            then = np.int64(arena[c + s])
            other = np.int64(arena[c + HEADER + 1 - s])
            if value[other] != 1:
                moved = False
                for k in range(c + HEADER + 2, c + HEADER + arena[c + _LENGTH]):
                    m = np.int64(arena[k])
                    if value[m] >= 0:
                        arena[c + HEADER + s], arena[k] = m, wrong
                        if place < 0:
                            head[wrong] = then
                        else:
                            arena[place] = then
                        arena[c + s], head[m] = head[m], w
                        moved = True
                        break
                if moved:
                    w = then
                    continue
                if value[other] < 0:
                    culprit = c
                    break
                value[other], value[other ^ 1] = 1, -1
                level[other >> 1], reason[other >> 1] = lev, c
                trail[n] = other
                n += 1
            place, w = c + s, then
    now[HEAD], now[N_TRAIL] = q, n
    return culprit


@jit
def _undo(now, value, trail, n_trail):
    n = now[N_TRAIL]
    while n > n_trail:
        n -= 1
        p = trail[n]
        value[p] = value[p ^ 1] = 0
    now[N_TRAIL] = now[HEAD] = n


@jit
def _watch(arena, head, c):
    """Have a clause watched by its first two literals."""
    for s in range(2):
        p = arena[c + HEADER + s]
        arena[c + s] = head[p]
        head[p] = 2 * c + s


@jit
def begin(f, s):
    """Put the longer clauses into the arena, and what weights of zero say onto the trail; False:
    everything is zero."""
    now, value, trail, arena, head = s.now, s.value, s.trail, s.arena, s.head
    at = 0
    for c in range(f.start.size - 1):
        lo, hi = f.start[c], f.start[c + 1]
        arena[at + _LENGTH], arena[at + _LEVELS], arena[at + _USED] = hi - lo, 0, 0
        for k in range(lo, hi):
            arena[at + HEADER + k - lo] = f.literal[k]
        _watch(arena, head, at)
        at += HEADER + hi - lo
    now[N_ARENA] = now[GIVEN] = at
    for p in range(value.size):
        if f.weight[p] == 0.0 and value[p ^ 1] == 0:
            if value[p] == 1:
                return False
            value[p], value[p ^ 1] = -1, 1
            s.level[p >> 1], s.reason[p >> 1] = 0, -1
            trail[now[N_TRAIL]] = p ^ 1
            now[N_TRAIL] += 1
        elif f.weight[p] == 0.0 and value[p] == 1:
            return False
    return _follow(now, value, s.level, s.reason, trail, head, arena, f.two_ptr, f.two, 0) == -1


@jit
def reduce(s, keep):
    """Forget learned clauses of many levels that no conflict since ``keep`` has used."""
    now, arena, head, reason, value = s.now, s.arena, s.head, s.reason, s.value
    c = to = now[GIVEN]
    while c < now[N_ARENA]:
        length = np.int64(arena[c + _LENGTH])
        stays = arena[c + _LEVELS] <= 2 or arena[c + _USED] >= keep
        for k in range(c + HEADER, c + HEADER + 2):
            v = arena[k] >> 1
            if reason[v] == c and value[arena[k]] == 1:
                reason[v], stays = to, True
        if stays:
            for k in range(_LENGTH, HEADER + length):
                arena[to + k] = arena[c + k]
            to += HEADER + length
        c += HEADER + length
    now[N_ARENA] = to
    for p in range(head.size):
        head[p] = -1
    c = 0
    while c < to:
        _watch(arena, head, c)
        c += HEADER + np.int64(arena[c + _LENGTH])


@jit
def _literal(now, arena, c, k):
    """The k-th literal of a reason or of the clause that is false; -1: it has no more."""
    if c >= 0:
        return np.int64(arena[c + HEADER + k]) if k < arena[c + _LENGTH] else -1
    if c == -1 and k < 2:
        return now[FIRST] if k == 0 else now[SECOND]
    return -2 - c if k == 0 and c < -1 else -1


@jit
def _analyse(now, s, lev):
    """What a false clause teaches: the literal that it implies comes first in ``s.learned``, one of
    the highest level of the others second. ``lev``: the highest level in the false clause. Returns
    how many literals."""
    arena, level, reason, trail, mark = s.arena, s.level, s.reason, s.trail, s.mark
    learned, activity = s.learned, s.activity
    more = activity[activity.size - 1]
    n, open_, i, c, uip = 1, 0, now[N_TRAIL], now[CULPRIT], -1
    while True:
        if c >= 0:
            arena[c + _USED] = now[CONFLICTS]
        k = 0
        while True:
            q = _literal(now, arena, c, k)
            k += 1
            if q < 0:
                break
            v = q >> 1
            if q == uip or mark[v] != 0 or level[v] == 0:
                continue
            mark[v] = 1
            activity[v] += more
            if level[v] == lev:
                open_ += 1
            else:
                learned[n] = q
                n += 1
        while True:
            i -= 1
            uip = np.int64(trail[i])
            if mark[uip >> 1] == 1 and level[uip >> 1] == lev:
                break
        c = np.int64(reason[uip >> 1])
        if open_ == 1:
            break
        open_ -= 1
        mark[uip >> 1] = 2
    learned[0] = uip ^ 1
    to = 1
    for j in range(1, n):  # without those that others imply
        q = np.int64(learned[j])
        c = np.int64(reason[q >> 1])
        needed, k = c == -1, 0
        while not needed:
            r = _literal(now, arena, c, k)
            k += 1
            if r < 0:
                break
            needed = r >> 1 != q >> 1 and level[r >> 1] > 0 and mark[r >> 1] & 1 == 0
        if needed:
            learned[to] = q
            to += 1
        else:
            mark[q >> 1] = 3
    for i in range(now[N_TRAIL]):
        mark[trail[i] >> 1] = 0
    for j in range(2, to):
        if level[learned[j] >> 1] > level[learned[1] >> 1]:
            learned[1], learned[j] = learned[j], learned[1]
    now[CONFLICTS] += 1
    activity[activity.size - 1] = more * 1.05
    if more > 1e100:
        for v in range(activity.size):
            activity[v] *= 1e-100
    return to


@jit
def _keep(now, s, n):
    """The first ``n`` literals learned as a clause of the arena; where it is."""
    arena, level, mark, learned = s.arena, s.level, s.mark, s.learned
    c, levels = now[N_ARENA], 0
    for j in range(n):
        arena[c + HEADER + j] = learned[j]
        if mark[level[learned[j] >> 1]] == 0:
            mark[level[learned[j] >> 1]] = 1
            levels += 1
    for j in range(n):
        mark[level[learned[j] >> 1]] = 0
    arena[c + _LENGTH], arena[c + _LEVELS], arena[c + _USED] = n, levels, now[CONFLICTS]
    now[N_ARENA] = c + HEADER + n
    _watch(arena, s.head, c)
    return c


@jit
def _still_solved(f, s, k):
    """Whether ``s.phase`` is a solution of component k, whose clauses are all open."""
    value, phase, pool = s.value, s.phase, s.pool
    begin, n_vars, n_clauses = s.part[k, 0], s.part[k, 1], s.part[k, 2]
    for i in range(begin, begin + n_vars):
        p = 2 * np.int64(pool[i]) + phase[pool[i]]
        for j in range(f.two_ptr[p], f.two_ptr[p + 1]):
            m = np.int64(f.two[j])
            if value[m] < 0 or (value[m] == 0 and phase[m >> 1] != m & 1):
                return False
    for i in range(begin + n_vars, begin + n_vars + n_clauses):
        holds = False
        for q in range(f.start[pool[i]], f.start[pool[i] + 1]):
            m = np.int64(f.literal[q])
            if value[m] == 0 and phase[m >> 1] == m & 1:
                holds = True
                break
        if not holds:
            return False
    return True


@jit
def _satisfy(f, s, k, base):
    """Look for a solution of component k, under a trail of levels up to ``base``. 1: there is one,
    in ``s.phase``; 0: none; -1: it takes more conflicts, or room for them, than one look has. What
    is learned stays, and on the trail what follows at the base."""
    if _still_solved(f, s, k):
        return 1
    now, value, level, reason, trail = s.now, s.value, s.level, s.reason, s.trail
    activity, phase, guess, bound, pool = s.activity, s.phase, s.guess, s.bound, s.pool
    begin, n_vars = s.part[k, 0], s.part[k, 1]
    n, lev, at, count, until, rounds = level.size, base, 0, 0, 32, 0
    bound[base + 1] = now[N_TRAIL]
    if now[AGAIN] == 0:  # a look that was broken off goes on with what it tried last
        for i in range(begin, begin + n_vars):
            guess[pool[i]] = phase[pool[i]]
    now[AGAIN] = 0
    p, c = -1, -1
    while True:
        if p >= 0:
            value[p], value[p ^ 1] = 1, -1
            level[p >> 1], reason[p >> 1] = lev, c
            trail[now[N_TRAIL]] = p
            now[N_TRAIL] += 1
        c = _follow(now, value, level, reason, trail, s.head, s.arena, f.two_ptr, f.two, lev)
        if c != -1:
            now[CULPRIT] = max(c, -1)
            if c == -2:
                c = -1
            top, j = 0, 0
            while True:
                q = _literal(now, s.arena, c, j)
                j += 1
                if q < 0:
                    break
                top = max(top, level[q >> 1])
            if top <= base:
                return 0
            m = _analyse(now, s, top)
            count += 1
            back = base if m == 1 else max(base, np.int64(level[s.learned[1] >> 1]))
            p, c = np.int64(s.learned[0]), -1
            if m > 1:
                c = _keep(now, s, m)
            else:
                s.units[now[N_UNITS]] = p
                now[N_UNITS] += 1
            over = count >= 2000 or now[N_ARENA] + HEADER + n + 1 > s.arena.size
            if count >= until or over:
                rounds += 1
                until = count + 32 * (rounds & -rounds)
                back = base
            while lev > back:
                _withdraw(now, value, trail, guess, bound[lev])
                lev -= 1
            at = 0
            if m > 1:  # does it still say so?
                for j in range(1, m):
                    if value[s.learned[j]] == 0:
                        p = -1
            if over:
                if p >= 0:
                    value[p], value[p ^ 1] = 1, -1
                    level[p >> 1], reason[p >> 1] = lev if m > 1 else 0, c
                    trail[now[N_TRAIL]] = p
                    now[N_TRAIL] += 1
                now[AGAIN] = 1
                return -1
            if m == 1:
                value[p], value[p ^ 1] = 1, -1
                level[p >> 1], reason[p >> 1] = 0, -1
                trail[now[N_TRAIL]] = p
                now[N_TRAIL] += 1
                p = -1
            continue
        # decide
        which, best = -1, -1.0
        if count == 0:
            while at < n_vars and value[2 * pool[begin + at]] != 0:
                at += 1
            if at < n_vars:
                which = pool[begin + at]
        else:
            for i in range(begin, begin + n_vars):
                v = pool[i]
                if value[2 * v] == 0 and activity[v] > best:
                    which, best = v, activity[v]
        if which < 0:
            break
        lev += 1
        bound[lev] = now[N_TRAIL]
        p, c = 2 * np.int64(which) + guess[which], -1
    for i in range(begin, begin + n_vars):
        phase[pool[i]] = 1 if value[2 * pool[i] + 1] > 0 else 0
    while lev > base:
        _withdraw(now, value, trail, guess, bound[lev])
        lev -= 1
    return 1


@jit
def _withdraw(now, value, trail, guess, n_trail):
    """Undo, and remember what was tried."""
    n = now[N_TRAIL]
    while n > n_trail:
        n -= 1
        p = trail[n]
        guess[p >> 1] = p & 1
        value[p] = value[p ^ 1] = 0
    now[N_TRAIL] = now[HEAD] = n


@jit
def _rests(f, s, x, begin, end):
    """What is left of the clauses in this part of the pool, without those that are true, that say
    what others or clauses of two do, or that follow from a short one; ``s.met`` tells which stay.
    What was there before follows from nothing that has not changed, so only clauses with a literal
    that the frame x has made false are compared."""
    value, level, met, pool, found = s.value, s.level, s.met, s.pool, s.found
    rest, rest_at, rest_n, rest_key, rest_of = s.rest, s.rest_at, s.rest_n, s.rest_key, s.rest_of
    look, at, n_fresh = s.now[LOOK], 0, 0
    for i in range(begin, end):
        c = np.int64(pool[i])
        h1, h2, of = np.uint64(0), np.uint64(0), np.uint64(0)
        fresh, holds, first = x == 0, False, at
        for q in range(f.start[c], f.start[c + 1]):
            p = np.int64(f.literal[q])
            if value[p] == 0:
                rest[at] = p
                at += 1
                h1 += f.salt[p, 0]
                h2 += f.salt[p, 1]
                of |= np.uint64(1) << np.uint64(p & 63)
            elif value[p] > 0:
                holds = True
                break
            elif level[p >> 1] == x:
                fresh = True
        if holds:
            at = first
            continue
        met[c], rest_at[c], rest_n[c], rest_of[c] = look, first, at - first, of
        rest_key[c, 0], rest_key[c, 1] = h1, h2
        if fresh and (at - first <= _SHORT or x == 0):
            found[n_fresh] = c
            n_fresh += 1
    for i in range(n_fresh):
        c = found[i]
        if met[c] != look:
            continue
        first, n = rest_at[c], rest_n[c]
        which, least = -1, np.int64(1) << 40
        for q in range(first, first + n):
            v = rest[q] >> 1
            if f.occurs_ptr[v + 1] - f.occurs_ptr[v] < least:
                which, least = v, f.occurs_ptr[v + 1] - f.occurs_ptr[v]
            if n == 2 or x == 0:  # perhaps it is one of two that is there, or holds one
                p = rest[q] ^ 1
                for j in range(f.two_ptr[p], f.two_ptr[p + 1]):
                    for r in range(first, first + n):
                        if rest[r] == f.two[j]:
                            met[c] = 0
        if met[c] == 0:
            continue
        for j in range(f.occurs_ptr[which], f.occurs_ptr[which + 1]):
            d = f.occurs[j]
            if met[d] != look or d == c or rest_of[c] & ~rest_of[d] != 0 or rest_n[d] < n:
                continue
            within = True
            for q in range(first, first + n):
                same = False
                for r in range(rest_at[d], rest_at[d] + rest_n[d]):
                    if rest[r] == rest[q]:
                        same = True
                        break
                if not same:
                    within = False
                    break
            if within:
                met[d] = 0


@jit
def _split(f, s, x, k, own):
    """What is left of component k, after what the trail says, as components on top of the pool;
    ``own``: the variable of the frame x. Variables that are known or free become children."""
    now, value, seen, met, often = s.now, s.value, s.seen, s.met, s.often
    pool, part, part_key, kids, found = s.pool, s.part, s.part_key, s.kids, s.found
    rest, rest_at, rest_n, rest_key = s.rest, s.rest_at, s.rest_n, s.rest_key
    number, number_e = 1.0, 0
    begin, n_vars, n_clauses = part[k, 0], part[k, 1], part[k, 2]
    look = now[LOOK] + 1
    now[LOOK] = look
    n_kids, top, n_part = now[N_KIDS], now[N_POOL], now[N_PART]
    for i in range(begin, begin + n_vars):
        v = pool[i]
        p = 2 * v
        if value[p] == 0:
            seen[v], often[v] = look, 0
            continue
        if value[p] < 0:
            p += 1
        number, number_e = times(number, number_e, f.weight[p], f.weight_e[p])
        if v != own:
            kids[n_kids] = 3 * v + (p & 1)
            n_kids += 1
    _rests(f, s, x, begin + n_vars, begin + n_vars + n_clauses)
    n_left = 0
    for i in range(begin, begin + n_vars):
        n_left += seen[pool[i]] == look
    for i in range(begin, begin + n_vars):
        if seen[pool[i]] != look:
            continue
        seen[pool[i]] = -look
        n_left -= 1
        pool[top] = pool[i]
        at, end, m = top, top + 1, 0
        k1, k2 = np.uint64(0), np.uint64(0)
        while at < end:
            v = np.int64(pool[at])
            at += 1
            k1 += f.salt[2 * v, 0] ^ f.salt[2 * v + 1, 0]
            k2 += f.salt[2 * v, 1] ^ f.salt[2 * v + 1, 1]
            for j in range(f.occurs_ptr[v], f.occurs_ptr[v + 1]):
                c = np.int64(f.occurs[j])
                if met[c] != look:
                    continue
                met[c] = -look
                found[m] = c
                m += 1
                h1, h2 = rest_key[c, 0], rest_key[c, 1]
                k1 += mix(h1, h2)
                k2 += mix(h2, h1)
                for q in range(rest_at[c], rest_at[c] + rest_n[c]):
                    u = rest[q] >> 1
                    often[u] += 1
                    if seen[u] == look:
                        seen[u] = -look
                        pool[end] = u
                        end += 1
                        n_left -= 1
            if n_left == 0:  # nobody is left to be found
                continue
            for j in range(f.two_ptr[2 * v], f.two_ptr[2 * v + 2]):
                u = f.two[j] >> 1
                if seen[u] == look:
                    seen[u] = -look
                    pool[end] = u
                    end += 1
                    n_left -= 1
        if end == top + 1 and m == 0:
            v = pool[top]
            number, number_e = times(number, number_e, f.both[v], f.both_e[v])
            kids[n_kids] = 3 * v + 2
            n_kids += 1
            continue
        for j in range(m):
            pool[end + j] = found[j]
        j = n_part
        n_part += 1
        while j > now[N_PART] and part[j - 1, 1] > end - top:  # small ones first
            part[j, 0], part[j, 1], part[j, 2] = part[j - 1, 0], part[j - 1, 1], part[j - 1, 2]
            part_key[j, 0], part_key[j, 1] = part_key[j - 1, 0], part_key[j - 1, 1]
            j -= 1
        part[j, 0], part[j, 1], part[j, 2] = top, end - top, m
        part_key[j, 0], part_key[j, 1] = k1, k2
        top = end + m
    s.number[x, 1], s.number_e[x, 1] = number, number_e
    s.frame[x, NEXT] = s.frame[x, FROM] = now[N_PART]
    s.frame[x, END] = n_part
    now[N_KIDS], now[N_POOL], now[N_PART] = n_kids, top, n_part


@jit
def search_clauses(f, s, d, budget):
    """Search on, for so many steps: what looks for components visit, and what is propagated. The
    state is in ``s``, nodes go to ``d``. Returns why the slice ended."""
    now, value, level, reason, trail = s.now, s.value, s.level, s.reason, s.trail
    frame, number, number_e, kids, pool = s.frame, s.number, s.number_e, s.kids, s.pool
    part, part_key, activity, units = s.part, s.part_key, s.activity, s.units
    variable, eptr, total, total_e = d.variable, d.eptr, d.total, d.total_e
    key1, key2 = d.key1, d.key2
    state, weight, cptr, child, slots = d.state, d.weight, d.cptr, d.child, d.slots
    n = level.size
    bottom = 3 * n
    x, mode, spare, why = now[DEPTH], now[MODE], budget, PAUSED
    while spare > 0 or mode != _ENTER:
        if mode == _ENTER:
            k = frame[x, NEXT]
            found = find(slots, key1, key2, part_key[k, 0], part_key[k, 1])
            if found >= 0:
                now[HITS] += 1
                now[FOUND] = found
                mode = _UP
                continue
            best, which, per = -1e300, 0, 1.0 / activity[n]
            for i in range(part[k, 0], part[k, 0] + part[k, 1]):
                v = np.int64(pool[i])
                open_ = s.often[v]
                for j in range(f.two_ptr[2 * v], f.two_ptr[2 * v + 2]):
                    open_ += value[f.two[j]] == 0
                score = f.prior[v] + activity[v] * per + _OFTEN * open_
                if score > best:
                    best, which = score, v
            x += 1
            frame[x, _PART], frame[x, KIND] = k, _FIRST
            frame[x, _LITERAL] = 2 * which + s.phase[which]
            frame[x, _TRAIL], frame[x, _POOL] = now[N_TRAIL], now[N_POOL]
            frame[x, _PARTS], frame[x, _KID] = now[N_PART], now[N_KIDS]
            frame[x, _KID2] = now[N_KIDS]
            mode = _BRANCH
        if mode == _BRANCH:
            p, before = frame[x, _LITERAL], now[N_TRAIL]
            value[p], value[p ^ 1] = 1, -1
            level[p >> 1], reason[p >> 1] = x, -1
            trail[before] = p
            now[N_TRAIL] = before + 1
            mode = _SPLIT
            for i in range(now[N_UNITS]):
                q = np.int64(units[i])
                if value[q] == 0:
                    value[q], value[q ^ 1] = 1, -1
                    level[q >> 1], reason[q >> 1] = 0, -1
                    trail[now[N_TRAIL]] = q
                    now[N_TRAIL] += 1
                elif value[q] < 0:
                    mode = _FALSE
            if mode == _SPLIT and _follow(
                now, value, level, reason, trail, s.head, s.arena, f.two_ptr, f.two, x
            ) != -1:  # fmt: skip
                mode = _FALSE
            spare -= now[N_TRAIL] - before
        if mode == _SPLIT:
            k = frame[x, _PART]
            n_vars = part[k, 1]
            if (
                now[N_POOL] + n_vars + part[k, 2] > pool.size or now[N_PART] + n_vars > len(part)
                or now[N_KIDS] + n_vars > kids.size
            ):  # fmt: skip
                why = NO_POOL
                break
            spare -= (n_vars + part[k, 2]) >> 3
            own = -1 if frame[x, KIND] == _ROOT else frame[x, _LITERAL] >> 1
            frame[x, _ALL] = now[N_TRAIL]
            _split(f, s, x, k, own)
            frame[x, _CHECKED] = frame[x, NEXT]
            mode = _BELOW if frame[x, KIND] == _FIRST else _CHECK
        if mode == _CHECK:
            before, known = now[CONFLICTS], 1
            while frame[x, _CHECKED] < frame[x, END]:
                k = frame[x, _CHECKED]
                if find(slots, key1, key2, part_key[k, 0], part_key[k, 1]) < 0:
                    if now[N_ARENA] + HEADER + n + 1 > s.arena.size:
                        known = -1
                    else:
                        known = _satisfy(f, s, k, x)
                    if known < 1:
                        break
                    spare -= part[k, 1]
                frame[x, _CHECKED] += 1
            spare -= 20 * (now[CONFLICTS] - before)
            if known == 0:
                mode = _FALSE
            elif known < 0:
                why = NO_ARENA
                break
            elif now[N_TRAIL] > frame[x, _ALL]:  # more follows than was known: look again
                now[N_POOL] = frame[x, _POOL]
                now[N_PART], now[N_KIDS] = frame[x, _PARTS], frame[x, _KID2]
                mode = _SPLIT
                continue
            else:
                mode = _BELOW
        if mode == _BELOW:
            if frame[x, NEXT] < frame[x, END]:
                mode = _ENTER
                spare -= 1
                continue
            if frame[x, KIND] == _ROOT:
                why = SOLVED
                break
            mode = _STORE
            if frame[x, KIND] == _FIRST:
                number[x, 0], number_e[x, 0] = number[x, 1], number_e[x, 1]
                _undo(now, value, trail, frame[x, _TRAIL])
                now[N_POOL], now[N_PART] = frame[x, _POOL], frame[x, _PARTS]
                frame[x, KIND], frame[x, _LITERAL] = _SECOND, frame[x, _LITERAL] ^ 1
                frame[x, _KID2] = now[N_KIDS]
                mode = _BRANCH
                continue
        if mode == _FALSE:
            if frame[x, KIND] != _SECOND:
                why = IMPOSSIBLE if frame[x, KIND] == _ROOT else WRONG
                break
            number[x, 1], now[N_KIDS] = 0.0, frame[x, _KID2]
            mode = _STORE
        if mode == _STORE:
            nn = now[NODES]
            ne = eptr[nn]
            nc = cptr[ne]
            if (
                nn >= variable.size or nn - bottom >= total.size or ne + 2 > state.size
                or nc + now[N_KIDS] - frame[x, _KID] > child.size
            ):  # fmt: skip
                why = NO_ROOM
                break
            if 2 * (nn - bottom + 1) > slots.size:
                why = NO_SLOTS
                break
            w, e = plus(number[x, 0], number_e[x, 0], number[x, 1], number_e[x, 1])
            p = frame[x, _LITERAL]
            for b in range(2):
                if number[x, b] == 0.0:
                    continue
                r = share(number[x, b], number_e[x, b], w, e)
                if r == LEAST:
                    now[RAISED] += 1
                state[ne], weight[ne] = (p ^ 1 ^ b) & 1, r
                for i in range(frame[x, _KID + b], frame[x, _KID2] if b == 0 else now[N_KIDS]):
                    child[nc] = kids[i]
                    nc += 1
                ne += 1
                cptr[ne] = nc
            found = nn - bottom
            variable[nn] = p >> 1
            eptr[nn + 1] = ne
            k = frame[x, _PART]
            k1, k2 = part_key[k, 0], part_key[k, 1]
            slots[-1 - find(slots, key1, key2, k1, k2)] = found
            key1[found], key2[found] = k1, k2
            total[found], total_e[found] = w, e
            now[NODES], now[FOUND] = nn + 1, found
            _undo(now, value, trail, frame[x, _TRAIL])
            now[N_POOL], now[N_PART] = frame[x, _POOL], frame[x, _PARTS]
            now[N_KIDS] = frame[x, _KID]
            x -= 1
            mode = _UP
        if mode == _UP:
            found = now[FOUND]
            kids[now[N_KIDS]] = found + bottom
            now[N_KIDS] += 1
            number[x, 1], number_e[x, 1] = times(
                number[x, 1], number_e[x, 1], total[found], total_e[found]
            )
            frame[x, NEXT] += 1
            mode = _BELOW
    now[DEPTH], now[MODE] = x, mode
    now[STEPS] += budget - spare
    return why
