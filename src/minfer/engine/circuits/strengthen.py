"""Clauses that say the same in fewer literals, before they are searched.

Until nothing changes: a clause that holds another one is left out; with D = A or p, a clause that
holds A and the opposite of p loses that (self-subsuming resolution, Een & Biere 2005); where two
literals are equal by clauses of two, one stands for both in all other clauses. What follows from
clauses of one literal is left to the search. No variable goes, so sums over assignments, for any
weights, are what they were.
"""

from __future__ import annotations

from collections.abc import Iterable

Clause = tuple[int, ...]
#: Comparisons of clauses after which what has been found by then is taken.
MOST = 2_000_000


def strengthened(clauses: Iterable[Clause], most: int = MOST) -> list[Clause]:
    """The clauses, literals 2 v + state, sorted; with an empty one where that follows."""
    return sorted(tuple(sorted(c)) for c in _Clauses(clauses, most).kept.values())


class _Clauses:
    def __init__(self, clauses: Iterable[Clause], most: int) -> None:
        self.left = most
        self.kept: dict[int, frozenset[int]] = {}
        self.of: dict[int, set[int]] = {}  # of a variable
        self.queue: list[int] = []
        self.n_made = 0
        self.stands_for: set[int] = set()  # variables for which others stand
        for c in sorted({frozenset(c) for c in clauses}, key=lambda c: (-len(c), sorted(c))):
            if not any(q ^ 1 in c for q in c):
                self.add(c)
        self.reduce()
        while self.left > 0 and self.unify():
            self.reduce()

    def add(self, clause: frozenset[int]) -> None:
        i = self.n_made
        self.n_made += 1
        self.kept[i] = clause
        for q in clause:
            self.of.setdefault(q >> 1, set()).add(i)
        self.queue.append(i)

    def drop(self, i: int) -> frozenset[int]:
        clause = self.kept.pop(i)
        for q in clause:
            self.of[q >> 1].discard(i)
        return clause

    def reduce(self) -> None:
        """Compare each clause that is new with all that it could shorten; the shortest of them
        come last in the queue."""
        while self.queue and self.left > 0:
            i = self.queue.pop()
            mine = self.kept.get(i)
            if not mine:
                continue
            least = min(mine, key=lambda q: (len(self.of[q >> 1]), q))
            for j in sorted(self.of[least >> 1]):
                other = self.kept.get(j)
                self.left -= 1
                if other is None or j == i or len(other) < len(mine):
                    continue
                missing = mine - other
                if not missing:
                    self.drop(j)
                elif len(missing) == 1:
                    (p,) = missing
                    if p ^ 1 in other:
                        self.drop(j)
                        self.add(other - {p ^ 1})
                        if i not in self.kept:
                            break
        self.queue.clear()

    def unify(self) -> bool:
        """Write one literal for each pair of equal ones, beside the two clauses that say so."""
        twos = {c for c in self.kept.values() if len(c) == 2}
        pairs = {
            (min(c), max(c)) for c in twos if frozenset(q ^ 1 for q in c) in twos
        }  # as clauses: a or b, and not a or not b
        changed = False
        for a, b in sorted(pairs):
            if b >> 1 in self.stands_for or a >> 1 in self.stands_for:
                continue
            self.stands_for.add(b >> 1)
            instead = {b: a ^ 1, b ^ 1: a}
            for j in sorted(self.of[b >> 1]):
                c = self.kept[j]
                if c in ({a, b}, {a ^ 1, b ^ 1}):
                    continue
                self.drop(j)
                self.left -= 1
                changed = True
                own = frozenset(instead.get(q, q) for q in c)
                if not any(q ^ 1 in own for q in own):
                    self.add(own)
            self.queue += sorted(self.of[a >> 1])  # they may hold in, or shorten, what is new
        return changed
