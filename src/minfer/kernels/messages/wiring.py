"""Arrays that message passing runs on, and the kernels that lay them out.

A 2x2 table without zeros is a constant, two unaries and one conjunction: with y in {0, 1},

    log psi(y_a, y_b) = t00 + ua y_a + ub y_b + w y_a y_b,   e^w = psi11 psi00 / (psi01 psi10).

Every solver's treatment of binary pairs stands on that
(:func:`minfer.factors.group.interaction` is w for whole arrays). So once the unaries are absorbed,
one number W = e^w and one odds message per direction describe every binary pairwise factor. All
other factors (more states, more variables, zeros, very wide weights, global factors) are *general*:
one vector per direction and slot.

Kernels unpack the tuples once, at their top, and hand plain arrays to their helpers: reading a
tuple's field inside a loop costs a reference count each time (measured: 50 times slower sweeps).
Slot indices are unsigned, which spares numba's test for negative indices.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit

PLAIN = 0  # binary, pair slots only, products of odds stay in range
SCALED = 1  # binary, pair slots only, products kept as mantissa and exponent; prior is log-odds
GENERAL = 2  # anything else
ASLEEP = 3  # no sweep visits it: part of a tree (see :func:`peel`), or known and without slots

#: |w| up to which a pair factor may be in odds form: messages then lie in e^-150 .. e^150.
MAX_PAIR_WEIGHT = 150.0
#: Beyond these odds a pair message equals its limit to the last bit.
MAX_ODDS = 1e200
#: |field| + sum |w| up to which plain products, times one more W, cannot leave the double range.
MAX_PLAIN_LOAD = 450.0
#: Log-odds, beside what messages may add, from which on the other state has no part in log Z.
FAR = 1e6

# columns of Wiring.gslot and Wiring.fac
FACTOR, POSITION, OFFSET, SIZE = 0, 1, 2, 3
TABLE, FIRST, ARITY, CODE, WIDTH = 0, 1, 2, 3, 4


# Confirmation.control
PHASE, TRIGGER, LAST, WORST, PASSED, DONE, FRESH, SENT = 0, 1, 2, 3, 4, 5, 6, 7
BLANK = 8  # messages and beliefs are for the first sweep over vector pairs to write
TOL, DAMPING, SKIPPED = 9, 10, 11  # settings; variables that a residual sweep left out
NEVER = 2.0  # SENT of runs that do not send ahead


class Wiring(NamedTuple):
    """A model as message passing sees it. V variables, E pair slots, G general slots, F factors."""

    card: np.ndarray  # i4 (V,)
    off: np.ndarray  # i8 (V+1,) where a variable's states begin
    kind: np.ndarray  # u1 (V,) PLAIN, SCALED, GENERAL or ASLEEP
    prior: np.ndarray  # f8 (V,) odds (PLAIN) or log-odds (SCALED) of the field
    field: np.ndarray  # f8 (sum S,) the field of general variables, linear or log; else empty
    ptr: np.ndarray  # u8 (V+1,) pair slots of a variable
    rev: np.ndarray  # u4 (E,) the slot of the opposite direction
    W: np.ndarray  # f8 (E,)
    gptr: np.ndarray  # i8 (V+1,) general slots of a variable
    gslot: np.ndarray  # i4 (G, 4) general factor, position in its scope, offset and size of
    # messages; i8 where there are more than 2^31 numbers of them
    fac: np.ndarray  # i8 (F, 5) offset of the table (-1: no table), first in fslot, arity; of pairs
    # of labels by distance their code and width (:mod:`minfer.kernels.messages.labels`), else 0
    fslot: np.ndarray  # i8 (G,) each factor's slots in scope order
    tab: np.ndarray  # f8 tables scaled to maximum 1 (linear) or 0 (log)
    rho: np.ndarray  # f8 (E,) edge appearance of pair slots (tree-reweighted), else empty
    grho: np.ndarray  # f8 (G,) the same of general slots

    @property
    def odds(self) -> tuple[np.ndarray, ...]:
        """What :mod:`minfer.kernels.messages.odds` reads of it."""
        return self.off, self.kind, self.prior, self.ptr, self.rev, self.W


class WiredMessages(NamedTuple):
    """What message passing changes. Pair messages are odds, general ones scaled to maximum 1."""

    m: np.ndarray  # f8 (E,) into the slot's variable
    weighted_log: np.ndarray  # f8 (E,) rho * log m (tree-reweighted), else empty
    to_variable: np.ndarray  # f8 (sum of slot sizes,) factor to variable
    to_factor: np.ndarray  # f8 (sum of slot sizes,) variable to factor
    bel: np.ndarray  # f8 (sum S,) probabilities
    b: np.ndarray  # f8 scratch, one variable
    tmp: np.ndarray  # f8 scratch, one table
    flag: np.ndarray  # i8 (2,) [range too wide for linear tables, 1 + contradicted variable,
    # or -1 - contradicted machine]


class Machines(NamedTuple):
    """Factors that are automata. M of them, L literals in all; general factors ``base`` and on."""

    base: int
    mine: np.ndarray  # i4 those that sweeps over the core visit
    vars: np.ndarray  # i4 the variables of those
    alone: np.ndarray  # i4 those of them that have no other slots: sequential visits leave them out
    one: np.ndarray  # i4 (1,) scratch
    code: np.ndarray  # u1 (M,)
    first: np.ndarray  # i8 (M+1,) where its literals begin
    gfirst: np.ndarray  # i8 (M,) where its messages begin, in the order of its literals
    at: np.ndarray  # i4 (L,) where the variable's states begin
    card: np.ndarray  # i4 (L,) states of the variable
    lit: np.ndarray  # i4 (L,) the state that makes the literal true
    stp: np.ndarray  # i8 (L,) where its step begins
    step: np.ndarray  # i4 steps (K, 2), one after the other
    start: np.ndarray  # i4 (M,)
    n_ends: np.ndarray  # i4 (M,) K
    fin: np.ndarray  # i8 (M,) where its end weights begin
    final: np.ndarray  # f8 end weights, scaled to maximum 1 (or log 0)
    work: np.ndarray  # f8 scratch
    logs: np.ndarray  # f8 (sum S,) log-beliefs of a pass in logs, not normalised


class Confirmation(NamedTuple):
    """How sweeps prove that they have converged (:mod:`minfer.kernels.messages.sweeps`)."""

    order: np.ndarray  # i8 a piece of the order of :func:`peel`, variables only
    control: np.ndarray  # f8 (12,) PHASE, TRIGGER, ...
    m: np.ndarray  # f8 (E,) pair messages before the confirming update, or empty: no room
    to_variable: np.ndarray  # f8 general messages before it, or empty
    to_factor: np.ndarray  # f8 general cavities before it, or empty
    bel: np.ndarray  # f8 (sum S,) beliefs before it, then after it; or empty
    work: np.ndarray  # f8 scratch of sweeps over vector pairs, or empty
    ways: np.ndarray  # i8 (G, 4) what they ask about slots, or empty
    other: np.ndarray  # f8 (E,) where flooding writes pair messages, or empty


@jit
def plus(total, lost, x):
    """One step of a compensated sum: the new total, and what rounding lost of it."""
    x -= lost
    new = total + x
    return new, (new - total) - x


@jit
def split_pair(t00, t01, t10, t11):
    """(ua, ub, w) of a log-table; t00 is the constant."""
    ua, ub = t10 - t00, t01 - t00
    return ua, ub, (t11 - t10) - ub


@jit
def pair_table(values, basis, row):
    """Row ``row`` of ``values @ basis``: a log-table (00, 01, 10, 11)."""
    t00 = t01 = t10 = t11 = 0.0
    for k in range(values.shape[1]):
        x = values[row, k]
        t00 += x * basis[k, 0]
        t01 += x * basis[k, 1]
        t10 += x * basis[k, 2]
        t11 += x * basis[k, 3]
    return t00, t01, t10, t11


@jit
def damped(new, old, damping):
    """Odds of the average of two messages taken as probabilities, which treats 0 and 1 alike."""
    a, b = (1.0 - damping) * (1.0 + old), damping * (1.0 + new)
    return (a * new + b * old) / (a + b)


@jit
def peel(w, slot, scope, gowner, order, asleep):
    """Strip the trees off a model: its leaves, then what has become a leaf, and so on.

    A variable is taken off when one factor is left to it, a general factor when one variable is, so
    forwards through ``order`` is *collecting* towards the core (or a root), each message after
    those it depends on; backwards is *distributing*. Tree-reweighted edges are taken off only at
    weight 1, where a message does not depend on the one it answers.

    ``order`` (V + F,) gets variables v, and factors f without a table, which answer in between, as
    -1 - f; ``asleep`` (V,) is set for the variables. Pair factors have slots and scopes (P, 2),
    general slots the variables ``gowner``. Returns the order's length and how many slots are left.
    """
    card, ptr, rev = w.card, w.ptr, w.rev
    gptr, gslot, fac = w.gptr, w.gslot, w.fac
    fslot, rho, grho = w.fslot, w.rho, w.grho
    n = card.shape[0]
    degree = np.empty(n, np.int64)
    left = fac[:, ARITY].copy()
    queue = np.empty(n, np.int64)
    owner = np.empty(rev.shape[0], np.int32)
    for f in range(slot.shape[0]):
        owner[slot[f, 0]] = scope[f, 0]
        owner[slot[f, 1]] = scope[f, 1]
    slots, tail, count = 0, 0, 0
    for v in range(n):
        degree[v] = np.int64(ptr[v + 1] - ptr[v]) + gptr[v + 1] - gptr[v]
        slots += degree[v]
        if degree[v] == 1:
            queue[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = queue[head]
        head += 1
        parent, parent_factor, weight = -1, -1, 1.0
        if degree[v] == 1:
            for e in range(ptr[v], ptr[v + 1]):
                u = owner[rev[e]]
                if asleep[u] == 0:
                    parent = u
                    weight = rho[e] if rho.size > 0 else 1.0
                    break
            for g in range(gptr[v], gptr[v + 1]):
                if parent < 0 and left[gslot[g, FACTOR]] > 1:
                    parent_factor = gslot[g, FACTOR]
                    weight = grho[g] if grho.size > 0 else 1.0
                    break
            if weight != 1.0:
                continue
        asleep[v] = 1
        order[count] = v
        count += 1
        if parent_factor >= 0:
            f = parent_factor
            slots -= 1
            left[f] -= 1
            if left[f] > 1:
                continue
            if fac[f, TABLE] < 0:
                order[count] = -1 - f
                count += 1
            for a in range(fac[f, FIRST], fac[f, FIRST] + fac[f, ARITY]):
                if asleep[gowner[fslot[a]]] == 0:
                    parent = gowner[fslot[a]]
            slots -= 1
        elif parent >= 0:
            slots -= 2
        if parent >= 0:
            degree[parent] -= 1
            if degree[parent] == 1:
                queue[tail] = parent
                tail += 1
    return count, slots


@jit
def colour(w, owner, gowner, taken, colours):
    """Colours (V,) such that no two variables of a pair, or of a table, share one: to each variable
    in turn the first that no earlier neighbour has; on a grid two. Returns how many there are.
    Slots have the variables ``owner`` and ``gowner``; ``taken`` (V + 1,) is room, of zeros."""
    ptr, rev, gptr, gslot, fac, fslot = w.ptr, w.rev, w.gptr, w.gslot, w.fac, w.fslot
    used = 0
    for v in range(colours.shape[0]):
        mark = v + 1
        for e in range(ptr[v], ptr[v + 1]):
            u = owner[rev[e]]
            if u < v:
                taken[colours[u]] = mark
        for g in range(gptr[v], gptr[v + 1]):
            f = gslot[g, FACTOR]
            if fac[f, TABLE] < 0:
                continue  # it answers for itself, after the variables
            for a in range(fac[f, FIRST], fac[f, FIRST] + fac[f, ARITY]):
                u = gowner[fslot[a]]
                if u < v:
                    taken[colours[u]] = mark
        c = 0
        while taken[c] == mark:
            c += 1
        colours[v] = c
        used = max(used, c + 1)
    return used


@jit
def pair_slots(scope, ptr, first, ends, rev, slot):
    """Wire a batch of pair factors, the first of which is ``first``: two slots each, and which
    answers which. Slots of a variable lie in two runs: of neighbours after it, for which e <
    rev[e], then of those before it. The nearest neighbours' are at the two ends: a sweep, which has
    just left one of them, looks there last. ``ends`` (V, 4): how many slots of the two runs a
    variable has, and the factors at the two ends."""
    one = np.uint64(1)
    for k in range(scope.shape[0]):
        f, a, b = np.uint64(first + k), np.uint64(scope[k, 0]), np.uint64(scope[k, 1])
        low, high = (a, b) if a < b else (b, a)
        begin, end = ptr[low], ptr[high + one] - one
        i, j = begin + np.uint64(ends[low, 0]), end - np.uint64(ends[high, 1])
        rev[i], rev[j] = j, i
        slot[f, 0], slot[f, 1] = (i, j) if a == low else (j, i)
        ends[low, 0] += 1
        ends[high, 1] += 1
        if i == begin:
            ends[low, 2] = f
        elif rev[i] < rev[begin]:  # slots are ordered as the variables they are of
            _exchange(begin, np.uint64(ends[low, 2]), i, f, rev, slot)
            ends[low, 2] = f
        if j == end:
            ends[high, 3] = f
        elif rev[j] > rev[end]:
            _exchange(end, np.uint64(ends[high, 3]), j, f, rev, slot)
            ends[high, 3] = f


@jit(forceinline=True)
def _exchange(i, f, j, g, rev, slot):
    """Let factor f, which has slot i, and factor g, which has slot j, change places."""
    p, q = rev[i], rev[j]
    rev[i], rev[q] = q, i
    rev[j], rev[p] = p, j
    slot[f, 0 if slot[f, 0] == i else 1] = j
    slot[g, 0 if slot[g, 0] == j else 1] = i


@jit
def pair_fill(scope, values, basis, rho, slot, W, first, lean, load):
    """Numbers of a batch of pair factors with log-tables ``values @ basis`` (00, 01, 10, 11), one
    row each or one for all; ``rho`` one weight each or empty. Adds unary parts to ``lean``
    (log-odds per variable) and |w| to ``load``; writes W of both slots and, if there is room,
    ``first``, the uniform message of the table as given: e^-ua once its unary part ua is absorbed,
    within 1 and W. Returns the sum of t00."""
    constant = lost = 0.0  # a compensated sum
    last, odds = 0.0, 1.0  # equal weights are common, exp is not cheap
    last_a, first_a, last_b, first_b = 0.0, 1.0, 0.0, 1.0
    single = values.shape[0] == 1
    t00 = one_a = one_b = one_w = 0.0
    for f in range(scope.shape[0]):
        if f == 0 or not single:
            t00, t01, t10, t11 = pair_table(values, basis, f)
            one_a, one_b, one_w = split_pair(t00, t01, t10, t11)
        ua, ub, w = one_a, one_b, one_w
        a = np.uint64(scope[f, 0])
        b = np.uint64(scope[f, 1])
        if t00 != 0.0 or lost != 0.0:  # conjunctions have neither this nor unary parts
            constant, lost = plus(constant, lost, t00)
        if ua != 0.0:
            lean[a] += ua
        if ub != 0.0:
            lean[b] += ub
        if rho.size > 0:
            w /= rho[f]
            ua /= rho[f]
            ub /= rho[f]
        load[a] += abs(w)
        load[b] += abs(w)
        i = np.uint64(slot[f, 0])
        j = np.uint64(slot[f, 1])
        if w != last:
            last, odds = w, np.exp(w)
        W[i] = odds
        W[j] = odds
        if first.size == 0:
            continue
        if ua == 0.0 and ub == 0.0:
            first[i] = 1.0
            first[j] = 1.0
            continue
        low, high = min(0.0, w), max(0.0, w)
        ua = min(max(-ua, low), high)
        ub = min(max(-ub, low), high)
        if ua != last_a:
            last_a, first_a = ua, np.exp(ua)
        if ub != last_b:
            last_b, first_b = ub, first_a if ub == ua else np.exp(ub)
        first[i] = first_a
        first[j] = first_b
    return constant


@jit
def classify(card, off, field, fixed, lean, load, gptr, log_prior, kind, prior):
    """Choose each variable's class and absorb the pair factors' unary parts into its prior,
    log-odds throughout if ``log_prior`` (tree-reweighted). ``fixed``: the only state of a variable,
    or -1; its factors were sliced, so it hears and says nothing unless a global factor still sees
    it. Returns the number of general variables, whose lean goes into ``field`` instead, and the sum
    of the others' field: of the only or the zero state."""
    general = 0
    constant = lost = 0.0
    for v in range(card.shape[0]):
        o = off[v]
        is_fixed = fixed[v] >= 0
        if (card[v] == 2 or is_fixed) and gptr[v] == gptr[v + 1]:
            lo = 0.0 if is_fixed else field[o + 1] - field[o] + lean[v]
            if np.isfinite(lo):
                base, far = field[o + fixed[v] if is_fixed else o], FAR + 4.0 * load[v]
                if lo > far:  # no message brings the other state back; digits of log Z would go
                    base, lo = field[o + 1] + lean[v] - far, far
                constant, lost = plus(constant, lost, base)
                lo = max(lo, -far)
                if is_fixed:
                    kind[v] = ASLEEP
                    prior[v] = 0.0
                elif not log_prior and abs(lo) + load[v] <= MAX_PLAIN_LOAD:
                    kind[v] = PLAIN
                    prior[v] = np.exp(lo)
                else:
                    kind[v] = SCALED
                    prior[v] = lo
                continue
        kind[v] = GENERAL
        general += 1
        if card[v] == 2 and lean[v] != 0.0:  # without pairs the field may be the model's own
            field[o + 1] += lean[v]
    return general, constant


@jit
def general_slots(order, owner, position, scope, card, pairs, gslot, fslot):
    """Rows of ``Wiring.gslot``, messages one after the other, and each place's slot. If all factors
    are ``pairs``, messages from later variables come first, then those from earlier ones: a sweep
    over many states reads one half and writes the other."""
    at, behind, one = 0, 0, np.int64(1)
    for p in range(0, scope.shape[0] if pairs else 0, 2):
        behind += np.int64(card[min(scope[p], scope[p + 1])])
    for g in range(order.shape[0]):
        p = order[g]
        size = np.int64(card[scope[p]])
        gslot[g, FACTOR], gslot[g, POSITION], gslot[g, SIZE] = owner[g], position[g], size
        fslot[p] = g
        if pairs and scope[p ^ one] < scope[p]:
            gslot[g, OFFSET] = behind
            behind += size
        else:
            gslot[g, OFFSET] = at
            at += size
