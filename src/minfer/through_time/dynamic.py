"""Dynamic Bayesian networks: exact answers along sequences of any length.

    P(x_0, ..., x_T) = P(x_0) * prod_t P(x_t | x_{t-1})

with a Bayesian network for the first slice and one for each step (Dean & Kanazawa 1989; Murphy
2002). In a step, ``rain@-1`` is the variable ``rain`` of the slice before. It is a name like any
other: it stands in tables, files and on command lines as it does in Python, and the graph of n
slices (:meth:`Dynamic.unroll`) has ``rain@0``, ``rain@1``, ... in its place.

No graph of n slices is made for answers: a pass along the sequence needs the clique tree of one
slice (:mod:`minfer.kernels.time.slices`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import as_list, check_graph, check_whole, real_numbers, told
from minfer.basics.words import counted
from minfer.errors import (
    EvidenceError,
    FormatError,
    MinferError,
    ModelError,
    SettingsError,
    visible,
)
from minfer.graph import FactorGraph
from minfer.model.directed import child_last, with_conditionals
from minfer.model.states import did_you_mean

if TYPE_CHECKING:
    from minfer.io.text import PathLike
    from minfer.through_time.answers import Beliefs, Histories
    from minfer.through_time.passes import Passes
    from minfer.through_time.stream import EvidenceStream

Floats = NDArray[np.float64]

BEFORE = "@-1"
_SLICE = re.compile(r"@-?\d+$")


def before(variable: str) -> str:
    """What a variable of the slice before is called in a step.

    >>> before("rain")
    'rain@-1'
    """
    return variable + BEFORE


@dataclass(frozen=True)
class Conditional:
    """P(v | parents): numbers of parents, those of the slice before n and up; (parents..., v)."""

    parents: tuple[int, ...]
    table: Floats


class Dynamic:
    """A network through time, from its first slice and the step from each slice to the next.

    Parameters
    ----------
    first : FactorGraph, or {variable: P(variable), or (parents, table)}
        A Bayesian network over the variables of a slice; tables as in
        :meth:`FactorGraph.network`, with ``states``.
    step : the same
        ``rain@-1`` is ``rain`` of the slice before. Variables that a mapping leaves out keep the
        table that they have in the first slice. In a graph, tables of ``@-1`` variables are not
        read: what was before says how probable they are.
    states : {variable: names, or how many}
        With mappings.

    Examples
    --------
    >>> from minfer import Dynamic
    >>> weather = Dynamic(
    ...     {"rain": [0.5, 0.5], "wet": ("rain", [[0.8, 0.2], [0.1, 0.9]])},
    ...     {"rain": ("rain@-1", [[0.7, 0.3], [0.3, 0.7]])},
    ...     states={"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ... )
    >>> found = weather.smooth({"wet": ["yes", None, "no"]})
    >>> found["rain"][:, 1].round(4).tolist()
    [0.778, 0.4693, 0.133]
    """

    def __init__(
        self, first: Any, step: Any, states: Mapping[str, int | Sequence[str]] | None = None
    ) -> None:
        if isinstance(first, Mapping):
            if states is None:
                raise ModelError("Dynamic: tables need states={variable: names, or how many}")
            first = _told("first slice", lambda: FactorGraph.network(states, first))
        elif states is not None:
            raise SettingsError("Dynamic: states= goes with tables; a graph has its own")
        check_graph(first, "Dynamic: the first slice")
        _check_network(first, "first slice")
        for v in range(first.n_variables):
            if _SLICE.search(first.name(v)):
                raise ModelError(
                    f"Dynamic: first slice: {visible(first.name(v))!r} would be a variable of "
                    "another slice: rename it"
                )
        if not first.n_variables:
            raise ModelError("Dynamic: the first slice has no variables")
        self.slice = _bare(first)
        n = self.slice.n_variables
        own = {scope[-1]: (scope[:-1], np.exp(table)) for scope, table in child_last(first)}
        self.first = tuple(Conditional(tuple(own[v][0]), own[v][1]) for v in range(n))
        self.step = _told("step", lambda: self._step(step))

    # ------------------------------------------------------------ from elsewhere

    @classmethod
    def hmm(
        cls,
        initial: ArrayLike,
        transition: ArrayLike,
        emission: ArrayLike,
        names: Sequence[str] = ("state", "symbol"),
        states: Mapping[str, Sequence[str]] | None = None,
    ) -> Dynamic:
        """A hidden Markov model.

        Parameters
        ----------
        initial : float array (K,)
        transition : float array (K, K), a row for each state before
        emission : float array (K, M), a row for each state
        names : what the hidden variable and the symbol are called
        states : {name: names of its states}, optional

        Examples
        --------
        >>> from minfer import Dynamic
        >>> coin = Dynamic.hmm([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]])
        >>> coin.log_likelihood({"symbol": [1, 1, 0]}).round(4).tolist()
        [-2.0038]
        """
        listed = [str(name) for name in as_list(names, "Dynamic.hmm: names must be two")]
        if len(listed) != 2 or listed[0] == listed[1]:
            raise ModelError(f"Dynamic.hmm: names must be two that differ, not {told(names)}")
        hidden, symbol = listed
        tables = [real_numbers(x, "Dynamic.hmm: tables") for x in (initial, transition, emission)]
        if tables[0].ndim != 1 or tables[2].ndim != 2 or len(tables[2]) != len(tables[0]):
            raise ModelError(
                "Dynamic.hmm: initial must have shape (K,), transition (K, K) and emission (K, M), "
                f"not {', '.join(str(x.shape) for x in tables)}"
            )
        sizes = {hidden: len(tables[0]), symbol: tables[2].shape[1]}
        return cls(
            {hidden: tables[0], symbol: (hidden, tables[2])},
            {hidden: (before(hidden), tables[1])},
            {**sizes, **(states or {})},
        )

    @classmethod
    def from_network(cls, network: Any, first: str = "0", step: str = "t") -> Dynamic:
        """From a network of two slices that are told apart by the ends of names.

        Parameters
        ----------
        network : FactorGraph, or a network of pyAgrum or pgmpy
            As pyAgrum has them: ``rain0`` has its table in the first slice, ``raint`` that of
            every further one, whose parents may be ``rain0`` and its like. A variable with neither
            end is the same at all times; here each slice has its copy.
        first, step : the ends

        Examples
        --------
        >>> from minfer import Dynamic, FactorGraph
        >>> g = FactorGraph.network(
        ...     {"rain0": 2, "raint": 2},
        ...     {"rain0": [0.5, 0.5], "raint": ("rain0", [[0.7, 0.3], [0.3, 0.7]])},
        ... )
        >>> Dynamic.from_network(g)
        Dynamic(1 variable a slice, 1 of them remembered)
        """
        graph = network
        if not isinstance(graph, FactorGraph):
            from minfer import interop

            home = type(network).__module__.partition(".")[0]
            graph = {"pgmpy": interop.from_pgmpy}.get(home, interop.from_pyagrum)(network)
        _check_network(graph, "from_network")
        if not first or not step or first.endswith(step) or step.endswith(first):
            raise SettingsError("Dynamic.from_network: the ends of names must differ")
        names = [graph.name(v) for v in range(graph.n_variables)]
        ends = ("", first, step)
        base, slices = dict[str, str](), dict[str, int]()
        for name in names:
            end = next((end for end in (first, step) if name.endswith(end) and name != end), "")
            base[name], slices[name] = name.removesuffix(end), ends.index(end)
        if not any(slices.values()):
            raise ModelError(
                f"Dynamic: no variable ends in {first!r} or in {step!r}, which say its slice"
            )
        for name in names:
            twin = base[name] + ends[-slices[name]]
            if slices[name] and twin not in base:
                raise ModelError(f"Dynamic: {visible(name)!r} has no {visible(twin)!r} beside it")
            if slices[name] and slices.get(base[name]) == 0:
                raise ModelError(
                    f"Dynamic: {visible(base[name])!r} is the same at all times, and so there can "
                    f"be no {visible(name)!r}"
                )
        tables: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        shown = [_states(graph, k) for k in range(len(names))]
        said = {base[name]: x for name, x in zip(names, shown) if slices[name] < 2}
        for name, states in zip(names, shown):
            if said[base[name]] != states:
                raise ModelError(
                    f"Dynamic: the states of {visible(base[name])!r} differ between slices"
                )
        for scope, table in child_last(graph):
            *parents, child = (names[v] for v in scope)
            at, v = slices[child], base[child]
            for p in parents:
                if slices[p] > at:
                    of = " of the first slice" if at else ", which is the same at all times,"
                    raise ModelError(
                        f"Dynamic: {visible(child)!r}{of} has the parent {visible(p)!r}, which "
                        "is not there yet"
                    )
            own = [base[p] + BEFORE * (at == 2 and slices[p] == 1) for p in parents]
            tables[at == 2][v] = own, np.exp(table)
            if at == 0:
                tables[1][v] = before(v), np.eye(table.shape[-1])
        return cls(*tables, said)

    def _step(self, given: Any) -> tuple[Conditional, ...]:
        """The tables of a step from a mapping or a graph."""
        names = [self.slice.name(v) for v in range(self.n_variables)]
        both = [*names, *map(before, names)]
        number = {name: k for k, name in enumerate(both)}
        if isinstance(given, FactorGraph):
            given = _tables_of(given, self.slice, number)
        if not isinstance(given, Mapping):
            raise ModelError(
                f"it must be a FactorGraph or {{variable: (parents, table)}}, not {told(given)}"
            )
        children, parents, tables = [], [], []
        for name, entry in given.items():
            if number.get(name, self.n_variables) >= self.n_variables:
                hint = did_you_mean(str(name), names)
                of_before = "a variable of the slice before" if name in number else "no variable"
                raise ModelError(f"it has a table of {told(name)}, {of_before}{hint}")
            own, table = entry if isinstance(entry, tuple) and len(entry) == 2 else ((), entry)
            own = [own] if isinstance(own, str) else own
            if not np.iterable(own) or not all(isinstance(p, str) for p in own):
                own, table = (), entry
            for p in own:
                if p not in number:
                    hint = did_you_mean(p, both)
                    raise ModelError(f"{visible(name)} has the parent {told(p)}, no variable{hint}")
            children.append(number[name])
            parents.append([number[p] for p in own])
            tables.append(table)
        there = set(children)
        for v, known in enumerate(self.first):
            if v not in there:
                children.append(v)
                parents.append(list(known.parents))
                tables.append(known.table)
        bare = FactorGraph.empty(np.tile(self.slice._n_states, 2), both)
        if self.slice._states is not None:
            bare = bare.with_state_names([*self.slice._states, *self.slice._states])
        done = with_conditionals(bare, children, parents, tables)
        found = {scope[-1]: (scope[:-1], np.exp(table)) for scope, table in child_last(done)}
        return tuple(Conditional(tuple(found[v][0]), found[v][1]) for v in range(len(names)))

    # ------------------------------------------------------------ the model

    @property
    def n_variables(self) -> int:
        """Variables of a slice."""
        return self.slice.n_variables

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of a slice."""
        return tuple(self.slice.name(v) for v in range(self.n_variables))

    @cached_property
    def interface(self) -> tuple[str, ...]:
        """The variables that the next slice mentions: all that is remembered of the past."""
        return tuple(self.slice.name(v) for v in self._interface)

    @cached_property
    def _interface(self) -> list[int]:
        n = self.n_variables
        return sorted({p - n for own in self.step for p in own.parents if p >= n})

    @cached_property
    def _passes(self) -> Passes:
        from minfer.through_time.passes import Passes

        return Passes(self)

    def with_tables(self, first: Sequence[Floats], step: Sequence[Floats]) -> Dynamic:
        """The same structure with other numbers, which are not checked."""
        out = object.__new__(Dynamic)
        out.slice = self.slice
        for name, old, new in (("first", self.first, first), ("step", self.step, step)):
            made = (Conditional(c.parents, x) for c, x in zip(old, new))
            setattr(out, name, tuple(made))
        out.__dict__["_passes"] = self._passes.loaded(out)
        return out

    def unroll(self, n: int) -> FactorGraph:
        """The graph of n slices, for every solver and question: ``rain`` at time 2 is ``rain@2``.

        >>> from minfer import Dynamic
        >>> Dynamic.hmm([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]).unroll(2)
        FactorGraph(4 variables of 2 states; 4 factors: 1 unary, 3 pairwise)
        """
        check_whole("unroll: n", n, 1)
        k = self.n_variables
        names = [f"{name}@{t}" for t in range(n) for name in self.names]
        graph = FactorGraph.empty(np.tile(self.slice._n_states, n), names)
        if self.slice._states is not None:
            graph = graph.with_state_names(list(self.slice._states) * n)
        parents, tables = [], []
        for t in range(n):
            for own in self.step if t else self.first:
                parents.append([p + (t * k if p < k else (t - 2) * k) for p in own.parents])
                tables.append(own.table)
        return with_conditionals(graph, range(n * k), parents, tables)

    def save(self, path: PathLike) -> None:
        """Write it as a ``.minfer`` file; :meth:`load` reads it."""
        from minfer.io.native import write_dynamic

        write_dynamic(self.unroll(2), path)

    @classmethod
    def load(cls, path: PathLike) -> Dynamic:
        """Read a ``.minfer`` file that :meth:`save` wrote, or GeNIe's ``.xdsl``.

        A node of a GeNIe network that is not on the plate is the same at all times: here each slice
        has its copy.
        """
        from minfer.io.formats import format_by_content
        from minfer.io.native import DYNAMIC, parse_native
        from minfer.io.opening import parsed
        from minfer.io.xdsl import parse_slices

        def read(name: str, data: bytes) -> Dynamic:
            xdsl = format_by_content(name, data).name == "xdsl"
            slices = (
                parse_slices(name, data, before) if xdsl else [parse_native(name, data, DYNAMIC)]
            )
            try:
                return cls(*slices) if xdsl else cls.from_network(slices[0], "@0", "@1")
            except MinferError as error:
                raise FormatError(f"{name}: {error}") from None

        return parsed(path, read)

    def __repr__(self) -> str:
        return (
            f"Dynamic({counted(self.n_variables, 'variable')} a slice, {len(self._interface)} of "
            "them remembered)"
        )

    # ------------------------------------------------------------ questions

    def filter(self, rows: Any, targets: Any = None, **given: Any) -> Beliefs:
        """Beliefs at each time given what was observed up to it.

        Parameters
        ----------
        rows : table of any kind, .csv or .parquet file, list of {variable: state, or likelihoods},
            or array of states (T, V)
            A row is a slice; columns named after variables are evidence, and empty cells are not
            observed. Columns called ``case`` and ``time``, if no variables, say which sequence a
            row belongs to and when: times are whole numbers that rise within a case, steps between
            them are slices without observation, and the first row of a case is its first slice.
        targets : names of variables, optional
            By default those without a column.
        case, time : names of these columns, optional
        soft : {variable: likelihoods (N, S)}, optional
            Soft evidence, a line for each row, NaN where there is none.
        missing : texts that mean not observed, besides empty cells
        workers : int, optional
            Threads; all cores by default. Answers do not depend on them.

        Raises
        ------
        ContradictionError : observations are impossible; it names the time, and the case
        EvidenceError : an unknown state or a time that goes back, with its row
        """
        return self._passes.beliefs("filter", rows, targets, given)

    def smooth(self, rows: Any, targets: Any = None, **given: Any) -> Beliefs:
        """Beliefs at each time given all that was observed; parameters as :meth:`filter` has."""
        return self._passes.beliefs("smooth", rows, targets, given)

    def predict(self, rows: Any, horizon: int = 1, targets: Any = None, **given: Any) -> Beliefs:
        """Beliefs ``horizon`` steps beyond the last row of each case, a row for each step.

        Targets are all variables by default; other parameters are as :meth:`filter` has them.
        """
        check_whole("predict: horizon", horizon, 1)
        return self._passes.beliefs("predict", rows, targets, given, horizon)

    def best(self, rows: Any, **given: Any) -> Histories:
        """The most probable states of all variables at all times together (Viterbi, for any slice).

        Of equally probable ones always the same. Parameters are as :meth:`filter` has them.
        """
        return self._passes.best(rows, given)

    def log_likelihood(self, rows: Any, **given: Any) -> Floats:
        """Log of the probability of what was observed in each case, (cases,); minus infinity where
        it is impossible. Parameters are as :meth:`filter` has them."""
        return self._passes.log_likelihood(rows, given)

    def sample(
        self,
        n: int = 1,
        length: int | None = None,
        *,
        seed: int = 0,
        evidence: Any = None,
        **given: Any,
    ) -> Histories:
        """Independent sequences, exactly distributed, given what was observed.

        Parameters
        ----------
        n : int
        length : int
            Slices; by default as many as there is evidence of.
        seed : int
            The same gives the same.
        evidence : one sequence as :meth:`filter` takes it, optional
        """
        return self._passes.sample(n, length, seed, evidence, given)

    def stream(self, targets: Any = None) -> EvidenceStream:
        """Observations one by one, beliefs after each, in constant memory.

        >>> from minfer import Dynamic
        >>> coin = Dynamic.hmm([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]])
        >>> stream = coin.stream("state")
        >>> stream.observe({"symbol": 1})["state"].round(4).tolist()
        [0.3571, 0.6429]
        """
        from minfer.through_time.stream import EvidenceStream

        return EvidenceStream(self, self._targets(targets))

    def _targets(self, given: Any) -> list[int]:
        """Numbers of the variables asked for; without any all of them."""
        if given is None:
            return list(range(self.n_variables))
        out = self.slice._indices(given, "targets", SettingsError)
        if not out:
            raise SettingsError("targets: name a variable at least")
        return out


def _told(what: str, make: Any) -> Any:
    """What is made, or its complaint with the part that it is about."""
    try:
        return make()
    except ModelError as error:
        text = str(error).removeprefix("network: ")
        raise ModelError(f"Dynamic: {what}: {text}") from None


def _bare(graph: FactorGraph) -> FactorGraph:
    """The variables alone, with names and states."""
    names = [graph.name(v) for v in range(graph.n_variables)]
    out = FactorGraph.empty(graph._n_states, names)
    return out if graph._states is None else out.with_state_names(graph._states)


def _states(graph: FactorGraph, v: int) -> Any:
    return graph._own_states(v) or int(graph._n_states[v])


def _check_network(graph: FactorGraph, what: str) -> None:
    if not graph.directed:
        raise ModelError(
            f"Dynamic: {what}: it must be a Bayesian network (FactorGraph.network), a conditional "
            "distribution for each variable"
        )
    _check_no_evidence(graph, what)


def _check_no_evidence(graph: FactorGraph, what: str) -> None:
    if graph._field is not None and graph._field.any():
        raise EvidenceError(f"Dynamic: {what}: it has evidence in it, which belongs to the rows")


def _tables_of(
    graph: FactorGraph, first: FactorGraph, number: Mapping[str, int]
) -> dict[str, tuple[list[str], Floats]]:
    """The tables of a step's graph by name; those of the slice before are left out."""
    _check_no_evidence(graph, "step")
    names: list[str] = [graph.name(v) for v in range(graph.n_variables)]
    for v, name in enumerate(names):
        if name not in number:
            raise ModelError(
                f"{visible(name)!r} is no variable of the first slice"
                f"{did_you_mean(name, list(number))}"
            )
        known = number[name] % first.n_variables
        if _states(graph, v) != _states(first, known):
            raise ModelError(
                f"{visible(name)} has {_listed(graph, v)}, but in the first slice "
                f"{_listed(first, known)}"
            )
    out: dict[str, tuple[list[str], Floats]] = {}
    for i in range(graph.n_factors):
        scope, child = graph.scope(i).tolist(), graph.child(i)
        if child is None:
            raise ModelError(
                f"the table over {', '.join(visible(names[v]) for v in scope)} is no conditional "
                "distribution of its last variable: use FactorGraph.network, or named with "
                "probabilities=True"
            )
        if number[names[child]] >= first.n_variables:
            continue
        axis = scope.index(child)
        parents = [names[v] for v in scope if v != child]
        out[names[child]] = parents, np.exp(np.moveaxis(graph.log_table(i), axis, -1))
    return out


def _listed(graph: FactorGraph, v: int) -> str:
    names: Iterable[str] = graph._own_states(v) or ()
    return ", ".join(map(visible, names)) or counted(int(graph._n_states[v]), "state")
