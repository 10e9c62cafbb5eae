"""Models of hard clauses over binary variables, which have a search of their own
(:mod:`minfer.kernels.circuits.clauses`): what it runs on, and the circuit that it leaves.

Clauses are strengthened first (:mod:`minfer.engine.circuits.strengthen`). Decisions follow a tree
decomposition the more, the narrower it is beside the number of variables: with n of them and width
w they weigh depth by 10^4 e^(n / w) / n, beside activity in conflicts (Korhonen & Jarvisalo 2021,
with a hundredth of that: activity then has its say on models of a few hundred variables, and
searches take two to four times as long, or do not end).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.circuits.arrays import CircuitArrays, grown
from minfer.engine.circuits.core import LONG, Ready
from minfer.engine.circuits.orders import candidates
from minfer.engine.circuits.strengthen import strengthened
from minfer.engine.elimination import Adjacency, eliminate_by
from minfer.engine.layout import ends
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.kernels.circuits import clauses as k
from minfer.kernels.circuits.clauses import ClauseArrays, ClauseNodes, ClauseState
from minfer.kernels.circuits.keys import LEAST, fill_slots

#: Steps of a slice; conflicts after which clauses that did not serve are forgotten.
SLICE, FORGET = 200_000, 600
#: Of a factor: cells that it excludes, and clauses that come to the same, at most.
MOST_CELLS, MOST_CLAUSES = 128, 32
#: What depth weighs, and may weigh at most.
_DEPTH, _DEEPEST = 1e4, 1e7
_RANGE = 256.0 * math.log(2.0)
#: A step of this search in those of others, about.
_STEP = 0.4


class ClauseModel(NamedTuple):
    """Clauses, literals 2 v + state of the model's variables, and the constant beside them."""

    clauses: set[tuple[int, ...]]
    log_scale: float


def clause_model(start: Ready) -> ClauseModel | None:
    """A model as clauses; None if it has other factors, or other than binary variables."""
    t = start.tables
    if (t.card[start.free] != 2).any():
        return None
    out: set[tuple[int, ...]] = set()
    log_scale, known = start.constant, dict[bytes, list[list[int]]]()
    for f in range(len(t.toff)):
        scope = t.scope[t.fptr[f] : t.fptr[f + 1]]
        at = slice(t.toff[f], t.toff[f] + (1 << len(scope)))
        value, value_e = t.value[at], t.value_e[at]
        first = int(np.argmax(value > 0.0))
        possible = value > 0.0
        if (value[possible] != value[first]).any() or (value_e[possible] != value_e[first]).any():
            return None
        if not possible.any():
            raise ContradictionError(NOTHING_POSSIBLE)
        log_scale += math.log(value[first]) + _RANGE * int(value_e[first])
        key = possible.tobytes()
        if key not in known:
            wrong = np.flatnonzero(~possible).tolist()
            if len(wrong) > MOST_CELLS:
                return None
            known[key] = prime_clauses(wrong, len(scope))
            if len(known[key]) > MOST_CLAUSES:
                return None
        for clause in known[key]:
            out.add(tuple(sorted(int(2 * scope[q >> 1] + (q & 1)) for q in clause)))
    for g in start.machines:
        a, b = int(g.start[0]), 1 - int(g.start[0])
        step = [[b, b], [b, b]]
        step[a] = [a, b]  # it stays until a literal is true
        if len(g.step) != 2 or g.step[:, :2].tolist() != step or g.last.any():
            return None
        if (g.start != a).any() or (g.final[:, a] > -np.inf).any() or np.isinf(g.final[:, b]).any():
            return None
        log_scale += float(g.final[:, b].sum())
        state = np.where(g.literal >= 0, g.literal, 2 + g.literal)
        out |= {tuple(sorted(row)) for row in (2 * g.scope + state).tolist()}
    return ClauseModel(out, log_scale)


def prime_clauses(wrong: list[int], arity: int) -> list[list[int]]:
    """The shortest clauses, literals 2 place + state, that exclude these cells and no others."""
    bits = [1 << (arity - 1 - j) for j in range(arity)]
    cubes = {((1 << arity) - 1, cell) for cell in wrong}  # the places that count, and their states
    out: list[tuple[int, int]] = []
    while cubes:
        wider, covered = set(), set()
        for mask, cell in cubes:
            for b in bits:
                if mask & b and (mask, cell ^ b) in cubes:
                    wider.add((mask & ~b, cell & ~b))
                    covered.add((mask, cell))
        out += sorted(cubes - covered)
        cubes = wider
    return [
        [2 * j + (0 if cell & b else 1) for j, b in enumerate(bits) if mask & b]
        for mask, cell in out
    ]


class ClauseSearch:
    """A search of clauses that can be interrupted. ``room``: bytes; ``ordered`` is told how many
    orders were compared, and may raise."""

    def __init__(
        self, start: Ready, model: ClauseModel, room: float, ordered: Callable[[int], object]
    ) -> None:
        self.model, self.room = model, room
        self.variables = variables = np.flatnonzero(start.free)
        number = np.full(len(start.free), -1)
        number[variables] = np.arange(len(variables))
        clauses = strengthened(
            tuple(int(2 * number[q >> 1] + (q & 1)) for q in c) for c in sorted(model.clauses)
        )
        if not all(clauses):
            raise ContradictionError(NOTHING_POSSIBLE)
        links = _links(clauses, len(variables))
        order = candidates(links, ordered)[0][1] if len(variables) else np.zeros(0, np.int64)
        prior = _prior(links, order)
        prior[_pendant(clauses, len(variables))] -= _DEEPEST
        self.arrays = _arrays(start, clauses, variables, prior)
        self.state, self.nodes = _begun(self.arrays)
        self._forgot = 0, 0  # the last conflict whose clauses were looked at, and when that was
        if not k.begin(self.arrays, self.state):
            raise ContradictionError(NOTHING_POSSIBLE)

    @property
    def n_nodes(self) -> int:
        return int(self.state.now[k.NODES])

    @property
    def share(self) -> float:
        """Of the search, what is done: along the path under way, both values alike."""
        return _share(self.state)

    @property
    def raised(self) -> bool:
        """Whether some weight was raised to LEAST."""
        return bool(self.state.now[k.RAISED])

    def run(
        self, searched: Callable[[int, float, int], object], most_steps: float = math.inf
    ) -> CircuitArrays | None:
        """Search on; the circuit at its end, None where it has taken so many steps before.
        ``searched`` is told of nodes, the share that is done and steps, and may raise."""
        now = self.state.now
        while True:
            why = k.search_clauses(self.arrays, self.state, self.nodes, SLICE)
            if why == k.SOLVED:
                return _laid_out(self.model, self.variables, self.state, self.nodes)
            if why == k.IMPOSSIBLE:
                raise ContradictionError(NOTHING_POSSIBLE)
            assert why != k.WRONG, "circuit: a solution of clauses was lost"
            share = self.share
            self._make_room(why, share)
            steps = int(_STEP * now[k.STEPS])
            searched(self.n_nodes, share, steps)
            if steps > most_steps:
                return None

    def _make_room(self, why: int, share: float) -> None:
        """What a slice ended for."""
        state, now = self.state, self.state.now
        if why in (k.NO_ROOM, k.NO_SLOTS):
            self.nodes = _grown(state, self.nodes, self.room, share)
        elif why == k.NO_POOL:
            twice = {n: grown(a, 2 * len(a)) for n, a in state._asdict().items() if n in _POOLS}
            self.state = state._replace(**twice)
        elif now[k.CONFLICTS] > self._forgot[1] + FORGET:
            k.reduce(state, self._forgot[0])
            self._forgot = int(now[k.CONFLICTS]) - FORGET // 2, int(now[k.CONFLICTS])
        arena = self.state.arena
        if why == k.NO_ARENA and now[k.N_ARENA] + 8 * len(self.variables) > len(arena):
            self.state = self.state._replace(arena=grown(arena, 2 * len(arena)))


_POOLS = ("pool", "part", "part_key", "kids")


def _links(clauses: list[tuple[int, ...]], n: int) -> Adjacency:
    """Which variables share a clause; those of a long one are linked as a path."""
    from minfer.kernels.cliques.elimination import link_scopes

    scopes: list[list[int]] = []
    for c in clauses:
        scope = [q >> 1 for q in c]
        scopes += [scope] if len(c) <= LONG else [[a, b] for a, b in pairwise(scope)]
    flat = np.array([v for s in scopes for v in s], dtype=np.int32)
    every = np.arange(n, dtype=np.int32)
    ptr, near = link_scopes(flat, ends([len(s) for s in scopes]), every, n)
    return Adjacency(np.arange(n), ptr, near, np.ones(n))


def _pendant(clauses: list[tuple[int, ...]], n: int) -> NDArray[np.bool_]:
    """Variables that hang on one clause, (n,): it has all that their other clauses are about, as
    where they say whether others hold. Known is what they are after these, so they come last."""
    near: list[set[int]] = [set() for _ in range(n)]
    longest = np.zeros(n, np.int64)
    for c in clauses:
        scope = [q >> 1 for q in c]
        for v in scope:
            near[v].update(scope)
            longest[v] = max(longest[v], len(c))
    return np.array([len(others) for others in near], np.int64) == longest


def _prior(links: Adjacency, order: NDArray) -> NDArray[np.float64]:
    """What speaks for deciding a variable early, (n,): how near the middle of a tree decomposition
    it is, weighed."""
    n = len(order)
    if not n:
        return np.zeros(0)
    rank = np.empty(n)
    rank[order] = np.arange(n)
    tree = eliminate_by(links, 2, 0, math.inf, "given", rank, math.inf, 1e300)
    place = np.empty(n, np.int64)
    place[tree.order] = np.arange(n)
    begin, length = tree.start[tree.order], tree.length[tree.order]
    near = [place[tree.pool[b : b + m]].tolist() for b, m in zip(begin.tolist(), length.tolist())]
    parent = [min(others, default=-1) for others in near]
    below: list[list[int]] = [[] for _ in range(n)]
    size = [1] * n
    for i, p in enumerate(parent):
        if p >= 0:
            below[p].append(i)
            size[p] += size[i]
    depth = [-1] * n
    for root in (i for i, p in enumerate(parent) if p < 0):
        middle = root
        while heavy := [j for j in below[middle] if 2 * size[j] > size[root]]:
            middle = heavy[0]
        depth[middle], stack = 0, [middle]
        while stack:
            i = stack.pop()
            for j in [*below[i], *([parent[i]] if parent[i] >= 0 else [])]:
                if depth[j] < 0:
                    inside = j == parent[i] and len(near[j]) + 1 == len(near[i])
                    depth[j] = depth[i] + (0 if inside else 1)
                    stack.append(j)
    high = list(depth)
    for i, others in enumerate(near):
        for j in others:
            high[j] = min(high[j], depth[i])
    out = np.empty(n)
    out[tree.order] = 1.0 - np.array(high) / max(1, *high)
    width = max(int(length.max()), 1)
    return out * min(_DEPTH * math.exp(min(n / width, 50.0)) / n, _DEEPEST)


def _arrays(
    start: Ready, clauses: list[tuple[int, ...]], variables: NDArray[np.int64], prior: NDArray
) -> ClauseArrays:
    """What the search runs on; clauses over 2 local variable + state."""
    n, t = len(variables), start.tables
    states = (t.off[variables][:, None] + np.arange(2)).ravel()
    weight, weight_e = t.own[states], t.own_e[states].astype(np.int64)
    for c in clauses:
        if len(c) == 1:
            weight[c[0] ^ 1] = 0.0
    two = np.array([c for c in clauses if len(c) == 2], dtype=np.int32).reshape(-1, 2)
    long = [c for c in clauses if len(c) > 2]
    implies = np.concatenate([two, two[:, ::-1]])  # the second, where the first is false
    implies = implies[np.argsort(implies[:, 0] ^ 1, kind="stable")]
    length = [len(c) for c in long]
    literal = np.array([q for c in long for q in c], dtype=np.int32)
    by_variable = np.argsort(literal >> 1, kind="stable")
    low = np.minimum(weight_e[::2], weight_e[1::2])  # of a variable's two, one has exponent 0
    pair = np.where(weight_e < 0, 0.0, weight).reshape(-1, 2)
    alone = np.where(pair.sum(axis=1) == 0.0, low, 0)  # the other one is excluded
    pair = np.where(pair.sum(axis=1, keepdims=True) == 0.0, weight.reshape(-1, 2), pair)
    words = np.random.Generator(np.random.PCG64(np.random.SeedSequence(20371)))
    salt = words.integers(0, np.iinfo(np.uint64).max, (2 * n, 2), dtype=np.uint64)
    return ClauseArrays(
        weight, weight_e, pair.sum(axis=1), alone.astype(np.int64), prior, salt,
        ends(np.bincount(implies[:, 0] ^ 1, minlength=2 * n)).astype(np.int32),
        np.ascontiguousarray(implies[:, 1]),
        ends(np.bincount(literal >> 1, minlength=n)).astype(np.int32),
        np.repeat(np.arange(len(long), dtype=np.int32), length)[by_variable],
        ends(length).astype(np.int32), literal,
    )  # fmt: skip


def _begun(f: ClauseArrays) -> tuple[ClauseState, ClauseNodes]:
    """Arrays for a search that has not begun. Nodes 3 v and 3 v + 1 are a variable's two states,
    3 v + 2 is both of them."""
    n, long = len(f.both), len(f.start) - 1
    i8, i32, i64 = np.int8, np.int32, np.int64
    arena = len(f.literal) + k.HEADER * long + 64 * n + 4096
    pool, parts, kids = 2 * (n + long) + 64, n + 64, 4 * n + 64
    state = ClauseState(
        np.zeros(k.N_NOW, i64), np.zeros(2 * n, i8), np.zeros(n, i32), np.full(n, -1, i32),
        np.zeros(n + 1, i32), np.append(np.zeros(n), 1.0), np.zeros(n, i32), np.zeros(n, i64),
        np.zeros(long, i64), np.zeros(n + 2, i8), np.zeros(n + 1, i32), np.zeros(n + 1, i32),
        np.zeros(long, i32), np.zeros(len(f.literal), i32), np.zeros(long, i32),
        np.zeros(long, i32), np.zeros((long, 2), np.uint64), np.zeros(long, np.uint64),
        np.full(2 * n, -1, i32), np.zeros(arena, i32), np.zeros(pool, i32),
        np.zeros((parts, 3), i64), np.zeros((parts, 2), np.uint64), np.ones(n, i8),
        np.zeros(n, i8), np.zeros(n + 2, i32), np.zeros((n + 2, k.N_FRAME), i64),
        np.zeros((n + 2, 2)), np.zeros((n + 2, 2), i64), np.zeros(kids, i32),
    )  # fmt: skip
    state.pool[: n + long] = np.concatenate([np.arange(n), np.arange(long)])
    state.part[0] = 0, n, long
    bottom, more = 3 * n, 64
    variable = np.zeros(bottom + more, i32)
    variable[:bottom] = np.repeat(np.arange(n), 3)
    eptr = np.zeros(bottom + more + 1, i64)
    eptr[: bottom + 1] = ends(np.tile([1, 1, 2], n))
    value, weight = np.zeros(4 * n + 2 * more, i32), np.zeros(4 * n + 2 * more)
    value[: 4 * n] = np.tile([0, 1, 0, 1], n)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.ldexp(
            f.weight / np.repeat(f.both, 2), 256 * (f.weight_e - np.repeat(f.both_e, 2))
        )
    share = np.where(f.weight > 0.0, np.maximum(share, LEAST), 0.0).reshape(-1, 2)
    weight[: 4 * n] = np.concatenate([np.ones((n, 2)), share], axis=1).ravel()
    now = state.now
    now[k.NODES], now[k.RAISED] = bottom, int((share == LEAST).sum())
    now[k.MODE], now[k.N_POOL], now[k.N_PART] = k.ROOT_MODE, n + long, 1
    state.frame[0] = k.root_frame(n + long)
    nodes = ClauseNodes(
        variable, eptr, np.zeros(more, np.uint64), np.zeros(more, np.uint64), np.zeros(more),
        np.zeros(more, i64), value, weight, np.zeros(4 * n + 2 * more + 1, i64),
        np.zeros(4 * more, i32), np.full(4 * more, -1, i32),
    )  # fmt: skip
    return state, nodes


def _share(s: ClauseState) -> float:
    """Of the search, what is done: along the path under way, both values alike."""
    share = 0.0
    for x in range(int(s.now[k.DEPTH]), -1, -1):
        done, n = s.frame[x, k.NEXT] - s.frame[x, k.FROM], s.frame[x, k.END] - s.frame[x, k.FROM]
        share = min((float(done) + share) / max(int(n), 1), 1.0)
        if x:
            share = (int(s.frame[x, k.KIND]) + share) / 2.0
    return share


def _grown(s: ClauseState, d: ClauseNodes, room: float, share: float) -> ClauseNodes:
    """The same nodes with more room where there is none left; RefusedError beyond the limit."""
    nn, bottom, n = int(s.now[k.NODES]), 3 * len(s.level), len(s.level)
    ne = int(d.eptr[nn])
    nc, own = int(d.cptr[ne]), nn - bottom
    need = nn + 1, own + 1, ne + 2, nc + 2 * n + 2
    have = len(d.variable), len(d.total), len(d.state), len(d.child)
    slots = 2 * len(d.slots) if len(d.slots) < 2 * own + 2 else len(d.slots)
    search = 12.0 * nn + 32.0 * own + 20.0 * ne + 4.0 * nc + 4.0 * slots
    more = min(2.0, room / max(search, 40.0 * nn + 52.0 * ne + 8.0 * nc))
    if more < 1.02:
        raise RefusedError(
            f"circuit: {nn:,} nodes fill the {room / 2**30:.3g} GiB that it has, at about "
            f"{100 * share:.2g} % of the search; raise max_gib, observe more variables, or use "
            "Auto()"
        )
    nodes, keys, edges, kids = (max(w, int(w * more)) if h < w else h for w, h in zip(need, have))

    def fit(a: NDArray, to: int) -> NDArray:
        return a if len(a) >= to else grown(a, to)

    d = ClauseNodes(
        fit(d.variable, nodes), fit(d.eptr, nodes + 1), fit(d.key1, keys), fit(d.key2, keys),
        fit(d.total, keys), fit(d.total_e, keys), fit(d.state, edges), fit(d.weight, edges),
        fit(d.cptr, edges + 1), fit(d.child, kids), fit(d.slots, slots),
    )  # fmt: skip
    if slots > have[1] and len(d.slots) == slots:
        d.slots[:] = -1
        fill_slots(d.slots, d.key1, own)
    return d


def _laid_out(
    model: ClauseModel, variables: NDArray[np.int64], s: ClauseState, d: ClauseNodes
) -> CircuitArrays:
    """The nodes as a circuit, without those of variables that nobody has as children: the others
    move up to the first node of the search."""
    now, n = s.now, len(variables)
    nn, bottom = int(now[k.NODES]), 3 * n
    ne = int(d.eptr[nn])
    nc = int(d.cptr[ne])
    roots, child = s.kids[: int(now[k.N_KIDS])], d.child[:nc]
    used = np.zeros(nn, dtype=bool)
    used[roots] = used[child] = True
    used = used[:bottom]
    sizes = np.tile([1, 1, 2], n)
    kept, kept_edges = int(used.sum()), int(sizes[used].sum())
    shift, shift_e = bottom - kept, 4 * n - kept_edges
    edges = np.repeat(used, sizes)
    d.variable[shift:bottom] = d.variable[:bottom][used]
    d.state[shift_e : 4 * n] = d.state[: 4 * n][edges]
    d.weight[shift_e : 4 * n] = d.weight[: 4 * n][edges]
    d.eptr[shift : bottom + 1] = shift_e + ends(sizes[used])
    place = np.arange(-shift, nn - shift, dtype=np.int32)
    place[:bottom][used] = np.arange(kept, dtype=np.int32)
    np.take(place, child, out=child, mode="clip")
    log_scale = model.log_scale + math.log(s.number[0, 1]) + _RANGE * int(s.number_e[0, 1])
    return CircuitArrays(
        variables.astype(np.int32)[d.variable[shift:nn]], d.eptr[shift : nn + 1] - shift_e,
        d.state[shift_e:ne], d.weight[shift_e:ne], d.cptr[shift_e : ne + 1], child, place[roots],
        log_scale, nn - bottom,
    )  # fmt: skip
