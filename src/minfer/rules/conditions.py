"""What the conditions of a join say of its columns: comparisons, and equalities that follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.rules.joins import ClauseJoin

_TEST = re.compile(
    r"(?P<no>not )?(?P<open>coalesce\()?(?P<a>\w+\.\w+) (?P<op><>|<=|>=|<|>|=|is distinct from) "
    r"(?P<b>\w+\.\w+)(?P<close>, false\))?"
)
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


def comparison(sql: str) -> tuple[str, str, str] | None:
    """Two columns and how they compare, where that is all a condition says (neither is null)."""
    found = _TEST.fullmatch(sql)
    if found is None or bool(found["open"]) != bool(found["close"]):
        return None
    op = "<>" if found["op"] == "is distinct from" else found["op"]
    if found["no"]:
        if not found["open"]:
            return None
        op = _OPPOSITE[op]
    return found["a"], op, found["b"]


class Equal:
    """Columns that have the same value."""

    def __init__(self, join: ClauseJoin) -> None:
        self._up: dict[str, str] = {}
        for s in join.sources:
            for test in () if s.left else s.on:
                self.read(test)
        for test in join.conditions:
            self.read(test)

    def read(self, sql: str) -> None:
        test = comparison(sql)
        if test is not None and test[1] == "=":
            self._up[self.of(test[0])] = self.of(test[2])

    def of(self, column: str) -> str:
        while column in self._up and self._up[column] != column:
            column = self._up[column]
        return column


def contradictory(join: ClauseJoin) -> bool:
    """Whether conditions ask two columns to be the same and not to be."""
    equal = Equal(join)
    tests = filter(None, map(comparison, join.conditions))
    return any(op in ("<", ">", "<>") and equal.of(a) == equal.of(b) for a, op, b in tests)


def implied(join: ClauseJoin) -> list[str]:
    """Equalities within one source that follow from those between sources."""
    equal, out = Equal(join), []
    for s in join.sources:
        columns = [] if s.left else list(dict.fromkeys(f"{s.alias}.{c}" for _, c in s.variables))
        for k, a in enumerate(columns):
            same = [b for b in columns[k + 1 :] if equal.of(a) == equal.of(b)]
            out += [f"{a} = {b}" for b in same if f"{a} = {b}" not in (*s.own, *join.conditions)]
    return out
