"""Bayesian networks between files and models: what BIF, XMLBIF, NET and XDSL share.

A :class:`Draft` is a network as a file declares it: variables with their states' names, and for
each a table P(variable | parents). It checks that names are declared and used once, that tables
have the size that their variables ask for, that rows sum to one (within 1e-4, and are then divided
by their sum), and that there is no cycle; every error is raised by the reader's own ``fail``, which
knows the place. :func:`conditionals` is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from minfer.basics.checks import check_graph, concatenate, first_twice
from minfer.basics.words import counted
from minfer.errors import RefusedError, visible
from minfer.factors.group import Floats
from minfer.graph import FactorGraph
from minfer.io.tables import MAX_ARITY, most_declared, states_complaint, to_linear
from minfer.model import directed
from minfer.model.causes import NoisyCauses, with_causes


class Draft:
    """A network on its way from a file of ``n_bytes``, which limit what it may declare.

    ``fail(place, message)`` raises the error that names file, line and column.
    """

    def __init__(self, n_bytes: int, fail: Callable[[Any, str], NoReturn]) -> None:
        self.fail, self._n_bytes = fail, n_bytes
        self.numbers: dict[str, int] = {}  # of the variables, by name
        self.states: list[tuple[str, ...]] = []
        self._places: list[Any] = []
        #: By child: the scope (parents..., child), numbers, place, and place of a row.
        self._tables: dict[int, tuple[list[int], Floats, Any, Callable[[int], Any]]] = {}
        #: Of noisy gates, by child: the scope, the entry, and its place.
        self._gates: dict[int, tuple[list[int], NoisyCauses, Any]] = {}
        self._expanded = 0

    def variable(self, name: str, states: Sequence[str], at: Any) -> None:
        if name in self.numbers:
            self.fail(at, f"there are two variables called {visible(name)!r}")
        if not states:
            self.fail(at, f"{visible(name)} has no states")
        if (twice := first_twice(states)) is not None:
            self.fail(at, f"{visible(name)} has two states called {visible(twice)!r}")
        self.numbers[name] = len(self.states)
        self.states.append(tuple(states))
        self._places.append(at)

    def index(self, name: str, at: Any) -> int:
        found = self.numbers.get(name)
        if found is None:
            self.fail(at, f"no variable is called {visible(name)!r}")
        return found

    def scope(
        self,
        child: str,
        parents: Sequence[str],
        at: Any,
        parents_at: Sequence[Any],
        any_number: bool = False,
    ) -> list[int]:
        """(parents..., child) as numbers, for a table that may be there, or for a gate, which may
        have ``any_number`` of parents."""
        own = self.index(child, at)
        if own in self._tables or own in self._gates:
            self.fail(at, f"{visible(child)} has two tables")
        if len(parents) >= MAX_ARITY and not any_number:
            self.fail(
                at,
                f"{visible(child)} has {len(parents)} parents, and a table at most {MAX_ARITY - 1}",
            )
        scope = [self.index(p, place) for p, place in zip(parents, parents_at)]
        for k, v in enumerate(scope):
            if v == own:
                self.fail(parents_at[k], f"{visible(child)} is its own parent")
            if v in scope[:k]:
                self.fail(parents_at[k], f"{visible(child)} has this parent twice")
        return [*scope, own]

    def shape(self, scope: Sequence[int]) -> tuple[int, ...]:
        return tuple(len(self.states[v]) for v in scope)

    def size_complaint(self, scope: Sequence[int], found: int) -> str:
        shape = self.shape(scope)
        return (
            f"the table of {visible(self.name(scope[-1]))} has {counted(found, 'number')}, but "
            f"needs {' x '.join(map(str, shape))} = {prod(shape):,}"
        )

    def name(self, variable: int) -> str:
        return next(name for name, v in self.numbers.items() if v == variable)

    def check_expanded(self, scope: Sequence[int], at: Any) -> None:
        """A file may declare only so many numbers that it does not write down."""
        size = prod(self.shape(scope))
        self._expanded += size
        if self._expanded > most_declared(self._n_bytes):
            self.fail(
                at,
                f"the table of {visible(self.name(scope[-1]))} has {float(size):.6g} numbers that "
                f"the file does not write down, of which its {self._n_bytes:,} bytes may declare "
                f"{most_declared(self._n_bytes):,}: build the model in Python",
            )

    def table(
        self, scope: list[int], values: Floats, at: Any, row_at: Callable[[int], Any] | None = None
    ) -> None:
        """The table of ``scope``, (parents..., child), the child fastest.

        ``row_at`` gives the place of a row, by its number.
        """
        if values.size != prod(self.shape(scope)):
            self.fail(at, self.size_complaint(scope, values.size))
        self._tables[scope[-1]] = scope, values.ravel(), at, row_at or (lambda _: at)

    def gate(self, scope: list[int], entry: NoisyCauses, at: Any) -> None:
        """Causes that combine, in place of a table; they have at least one parent."""
        self._gates[scope[-1]] = scope, entry, at

    def graph(self) -> FactorGraph:
        tables = list(self._tables.values())
        scopes = [scope for scope, *_ in tables]
        numbers = concatenate([values for _, values, *_ in tables], np.float64)
        return self.flat_graph(
            scopes, numbers, lambda i: tables[i][2], lambda i, row: tables[i][3](row)
        )

    def flat_graph(
        self,
        scopes: Sequence[list[int]],
        values: Floats,
        at: Callable[[int], Any],
        row_at: Callable[[int, int], Any],
    ) -> FactorGraph:
        """The model of tables end to end, each of another child, (parents..., child) its scope.

        ``at`` and ``row_at`` give the places of a table and of a row of it, by their numbers.
        """
        gates = {v: (scope[:-1], entry) for v, (scope, entry, _) in self._gates.items()}
        every = [*scopes, *(scope for scope, *_ in self._gates.values())]
        of = {scope[-1]: i for i, scope in enumerate(scopes)}
        if len(of) + len(gates) < len(self.states):
            v = next(v for v in range(len(self.states)) if v not in of and v not in gates)
            self.fail(self._places[v], f"{visible(self.name(v))} has no table")
        sizes = list(map(len, self.states))
        n_states = np.array(sizes, dtype=np.int32)
        if complaint := states_complaint(sum(sizes), self._n_bytes):
            self.fail(self._places[int(np.argmax(n_states))], complaint)
        graph = FactorGraph(n_states, (), tuple(self.numbers), _states=tuple(self.states) or None)
        if not every:
            return graph
        if not directed.parents_first(every):
            _, loop = directed.order_or_cycle({scope[-1]: scope[:-1] for scope in every})
            if loop:
                first = loop[0]
                place = self._gates[first][2] if first in gates else at(of[first])
                self.fail(place, directed.cycle_text(graph, loop))
        found = directed.network_of(graph, scopes, values)
        if isinstance(found, directed.TableFault):
            self.fail(row_at(found.table, found.row), found.message)
        return with_causes(found, gates) if gates else found


def check_network(graph: FactorGraph, kind: str) -> None:
    """RefusedError of models that files of networks have no place for."""
    check_graph(graph, f"a {kind} file")
    if not graph.directed:
        raise RefusedError(
            f"{kind} files hold Bayesian networks, a conditional distribution for each variable, "
            "and this model is not one (FactorGraph.network makes one): write .uai or .minfer"
        )
    if graph._field is not None and graph._field.any():
        raise RefusedError(
            f"{kind} files have no place for the evidence in this model: write .minfer, or write "
            "the network without it and give the evidence when you use it"
        )


def conditionals(graph: FactorGraph, kind: str) -> Iterator[tuple[int, list[int], Floats]]:
    """Child, parents and table of each factor of a Bayesian network; other models are refused."""
    check_network(graph, kind)
    for i in range(graph.n_factors):
        yield conditional(graph, i, kind)


def conditional(graph: FactorGraph, factor: int, kind: str) -> tuple[int, list[int], Floats]:
    """The same of one factor; refused where its table would be too large."""
    child = graph.child(factor)
    assert child is not None
    name = f"the table of {visible(graph.name(child))}"
    if not graph._locate(factor)[0].has_tables:
        raise RefusedError(
            f"{name} has {len(graph.scope(factor)) - 1} parents, too many to write it out in a "
            f"{kind} file: write .minfer or .xdsl, which keep causes that combine as they are"
        )
    (*parents, child), rows = directed.child_last_of(graph, factor)
    linear = to_linear(rows.reshape(1, -1), [name], kind).reshape(rows.shape)
    return child, parents, linear


def names_of(graph: FactorGraph) -> list[str]:
    """The variables' names."""
    return [graph.name(v) for v in range(graph.n_variables)]


def check_one_line(graph: FactorGraph, kind: str) -> None:
    """Names of variables and states that a line can hold."""
    for v in range(graph.n_variables):
        for name in (graph.name(v), *graph.states(v)):
            if any(c in name for c in "\n\r\0"):
                raise RefusedError(
                    f"the name {visible(name)!r} has a line end or zero character, which {kind} "
                    "files cannot hold: rename it, or write .minfer"
                )


def quoted(name: str) -> str:
    """A name as a string."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def in_words(row: Sequence[float], separator: str) -> str:
    """Numbers with the digits that make them exact; zeros and ones stay short."""
    return separator.join(map(repr, row))
