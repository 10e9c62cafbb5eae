"""The two passes over a clique tree.

A clique's table is never stored. Its cells are visited as ``outer x K x row``: a *row* holds the
variables eliminated last (up to ROW cells), K rows that differ in eliminated variables make a
*chunk* that stays in the cache, and everything else is the outer loop. With inputs f (tables,
fields, messages of the children),

    up(s)   = log sum_{r} exp( sum_f f(r, s) )          collect: s separator, r eliminated
    up(s)   = max_r sum_f f(r, s)                       ... or their maximum
    down(t) = log sum_{x ~ t} p(x) - up_child(t)        distribute: p the clique's own marginal

An input that does not depend on the outer loop is added into the chunk once per clique, and an
output that does not is read from the sum of all chunks; only what remains costs time per cell.

**How the marginals move** when the fields do. Along a direction t, a number for every state, let
T(x) = sum_v t_v(x_v). Then

    d p(s) = p(s) (E[T | s] - E[T])

of a state, or of a cell of a table. E[T] is 0 if t is centred, which the caller sees to, and
conditional means travel through the tree like the messages:

    mean(s)  = sum_{r} w(r | s) (sum of the inputs' means)            to the parent
    down(t)  = E[T | t] - mean_child(t)                               to a child

with the inputs' logs as weights. Means add up as logs do, so ``tan`` holds them in the places where
``val`` holds the logs, and the same functions read both. Nothing is divided by a difference: every
number is a weighted mean, and its error is a rounding of the largest that it is made of, times
their probability.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place, log_in_place
from minfer.kernels.compiling.jit import jit

ROW = 2048  # cells of a row
CHUNK = 1 << 14  # cells of a chunk
CHUNK_WIDE = 1 << 20  # ... where one eliminated variable alone needs more
MIN_RUN = 16  # shorter contiguous runs are walked cell by cell


@jit
def _split(dims, n_res):
    """Divide a clique's dimensions (eliminated ones first) into loops: dims[:kb] (big) and
    dims[ke:di] (outer separator) are the outer loop, dims[kb:ke] the K rows of a chunk, dims[di:] a
    row. Returns kb, ke, di, and the cells of: big, outer separator, K, a row, the separator's part
    of a row."""
    di = dims.size
    row = 1
    while di > 0 and (row * dims[di - 1] <= ROW or row == 1):
        di -= 1
        row *= dims[di]
    ke = min(n_res, di)
    kb = ke
    n_k = 1
    while kb > 0:
        more = n_k * dims[kb - 1] * row
        if more > CHUNK and (n_k > 1 or more > CHUNK_WIDE):
            break
        kb -= 1
        n_k *= dims[kb]
    n_big, n_sep, row_sep = 1, 1, 1
    for d in range(kb):
        n_big *= dims[d]
    for d in range(ke, di):
        n_sep *= dims[d]
    for d in range(max(di, n_res), dims.size):
        row_sep *= dims[d]
    return kb, ke, di, n_big, n_sep, n_k, row, row_sep


@jit
def _row_index(stride, dims, di, index):
    """Where an input's entries for a row lie, relative to the row's first, and how they run: (kind,
    run), runs of ``run`` cells that share an entry (kind 1) or have consecutive ones (kind 2), or
    no runs worth having (kind 0)."""
    index[0] = 0
    size = 1
    for d in range(dims.size - 1, di - 1, -1):
        for q in range(1, dims[d]):
            step = np.uint32(q * stride[d])
            for j in range(size):
                index[q * size + j] = index[j] + step
        size *= dims[d]
    d = dims.size - 1
    run = 1
    if d >= di and stride[d] == 0:
        while d >= di and stride[d] == 0:
            run *= dims[d]
            d -= 1
        kind = 1
    else:
        while d >= di and stride[d] == run:
            run *= dims[d]
            d -= 1
        kind = 2
    return (kind, run) if run >= MIN_RUN else (0, 1)


@jit
def _add_input(row, source, index, kind, run):
    """row += source[index]"""
    if kind == 0:
        for j in range(row.size):
            row[j] += source[index[j]]
        return
    for q in range(0, row.size, run):
        part = row[q : q + run]
        if kind == 1:
            value = source[index[q]]
            for j in range(part.size):
                part[j] += value
        else:
            entries = source[index[q] : index[q] + run]
            for j in range(part.size):
                part[j] += entries[j]


@jit
def _add_output(row, target, index, kind, run):
    """target[index] += row"""
    if kind == 0:
        for j in range(row.size):
            target[index[j]] += row[j]
        return
    for q in range(0, row.size, run):
        part = row[q : q + run]
        if kind == 1:
            target[index[q]] += part.sum()
        else:
            entries = target[index[q] : index[q] + run]
            for j in range(part.size):
                entries[j] += part[j]


@jit
def _strides(tree, c, own, place, stride):
    """The step of each input of clique c along each of its dimensions; ``own`` adds its message."""
    lo, hi = tree.clique_ptr[c], tree.clique_ptr[c + 1]
    for d in range(hi - lo):
        place[tree.clique_var[lo + d]] = d
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    for i in range(n + own):
        if i < n:
            at, arity = tree.in_scope[first + i], tree.in_arity[first + i]
        else:
            at, arity = tree.n_scope + lo + tree.n_res[c], hi - lo - tree.n_res[c]
        step = 1
        for p in range(arity - 1, -1, -1):
            v = tree.scope[at + p]
            stride[i, place[v]] = step
            step *= tree.card[v]


@jit
def _offset(stride, dims, lo, hi, cell):
    """Where the ``cell``-th assignment of dims[lo:hi] begins in an input."""
    out = 0
    for d in range(hi - 1, lo - 1, -1):
        out += (cell % dims[d]) * stride[d]
        cell //= dims[d]
    return out


PRE, CROSS, SCALAR = 0, 1, 2
BUNDLE, BUNDLES = 1 << 16, 16  # cells of a group's table, and groups of a clique, at most
SPARE = BUNDLE * BUNDLES


@jit
def _classify(stride, kb, ke, di):
    """PRE: independent of the outer loop. CROSS: of outer loop and row. SCALAR: not of the row."""
    role = np.zeros(stride.shape[0], np.int64)
    for i in range(role.size):
        outer, inner = False, False
        for d in range(stride.shape[1]):
            if stride[i, d] != 0:
                outer = outer or d < kb or ke <= d < di
                inner = inner or d >= di
        role[i] = PRE if not outer else (CROSS if inner else SCALAR)
    return role


@jit
def _bundle(stride, role, dims, di):
    """Group small CROSS inputs, so that a row costs one addition per group instead of per input.

    A group's table spans the whole row and every other dimension its members have. Returns the
    group of each input (or -1) and the sizes of the groups' tables along all dimensions.
    """
    n, n_dims = stride.shape
    limit = 1.0 / 16.0
    for d in range(n_dims):
        limit *= dims[d]
    limit = min(limit, float(BUNDLE))
    group = np.empty(n, np.int64)
    size = np.ones((BUNDLES, n_dims), np.int64)
    n_groups = 0
    for i in range(n):
        group[i] = -1
        for g in range(min(n_groups + 1, BUNDLES) if role[i] == CROSS else 0):
            cells = 1.0
            for d in range(n_dims):
                cells *= dims[d] if d >= di or stride[i, d] != 0 else size[g, d]
            if cells <= limit:
                group[i], n_groups = g, max(n_groups, g + 1)
                for d in range(n_dims):
                    size[g, d] = dims[d] if d >= di or stride[i, d] != 0 else size[g, d]
                break
    return group, size[:n_groups]


@jit
def _with_groups(stride, where, role, group, size, spare):
    """Replace bundled inputs by their groups, whose tables lie from ``spare`` on; and their end."""
    n, n_dims = 0, stride.shape[1]
    for i in range(role.size):
        n += group[i] < 0
    total = n + size.shape[0]
    stride2, where2 = np.zeros((total, n_dims), np.int64), np.zeros(total, np.int64)
    role2 = np.ones(total, np.int64)
    k = 0
    for i in range(role.size):
        if group[i] < 0:
            for d in range(n_dims):
                stride2[k, d] = stride[i, d]
            where2[k], role2[k] = where[i], role[i]
            k += 1
    for g in range(size.shape[0]):
        step = 1
        for d in range(n_dims - 1, -1, -1):
            stride2[n + g, d] = step if size[g, d] > 1 else 0
            step *= size[g, d]
        where2[n + g] = spare
        spare += step
    return stride2, where2, role2, spare


@jit
def _pour(stride, where, group, size, tables, di, row, values, back):
    """Add the members of every group to its table, which begins at ``tables``; or ``back``."""
    index = np.empty(row, np.uint32)
    for i in range(group.size):
        if group[i] < 0:
            continue
        dims, n_rows = size[group[i]], 1
        for d in range(di):
            n_rows *= dims[d]
        kind, run = _row_index(stride[i], dims, di, index)
        for r in range(n_rows):
            first = tables[group[i]] + r * row
            member = values[where[i] + _offset(stride[i], dims, 0, di, r) :]
            if back:
                _add_output(values[first : first + row], member, index, kind, run)
            else:
                _add_input(values[first : first + row], member, index, kind, run)


@jit
def _index_rows(stride, role, dims, kb, ke, di, n_k, row):
    """For inputs that depend on the outer loop: a row's index (CROSS), each of K rows' offset."""
    n_cross = 0
    for i in range(role.size):
        n_cross += role[i] == CROSS
    index = np.empty((n_cross, row), np.uint32)
    kind = np.zeros(n_cross, np.int64)
    run = np.ones(n_cross, np.int64)
    step = np.zeros((role.size, n_k), np.int64)
    cross = 0
    for i in range(role.size):
        if role[i] == PRE:
            continue
        for k in range(n_k):
            step[i, k] = _offset(stride[i], dims, kb, ke, k)
        if role[i] == CROSS:
            kind[cross], run[cross] = _row_index(stride[i], dims, di, index[cross])
            cross += 1
    return index, kind, run, step


@jit
def _move(stride, role, dims, kb, ke, di, o, b, base):
    """Where each input's entries begin at one step of the outer loop."""
    for i in range(role.size):
        if role[i] > 0:
            base[i] = _offset(stride[i], dims, ke, di, o) + _offset(stride[i], dims, 0, kb, b)


@jit
def _chunk(buf, pre, n_k, row, role, base, step, val, src, index, kind, run):
    """Fill a chunk: what was added before, then every input that depends on the outer loop."""
    for k in range(n_k):
        constant = 0.0
        for i in range(role.size):
            if role[i] == SCALAR:
                constant += val[src[i] + base[i] + step[i, k]]
        part = buf[k * row : (k + 1) * row]
        if constant == -np.inf:
            part[:] = -np.inf
            continue
        ready = pre[k * row : (k + 1) * row]
        for j in range(part.size):
            part[j] = ready[j] + constant
        cross = 0
        for i in range(role.size):
            if role[i] == CROSS:
                source = val[src[i] + base[i] + step[i, k] :]
                _add_input(part, source, index[cross], kind[cross], run[cross])
                cross += 1


@jit
def _prepare(tree, c, own, val, place):
    """Everything about a clique that does not change in its loops."""
    lo, hi = tree.clique_ptr[c], tree.clique_ptr[c + 1]
    dims = np.empty(hi - lo, np.int64)
    for d in range(hi - lo):
        dims[d] = tree.card[tree.clique_var[lo + d]]
    split = _split(dims, tree.n_res[c])
    kb, ke, di, n_big, n_sep, n_k, row, _ = split
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    stride = np.zeros((n + own, hi - lo), np.int64)
    _strides(tree, c, own, place, stride)
    src = np.empty(n + own, np.int64)
    for i in range(n):
        src[i] = tree.in_src[first + i]
    if own:
        src[n] = tree.message[c]
    role = _classify(stride, kb, ke, di)
    index = np.empty(row, np.uint32)
    pre = np.zeros(n_k * row)
    for i in range(n + own):
        if role[i] == PRE:
            kind, run = _row_index(stride[i], dims, di, index)
            for k in range(n_k):
                source = val[src[i] + _offset(stride[i], dims, kb, ke, k) :]
                _add_input(pre[k * row : (k + 1) * row], source, index, kind, run)
    all_stride, all_role = stride, role
    if n_big * n_sep > 1:
        group, size = _bundle(all_stride, all_role, dims, di)
        spare, members = tree.message[tree.message.size - 1], src
        stride, src, role, end = _with_groups(all_stride, members, all_role, group, size, spare)
        val[spare:end] = 0.0
        tables = src[src.size - size.shape[0] :]
        _pour(all_stride, members, group, size, tables, di, row, val, False)
    return dims, split, all_stride, all_role, stride, src, role, pre


@jit
def _log_sum(buf, rows, n, top, total, maximal):
    """top + log(total) = log-sum-exp over the rows of buf (rows, n), which is overwritten;
    ``maximal``: top is the maximum, and total 0."""
    for j in range(n):
        top[j] = buf[j]
    for r in range(1, rows):
        part = buf[r * n : (r + 1) * n]
        for j in range(n):
            top[j] = part[j] if part[j] > top[j] else top[j]
    if maximal:
        total[:] = 0.0
        return
    for j in range(n):  # -inf - -inf is not a number
        total[j] = top[j] if top[j] > -np.inf else 0.0
    for r in range(rows):
        part = buf[r * n : (r + 1) * n]
        for j in range(n):
            part[j] -= total[j]
    exp_in_place(buf[: rows * n])
    for j in range(n):
        total[j] = 0.0
    for r in range(rows):
        part = buf[r * n : (r + 1) * n]
        for j in range(n):
            total[j] += part[j]


@jit
def _log_add(top, total, more_top, more_total):
    """Merge a second log-sum into the first."""
    for j in range(top.size):
        a, b = top[j], more_top[j]
        if b == -np.inf:
            continue
        if a >= b:
            total[j] += more_total[j] * np.exp(b - a)
        else:
            total[j] = total[j] * np.exp(a - b) + more_total[j]
            top[j] = b


@jit
def _collect_clique(tree, c, val, place, maximal):
    """Message of clique c to its parent, scaled to maximum 0; returns the log of the scale."""
    dims, split, _, _, stride, src, role, pre = _prepare(tree, c, np.int64(0), val, place)
    kb, ke, di, n_big, n_sep, n_k, row, row_sep = split
    message = val[tree.message[c] : tree.message[c] + n_sep * row_sep]
    total = np.empty(row_sep)
    rows = n_k * row // row_sep
    if n_big * n_sep == 1:
        _log_sum(pre, rows, row_sep, message, total, maximal)
        if not maximal:
            log_in_place(total)
            for j in range(row_sep):
                message[j] += total[j]
        return _rescale(message)
    index, kind, run, step = _index_rows(stride, role, dims, kb, ke, di, n_k, row)
    buf = np.empty(n_k * row)
    base = np.zeros(role.size, np.int64)
    more_top, more_total = np.empty(row_sep), np.empty(row_sep)
    for o in range(n_sep):
        top = message[o * row_sep : (o + 1) * row_sep]
        for b in range(n_big):
            _move(stride, role, dims, kb, ke, di, o, b, base)
            _chunk(buf, pre, n_k, row, role, base, step, val, src, index, kind, run)
            if b == 0:
                _log_sum(buf, rows, row_sep, top, total, maximal)
            else:
                _log_sum(buf, rows, row_sep, more_top, more_total, maximal)
                _log_add(top, total, more_top, more_total)
        if not maximal:
            log_in_place(total)
            for j in range(row_sep):
                top[j] += total[j]
    return _rescale(message)


@jit
def _rescale(message):
    """Subtract the maximum and return it."""
    scale = -np.inf
    for j in range(message.size):
        scale = message[j] if message[j] > scale else scale
    if scale > -np.inf:
        for j in range(message.size):
            message[j] -= scale
    return scale


@jit
def goals(tree, c):
    """Where marginals of each input of clique c go, its own message last (nowhere)."""
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    goal = np.empty(n + 1, np.int64)
    goal[n] = -1
    spare = tree.n_out
    for i in range(n):
        goal[i] = tree.in_out[first + i]
        child = tree.in_child[first + i]
        if child >= 0:
            goal[i] = spare
            spare += tree.message[child + 1] - tree.message[child]
    return goal, spare


@jit
def add_marginals(tree, c, val, tan, scale, out, goal, spare, place):
    """Add p(x), or p(x) T(x) where ``tan`` is not empty, of clique c to the goals of its inputs;
    what goes to its children begins at 0."""
    dims, split, all_stride, all_role, stride, src, role, total = _prepare(
        tree, c, np.int64(1), val, place
    )
    kb, ke, di, n_big, n_sep, n_k, row, _ = split
    more = total
    if tan.size:
        more = _prepare(tree, c, np.int64(1), tan, place)[7]
    out[tree.n_out : spare] = 0.0
    for j in range(total.size):
        total[j] -= scale
    if n_big * n_sep == 1:
        exp_in_place(total)
        if tan.size:
            for j in range(total.size):
                total[j] *= more[j]
    else:
        pre = total
        total = np.zeros(n_k * row)
        buf = np.empty(n_k * row)
        moved = np.empty(n_k * row if tan.size else 0)
        index, kind, run, step = _index_rows(stride, role, dims, kb, ke, di, n_k, row)
        base = np.zeros(role.size, np.int64)
        # outputs have groups of their own, of those that are wanted
        wanted = all_role.copy()
        for i in range(goal.size):
            if goal[i] < 0:
                wanted[i] = 0
        group, size = _bundle(all_stride, wanted, dims, di)
        out_stride, out_goal, out_role, end = _with_groups(
            all_stride, goal, wanted, group, size, spare
        )
        out[spare:end] = 0.0
        out_index, out_kind, out_run, out_step = _index_rows(
            out_stride, out_role, dims, kb, ke, di, n_k, row
        )
        out_base = np.zeros(out_role.size, np.int64)
        for o in range(n_sep):
            for b in range(n_big):
                _move(stride, role, dims, kb, ke, di, o, b, base)
                _chunk(buf, pre, n_k, row, role, base, step, val, src, index, kind, run)
                exp_in_place(buf)
                if tan.size:
                    _chunk(moved, more, n_k, row, role, base, step, tan, src, index, kind, run)
                    for j in range(buf.size):
                        buf[j] *= moved[j]
                for j in range(buf.size):
                    total[j] += buf[j]
                _move(out_stride, out_role, dims, kb, ke, di, o, b, out_base)
                _spread(
                    buf, n_k, row, out_role, out_base, out_step, out, out_goal,
                    out_index, out_kind, out_run,
                )  # fmt: skip
        tables = out_goal[out_goal.size - size.shape[0] :]
        _pour(all_stride, goal, group, size, tables, di, row, out, True)
    index_row = np.empty(row, np.uint32)
    for i in range(goal.size):
        if all_role[i] == PRE and goal[i] >= 0:
            how, length = _row_index(all_stride[i], dims, di, index_row)
            for k in range(n_k):
                target = out[goal[i] + _offset(all_stride[i], dims, kb, ke, k) :]
                _add_output(total[k * row : (k + 1) * row], target, index_row, how, length)


@jit
def tell_children(tree, c, val, out, goal):
    """What lies at the goals as messages to the children of clique c, in place of theirs."""
    first = tree.in_ptr[c]
    for i in range(goal.size - 1):
        child = tree.in_child[first + i]
        if child >= 0:
            size = tree.message[child + 1] - tree.message[child]
            marginal = out[goal[i] : goal[i] + size]
            log_in_place(marginal)
            up = val[tree.message[child] : tree.message[child] + size]
            for j in range(size):
                up[j] = marginal[j] - up[j] if marginal[j] > -np.inf else -np.inf


@jit
def _spread(buf, n_k, row, role, base, step, out, goal, index, kind, run):
    """Add a chunk of probabilities to every output that depends on the outer loop."""
    for k in range(n_k):
        part = buf[k * row : (k + 1) * row]
        cross = 0
        mass = -1.0
        for i in range(role.size):
            if role[i] == SCALAR:
                mass = part.sum() if mass < 0.0 else mass
                out[goal[i] + base[i] + step[i, k]] += mass
            elif role[i] == CROSS:
                target = out[goal[i] + base[i] + step[i, k] :]
                _add_output(part, target, index[cross], kind[cross], run[cross])
                cross += 1


# ---------------------------------------------------------------- all cliques


@jit
def collect(tree, first, stop, val, scale, maximal):
    """Messages of cliques first..stop-1 to their parents; those ``maximal`` (C,) maximise their own
    variables. Returns a clique without mass, or -1."""
    place = np.empty(tree.card.size, np.int64)
    empty = -1
    for c in range(first, stop):
        scale[c] = _collect_clique(tree, c, val, place, maximal[c])
        if scale[c] == -np.inf:
            empty = c
    return empty


@jit
def distribute(tree, first, stop, val, scale, out):
    """Marginals of cliques stop-1 down to first, and their messages to their children."""
    place = np.empty(tree.card.size, np.int64)
    nothing = np.empty(0)
    for c in range(stop - 1, first - 1, -1):
        goal, spare = goals(tree, c)
        add_marginals(tree, c, val, nothing, scale[c], out, goal, spare, place)
        tell_children(tree, c, val, out, goal)


# ---------------------------------------------------------------- how marginals move


@jit
def _collect_means(tree, c, val, tan, scale, place):
    """The means that clique c sends to its parent, given its message."""
    dims, split, _, _, stride, src, role, pre = _prepare(tree, c, np.int64(0), val, place)
    more = _prepare(tree, c, np.int64(0), tan, place)[7]
    kb, ke, di, n_big, n_sep, n_k, row, row_sep = split
    index, kind, run, step = _index_rows(stride, role, dims, kb, ke, di, n_k, row)
    base = np.zeros(role.size, np.int64)
    buf, moved, mass = np.empty(n_k * row), np.empty(n_k * row), np.empty(row_sep)
    for o in range(n_sep):
        first = tree.message[c] + o * row_sep
        up, mean = val[first : first + row_sep], tan[first : first + row_sep]
        for j in range(row_sep):
            mass[j] = mean[j] = 0.0
        for b in range(n_big):
            _move(stride, role, dims, kb, ke, di, o, b, base)
            _chunk(buf, pre, n_k, row, role, base, step, val, src, index, kind, run)
            _chunk(moved, more, n_k, row, role, base, step, tan, src, index, kind, run)
            for q in range(0, buf.size, row_sep):
                for j in range(row_sep):
                    if buf[q + j] > -np.inf:
                        buf[q + j] -= scale + up[j]
            exp_in_place(buf)
            for q in range(0, buf.size, row_sep):
                for j in range(row_sep):
                    mass[j] += buf[q + j]
                    mean[j] += buf[q + j] * moved[q + j]
        for j in range(row_sep):
            mean[j] = mean[j] / mass[j] if mass[j] > 0.0 else 0.0


@jit
def collect_means(tree, first, stop, val, tan, scale):
    """Means of cliques first..stop-1 for their parents; ``val``, ``scale``: after ``collect``."""
    place = np.empty(tree.card.size, np.int64)
    for c in range(first, stop):
        _collect_means(tree, c, val, tan, scale[c], place)


@jit
def distribute_means(tree, first, stop, val, tan, scale, out, moments):
    """Marginals of cliques stop-1 down to first and how they move, and both for their children."""
    place = np.empty(tree.card.size, np.int64)
    for c in range(stop - 1, first - 1, -1):
        goal, spare = goals(tree, c)
        add_marginals(tree, c, val, tan, scale[c], moments, goal, spare, place)
        add_marginals(tree, c, val, tan[:0], scale[c], out, goal, spare, place)
        tell_children(tree, c, val, out, goal)  # leaves logs at the goals
        for i in range(goal.size - 1):
            child = tree.in_child[tree.in_ptr[c] + i]
            if child >= 0:
                at, size = tree.message[child], tree.message[child + 1] - tree.message[child]
                mean = tan[at : at + size]
                mass = out[goal[i] : goal[i] + size]
                moment = moments[goal[i] : goal[i] + size]
                exp_in_place(mass)
                for j in range(size):
                    mean[j] = moment[j] / mass[j] - mean[j] if mass[j] > 0.0 else 0.0


# ---------------------------------------------------------------- structure


@jit
def place_inputs(off, fptr, toff, sizes, at, ptr, variables, n_eliminated, parent, message):
    """Inputs by clique: fields of what is eliminated there, tables at home there (``at``), and
    messages of children, in this order; ``sizes``: cells of tables, if their marginals are wanted.
    Returns in_ptr and, of each input, source, out, child, scope and arity; ``n_out``."""
    n_cliques, n_tables, n_states = parent.size, fptr.size - 1, off[off.size - 1]
    n_scope = fptr[n_tables]
    in_ptr = np.zeros(n_cliques + 1, np.int64)
    for c in range(n_cliques):
        in_ptr[c + 1] += n_eliminated[c]
        if parent[c] >= 0:
            in_ptr[parent[c] + 1] += 1
    for t in range(n_tables):
        in_ptr[at[t] + 1] += 1
    for c in range(n_cliques):
        in_ptr[c + 1] += in_ptr[c]
    n = in_ptr[n_cliques]
    source, out = np.empty(n, np.int64), np.empty(n, np.int64)
    child, where, arity = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    free = in_ptr.copy()
    for c in range(n_cliques):
        for k in range(ptr[c], ptr[c] + n_eliminated[c]):
            i = free[c]
            free[c] += 1
            source[i] = out[i] = off[variables[k]]
            child[i], where[i], arity[i] = -1, n_scope + k, 1
    n_out = n_states
    for t in range(n_tables):
        i = free[at[t]]
        free[at[t]] += 1
        source[i], out[i], child[i] = n_states + toff[t], -1, -1
        where[i], arity[i] = fptr[t], fptr[t + 1] - fptr[t]
        if sizes.size:
            out[i] = n_out
            n_out += sizes[t]
    for c in range(n_cliques):
        if parent[c] >= 0:
            i = free[parent[c]]
            free[parent[c]] += 1
            source[i], out[i], child[i] = message[c], -1, c
            where[i] = n_scope + ptr[c] + n_eliminated[c]
            arity[i] = ptr[c + 1] - ptr[c] - n_eliminated[c]
    return in_ptr, source, out, child, where, arity, n_out
