"""What messages say: joint beliefs of factors, and the (reweighted) Bethe estimate of log Z.

    b_f(x_f) ∝ psi_f(x_f)^{1/rho} prod_{v in f} q_{v→f}(x_v),    q_{v→f} ∝ b_v / M_{f→v}

Of a pair in odds form, with B the belief odds of its ends, m the messages into them and c = B / m,
that is (1, c_b, c_a, c_a c_b W) / their sum: no exponential.

With Z_v = sum field * prod M^rho, Z_f = sum psi^{1/rho} prod q and Z_vf = sum q M,

    log Z = sum_v log Z_v + sum_f rho_f ( log Z_f - sum_{v in f} log Z_vf ),

which does not depend on how messages are scaled and is stationary at fixed points, so that an error
of the messages enters squared. rho = 1 is Yedidia, Freeman & Weiss (2005); rho from the spanning
tree polytope gives, at the fixed point, the upper bound of Wainwright, Jaakkola & Willsky (2005).

At any other messages that value, C, bounds nothing. But messages always cancel in the identity

    log p~(x) = C + sum_v log b_v(x_v) + sum_f rho_f log( b_f(x_f) / prod_v b_v(x_v) ),

b_v and b_f being the normalised beliefs, whether they agree or not. Averaged over the spanning
trees behind rho, Jensen's inequality bounds log Z by C plus the mean of the trees' own log
partition functions. Orient a tree from any root (as Globerson & Jaakkola, UAI 2007, do) and sum it
out from its leaves: an edge multiplies the sum by at most the largest ratio of its marginal to the
belief of the variable nearer to the root. Hence, at any messages,

    log Z  <=  C + sum_f rho_f max_{v in f, x_v} log( b_f(x_v) / b_v(x_v) ),

and :func:`tree_slack` is that sum, 0 at the fixed point. A state with b_v = 0 is proved impossible.
Sums are compensated (Kahan), so that their rounding does not grow with their length.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.tables import factor_message, softplus
from minfer.kernels.messages.wiring import (
    ARITY,
    ASLEEP,
    FIRST,
    GENERAL,
    OFFSET,
    PLAIN,
    SIZE,
    TABLE,
    plus,
)

#: Odds within 1e-50 .. 1e50, messages and W between multiply without leaving the doubles.
_SAFE = 1e50
#: Cavity odds are cut here: a product of two of them and W stays a number.
_MAX_CAVITY = 1e75


@jit
def log_odds(w, s, both):
    """Belief log-odds of all binary variables into both[0], exact where the odds would overflow;
    both[1] gets the odds where they and messages multiply safely, else NaN. A known variable
    without slots, whose state's field is in the constant, adds log(1 + 0)."""
    card, off, kind, prior, ptr = w.card, w.off, w.kind, w.prior, w.ptr
    m, weighted_log, bel, out, linear = s.m, s.weighted_log, s.bel, both[0], both[1]
    for v in range(card.shape[0]):
        linear[v] = np.nan
        if kind[v] == GENERAL:
            if card[v] == 2:
                out[v] = _log(bel[off[v] + 1]) - _log(bel[off[v]])
        elif kind[v] == ASLEEP:
            out[v] = -np.inf
        elif kind[v] == PLAIN:
            odds = prior[v]
            for e in range(ptr[v], ptr[v + 1]):
                odds *= m[e]
            out[v] = math.log(odds)
            linear[v] = odds
        else:
            total = prior[v]
            for e in range(ptr[v], ptr[v + 1]):
                total += math.log(m[e]) if weighted_log.size == 0 else weighted_log[e]
            out[v] = total
            linear[v] = math.exp(total) if abs(total) < 150.0 else np.nan
        if not 1.0 / _SAFE <= linear[v] <= _SAFE:
            linear[v] = np.nan


@jit
def _log(x):
    return math.log(x) if x > 0.0 else -np.inf


@jit
def pair_terms(W, rho, m, slot, scope, odds, linear):
    """sum_f rho_f (log Z_f - log Z_af - log Z_bf) over pair factors with slots (P, 2): with B the
    belief odds, c = B / m the cavities' and Z_vf = 1 + B, the log of (1 + c_a + c_b + c_a c_b W) /
    ((1 + B_a)(1 + B_b)), without rho one logarithm for many factors."""
    total = lost = 0.0
    product = 1.0
    for f in range(slot.shape[0]):
        i, j = slot[f, 0], slot[f, 1]
        a, b = linear[scope[f, 0]], linear[scope[f, 1]]
        if a > 0.0 and b > 0.0 and abs(W[i] - 1.0) < _SAFE and W[i] * _SAFE > 1.0:
            ca, cb = a / m[i], b / m[j]
            ratio = (1.0 + ca + cb + ca * cb * W[i]) / ((1.0 + a) * (1.0 + b))
            if rho.size > 0:
                total, lost = plus(total, lost, rho[i] * math.log(ratio))
                continue
            product *= ratio
            if not 1.0 / _SAFE < product < _SAFE:
                total, lost = plus(total, lost, math.log(product))
                product = 1.0
            continue
        ma, mb, log_w = math.log(m[i]), math.log(m[j]), math.log(W[i])
        la, lb = odds[scope[f, 0]], odds[scope[f, 1]]
        weight = rho[i] if rho.size > 0 else 1.0
        # a certain end has its cavity on one state; far out is the same and keeps all finite
        if la == np.inf or la == -np.inf:
            la = ma + math.copysign(700.0, la)
        if lb == np.inf or lb == -np.inf:
            lb = mb + math.copysign(700.0, lb)
        ca, cb = la - ma, lb - mb
        both = ca + cb + log_w
        top = max(max(0.0, ca), max(cb, both))
        z = math.exp(-top) + math.exp(ca - top) + math.exp(cb - top) + math.exp(both - top)
        total, lost = plus(total, lost, weight * (top + math.log(z) - softplus(la) - softplus(lb)))
    return total + math.log(product)


@jit
def variable_terms(w, s, odds, linear, log):
    """sum_v log Z_v; of pair variables the zero state's field is the caller's."""
    card, off, kind = w.card, w.off, w.kind
    field, ptr, gptr = w.field, w.ptr, w.gptr
    gslot, grho = w.gslot, w.grho
    m, weighted_log, to_variable = s.m, s.weighted_log, s.to_variable
    b = s.b
    total = lost = 0.0
    product = 1.0  # of 1 + B: one logarithm for many variables
    for v in range(card.shape[0]):
        if linear[v] > 0.0:
            product *= 1.0 + linear[v]
            if product > _SAFE:
                total, lost = plus(total, lost, math.log(product))
                product = 1.0
            continue
        if kind[v] != GENERAL:
            total, lost = plus(total, lost, softplus(odds[v]))
            continue
        for i in range(card[v]):
            b[i] = field[off[v] + i] if log else _log(field[off[v] + i])
        for e in range(ptr[v], ptr[v + 1]):
            b[1] += math.log(m[e]) if weighted_log.size == 0 else weighted_log[e]
        for g in range(gptr[v], gptr[v + 1]):
            weight = grho[g] if grho.size > 0 else 1.0
            for i in range(card[v]):
                x = to_variable[gslot[g, OFFSET] + i]
                b[i] += weight * (x if log else _log(x))
        top = -np.inf
        for i in range(card[v]):
            top = max(top, b[i])
        z = 0.0
        for i in range(card[v]):
            z += math.exp(b[i] - top)
        total, lost = plus(total, lost, top + math.log(z))
    return total + math.log(product)


@jit
def general_terms(w, s, log):
    """sum_f rho_f (log Z_f - sum_v log Z_vf) over table factors; the cavities must be fresh. Of
    others only - log Z_vf: their log Z_f is the caller's."""
    gslot, fac, fslot = w.gslot, w.fac, w.fslot
    tab, grho = w.tab, w.grho
    to_variable, to_factor, tmp = s.to_variable, s.to_factor, s.tmp
    total = lost = 0.0
    for f in range(fac.shape[0]):
        first, arity = fac[f, FIRST], fac[f, ARITY]
        weight = grho[fslot[first]] if grho.size > 0 else 1.0
        value = 0.0
        if fac[f, TABLE] >= 0:
            o, n = gslot[fslot[first], OFFSET], gslot[fslot[first], SIZE]
            z = 0.0
            factor_message(tab, fac, f, to_factor, gslot, fslot, np.int64(0), log, tmp)
            if log:
                top = -np.inf
                for i in range(n):
                    tmp[i] += to_factor[o + i]
                    top = max(top, tmp[i])
                for i in range(n):
                    z += math.exp(tmp[i] - top)
                value += top
            else:
                for i in range(n):
                    z += tmp[i] * to_factor[o + i]
            value += math.log(z)
        for a in range(first, first + arity):
            o, n = gslot[fslot[a], OFFSET], gslot[fslot[a], SIZE]
            z, top = 0.0, 0.0
            if log:
                top = -np.inf
                for i in range(o, o + n):
                    top = max(top, to_factor[i] + to_variable[i])
            for i in range(o, o + n):
                z += (
                    math.exp(to_factor[i] + to_variable[i] - top)
                    if log
                    else to_factor[i] * to_variable[i]
                )
            value -= top + math.log(z)
        total, lost = plus(total, lost, weight * value)
    return total


@jit
def tree_slack(w, s, slot, scope, odds, linear):
    """By how much the reweighted Bethe value may lie below log Z at these messages: sum_f rho_f max
    log(b_f(x_v) / b_v(x_v)); and the size of the numbers that the value is made of, for its
    rounding. For pairwise models with messages in logs."""
    card, kind, prior = w.card, w.kind, w.prior
    ptr, W, gptr = w.ptr, w.W, w.gptr
    gslot, fac, fslot = w.gslot, w.fac, w.fslot
    tab, rho, grho = w.tab, w.rho, w.grho
    m, weighted_log, to_variable = s.m, s.weighted_log, s.to_variable
    to_factor, tmp = s.to_factor, s.tmp
    slack = lost = size = 0.0
    for f in range(slot.shape[0]):
        i, j = slot[f, 0], slot[f, 1]
        log_w = math.log(W[i])
        xa, xb = linear[scope[f, 0]], linear[scope[f, 1]]
        if xa > 0.0 and xb > 0.0 and abs(log_w) < 80.0:
            ratio = max(_ratio(xa, m[i], xb, m[j], W[i]), _ratio(xb, m[j], xa, m[i], W[i]))
            slack, lost = plus(slack, lost, rho[i] * math.log(ratio))
            size += 4.0 * abs(log_w)
            continue
        ma, mb, la, lb = math.log(m[i]), math.log(m[j]), odds[scope[f, 0]], odds[scope[f, 1]]
        worst = max(_excess(la, ma, lb, mb, log_w), _excess(lb, mb, la, ma, log_w))
        slack, lost = plus(slack, lost, rho[i] * worst)
        size += 4.0 * abs(log_w)
    for f in range(fac.shape[0]):
        first, arity = fac[f, FIRST], fac[f, ARITY]
        worst = 0.0
        for a in range(arity):
            o, n = gslot[fslot[first + a], OFFSET], gslot[fslot[first + a], SIZE]
            factor_message(tab, fac, f, to_factor, gslot, fslot, a, np.bool_(True), tmp)
            high = top = low = -np.inf  # of the ratio, of the two sums
            for i in range(n):
                if to_factor[o + i] + to_variable[o + i] > -np.inf:
                    high = max(high, tmp[i] - to_variable[o + i])
                    top = max(top, tmp[i] + to_factor[o + i])
                    low = max(low, to_variable[o + i] + to_factor[o + i])
                    size += abs(tmp[i]) + abs(to_variable[o + i]) + abs(to_factor[o + i])
            zf = zv = 0.0
            for i in range(n):
                if to_factor[o + i] + to_variable[o + i] > -np.inf:
                    zf += math.exp(tmp[i] + to_factor[o + i] - top)
                    zv += math.exp(to_variable[o + i] + to_factor[o + i] - low)
            worst = max(worst, high + low + math.log(zv) - top - math.log(zf))
        slack, lost = plus(slack, lost, grho[fslot[first]] * worst)
    for v in range(card.shape[0]):
        here = 1.0 + (abs(prior[v]) if kind[v] != GENERAL else 0.0)
        degree = np.int64(ptr[v + 1] - ptr[v]) + gptr[v + 1] - gptr[v]
        for e in range(ptr[v], ptr[v + 1]):
            here += abs(weighted_log[e])
        for g in range(gptr[v], gptr[v + 1]):
            for i in range(gslot[g, OFFSET], gslot[g, OFFSET] + gslot[g, SIZE]):
                here += abs(to_variable[i]) if to_variable[i] > -np.inf else 0.0
        size += (degree + 2.0) ** 2 * here
    return slack, size


@jit
def _ratio(a, ma, b, mb, W):
    """The largest ratio of a pair's marginal of variable a to its belief, of odds a."""
    c = b / mb
    x = a / ma * (1.0 + c * W) / (1.0 + c)
    low = (1.0 + a) / (1.0 + x)
    return max(low, low * x / a)


@jit
def _excess(la, ma, lb, mb, log_w):
    """The largest log ratio of a pair's marginal of variable a to the belief of a, log-odds la."""
    if la == np.inf or la == -np.inf:
        return 0.0  # one state is left, in both
    if lb == np.inf or lb == -np.inf:
        lb = mb + math.copysign(700.0, lb)
    cb = lb - mb
    x = la - ma + softplus(cb + log_w) - softplus(cb)
    return max(softplus(la) - softplus(x), softplus(-la) - softplus(-x))


@jit
def pair_beliefs(rows, slot, scope, off, bel, m, W, out):
    """Joint beliefs (n, 4) of the pair factors ``rows`` with slots and scopes (P, 2)."""
    for k in range(rows.shape[0]):
        f = rows[k]
        i, j = slot[f, 0], slot[f, 1]
        a, b = off[scope[f, 0]], off[scope[f, 1]]
        ca = _odds(bel[a], bel[a + 1], m[i])
        cb = _odds(bel[b], bel[b + 1], m[j])
        both = ca * cb * W[i]
        scale = 1.0 / (1.0 + ca + cb + both)
        out[k, 0] = scale
        out[k, 1] = cb * scale
        out[k, 2] = ca * scale
        out[k, 3] = both * scale


@jit
def _odds(p, q, m):
    """q / (p m) within what a product may have."""
    if q >= _MAX_CAVITY * p * m:
        return _MAX_CAVITY
    return max(q / (p * m), 1.0 / _MAX_CAVITY)


@jit(fastmath={"reassoc", "contract"})
def table_beliefs(w, to_factor, rows, log, out):
    """Joint beliefs (n, cells) of the general factors ``rows``, all tables of so many cells."""
    gslot, fac, fslot, tab = w.gslot, w.fac, w.fslot, w.tab
    cells = out.shape[1]
    most = 1
    for k in range(rows.shape[0]):
        most = max(most, fac[rows[k], ARITY])
    digit = np.zeros(most, np.int64)
    part = np.zeros(most + 1)  # products (sums of logs) over the leading variables
    for k in range(rows.shape[0]):
        f = rows[k]
        first, n, t = fac[f, FIRST], fac[f, ARITY], np.uint64(fac[f, TABLE])
        part[0] = 0.0 if log else 1.0
        for d in range(n):
            digit[d] = 0
        last = np.uint64(gslot[fslot[first + n - 1], OFFSET])
        size = np.uint64(gslot[fslot[first + n - 1], SIZE])
        row, here = np.uint64(k), np.uint64(0)
        changed, total = 0, 0.0
        while changed >= 0:
            for d in range(changed, n - 1):
                q = to_factor[gslot[fslot[first + d], OFFSET] + digit[d]]
                part[d + 1] = part[d] + q if log else part[d] * q
            lead = part[n - 1]
            if log:
                for j in range(size):
                    out[row, here + j] = tab[t + here + j] + (lead + to_factor[last + j])
            else:
                for j in range(size):
                    out[row, here + j] = tab[t + here + j] * (lead * to_factor[last + j])
                for j in range(size):
                    total += out[row, here + j]
            here += size
            changed = n - 2
            while changed >= 0:
                digit[changed] += 1
                if digit[changed] < gslot[fslot[first + changed], SIZE]:
                    break
                digit[changed] = 0
                changed -= 1
        if log:
            top = -np.inf
            for c in range(cells):
                top = max(top, out[k, c])
            for c in range(cells):
                out[k, c] = math.exp(out[k, c] - top)
                total += out[k, c]
        scale = 1.0 / total
        for c in range(cells):
            out[k, c] *= scale
