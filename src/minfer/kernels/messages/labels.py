"""Messages between variables with the same labels, by how far apart the labels are.

A pair's table is given by T *taps*: psi(x, y) depends on d = |x - y| alone and is constant from D =
T - 1 on. Its message

    m(y) = sum_x psi(|x - y|) h(x) = sum_{|x - y| < D} psi(|x - y|) h(x) + c sum_{|x - y| >= D} h(x)

costs O(K D), and O(K) where D is 1 (Potts) or the taps fall by one ratio (linear costs). Four
codes, each with T numbers [c, v_0, ..., v_{D-1}] that are not negative, so that their logs serve
the twin in logs:

* RISE: no tap is below c; v = psi - c, and m = c sum h + sum v h.
* BAND: any taps; v = psi. What lies outside the band is summed from both ends.
* CHAIN: as BAND, and v_d = v_0 r^d: two exponential filters, cut off at D.
* DENSE: no taps but a table; :mod:`minfer.kernels.messages.vectors` has it.

Everything is sums of products of what is not negative: nothing cancels, every message has the
relative accuracy of its sums. That is why a filter that ends is not "add what comes, subtract what
goes": it is put together from sums within blocks of length D, the end of one and the beginning of
the next. No FFT: it errs by the largest entry.
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.addresses import SPAN, L, address, get, load, put, spread, store
from minfer.kernels.arithmetic.vexp import log_add
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.wiring import FIRST, OFFSET

RISE, BAND, CHAIN = 1, 2, 3  # 0: dense
#: Taps that one go over the labels has.
FEW = 5
#: Taps from which on filters are quicker than the taps themselves.
CHAIN_FROM = 24


class FourTaps(NamedTuple):
    """Numbers of four distances, and how many bytes these are."""

    a0: float
    a1: float
    a2: float
    a3: float
    d0: int
    d1: int
    d2: int
    d3: int


@jit
def label_message(tab, t, code, width, to_factor, q, n, tmp):
    """m(y) into ``tmp[:n]`` from h = to_factor[q:q+n] and the numbers tab[t:]; width is D. ``tmp``
    has room for n + 2 width numbers more."""
    at = n + width  # h with zeros on both sides
    mass = 0.0
    for i in range(width):
        tmp[n + i] = 0.0
        tmp[at + n + i] = 0.0
    for i in range(n):
        tmp[at + i] = to_factor[q + i]
        mass += to_factor[q + i]
    numbers, here = address(tab) + 8 * t, address(tmp)
    band_message(numbers, code, width, here + 8 * at, mass, 1.0, np.int64(n), here)


@jit
def band_message(numbers, code, D, h, mass, scale, n, out):
    """m(y) times ``scale`` from h, n numbers between D zeros each, and their sum, by address."""
    c = get(numbers) * scale
    v0 = get(numbers + 8) * scale if D > 0 else 0.0
    if code == CHAIN:
        _filter(numbers + 8, D, h, scale, n, out)
    else:
        low, j = c * mass if code == RISE else 0.0, 1
        while j < D or j == 1:  # four taps at a time
            tap = numbers + 8 + 8 * j
            a0 = get(tap) * scale if j < D else 0.0
            a1 = get(tap + 8) * scale if j + 1 < D else 0.0
            a2 = get(tap + 16) * scale if j + 2 < D else 0.0
            a3 = get(tap + 24) * scale if j + 3 < D else 0.0
            last = max(D - 1, 0)
            d0, d1, d2, d3 = min(j, last), min(j + 1, last), min(j + 2, last), min(j + 3, last)
            taps = FourTaps(a0, a1, a2, a3, 8 * d0, 8 * d1, 8 * d2, 8 * d3)
            if j == 1:
                _first_taps(out, low, v0, taps, h, n, SPAN)
            else:
                _more_taps(out, taps, h, n)
            j += 4
    if code != RISE and c > 0.0:
        left = right = 0.0
        for i in range(D, n):
            left += get(h + 8 * (i - D))
            put(out + 8 * i, get(out + 8 * i) + c * left)
        for i in range(D, n):
            right += get(h + 8 * (n - 1 - (i - D)))
            place = out + 8 * (n - 1 - i)
            put(place, get(place) + c * right)


@jit
def few_taps(numbers, h, mass, scale, n, out, step):
    """:func:`band_message` of RISE with FEW taps, which is most common; ``step`` is SPAN, or -SPAN
    for vectors from the last to the first."""
    low, v0 = get(numbers) * scale * mass, get(numbers + 8) * scale
    a0, a1 = get(numbers + 16) * scale, get(numbers + 24) * scale
    a2, a3 = get(numbers + 32) * scale, get(numbers + 40) * scale
    _first_taps(out, low, v0, FourTaps(a0, a1, a2, a3, 8, 16, 24, 32), h, n, step)


@jit
def _first_taps(out, low, v0, taps, h, n, step):
    """out = low + v0 h and four taps, d bytes to the left and to the right."""
    a0, a1, a2, a3, d0, d1, d2, d3 = taps
    base = spread(low)
    x0, y0 = (h, out) if step > 0 else (h + (n // L - 1) * SPAN, out + (n // L - 1) * SPAN)
    for _ in range(n // L):
        x = load(x0) * v0 + base  # one after the other: a product and a sum are one operation
        x = (load(x0 - d0) + load(x0 + d0)) * a0 + x
        x = (load(x0 - d1) + load(x0 + d1)) * a1 + x
        x = (load(x0 - d2) + load(x0 + d2)) * a2 + x
        store(y0, (load(x0 - d3) + load(x0 + d3)) * a3 + x)
        x0, y0 = x0 + step, y0 + step
    h, out = h + n // L * SPAN, out + n // L * SPAN
    for _ in range(n % L):
        x = get(h) * v0 + low
        x = (get(h - d0) + get(h + d0)) * a0 + x
        x = (get(h - d1) + get(h + d1)) * a1 + x
        x = (get(h - d2) + get(h + d2)) * a2 + x
        put(out, (get(h - d3) + get(h + d3)) * a3 + x)
        out, h = out + 8, h + 8


@jit
def _more_taps(out, taps, h, n):
    """Four taps more."""
    a0, a1, a2, a3, d0, d1, d2, d3 = taps
    for _ in range(n // L):
        x = (load(h - d0) + load(h + d0)) * a0 + load(out)
        x = (load(h - d1) + load(h + d1)) * a1 + x
        x = (load(h - d2) + load(h + d2)) * a2 + x
        store(out, (load(h - d3) + load(h + d3)) * a3 + x)
        out, h = out + SPAN, h + SPAN
    for _ in range(n % L):
        x = (get(h - d0) + get(h + d0)) * a0 + get(out)
        x = (get(h - d1) + get(h + d1)) * a1 + x
        x = (get(h - d2) + get(h + d2)) * a2 + x
        put(out, (get(h - d3) + get(h + d3)) * a3 + x)
        out, h = out + 8, h + 8


@jit
def _filter(taps, D, h, scale, n, out):
    """sum_{|x - y| < D} v_0 r^|x - y| h(x), scaled, into out; the v_d by address.

    The sum over the D labels up to y, from left and from right, counts y's own twice. A block's
    sums A(y) = r A(y - 1) + h(y) begin anew every D labels; what they lack is the end of the block
    before, B(i) = sum_{k >= i} h(k) r^(last - k), which is kept in the zeros after h, and they are
    put back.
    """
    v0 = get(taps) * scale
    r = get(taps + 8) / get(taps)
    keep = h + 8 * n
    for back in range(2):
        start = 0
        while start < n:
            end = min(start + D, n)
            run = 0.0
            for i in range(start, end):
                p = i - start
                y = 8 * (n - 1 - i if back else i)
                run = run * r + get(h + y)
                x = v0 * run
                if start > 0 and p + 1 < D:
                    x += scale * get(taps + 8 * (p + 1)) * get(keep + 8 * (p + 1))
                # both sums hold v_0 h(y), so taking one of them off costs a bit at most
                put(out + y, (get(out + y) + x) - v0 * get(h + y) if back else x)
            if end < n:
                run, power = 0.0, 1.0
                for k in range(D):
                    i = end - 1 - k
                    run += power * get(h + 8 * (n - 1 - i if back else i))
                    power *= r
                    put(keep + 8 * (D - 1 - k), run)
            start = end
    for i in range(D):
        put(keep + 8 * i, 0.0)


@jit
def label_message_log(tab, t, code, width, to_factor, q, n, tmp):
    """The same in logs; ``tmp`` needs 3 n numbers."""
    c, D = tab[t], width
    top = -np.inf
    for i in range(n):
        top = max(top, to_factor[q + i])
    if top == -np.inf:
        for i in range(n):
            tmp[i] = -np.inf
        return
    total = 0.0
    for i in range(n):
        total += math.exp(to_factor[q + i] - top)
    every = top + math.log(total)
    if code != RISE and D >= 1 and c > -np.inf:
        high, total = -np.inf, 0.0  # log of a running sum: high + log(total)
        for i in range(n):
            if i >= D:
                high, total = _more(high, total, to_factor[q + i - D])
            tmp[n + i] = high + math.log(total) if total > 0.0 else -np.inf
        high, total = -np.inf, 0.0
        for k in range(n):
            i = n - 1 - k
            if k >= D:
                high, total = _more(high, total, to_factor[q + i + D])
            x = high + math.log(total) if total > 0.0 else -np.inf
            tmp[n + i] = log_add(tmp[n + i], x)
    for i in range(n):
        x = every if code == RISE or D == 0 else tmp[n + i]
        tail = c + x if c > -np.inf else -np.inf
        if D == 0:
            tmp[i] = tail
            continue
        lo, hi = max(i - D + 1, 0), min(i + D, n)
        high = tail
        for j in range(lo, hi):
            high = max(high, tab[t + 1 + abs(i - j)] + to_factor[q + j])
        if high > -np.inf:
            total = math.exp(tail - high)
            for j in range(lo, hi):
                total += math.exp(tab[t + 1 + abs(i - j)] + to_factor[q + j] - high)
            high += math.log(total)
        tmp[i] = high


@jit
def _more(high, total, x):
    """high + log(total) with e^x added to the sum."""
    if x == -np.inf:
        return high, total
    if x <= high:
        return high, total + math.exp(x - high)
    return x, (total * math.exp(high - x) if total > 0.0 else 0.0) + 1.0


@jit
def _best_message(tab, width, h, first, n, out, at, work, where):
    """max_x log psi(|x - y|) + h(x) into out[at:at+n], log psi by tab [c, v_0, ...].

    O(n) where the taps fall linearly or as a parabola and no further than c (lower envelopes:
    Felzenszwalb & Huttenlocher 2012, "Distance transforms of sampled functions", Theory of
    Computing 8:415-428), else O(n width).
    """
    c, D = tab[0], width
    for i in range(n):
        out[at + i] = -np.inf
    if D == 0 or c > -np.inf:  # beyond the band
        run = -np.inf
        for i in range(D, n):
            run = max(run, h[first + i - D])
            out[at + i] = max(out[at + i], c + run)
        run = -np.inf
        for k in range(D, n):
            i = n - 1 - k
            run = max(run, h[first + i + D])
            out[at + i] = max(out[at + i], c + run)
    if D == 0:
        return
    v0 = tab[1]
    fall = v0 - tab[2] if D > 1 else 0.0
    linear = parabola = D > 2 and 0.0 < fall < np.inf and c > -np.inf
    for d in range(2, D if linear else 0):
        slip = 4e-16 * abs(tab[1 + d])
        linear = linear and abs(v0 - d * fall - tab[1 + d]) <= slip
        parabola = parabola and abs(v0 - d * d * fall - tab[1 + d]) <= slip
    if linear and v0 - D * fall <= c:
        run = -np.inf
        for i in range(n):
            run = max(run - fall, h[first + i])
            out[at + i] = max(out[at + i], v0 + run)
        run = -np.inf
        for k in range(n):
            i = n - 1 - k
            run = max(run - fall, h[first + i])
            out[at + i] = max(out[at + i], v0 + run)
    elif parabola and v0 - D * D * fall <= c:
        last = -1  # of the parabolas on the envelope: work[k] is where the k-th begins to lead
        for x in range(n):
            if h[first + x] == -np.inf:
                continue
            begin = -np.inf
            while last >= 0:
                p = where[last]
                begin = ((h[first + p] - h[first + x]) / fall + x * x - p * p) / (2.0 * (x - p))
                if begin > work[last]:
                    break
                last -= 1
            last += 1
            where[last], work[last] = x, begin if last > 0 else -np.inf
        k = 0
        for i in range(n if last >= 0 else 0):
            while k < last and work[k + 1] <= i:
                k += 1
            apart = i - where[k]
            out[at + i] = max(out[at + i], v0 - fall * apart * apart + h[first + where[k]])
    else:
        for i in range(n):
            for j in range(max(i - D + 1, 0), min(i + D, n)):
                out[at + i] = max(out[at + i], tab[1 + abs(i - j)] + h[first + j])


@jit
def all_messages(taps, which, incoming, out, log_z, best):
    """Both messages of each of n pairs, in logs, as :meth:`minfer.factors.FactorGroup.messages`;
    pair i has the log psi by distance taps[which[i]]."""
    k = incoming.shape[1] // 2
    D = taps.shape[1] - 1
    tab, tmp, h = np.empty(D + 1), np.empty(3 * k + 1), np.empty(2 * k)
    where, answer = np.empty(k, np.int64), np.empty(2 * k)
    for f in range(incoming.shape[0]):
        tab[0] = taps[which[f], D]
        for d in range(D):
            tab[1 + d] = taps[which[f], d]
        for i in range(2 * k):
            h[i] = incoming[f, i]
        for a in range(2):
            if best:
                _best_message(tab, D, h, (1 - a) * k, k, answer, a * k, tmp, where)
                continue
            label_message_log(tab, 0, BAND, D, h, (1 - a) * k, k, tmp)
            for i in range(k):
                answer[a * k + i] = tmp[i]
        top, total = -np.inf, 0.0
        for i in range(k):
            top = max(top, answer[i] + h[i])
        if not best and top > -np.inf:
            for i in range(k):
                total += math.exp(answer[i] + h[i] - top)
            top += math.log(total)
        log_z[f] = top
        for i in range(2 * k):
            out[f, i] = answer[i]


@jit
def masses(p, a, q, b, n, mass, f):
    """Of the distances between labels drawn from p[a:a+n] and q[b:b+n], into mass[f]."""
    D = mass.shape[1] - 1
    for d in range(D):
        total = 0.0
        for i in range(n - d):
            total += p[a + i] * q[b + i + d]
            if d > 0:
                total += p[a + i + d] * q[b + i]
        mass[f, d] = total
    total = left = right = 0.0
    for i in range(D, n):
        left += q[b + i - D]
        right += p[a + i - D]
        if D > 0:
            total += p[a + i] * left + q[b + i] * right
    mass[f, D] = total if D > 0 else left * right


@jit
def distance_masses(scope, n, probs, off, mass):
    """How probable each distance of the labels of pairs (F, 2) is under product marginals, (F, T);
    the last one: all from T - 1 on."""
    for f in range(scope.shape[0]):
        masses(probs, off[scope[f, 0]], probs, off[scope[f, 1]], n, mass, f)


@jit
def belief_masses(w, rows, to_factor, taps, which, n, mass):
    """The same under joint beliefs: taps (n or 1, T), linear, times the cavities, normalised."""
    fac, fslot, gslot = w.fac, w.fslot, w.gslot
    for k in range(rows.shape[0]):
        a, b = fslot[fac[rows[k], FIRST]], fslot[fac[rows[k], FIRST] + 1]
        masses(
            to_factor, np.int64(gslot[a, OFFSET]), to_factor, np.int64(gslot[b, OFFSET]), n, mass, k
        )
        total = 0.0
        for d in range(mass.shape[1]):
            mass[k, d] *= taps[which[k], d]
            total += mass[k, d]
        for d in range(mass.shape[1]):
            mass[k, d] /= total
