"""Where to draw a network whose variables are cards with a bar for every state, or a circuit.

A Bayesian network is drawn in layers, parents above children (Sugiyama, Tagawa & Toda 1981): layers
by longest paths, those that are too wide broken up, edges over several layers led through invisible
points, orders within layers by barycentres and exchanges of neighbours, positions by least squares
under the order. Other models come from :func:`stress_layout`, pushed apart until no two cards
overlap. The same model always gives the same drawing.

Positions X of :func:`stress_layout` minimise  sum_{i<j} (|X_i - X_j| - d_ij)^2 / d_ij^2  with d the
number of edges between two nodes (Gansner, Koren & North 2005): neighbours come out equally far
apart, grids as grids. Each round solves a linear system with one matrix, inverted once.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GAP, LAYER_GAP = 22.0, 40.0  # between cards of a layer, and between layers
_THIN = 10.0  # room of an edge that passes through a layer
_ASPECT = 1.35  # width to height of the window a drawing is made for
_SWEEPS, _SETTLE = 16, 12
_ROUNDS = 200
_ENOUGH = 1e-5  # relative change of the stress at which it stops
_MOST_SPREAD = 220  # points that are placed by their distances
_MANY = 4000  # points, invisible ones included, beyond which fewer attempts are made
_FLAT = 0.72  # cards are wider than tall
_PORTS = 0.62  # share of a card's width over which the ends of its edges spread


class Drawing(NamedTuple):
    """Cards by their upper left corners, edges as points from first to last."""

    corners: NDArray[np.float64]  # (n, 2)
    edges: list[tuple[int, int, list[float]]]  # from, to, x0, y0, x1, y1, ...
    dots: NDArray[np.float64]  # (d, 2) where factors over three or more variables meet
    size: tuple[float, float]


# ---------------------------------------------------------------------- layers


def layered(parents: Sequence[Sequence[int]], sizes: NDArray[np.float64]) -> Drawing:
    """A directed network without cycles; ``sizes`` (n, 2) are the cards' widths and heights."""
    n = len(parents)
    if n == 0:
        return Drawing(np.zeros((0, 2)), [], np.zeros((0, 2)), (0.0, 0.0))
    layer = _layers(parents)
    widest = int(np.bincount(layer).max())
    best: tuple[float, Drawing] | None = None
    attempts = {max(1, round(widest / k)) for k in (1.0, 1.4, 2.0, 2.8, 4.0, 6.0)}
    for most in sorted(attempts, reverse=True):
        split = _broken(layer, parents, most)
        made = _Layers(split, parents, sizes)
        drawing = made.draw()
        across, down = drawing.size
        score = max(across / _ASPECT, down) * (1.0 + 0.02 * made.crossings / max(n, 1))
        if best is None or score < best[0] - 1e-9:
            best = score, drawing
        if across < _ASPECT * down:  # more layers would only make it taller
            break
    assert best is not None
    return best[1]


def _layers(parents: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Layer of each node: as high as parents allow, then down to its children where that is
    shorter."""
    n = len(parents)
    children: list[list[int]] = [[] for _ in range(n)]
    for v, own in enumerate(parents):
        for p in own:
            children[p].append(v)
    left = [len(own) for own in parents]
    order = [v for v in range(n) if left[v] == 0]
    for v in order:  # grows while it is read
        for c in children[v]:
            left[c] -= 1
            if left[c] == 0:
                order.append(c)
    layer = np.zeros(n, dtype=np.int64)
    for v in order:
        layer[v] = max((layer[p] + 1 for p in parents[v]), default=0)
    for _ in range(3):
        for v in reversed(order):
            if children[v] and len(children[v]) >= len(parents[v]):
                layer[v] = min(layer[c] for c in children[v]) - 1
        for v in order:
            if parents[v] and len(parents[v]) > len(children[v]):
                layer[v] = max(layer[p] for p in parents[v]) + 1
    return np.unique(layer, return_inverse=True)[1].astype(np.int64)


def _broken(
    layer: NDArray[np.int64], parents: Sequence[Sequence[int]], most: int
) -> NDArray[np.int64]:
    """Layers of at most so many cards: leaves first, what others hang on last."""
    n_children = np.zeros(len(layer), dtype=np.int64)
    for own in parents:
        for p in own:
            n_children[p] += 1
    out = np.zeros_like(layer)
    first = 0
    for k in range(int(layer.max()) + 1):
        members = np.flatnonzero(layer == k)
        rows = -(-len(members) // most)
        by_use = members[np.lexsort((members, n_children[members]))]
        out[by_use] = first + np.arange(len(members)) * rows // len(members)
        first += rows
    return out


class _Layers:
    """Points (cards, then invisible ones on long edges) in layers, put in order and in place."""

    def __init__(
        self, layer: NDArray[np.int64], parents: Sequence[Sequence[int]], sizes: NDArray[np.float64]
    ) -> None:
        n = len(layer)
        self.sizes, self.n = sizes, n
        self.layer = layer.tolist()
        self.chains: list[list[int]] = []  # of every edge: parent, points between, child
        self.up: list[list[int]] = [[] for _ in range(n)]
        self.down: list[list[int]] = [[] for _ in range(n)]
        for v, own in enumerate(parents):
            for p in own:
                chain = [p]
                for k in range(self.layer[p] + 1, self.layer[v]):
                    chain.append(len(self.layer))
                    self.layer.append(k)
                    self.up.append([])
                    self.down.append([])
                chain.append(v)
                for a, b in pairwise(chain):
                    self.down[a].append(b)
                    self.up[b].append(a)
                self.chains.append(chain)
        self.n_points = len(self.layer)
        self.rows: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        for v in self._walk():
            self.rows[self.layer[v]].append(v)
        self.crossings = self._order()

    def _walk(self) -> list[int]:
        """All points, neighbours close to each other: depth first, ends of the network first."""
        seen = [False] * self.n_points
        out = []
        for start in sorted(range(self.n_points), key=lambda v: (len(self.up[v]), v)):
            stack = [start]
            while stack:
                v = stack.pop()
                if seen[v]:
                    continue
                seen[v] = True
                out.append(v)
                stack += [w for w in (*self.up[v], *reversed(self.down[v])) if not seen[w]]
        return out

    def _order(self) -> int:
        place = [0] * self.n_points
        for row in self.rows:
            for k, v in enumerate(row):
                place[v] = k
        best, kept, idle = self._count(place), [list(row) for row in self.rows], 0
        many = self.n_points > _MANY
        for sweep in range(6 if many else _SWEEPS):
            downwards = sweep % 2 == 0
            rows = self.rows[1:] if downwards else self.rows[-2::-1]
            for row in rows:
                self._by_barycentre(row, self.up if downwards else self.down, place)
            if not many:
                self._exchange(place)
            found = self._count(place)
            if found < best:
                best, kept, idle = found, [list(row) for row in self.rows], 0
            else:
                idle += 1
            if best == 0 or idle == 5:
                break
        self.rows = kept
        return best

    @staticmethod
    def _by_barycentre(row: list[int], near: list[list[int]], place: list[int]) -> None:
        key = {
            v: sum(place[w] for w in near[v]) / len(near[v]) if near[v] else float(place[v])
            for v in row
        }
        row.sort(key=lambda v: (key[v], place[v]))
        for k, v in enumerate(row):
            place[v] = k

    def _exchange(self, place: list[int]) -> None:
        for _ in range(4):
            moved = False
            for row in self.rows:
                for k in range(len(row) - 1):
                    a, b = row[k], row[k + 1]
                    now = then = 0
                    for near in (self.up, self.down):
                        for i in near[a]:
                            for j in near[b]:
                                now += place[i] > place[j]
                                then += place[i] < place[j]
                    if then < now:
                        row[k], row[k + 1] = b, a
                        place[a], place[b] = k + 1, k
                        moved = True
            if not moved:
                break

    def _count(self, place: list[int]) -> int:
        total = 0
        for row in self.rows[:-1]:
            before: list[int] = []
            for v in row:
                ends = sorted(place[w] for w in self.down[v])
                total += sum(len(before) - bisect_right(before, e) for e in ends)
                for e in ends:
                    insort(before, e)
        return total

    # ------------------------------------------------------------------ places

    def _wide(self, v: int) -> float:
        return float(self.sizes[v, 0]) if v < self.n else _THIN

    def _across(self) -> list[float]:
        """Middle of each point: near its neighbours, in order, far enough apart."""
        x = [0.0] * self.n_points
        for row in self.rows:
            at = 0.0
            for v in row:
                at += self._wide(v) / 2
                x[v] = at
                at += self._wide(v) / 2 + GAP
        middle = max(x[row[-1]] + x[row[0]] for row in self.rows) / 2
        for row in self.rows:
            shift = middle - (x[row[-1]] + x[row[0]]) / 2
            for v in row:
                x[v] += shift
        passes = _SETTLE if self.n_points <= _MANY else 4
        for sweep in range(3 * passes):
            both = sweep >= 2 * passes
            downwards = sweep % 2 == 0
            for row in self.rows if downwards else reversed(self.rows):
                wanted, weight = [], []
                for v in row:
                    near = self.up[v] if downwards else self.down[v]
                    if both or not near:
                        near = [*self.up[v], *self.down[v]]
                    heavy = [20.0 if v >= self.n and w >= self.n else 1.0 for w in near]
                    total = sum(heavy)
                    wanted.append(
                        sum(h * x[w] for h, w in zip(heavy, near)) / total if near else x[v]
                    )
                    weight.append(total if near else 0.05)
                apart = [(self._wide(a) + self._wide(b)) / 2 + GAP for a, b in pairwise(row)]
                for v, value in zip(row, _spaced(wanted, weight, apart)):
                    x[v] = value
        self._straighten(x)
        return x

    def _straighten(self, x: list[float]) -> None:
        """Long edges with as few bends as the room between their neighbours allows."""
        row_of = {v: (row, k) for row in self.rows for k, v in enumerate(row)}
        far = max(x) + 4 * GAP
        for chain in self.chains:
            a, *points, b = chain
            room = []
            for v in points:
                row, k = row_of[v]
                low, high = -4 * GAP, far
                if k:
                    low = x[row[k - 1]] + (self._wide(row[k - 1]) + _THIN + GAP) / 2
                if k + 1 < len(row):
                    high = x[row[k + 1]] - (self._wide(row[k + 1]) + _THIN + GAP) / 2
                room.append((low, high))
            first = 0
            while first < len(points):
                low, high, stop = *room[first], first + 1
                while stop < len(points):
                    narrow = max(low, room[stop][0]), min(high, room[stop][1])
                    if narrow[0] > narrow[1]:
                        break
                    low, high = narrow
                    stop += 1
                ends = (x[b], x[a]) if stop == len(points) else (x[a],)
                aim = next((e for e in ends if low <= e <= high), (x[a] + x[b]) / 2)
                for v in points[first:stop]:
                    x[v] = min(max(aim, low), high)
                first = stop

    def draw(self) -> Drawing:
        x = self._across()
        left = min(x[v] - self._wide(v) / 2 for v in range(self.n_points))
        x = [value - left for value in x]
        top, tops, bottoms = 0.0, [], []
        for row in self.rows:
            tall = max((float(self.sizes[v, 1]) for v in row if v < self.n), default=0.0)
            tops.append(top)
            bottoms.append(top + tall)
            top += tall + LAYER_GAP + min(36.0, 1.2 * len(row))
        corners = np.zeros((self.n, 2))
        for v in range(self.n):
            middle = (tops[self.layer[v]] + bottoms[self.layer[v]]) / 2
            corners[v] = x[v] - self.sizes[v, 0] / 2, middle - self.sizes[v, 1] / 2
        right = max(x[v] + self._wide(v) / 2 for v in range(self.n_points))
        return Drawing(
            corners, self._edges(x, corners, tops, bottoms), np.zeros((0, 2)), (right, bottoms[-1])
        )

    def _edges(
        self, x: list[float], corners: NDArray, tops: list[float], bottoms: list[float]
    ) -> list[tuple[int, int, list[float]]]:
        leaving: dict[int, list[int]] = {}
        coming: dict[int, list[int]] = {}
        for k, chain in enumerate(self.chains):
            leaving.setdefault(chain[0], []).append(k)
            coming.setdefault(chain[-1], []).append(k)
        out_x, in_x = [0.0] * len(self.chains), [0.0] * len(self.chains)
        for ends, side, at in ((leaving, 1, out_x), (coming, -2, in_x)):
            for v, edges in ends.items():
                edges.sort(key=lambda k, side=side: (x[self.chains[k][side]], k))  # type: ignore[misc]
                step = min(16.0, _PORTS * float(self.sizes[v, 0]) / len(edges))
                for i, k in enumerate(edges):
                    at[k] = x[v] + step * (i - (len(edges) - 1) / 2)
        out = []
        for k, chain in enumerate(self.chains):
            a, b = chain[0], chain[-1]
            points = [(out_x[k], float(corners[a, 1] + self.sizes[a, 1])),
                      (out_x[k], bottoms[self.layer[a]])]  # fmt: skip
            for v in chain[1:-1]:
                points += [(x[v], tops[self.layer[v]]), (x[v], bottoms[self.layer[v]])]
            points += [(in_x[k], tops[self.layer[b]]), (in_x[k], float(corners[b, 1]))]
            out.append((a, b, [round(c, 1) for point in points for c in point]))
        return out


def _spaced(wanted: list[float], weight: list[float], apart: list[float]) -> list[float]:
    """Positions next to the wanted ones by weighted least squares, at least ``apart`` from one to
    the next: isotonic regression of what is left after the distances (pools of violators)."""
    shift = [0.0]
    for gap in apart:
        shift.append(shift[-1] + gap)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, w, s in zip(wanted, weight, shift):
        mean, total, count = value - s, w, 1
        while pools and pools[-1][0] > mean:
            m, t, c = pools.pop()
            mean, total, count = (mean * total + m * t) / (total + t), total + t, count + c
        pools.append((mean, total, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    return [value + s for value, s in zip(flat, shift)]


# ---------------------------------------------------------------------- without direction


def spread(scopes: Sequence[Sequence[int]], sizes: NDArray[np.float64]) -> Drawing:
    """A model without direction: ``scopes`` of its factors, those over three or more with a dot."""
    n = len(sizes)
    pairs = sorted({(min(s), max(s)) for s in scopes if len(s) == 2})
    many = sorted({tuple(sorted(s)) for s in scopes if len(s) > 2})
    if n == 0 or n + len(many) > _MOST_SPREAD:
        return layered(_from_near_to_far(n, scopes), sizes)
    links = [*pairs, *((v, n + k) for k, scope in enumerate(many) for v in scope)]
    edges = np.array(links, dtype=np.int64).reshape(-1, 2)
    room = np.concatenate([sizes + GAP, np.full((len(many), 2), 2 * _THIN)])
    x = stress_layout(n + len(many), edges)
    if len(edges):  # neighbours about one and a half cards apart
        step = np.linalg.norm(x[edges[:, 0]] - x[edges[:, 1]], axis=1)
        x = x * (1.15 * float(room[:n].max()) / max(float(np.median(step)), 1e-9))
        x[:, 1] *= _FLAT
    else:
        x = x * float(room.max()) * np.sqrt(n)
    x = _apart(x, room)
    x -= (x - room / 2).min(axis=0)
    size = (x + room / 2).max(axis=0)
    lines = [
        (int(a), int(b), [round(float(c), 1) for c in (*x[a], *x[b])]) for a, b in links
    ]  # fmt: skip
    return Drawing(x[:n] - sizes / 2, lines, x[n:], (float(size[0]), float(size[1])))


def _from_near_to_far(n: int, scopes: Sequence[Sequence[int]]) -> list[list[int]]:
    """Parents in a large model that has none: lines lead away from where a search begins, each
    factor's along its variables."""
    near: list[set[int]] = [set() for _ in range(n)]
    for scope in scopes:
        for a, b in pairwise(sorted(set(scope))):
            near[a].add(b)
            near[b].add(a)
    rank: dict[int, int] = {}
    for start in sorted(range(n), key=lambda v: (len(near[v]), v)):
        queue = [] if start in rank else [start]
        for v in queue:  # grows while it is read
            if v not in rank:
                rank[v] = len(rank)
                queue += sorted(near[v] - rank.keys())
    return [sorted(u for u in near[v] if rank[u] < rank[v]) for v in range(n)]


def _apart(x: NDArray[np.float64], room: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moved until no two boxes overlap, each pair along the way that is shorter."""
    x = x.copy()
    need = (room[:, None] + room[None]) / 2
    for _ in range(400):
        apart = x[:, None] - x[None]
        lack = need - np.abs(apart)
        np.einsum("iik->ik", lack)[:] = -1.0
        hit = (lack > 0.01).all(axis=2)
        if not hit.any():
            break
        flat = lack[..., 1] <= lack[..., 0]
        order = np.sign(np.arange(len(x))[:, None] - np.arange(len(x))[None])
        for axis, along in ((0, ~flat), (1, flat)):
            way = np.sign(apart[..., axis])
            way = np.where(way == 0, order, way)
            push = np.where(hit & along, lack[..., axis] * way * 0.5, 0.0)
            count = np.maximum((push != 0).sum(axis=1), 1)
            x[:, axis] += push.sum(axis=1) / np.sqrt(count)
    return x


def stress_layout(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Positions (n, 2) of nodes joined by ``edges`` (E, 2); x from 0 to 1, y from 0 on, wide side
    first. The same graph always gives the same drawing."""
    if n <= 1:
        return np.zeros((n, 2))
    d = _distances(n, edges)
    weight = np.where(d > 0, 1 / np.maximum(d, 1) ** 2, 0.0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight)
    x = _start(d)
    before = np.inf
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(x[:, None] - x[None], axis=2)
        stress = float((weight * (apart - d) ** 2).sum())
        if before - stress <= _ENOUGH * stress:
            break
        before = stress
        pull = weight * d / np.maximum(apart, 1e-9)
        x = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ x
    return _upright(x)


def _distances(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Edges on the shortest way between all nodes, (n, n); parts are put beside each other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    i, j = np.asarray(edges, dtype=np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    d = np.asarray(shortest_path(links, directed=False, unweighted=True))
    reach = d[np.isfinite(d)].max(initial=1.0)
    return np.where(np.isfinite(d), d, reach + 1)


def _start(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Classical scaling, and a little spiral that tells nodes apart which it puts on one spot."""
    centred = -0.5 * d**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    value, vector = np.linalg.eigh(centred)
    x = vector[:, -2:] * np.sqrt(np.maximum(value[-2:], 0.0))
    angle = np.arange(len(d)) * np.pi * (3 - np.sqrt(5))
    return x + 0.05 * np.sqrt(np.arange(len(d)))[:, None] * np.stack(
        [np.cos(angle), np.sin(angle)], axis=1
    )


def _upright(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turned so that the box around it is smallest and lies across, and scaled to width 1."""

    def turned(angle: float) -> NDArray[np.float64]:
        c, s = np.cos(angle), np.sin(angle)
        y = x @ np.array([[c, -s], [s, c]])
        return y - y.min(axis=0)

    x = min((turned(a) for a in np.linspace(0, np.pi / 2, 91)), key=lambda y: y.max(axis=0).prod())
    if x[:, 1].max() > x[:, 0].max():
        x = x[:, ::-1]
    return x / max(float(x[:, 0].max()), 1e-9)
