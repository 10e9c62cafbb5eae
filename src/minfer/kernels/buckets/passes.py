"""Passes over mini-buckets (:mod:`minfer.engine.buckets`): powered sums up, shares down.

A mini-bucket k has the variable v that is eliminated in it as its first dimension, and a weight w.
With inputs f (tables, fields, shifts, messages, all logs),

    up(s)  = w log sum_v exp( sum_f f(v, s) / w )        w = 0: their maximum
    b(v, s) = b(s) exp( (sum_f f(v, s) - up(s)) / w )    down, b(s) the share at its parent

and b, added up over what an input does not have, is the derivative of the bound along that input
(Liu & Ihler, ICML 2011). Cells are never stored: they are visited row by row, for each state of v a
row over the dimensions that are eliminated last. Shares only steer; what is proved are the sums up,
and of unsplit mini-buckets both, see :mod:`minfer.engine.buckets.bounds`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place, log_in_place
from minfer.kernels.cliques.streamed import _add_input, _add_output, _row_index
from minfer.kernels.compiling.jit import jit

ROW = 8192  # cells of a row, but where one dimension has more
LEAST, SAFE = 1e-250, 570.0  # sums of plain numbers below this are made in logs; minus its log


class Buckets(NamedTuple):
    """K mini-buckets in the order of elimination, n variables in that order. ``val`` holds tables,
    fields, shifts and messages end to end."""

    dptr: np.ndarray  # i8 (K+1,) dimensions of each, v first
    dims: np.ndarray  # i8
    iptr: np.ndarray  # i8 (K+1,) inputs of each
    src: np.ndarray  # i8 (I,) where an input lies in ``val``
    sptr: np.ndarray  # i8 (I,) where its strides along its mini-bucket's dimensions begin
    stride: np.ndarray  # i8
    out: np.ndarray  # i8 (K,) where the message lies
    shift: np.ndarray  # i8 (K,) the input that is its shift, or -1
    bptr: np.ndarray  # i8 (n+1,) mini-buckets of each variable
    base: int  # where fields begin in ``val``: shares are kept from there on


@jit
def _row_of(dims):
    """The first dimension of a row, and its cells."""
    di, row = dims.size, 1
    while di > 1 and (row * dims[di - 1] <= ROW):
        di -= 1
        row *= dims[di]
    return di, row


class _Cells(NamedTuple):
    """How the cells of one mini-bucket are visited: rows within steps of an outer loop. Inputs that
    are the same in every step are added up once, in ``pre``; those that are the same in a row are
    a number; *across* are the others, whose places in a row are indexed."""

    src: np.ndarray  # i8 (I,)
    stride: np.ndarray  # i8 (I, dimensions)
    across: np.ndarray  # i8 (I,) the row of index and how, -1: none
    flat: np.ndarray  # bool (I,) the same in a row
    places: np.ndarray  # u4 (across, row)
    how: np.ndarray  # i8 (across, 2)
    pre: np.ndarray  # f8 (states x row,)


@jit
def _visit(buckets, k, dims, di, row, val):
    """How to visit mini-bucket ``k``."""
    first, n = buckets.iptr[k], buckets.iptr[k + 1] - buckets.iptr[k]
    stride = np.empty((n, dims.size), np.int64)
    across, flat = np.full(n, -1), np.zeros(n, np.bool_)
    once = np.zeros(n, np.bool_)
    n_across = 0
    for i in range(n):
        at = buckets.sptr[first + i]
        outer = inner = False
        for d in range(dims.size):
            step = buckets.stride[at + d]
            stride[i, d] = step
            outer |= step != 0 and 0 < d < di
            inner |= step != 0 and d >= di
        once[i], flat[i] = not outer, outer and not inner
        if outer and inner:
            across[i] = n_across
            n_across += 1
    src = buckets.src[first : first + n]
    index = np.empty((n_across, row), np.uint32)
    how = np.empty((n_across, 2), np.int64)
    pre = np.zeros(dims[0] * row)
    own = np.empty(row, np.uint32)
    for i in range(n):
        if across[i] >= 0:
            how[across[i], 0], how[across[i], 1] = _row_index(stride[i], dims, di, index[across[i]])
        elif once[i]:
            kind, run = _row_index(stride[i], dims, di, own)
            for s in range(dims[0]):
                source = val[src[i] + s * stride[i, 0] :]
                _add_input(pre[s * row : (s + 1) * row], source, own, kind, run)
    return _Cells(src, stride, across, flat, index, how, pre)


@jit
def _starts(stride, dims, di, outer, base):
    """Where each input's entries begin at one step of the loop outside of rows."""
    for i in range(base.size):
        at, cell = 0, outer
        for d in range(di - 1, 0, -1):
            at += (cell % dims[d]) * stride[i, d]
            cell //= dims[d]
        base[i] = at


@jit
def _fill(buf, row, size, cells, base, val):
    """All inputs added up, a row for each state of the first dimension."""
    src, stride, across, flat, index, how, pre = cells
    for s in range(size):
        part = buf[s * row : (s + 1) * row]
        ready = pre[s * row : (s + 1) * row]
        same = 0.0
        for i in range(base.size):
            if flat[i]:
                same += val[src[i] + base[i] + s * stride[i, 0]]
        if same == -np.inf:
            part[:] = -np.inf
            continue
        for j in range(row):
            part[j] = ready[j] + same
        for i in range(base.size):
            c = across[i]
            if c >= 0:
                source = val[src[i] + base[i] + s * stride[i, 0] :]
                _add_input(part, source, index[c], how[c, 0], how[c, 1])


class _Plain(NamedTuple):
    """The inputs of one mini-bucket as e^((f - max f) / w), at most 1, end to end."""

    at: np.ndarray  # i8 (I,)
    number: np.ndarray  # f8
    pre: np.ndarray  # f8 (states x row,) the product of those that are the same in every step
    top: float  # sum of max f / w
    safe: bool  # whether no product of those that are not zero is below LEAST


@jit
def _plain(cells, dims, di, row, scale, val):
    """Plain numbers of all inputs. Nothing underflows unless the message would be below LEAST."""
    src, stride, across, flat, _, _, _ = cells
    n = src.size
    at, size = np.empty(n, np.int64), 0
    for i in range(n):
        at[i] = size
        span = 1
        for d in range(dims.size):
            span += (dims[d] - 1) * stride[i, d]
        size += span
    number = np.empty(size)
    total = range_ = 0.0
    for i in range(n):
        stop = at[i + 1] if i + 1 < n else size
        part = number[at[i] : stop]
        source = val[src[i] : src[i] + part.size]
        most, least = -np.inf, np.inf
        for j in range(part.size):
            x = source[j] * scale
            part[j] = x
            most = max(most, x)
            least = min(least, x if x > -np.inf else np.inf)
        if most == -np.inf:
            most = least = 0.0
        total += most
        range_ += most - least
        for j in range(part.size):
            part[j] -= most
        exp_in_place(part)
    pre = np.ones(dims[0] * row)
    own = np.empty(row, np.uint32)
    for i in range(n):
        if across[i] < 0 and not flat[i]:
            kind, run = _row_index(stride[i], dims, di, own)
            for s in range(dims[0]):
                source = number[at[i] + s * stride[i, 0] :]
                _times_input(pre[s * row : (s + 1) * row], source, own, kind, run)
    return _Plain(at, number, pre, total, range_ < SAFE)


@jit
def _times_input(row, source, index, kind, run):
    """row *= source[index]"""
    if kind == 0:
        for j in range(row.size):
            row[j] *= source[index[j]]
        return
    for q in range(0, row.size, run):
        part = row[q : q + run]
        if kind == 1:
            value = source[index[q]]
            for j in range(part.size):
                part[j] *= value
        else:
            entries = source[index[q] : index[q] + run]
            for j in range(part.size):
                part[j] *= entries[j]


@jit
def _multiply(part, s, cells, plain, base):
    """The product of all inputs, the row of one state of the first dimension; whether it is all
    zero."""
    _, stride, across, flat, index, how, _ = cells
    at, number, pre, _, _ = plain
    row = part.size
    same = 1.0
    for i in range(base.size):
        if flat[i]:
            same *= number[at[i] + base[i] + s * stride[i, 0]]
    if same == 0.0:
        return True
    ready = pre[s * row : (s + 1) * row]
    for j in range(row):
        part[j] = ready[j] * same
    for i in range(base.size):
        c = across[i]
        if c >= 0:
            source = number[at[i] + base[i] + s * stride[i, 0] :]
            _times_input(part, source, index[c], how[c, 0], how[c, 1])
    return False


@jit
def _log_sums(buf, size, scale, weak, out):
    """log sum_v e^(f / w) of those cells of a message that are ``weak``, from logs."""
    row = out.size
    for j in range(row):
        if not weak[j]:
            continue
        top, total = -np.inf, 0.0
        for s in range(size):
            top = max(top, buf[s * row + j] * scale)
        if top > -np.inf:
            for s in range(size):
                total += np.exp(buf[s * row + j] * scale - top)
            top += np.log(total)
        out[j] = top / scale


@jit
def collect(buckets, which, weight, match, val):
    """Messages of the mini-buckets ``which``, increasing, into ``val``. ``match``: give split
    variables shifts that make their mini-buckets' largest cells agree first; all of a variable's
    are in ``which`` then."""
    owner = np.empty(weight.size, np.int64)
    for v in range(buckets.bptr.size - 1):
        for k in range(buckets.bptr[v], buckets.bptr[v + 1]):
            owner[k] = v
    for at in range(which.size):
        k = which[at]
        v = owner[k]
        first, stop = buckets.bptr[v], buckets.bptr[v + 1]
        if match and k == first and stop - first > 1:
            _agree(buckets, first, stop, weight, val)
        _send(buckets, k, weight[k], val)


@jit
def _send(buckets, k, w, val):
    """One message."""
    dims = buckets.dims[buckets.dptr[k] : buckets.dptr[k + 1]]
    di, row = _row_of(dims)
    cells = _visit(buckets, k, dims, di, row, val)
    base = np.empty(cells.src.size, np.int64)
    size, n_outer = dims[0], 1
    for d in range(1, di):
        n_outer *= dims[d]
    if w == 0.0:
        buf = np.empty(size * row)
        for o in range(n_outer):
            _starts(cells.stride, dims, di, o, base)
            _fill(buf, row, size, cells, base, val)
            out = val[buckets.out[k] + o * row : buckets.out[k] + (o + 1) * row]
            out[:] = -np.inf
            for s in range(size):
                for j in range(row):
                    out[j] = max(out[j], buf[s * row + j])
        return
    scale = 1.0 / w
    plain = _plain(cells, dims, di, row, scale, val)
    part, total, weak = np.empty(row), np.empty(row), np.empty(row, np.bool_)
    logs = np.empty(0 if plain.safe else size * row)
    for o in range(n_outer):
        _starts(cells.stride, dims, di, o, base)
        total[:] = 0.0
        for s in range(size):
            if not _multiply(part, s, cells, plain, base):
                for j in range(row):
                    total[j] += part[j]
        some = False
        if not plain.safe:
            for j in range(row):
                weak[j] = not total[j] > LEAST
                some |= weak[j]
        log_in_place(total)
        out = val[buckets.out[k] + o * row : buckets.out[k] + (o + 1) * row]
        for j in range(row):
            out[j] = w * (total[j] + plain.top)
        if some:
            _fill(logs, row, size, cells, base, val)
            _log_sums(logs, size, scale, weak, out)


@jit
def _agree(buckets, first, stop, weight, val):
    """Shifts that make the largest cells of a variable's mini-buckets agree, for each state of what
    they share: each moves by w (mean - own), the means weighted by w. What one excludes all do."""
    n = stop - first
    place = buckets.src[buckets.shift[first]]
    cells = buckets.src[buckets.shift[first + 1]] - place
    most = np.full((n, cells), -np.inf)
    for r in range(n):
        _largest(buckets, first + r, weight[first + r], val, most[r])
    for c in range(cells):
        excluded = False
        for r in range(n):
            excluded |= most[r, c] == -np.inf
        if excluded:
            for r in range(n):
                val[place + r * cells + c] = -np.inf
            continue
        mean, whole = 0.0, 0.0
        for r in range(n):
            w = weight[first + r]
            share = w if w != 0.0 else 1.0 / n
            mean += share * most[r, c]
        rest = 0.0
        for r in range(n - 1):
            w = weight[first + r]
            share = w if w != 0.0 else 1.0 / n
            whole = val[place + r * cells + c] + share * (mean - most[r, c])
            val[place + r * cells + c] = whole
            rest += whole
        val[place + (n - 1) * cells + c] = -rest


@jit
def _largest(buckets, k, w, val, most):
    """The largest cell of a mini-bucket, to the power of 1 / w, for each entry of its shift."""
    dims = buckets.dims[buckets.dptr[k] : buckets.dptr[k + 1]]
    di, row = _row_of(dims)
    cells = _visit(buckets, k, dims, di, row, val)
    base = np.empty(cells.src.size, np.int64)
    size, n_outer = dims[0], 1
    for d in range(1, di):
        n_outer *= dims[d]
    buf = np.empty(size * row)
    own = buckets.shift[k] - buckets.iptr[k]
    stride, index = cells.stride[own], np.empty(row, np.uint32)
    _row_index(stride, dims, di, index)
    scale = 1.0 / w if w != 0.0 else 1.0
    for o in range(n_outer):
        _starts(cells.stride, dims, di, o, base)
        _fill(buf, row, size, cells, base, val)
        for s in range(size):
            at = base[own] + s * stride[0]
            for j in range(row):
                c = at + index[j]
                most[c] = max(most[c], buf[s * row + j] * scale)


@jit
def spread(buckets, which, weight, val, bel, spare):
    """Shares of the mini-buckets ``which``, decreasing, added to those of their inputs; ``bel``
    lies like ``val`` from ``base`` on, and has the shares of their messages. ``spare`` (K,): minus
    the expected log of b(v | s), the conditional entropy of each."""
    for at in range(which.size):
        spare[which[at]] = _share(buckets, which[at], weight[which[at]], val, bel)


@jit
def _share(buckets, k, w, val, bel):
    """Those of one mini-bucket; its entropy."""
    if w == 1.0:
        _share_plain(buckets, k, val, bel)
        return 0.0
    dims = buckets.dims[buckets.dptr[k] : buckets.dptr[k + 1]]
    di, row = _row_of(dims)
    cells = _visit(buckets, k, dims, di, row, val)
    base = np.empty(cells.src.size, np.int64)
    size, n_outer = dims[0], 1
    for d in range(1, di):
        n_outer *= dims[d]
    buf, logs = np.empty(size * row), np.empty(row)
    scale = 1.0 / w if w != 0.0 else 1.0
    entropy = 0.0
    src, stride, across, flat, index, how, _ = cells
    total = np.zeros(size * row)
    for o in range(n_outer):
        begin = buckets.out[k] + o * row
        up = val[begin : begin + row]
        above = bel[begin - buckets.base : begin - buckets.base + row]
        some = False
        for j in range(row):
            some |= above[j] > 0.0
        if not some:
            continue
        _starts(cells.stride, dims, di, o, base)
        _fill(buf, row, size, cells, base, val)
        for s in range(size):
            part = buf[s * row : (s + 1) * row]
            for j in range(row):
                x = (part[j] - up[j]) * scale if up[j] > -np.inf else -np.inf
                if w == 0.0:
                    x = 0.0 if x >= 0.0 else -np.inf
                logs[j] = x
                part[j] = x
            exp_in_place(part)
            for j in range(row):
                b = part[j] * above[j]
                part[j] = b
                entropy -= b * logs[j] if b > 0.0 else 0.0
            whole = part.sum()
            if whole == 0.0:
                continue
            sums = total[s * row : (s + 1) * row]
            for j in range(row):
                sums[j] += part[j]
            for i in range(src.size):
                if src[i] >= buckets.base:
                    at = src[i] - buckets.base + base[i] + s * stride[i, 0]
                    c = across[i]
                    if flat[i]:
                        bel[at] += whole
                    elif c >= 0:
                        _add_output(part, bel[at:], index[c], how[c, 0], how[c, 1])
    own = np.empty(row, np.uint32)
    for i in range(src.size):
        if src[i] >= buckets.base and not flat[i] and across[i] < 0:
            kind, run = _row_index(stride[i], dims, di, own)
            for s in range(size):
                at = src[i] - buckets.base + s * stride[i, 0]
                _add_output(total[s * row : (s + 1) * row], bel[at:], own, kind, run)
    return entropy


@jit
def _share_plain(buckets, k, val, bel):
    """The same for a sum, from plain numbers."""
    dims = buckets.dims[buckets.dptr[k] : buckets.dptr[k + 1]]
    di, row = _row_of(dims)
    cells = _visit(buckets, k, dims, di, row, val)
    plain = _plain(cells, dims, di, row, 1.0, val)
    src, stride, across, flat, index, how, _ = cells
    base = np.empty(src.size, np.int64)
    size, n_outer = dims[0], 1
    for d in range(1, di):
        n_outer *= dims[d]
    part, factor, weak = np.empty(row), np.empty(row), np.empty(row, np.bool_)
    total = np.zeros(size * row)
    logs = np.empty(0 if plain.safe else size * row)
    for o in range(n_outer):
        begin = buckets.out[k] + o * row
        up = val[begin : begin + row]
        above = bel[begin - buckets.base : begin - buckets.base + row]
        some = any_weak = False
        for j in range(row):
            here = above[j] > 0.0 and up[j] > -np.inf
            some |= here
            factor[j] = up[j] - plain.top if here else -np.inf
        if not some:
            continue
        exp_in_place(factor)
        for j in range(row):
            weak[j] = above[j] > 0.0 and up[j] > -np.inf and not factor[j] > LEAST
            any_weak |= weak[j]
            factor[j] = above[j] / factor[j] if factor[j] > LEAST else 0.0
        _starts(stride, dims, di, o, base)
        any_weak &= not plain.safe
        if any_weak:
            _fill(logs, row, size, cells, base, val)
        for s in range(size):
            if _multiply(part, s, cells, plain, base):
                part[:] = 0.0
            for j in range(row):
                part[j] *= factor[j]
            if any_weak:
                for j in range(row):
                    if weak[j]:
                        part[j] = above[j] * np.exp(logs[s * row + j] - up[j])
            whole = part.sum()
            if whole == 0.0:
                continue
            sums = total[s * row : (s + 1) * row]
            for j in range(row):
                sums[j] += part[j]
            for i in range(src.size):
                if src[i] >= buckets.base:
                    at = src[i] - buckets.base + base[i] + s * stride[i, 0]
                    c = across[i]
                    if flat[i]:
                        bel[at] += whole
                    elif c >= 0:
                        _add_output(part, bel[at:], index[c], how[c, 0], how[c, 1])
    own = np.empty(row, np.uint32)
    for i in range(src.size):
        if src[i] >= buckets.base and not flat[i] and across[i] < 0:
            kind, run = _row_index(stride[i], dims, di, own)
            for s in range(size):
                at = src[i] - buckets.base + s * stride[i, 0]
                _add_output(total[s * row : (s + 1) * row], bel[at:], own, kind, run)
