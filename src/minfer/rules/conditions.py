"""What the conditions of a join say of its columns: comparisons, and equalities that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.rules.joins import ClauseJoin

OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


class ColumnTest(str):
    """A condition, as SQL, that says no more than how two columns compare (neither is null)."""

    __slots__ = ("a", "b", "op")
    a: str
    op: str
    b: str

    def __new__(cls, a: str, op: str, b: str, sql: str = "") -> ColumnTest:
        out = super().__new__(cls, sql or f"{a} {op} {b}")
        out.a, out.op, out.b = a, op, b
        return out

    def negated(self) -> ColumnTest:
        return ColumnTest(self.a, OPPOSITE[self.op], self.b)

    @property
    def aliases(self) -> set[str]:
        return {x.partition(".")[0] for x in (self.a, self.b)}


class Equal:
    """Columns that have the same value."""

    def __init__(self, join: ClauseJoin) -> None:
        self._up: dict[str, str] = {}
        every = [*join.conditions, *(x for s in join.sources if not s.left for x in s.on)]
        for test in every:
            if isinstance(test, ColumnTest) and test.op == "=":
                self._up[self.of(test.a)] = self.of(test.b)

    def of(self, column: str) -> str:
        while column in self._up and self._up[column] != column:
            column = self._up[column]
        return column


def contradictory(join: ClauseJoin) -> bool:
    """Whether conditions ask two columns to be the same and not to be."""
    equal = Equal(join)
    tests = [x for x in join.conditions if isinstance(x, ColumnTest)]
    return any(x.op in ("<", ">", "<>") and equal.of(x.a) == equal.of(x.b) for x in tests)


def implied(join: ClauseJoin) -> list[ColumnTest]:
    """Equalities within one source that follow from those between sources."""
    equal, out = Equal(join), list[ColumnTest]()
    for s in join.sources:
        columns = [] if s.left else list(dict.fromkeys(f"{s.alias}.{c}" for _, c in s.variables))
        for k, a in enumerate(columns):
            same = [b for b in columns[k + 1 :] if equal.of(a) == equal.of(b)]
            new = [ColumnTest(a, "=", b) for b in same]
            out += [x for x in new if x not in (*s.own, *join.conditions)]
    return out
