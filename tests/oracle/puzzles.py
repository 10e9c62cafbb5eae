"""Hard constraints with and without a solution, drawn, and judged by code that shares none of ours.

A :class:`Puzzle` is plain data: states, facts, clues. One with a ``solution`` was made around it;
one without has none, by a known argument or by :func:`solved`, which tries everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minfer import FactorGraph

Fact = tuple[str, tuple[int, ...], object]


@dataclass
class Puzzle:
    name: str
    n_states: list[int]
    facts: list[Fact]
    clues: dict[int, int] = field(default_factory=dict)
    solution: list[int] | None = None
    tilt: float = 0.0  # how much states differ in weight
    seed: int = 0

    def allows(self, x: list[int]) -> bool:
        """Whether an assignment breaks nothing."""
        return all(x[v] == s for v, s in self.clues.items()) and all(
            holds(kind, [x[v] for v in scope], more) for kind, scope, more in self.facts
        )

    def graph(self) -> FactorGraph:
        g = FactorGraph.empty(self.n_states)
        for (kind, _, more), scopes in self._by_kind().items():
            if kind == "one":
                g = g.add_exactly_one(scopes, states=more)
            elif kind == "at most one":
                g = g.add_at_most_one(scopes, states=more)
            elif kind == "clause":
                g = g.add_clauses(scopes, signs=[list(more)] * len(scopes))
            elif kind == "parity":
                g = g.add_parity(scopes, odd=more)
            else:
                k = [self.n_states[v] for v in scopes[0]]
                cells = list(itertools.product(*map(range, k)))
                table = [0.0 if holds(kind, cell, more) else -np.inf for cell in cells]
                g = g.add_tables(scopes, [np.reshape(table, k)] * len(scopes))
        if self.tilt:
            rng = np.random.default_rng(self.seed)
            g = g.tilt(self.tilt * rng.normal(size=sum(self.n_states)))
        return g.with_evidence(self.clues) if self.clues else g

    def _by_kind(self) -> dict[tuple[str, tuple[int, ...], object], list[list[int]]]:
        out: dict = {}
        for kind, scope, more in self.facts:
            shape = tuple(self.n_states[v] for v in scope)
            out.setdefault((kind, shape, more), []).append(list(scope))
        return out


def holds(kind: str, x, more) -> bool:
    """Whether states of a scope satisfy a fact."""
    if kind == "one":
        return sum(s == more for s in x) == 1
    if kind == "at most one":
        return sum(s == more for s in x) <= 1
    if kind == "clause":
        return any((s == 1) == (sign > 0) for s, sign in zip(x, more))
    if kind == "parity":
        return sum(x) % 2 == int(more)
    if kind == "differ":
        return x[0] != x[1]
    if kind == "far":  # queens in columns x[0] and x[1] of rows that are ``more`` apart
        return x[0] != x[1] and abs(x[0] - x[1]) != more
    raise ValueError(kind)


def solved(p: Puzzle) -> list[int] | None:
    """A solution by trying everything, the variable with fewest states left first."""
    at: list[list[Fact]] = [[] for _ in p.n_states]
    for fact in p.facts:
        for v in fact[1]:
            at[v].append(fact)
    x = [-1] * len(p.n_states)

    def may_be(fact: Fact) -> bool:
        kind, scope, more = fact
        y = [x[v] for v in scope]
        if -1 not in y:
            return holds(kind, y, more)
        if kind in ("one", "at most one"):
            return sum(s == more for s in y) <= 1
        return True

    def able(v: int) -> list[int]:
        out = []
        for s in range(p.n_states[v]) if v not in p.clues else [p.clues[v]]:
            x[v] = s
            if all(map(may_be, at[v])):
                out.append(s)
        x[v] = -1
        return out

    def go_on() -> bool:
        left = [v for v, s in enumerate(x) if s < 0]
        if not left:
            return True
        options = {v: able(v) for v in left}
        v = min(left, key=lambda u: len(options[u]))
        for s in options[v]:
            x[v] = s
            if go_on():
                return True
        x[v] = -1
        return False

    return list(x) if go_on() else None


def squares(n: int, box: tuple[int, int] | None) -> list[list[int]]:
    """Rows, columns and, of a Sudoku, boxes of an n x n board."""
    units = [[r * n + c for c in range(n)] for r in range(n)]
    units += [[r * n + c for r in range(n)] for c in range(n)]
    if box:
        h, w = box
        units += [
            [(a + i) * n + b + j for i in range(h) for j in range(w)]
            for a in range(0, n, h)
            for b in range(0, n, w)
        ]
    return units


def filled(rng: np.random.Generator, n: int, box: tuple[int, int] | None) -> list[int]:
    """A Latin square, of a Sudoku if there are boxes: a regular one, shuffled."""
    h, w = box or (1, n)
    board = [[(r * w + r // h + c) % n for c in range(n)] for r in range(n)]
    digits = rng.permutation(n)

    def shuffled(size: int) -> list[int]:
        bands = rng.permutation(n // size)
        return [int(b) * size + int(i) for b in bands for i in rng.permutation(size)]

    rows, columns = shuffled(h), shuffled(w)
    return [int(digits[board[r][c]]) for r in rows for c in columns]


def board(rng: np.random.Generator, n: int, box: tuple[int, int] | None, share: float) -> Puzzle:
    """A Sudoku or Latin square with a share of its clues."""
    x = filled(rng, n, box)
    clues = rng.permutation(n * n)[: round(share * n * n)].tolist()
    units = squares(n, box)
    if rng.random() < 0.3 and n <= 6:
        pairs = {p for u in units for p in itertools.combinations(sorted(u), 2)}
        facts: list[Fact] = [("differ", p, None) for p in sorted(pairs)]
    else:
        facts = [("one", tuple(u), d) for d in range(n) for u in units]
    name = f"{'sudoku' if box else 'latin'} {n}"
    return Puzzle(name, [n] * n * n, facts, {v: x[v] for v in clues}, x)


def sudoku(seed: int) -> Puzzle:
    """A 9 x 9 Sudoku with a unique solution and about as few clues as can be."""
    rng = np.random.default_rng(seed)
    x = filled(rng, 9, (3, 3))
    units = squares(9, (3, 3))
    peers = [sorted({v for u in units if c in u for v in u} - {c}) for c in range(81)]
    clues = dict(enumerate(x))
    for c in rng.permutation(81).tolist():
        state = clues.pop(c)
        if any(_fills(peers, {**clues, c: s}) for s in range(9) if s != state):
            clues[c] = state
        if len(clues) == 24:
            break
    facts: list[Fact] = [("one", tuple(u), d) for d in range(9) for u in units]
    return Puzzle("sudoku 9", [9] * 81, facts, clues, x)


def _fills(peers: list[list[int]], clues: dict[int, int]) -> bool:
    """Whether clues of a Sudoku can be completed."""
    free = [0x1FF] * 81
    x = [-1] * 81

    def put(v: int, s: int) -> list[int] | None:
        x[v] = s
        gone = [u for u in peers[v] if free[u] >> s & 1]
        for u in gone:
            free[u] &= ~(1 << s)
        if any(x[u] < 0 and not free[u] for u in gone):
            take(v, s, gone)
            return None
        return gone

    def take(v: int, s: int, gone: list[int]) -> None:
        x[v] = -1
        for u in gone:
            free[u] |= 1 << s

    def go_on() -> bool:
        left = [v for v in range(81) if x[v] < 0]
        if not left:
            return True
        v = min(left, key=lambda u: free[u].bit_count())
        for s in range(9):
            if free[v] >> s & 1 and (gone := put(v, s)) is not None:
                if go_on():
                    return True
                take(v, s, gone)
        return False

    return all(free[v] >> s & 1 and put(v, s) is not None for v, s in clues.items()) and go_on()


def queens(rng: np.random.Generator, n: int) -> Puzzle:
    """n queens, some given: by rows with a column each, or square by square."""
    all_of_them = [
        q
        for q in itertools.permutations(range(n))
        if all(abs(q[i] - q[j]) != j - i for i in range(n) for j in range(i + 1, n))
    ]
    x = list(all_of_them[int(rng.integers(len(all_of_them)))])
    given = rng.permutation(n)[: int(rng.integers(0, n // 2))].tolist()
    if rng.random() < 0.5:
        pairs = itertools.combinations(range(n), 2)
        facts: list[Fact] = [("far", (i, j), j - i) for i, j in pairs]
        return Puzzle(f"queens {n}", [n] * n, facts, {r: x[r] for r in given}, x)
    facts = [("one", tuple(u), 1) for u in squares(n, None)]
    for key in (lambda r, c: r + c, lambda r, c: r - c):
        lines: dict[int, list[int]] = {}
        for r, c in itertools.product(range(n), repeat=2):
            lines.setdefault(key(r, c), []).append(r * n + c)
        facts += [("at most one", tuple(u), 1) for u in lines.values() if len(u) > 1]
    placed = [int(x[r] == c) for r in range(n) for c in range(n)]
    return Puzzle(
        f"queens {n} by squares", [2] * n * n, facts, {r * n + x[r]: 1 for r in given}, placed
    )


def colouring(rng: np.random.Generator, n: int, k: int, degree: float) -> Puzzle:
    x = rng.integers(k, size=n).tolist()
    pairs = [(i, j) for i, j in itertools.combinations(range(n), 2) if x[i] != x[j]]
    kept = rng.permutation(len(pairs))[: round(degree * n / 2)].tolist()
    facts: list[Fact] = [("differ", pairs[i], None) for i in sorted(kept)]
    return Puzzle(f"{k} colours", [k] * n, facts, {0: x[0]}, x)


def clauses(rng: np.random.Generator, n: int, ratio: float) -> Puzzle:
    x = rng.integers(2, size=n).tolist()
    facts: list[Fact] = []
    while len(facts) < round(ratio * n):
        scope = rng.permutation(n)[:3].tolist()
        signs = tuple(rng.choice([-1, 1], size=3).tolist())
        if holds("clause", [x[v] for v in scope], signs):
            facts.append(("clause", tuple(scope), signs))
    return Puzzle("clauses", [2] * n, facts, {}, x)


def checks(rng: np.random.Generator, n: int, m: int) -> Puzzle:
    """Parity checks, and a few bits given."""
    x = rng.integers(2, size=n).tolist()
    facts: list[Fact] = []
    for _ in range(m):
        scope = rng.permutation(n)[: int(rng.integers(2, 6))].tolist()
        facts.append(("parity", tuple(scope), bool(sum(x[v] for v in scope) % 2)))
    given = rng.permutation(n)[: n // 4].tolist()
    return Puzzle("parity checks", [2] * n, facts, {v: x[v] for v in given}, x)


def tiling(rng: np.random.Generator, h: int, w: int, without: tuple[int, ...] = ()) -> Puzzle:
    """Dominoes on a board; a variable for each place where one may lie."""
    cells = [c for c in range(h * w) if c not in without]
    places = [(c, c + 1) for c in cells if (c + 1) % w and c + 1 in cells]
    places += [(c, c + w) for c in cells if c + w in cells]
    places = [places[i] for i in rng.permutation(len(places))]
    facts: list[Fact] = [
        ("one", tuple(i for i, p in enumerate(places) if c in p), 1) for c in cells
    ]
    x = None
    if not without:
        upright = h % 2 == 0 and (w % 2 == 1 or rng.random() < 0.5)
        lies = {
            (c, c + w) if upright else (c, c + 1)
            for c in range(h * w)
            if (c // w % 2 == 0 if upright else c % w % 2 == 0)
        }
        x = [int(p in lies) for p in places]
    return Puzzle(f"dominoes {h} x {w}", [2] * len(places), facts, {}, x)


POSSIBLE: list[Callable[[np.random.Generator], Puzzle]] = [
    lambda rng: board(rng, 4, (2, 2), rng.uniform(0.1, 0.5)),
    lambda rng: board(rng, 6, (2, 3), rng.uniform(0.2, 0.4)),
    lambda rng: board(rng, 6, (3, 2), rng.uniform(0.3, 0.5)),
    lambda rng: board(rng, int(rng.integers(3, 7)), None, rng.uniform(0.0, 0.5)),
    lambda rng: queens(rng, int(rng.integers(4, 8))),
    lambda rng: colouring(rng, int(rng.integers(6, 40)), 3, rng.uniform(2, 4.6)),
    lambda rng: colouring(rng, int(rng.integers(8, 40)), 4, rng.uniform(4, 8)),
    lambda rng: clauses(rng, int(rng.integers(5, 60)), rng.uniform(2, 6)),
    lambda rng: checks(rng, int(rng.integers(6, 30)), int(rng.integers(3, 20))),
    lambda rng: tiling(rng, *[(4, 4), (4, 5), (6, 4), (6, 6)][int(rng.integers(4))]),
]  # fmt: skip


def possible(seed: int) -> Puzzle:
    """A puzzle that has a solution."""
    rng = np.random.default_rng([7, seed])
    p = POSSIBLE[seed % len(POSSIBLE)](rng)
    p.tilt, p.seed = float(rng.choice([0.0, 0.0, 0.3, 2.0, 20.0])), seed
    return p


def _wrong_clue(rng: np.random.Generator, make: Callable[[], Puzzle]) -> Puzzle:
    """A puzzle one of whose clues is changed so that nothing is left."""
    while True:
        p = make()
        p.solution = None
        if p.clues:
            v = int(rng.choice(list(p.clues)))
            p.clues[v] = int((p.clues[v] + rng.integers(1, p.n_states[v])) % p.n_states[v])
            if solved(p) is None:
                return p


def _too_few_colours(rng: np.random.Generator) -> Puzzle:
    k = int(rng.integers(2, 5))
    p = colouring(rng, int(rng.integers(k + 1, 20)), k, 2.0)
    clique = rng.permutation(len(p.n_states))[: k + 1].tolist()
    p.facts = [f for f in p.facts if not set(f[1]) <= set(clique)]
    p.facts += [("differ", pair, None) for pair in itertools.combinations(clique, 2)]
    p.clues, p.solution = {}, None
    return p


def _all_clauses(rng: np.random.Generator) -> Puzzle:
    p = clauses(rng, int(rng.integers(4, 30)), 2.0)
    scope = tuple(rng.permutation(len(p.n_states))[:3].tolist())
    p.facts += [("clause", scope, signs) for signs in itertools.product((-1, 1), repeat=3)]
    p.solution = None
    return p


def _odd_sum(rng: np.random.Generator) -> Puzzle:
    """Checks around a ring, each variable in two, whose right-hand sides add up to one."""
    n = int(rng.integers(4, 20))
    odd = rng.integers(2, size=n)
    odd[0] = 1 - odd[1:].sum() % 2
    facts: list[Fact] = [
        ("parity", (i, n + i, (i + 1) % n, n + (i + 1) % n), bool(odd[i])) for i in range(n)
    ]
    return Puzzle("parity ring", [2] * 2 * n, facts)


def _pigeons(rng: np.random.Generator) -> Puzzle:
    n = int(rng.integers(2, 7))
    facts: list[Fact] = [("at most one", tuple(range(n + 1)), hole) for hole in range(n)]
    return Puzzle(f"{n + 1} pigeons", [n] * (n + 1), facts)


def _mutilated(rng: np.random.Generator) -> Puzzle:
    h, w = [(4, 4), (4, 6), (6, 6)][int(rng.integers(3))]
    return tiling(rng, h, w, without=(0, h * w - 1))


IMPOSSIBLE: list[Callable[[np.random.Generator], Puzzle]] = [
    lambda rng: _wrong_clue(rng, lambda: board(rng, 4, (2, 2), rng.uniform(0.2, 0.6))),
    lambda rng: _wrong_clue(rng, lambda: board(rng, int(rng.integers(3, 6)), None, 0.5)),
    lambda rng: _wrong_clue(rng, lambda: queens(rng, 6)),
    _too_few_colours,
    _all_clauses,
    _odd_sum,
    _pigeons,
    _mutilated,
]


def impossible(seed: int) -> Puzzle:
    """A puzzle that has no solution."""
    rng = np.random.default_rng([8, seed])
    p = IMPOSSIBLE[seed % len(IMPOSSIBLE)](rng)
    p.tilt, p.seed = float(rng.choice([0.0, 0.3, 2.0])), seed
    return p
