"""``minfer.predict``: posteriors for every row of a table, prepared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import (
    as_list,
    check_choice,
    check_flag,
    check_graph,
    check_whole,
    first_twice,
)
from minfer.basics.limits import clock
from minfer.basics.parallel import cores
from minfer.basics.words import counted
from minfer.errors import EvidenceError, ModelError, RefusedError, SettingsError, visible
from minfer.factors.group import Ints
from minfer.io.text import check_writable
from minfer.model.evidence import UNKNOWN, Evidence, StateReader, Table, table_of
from minfer.model.states import near_names, slips
from minfer.prediction import files
from minfer.solvers.circuit import Circuit, kept_circuit
from minfer.solvers.exact import CIRCUIT_GIB, Exact, within_limits
from minfer.solvers.plans import Network, RowAnswers, acted_on

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

ON_UNKNOWN = ("raise", "skip", "mark")
_SHOWN = 8  # columns in a line
_BLOCK = 1 << 22  # probabilities of a chunk of a file


@dataclass(frozen=True)
class Summary:
    """What became of a file."""

    rows: int  # read
    answered: int  # with posteriors
    impossible: int  # whose evidence has probability 0, marked in the answer
    unknown: int  # with a state that is none, marked or left out
    seconds: float  # of all
    out: str  # the file written
    columns_read: tuple[str, ...] = ()  # that were evidence
    columns_unread: tuple[str, ...] = ()  # all others

    def __str__(self) -> str:
        text = f"{counted(self.rows, 'row')}: {self.answered:,} answered"
        for n, what in ((self.impossible, "impossible"), (self.unknown, "with unknown states")):
            text += f", {n:,} {what}" if n else ""
        text += f"; read {_few(self.columns_read) or 'no column'}"
        text += f", not {_few(self.columns_unread)}" if self.columns_unread else ""
        return text if self.out == "-" else f"{text}; wrote {self.out}"


class _RowPart(NamedTuple):
    """The answer to a table."""

    columns: dict[str, files.Column]
    rows: Ints | None  # those it is about, None: all
    n_impossible: int
    n_unknown: int


class Predictor:
    """A model prepared for tables of cases; see :func:`predict` for the parameters.

    Called again, it reuses what it planned for the observed sets it has met.

    Examples
    --------
    >>> from minfer import FactorGraph, Predictor
    >>> g = FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> ask = Predictor(g, "rain", probabilities=False)
    >>> [(row["rain"], round(row["P(rain)"], 3)) for row in ask([{"wet": "yes"}, {"wet": None}])]
    [('yes', 0.667), ('no', 0.8)]
    """

    def __init__(
        self,
        model: FactorGraph,
        targets: str | int | Iterable[str | int] | None = None,
        *,
        evidence: Iterable[str] | None = None,
        do: Evidence | None = None,
        keep: Iterable[str] = (),
        on_unknown: str = "raise",
        probabilities: bool = True,
        missing: Iterable[str] = ("",),
        workers: int | None = None,
        check: bool = True,
    ) -> None:
        check_graph(model, "predict")
        check_flag("check", check)
        check_choice("on_unknown", on_unknown, ON_UNKNOWN)
        check_flag("probabilities", probabilities)
        check_whole("workers", 1 if workers is None else workers, 1)
        self.graph = acted_on(model, do)
        self._set = {model.name(v) for v in do or ()}
        self.targets: list[int] | None = None
        if targets is not None:
            self.targets = self.graph._indices(targets, "predict: targets", SettingsError)
        self.evidence = None if evidence is None else _texts("evidence", evidence)
        self.keep = _texts("keep", keep)
        self.on_unknown, self.probabilities = on_unknown, probabilities
        self.missing = frozenset(_texts("missing", missing))
        self.workers = cores() if workers is None else workers
        self.check = check
        self._number = {model.name(v): v for v in range(model.n_variables)}
        self._readers: dict[int, StateReader] = {}
        self._circuit: Circuit | None = None  # where no clique tree fits
        for name in self.evidence or ():
            if name not in self._number:
                raise EvidenceError(f"predict: evidence: {self._no_variable(name)}")

    @cached_property
    def network(self) -> Network:
        """The model ready for questions, when first asked for."""
        return Network(self.graph)

    def __call__(self, rows: Any, *, columns: Sequence[str] | None = None) -> Any:
        """The answer, as a table of the same kind; see :func:`predict`."""
        if isinstance(rows, str | os.PathLike):
            with files.open_cases(rows) as source:
                return files.joined([part.columns for part, _ in self._chunks(source, None)])
        table = table_of(rows, columns)
        targets, evidence = self.plan_columns(table.names)
        part = self.answer(table, targets, evidence)
        return files.as_kind(table.kind, table.given, part.columns, part.rows)

    def plan_columns(self, names: Sequence[str], where: str = "") -> tuple[list[int], list[str]]:
        """The targets, and the columns that are evidence, of a table with these columns."""
        variables = [name for name in names if name in self._number]
        if self.evidence is not None:
            lacking = [name for name in self.evidence if name not in names]
            if lacking:
                raise EvidenceError(f"predict: {where}there is no column {visible(lacking[0])!r}")
            evidence = self.evidence
        else:
            asked = set(self.targets or ())
            evidence = [name for name in variables if self._number[name] not in asked]
            self.check_strangers(names, where)
        if seen := [name for name in evidence if name in self._set]:
            raise EvidenceError(
                f"predict: {where}{visible(seen[0])} is set by do, and has a column of what was "
                "seen too: leave the column out, or name the columns to read by evidence="
            )
        for name in self.keep:
            if name not in names:
                raise SettingsError(f"predict: keep: {where}there is no column {visible(name)!r}")
        targets = self.targets
        if targets is None:
            there = {*variables, *self._set}
            targets = [v for name, v in self._number.items() if name not in there]
            if not targets:
                raise SettingsError(
                    f"predict: {where}every variable of the model has a column; name the targets"
                )
        shown = [*self.keep, *([files.LOG_PE] if self.check else []), files.PROBLEM]
        named = files.answer_names(self.graph, targets, self.probabilities)
        shown += [column for _, name, best, states in named for column in (name, best, *states)]
        if (twice := first_twice(shown)) is not None:
            raise SettingsError(
                f"predict: two columns of the answer would be called {twice!r}; rename a variable "
                "or state, or leave a column out of keep"
            )
        return targets, evidence

    def check_strangers(self, names: Sequence[str], where: str = "") -> None:
        """Refuse columns that look like a misspelt variable; other unknown columns are not read."""
        there, targets = set(names), {self.graph.name(v) for v in self.targets or ()}
        absent = [name for name in self._number if name not in there]
        strangers = [n for n in names if n not in self._number and n not in self.keep]
        for name, meant in slips(names, self._number):
            if name in self.keep:
                continue
            if meant in targets and name.strip().lower() != meant.strip().lower():
                continue  # a target's column would not be read
            raise EvidenceError(
                f"predict: {where}column {visible(name)!r} is not a variable; did you mean "
                f"{visible(meant)}? Rename it, or name the columns to read by evidence="
            )
        if names and not there & self._number.keys():
            hints = [(name, near_names(name, absent)) for name in strangers or names]
            name, near = next((x for x in hints if x[1]), hints[0])
            hint = (
                f"column {visible(name)!r}: did you mean {visible(near[0])}?"
                if near else self._no_variable(name)
            )  # fmt: skip
            raise EvidenceError(f"predict: {where}no column is a variable of the model: {hint}")

    def _no_variable(self, name: str) -> str:
        try:
            self.graph.index(name)
        except ModelError as error:
            return str(error)
        return f"no variable is called {visible(name)!r}"

    def states_of(
        self, table: Table, evidence: Sequence[str], where: str = "", first: int = 0
    ) -> tuple[NDArray[np.int32], files.Texts]:
        """Evidence (N, V), and the problems of rows with unknown states."""
        known = np.full((table.n, self.graph.n_variables), -1, dtype=np.int32)
        wrong: list[tuple[Ints, StateReader, Any]] = []
        for name in evidence:
            v = self._number[name]
            if v not in self._readers:
                self._readers[v] = StateReader(self.graph, v, self.missing)
            column = table.column(name)
            states = known[:, v] = self._readers[v](column)
            if states.size and states.min() == UNKNOWN:
                wrong.append((np.flatnonzero(states == UNKNOWN), self._readers[v], column))
        problems = files.Texts(np.full(table.n, -1, dtype=np.int32), [])
        if not wrong:
            return known, problems
        if self.on_unknown == "raise":
            rows, reader, column = min(wrong, key=lambda item: item[0][0])
            value = column.values[int(column.places[rows[0]])]
            raise EvidenceError(
                f"predict: {where}row {first + int(rows[0])}, column {visible(reader.name)}: "
                f"{reader.complaint(value)}"
            )
        texts: dict[str, int] = {}
        for rows, reader, column in wrong:
            new = rows[problems.places[rows] < 0]
            places = column.places[new]
            for place in np.unique(places).tolist():
                text = f"unknown state: {reader.complaint(column.values[place])}"
                problems.places[new[places == place]] = texts.setdefault(text, len(texts))
        return known, files.Texts(problems.places, list(texts))

    def answer(
        self,
        table: Table,
        targets: list[int],
        evidence: Sequence[str],
        where: str = "",
        first: int = 0,
    ) -> _RowPart:
        """Columns of the answer to a table."""
        known, problems = self.states_of(table, evidence, where, first)
        bad = problems.places >= 0
        n_bad = int(bad.sum())
        rows = np.flatnonzero(~bad) if n_bad else None
        found = self._ask(known if rows is None else known[rows], targets, evidence)
        probs, log_pe, impossible, marks = found.probs, found.log_pe, found.impossible, problems
        if rows is not None and self.on_unknown == "mark":
            wide, all_log_pe = np.full((table.n, probs.shape[1]), np.nan), np.full(table.n, np.nan)
            wide[rows], all_log_pe[rows] = probs, log_pe
            probs, log_pe, rows = wide, all_log_pe, None
            impossible = log_pe == -np.inf
        elif rows is not None:
            marks = files.Texts(problems.places[rows], [])
        n_impossible = int(impossible.sum())
        if n_impossible:
            marks.places[impossible] = len(marks.values)
            marks = files.Texts(marks.places, [*marks.values, files.IMPOSSIBLE])
        columns: dict[str, files.Column] = {}
        for name in self.keep:
            column = table.raw(name)
            columns[name] = column if rows is None else files.taken(column, rows)
        columns |= files.answer_columns(
            self.graph, targets, probs, log_pe if self.check else None, marks, self.probabilities
        )
        return _RowPart(columns, rows, n_impossible, n_bad)

    def _ask(
        self, known: NDArray[np.int32], targets: list[int], evidence: Sequence[str]
    ) -> RowAnswers:
        """Posteriors of the targets, by clique trees where they fit, by a circuit elsewhere."""
        circuit, observed = self._circuit, [self._number[name] for name in evidence]
        if circuit is None and "circuit" in self.graph._conditioning:
            circuit = kept_circuit(self.graph)
        if circuit is not None and not circuit._opens(observed):
            circuit = None
        if circuit is None or self.network.fits(known, targets, self.check):
            try:
                return self.network.ask(known, targets, self.workers, check=self.check)
            except RefusedError as refusal:
                if circuit is None:
                    solver = Exact(max_gib=CIRCUIT_GIB)
                    circuit = within_limits(
                        solver, self.graph, refusal, lambda s: Circuit(s, self.graph, observed)
                    )
        self._circuit = circuit
        probs, log_z = circuit._lines(known, targets, self.workers)
        if not self.check:
            return RowAnswers(probs, np.where(log_z > -np.inf, np.nan, -np.inf))
        log_pe = np.minimum(log_z - circuit.log_z, 0.0)
        log_pe[(known < 0).all(axis=1)] = 0.0
        return RowAnswers(probs, log_pe)

    def file(
        self,
        cases: str | os.PathLike[str],
        out: str | os.PathLike[str],
        *,
        chunk_rows: int | None = None,
        report: Callable[[int], None] | None = None,
    ) -> Summary:
        """Answer a file of any size into another, a chunk at a time; see :func:`predict`."""
        began = clock()
        files.kind_of(out)
        check_writable(out, [cases])
        rows = impossible = unknown = 0
        with files.open_cases(cases) as source, files.open_answers(out) as sink:
            _, read = self.plan_columns(source.names, f"{source.name}: ")
            for part, n in self._chunks(source, chunk_rows):
                sink(part.columns)
                rows += n
                impossible += part.n_impossible
                unknown += part.n_unknown
                if report:
                    report(rows)
        seconds = clock() - began
        answered = rows - impossible - unknown
        unread = tuple(name for name in source.names if name not in set(read))
        return Summary(
            rows, answered, impossible, unknown, seconds, os.fspath(out), tuple(read), unread
        )

    def _chunks(self, source: files.Cases, chunk_rows: int | None) -> Any:
        where = f"{source.name}: "
        targets, evidence = self.plan_columns(source.names, where)
        wide = int(self.graph._n_states[targets].sum()) + 2 * len(targets) + len(evidence) + 8
        size = chunk_rows or min(1 << 16, max(256, _BLOCK // wide))
        check_whole("chunk_rows", size, 1)
        first = 1  # of a file's rows
        wanted = [*dict.fromkeys([*evidence, *self.keep])]
        for table in source.tables(wanted, size):
            yield self.answer(table, targets, evidence, where, first), table.n
            first += table.n
        if first == 1:  # columns alone, so that the answer has them too
            nothing = table_of({name: np.empty(0, dtype=object) for name in wanted})
            yield self.answer(nothing, targets, evidence, where, first), 0


def predict(
    model: FactorGraph,
    rows: Any,
    targets: str | int | Iterable[str | int] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    evidence: Iterable[str] | None = None,
    do: Evidence | None = None,
    keep: Iterable[str] = (),
    on_unknown: str = "raise",
    probabilities: bool = True,
    missing: Iterable[str] = ("",),
    columns: Sequence[str] | None = None,
    workers: int | None = None,
    chunk_rows: int | None = None,
    report: Callable[[int], None] | None = None,
    check: bool = True,
) -> Any:
    """Posteriors for every row of a table of cases, exactly.

    Columns named after variables are evidence. Their cells are states by name or number; an empty
    cell is not observed. Everything is prepared once, rows that observe the same variables share a
    plan, and they run in the lanes of vectors and on all cores.

    Parameters
    ----------
    model : FactorGraph
        Best a Bayesian network (:meth:`FactorGraph.network`, or from a file): then what neither
        evidence nor targets depend on is left out.
    rows : data frame of pandas or polars, Arrow table, {name: values}, list of dicts, array, path
        A structured array, or one of shape (N, C) with ``columns``. A ``.csv`` (.gz) or
        ``.parquet`` file is read in chunks.
    targets : names or numbers of variables, optional
        By default those that have no column.
    out : path, optional
        With a file of rows: write the answers there (.csv, .csv.gz, .parquet), in constant memory.
    evidence : names of columns, optional
        By default all that are variables but not targets. If named here, a target's own column is
        evidence too: its known cells stay as they are and count for the other targets.
    do : {variable: state}, optional
        What is set in every row, as in :func:`minfer.query`; it may have no column of evidence.
    keep : names of columns
        Copied to the answer, such as a case number.
    on_unknown : "raise", "skip" or "mark"
        What to do with a row that has an unknown state: stop, leave it out, or leave it without
        an answer and say why in ``problem``.
    probabilities : bool
        The probability of every state, or only of the most probable one.
    missing : strings
        That mean not observed, besides None and NaN.
    columns : names, for a plain array
    workers : int, optional
        Threads; all cores by default. Answers do not depend on them.
    chunk_rows : int, optional
        Rows of a file that are held at a time.
    report : called with the number of rows done, for files
    check : bool
        Look for contradictions everywhere. Without it, parts of the model that do not affect the
        targets are left out even where they might show that a row is impossible, and there is no
        ``log P(e)``: often much faster if evidence cuts a large network into pieces.

    Returns
    -------
    A table of the same kind: for a target A the columns ``A`` (its most probable state), ``P(A)``
    (the probability of that) and ``P(A=state)`` for each state; ``log P(e)``; and ``problem``, None
    except for rows without an answer. Evidence of probability 0 is such a problem, not an error.
    With ``out`` a :class:`Summary`; a file without ``out`` gives an Arrow table.

    Raises
    ------
    EvidenceError : an unknown state, with row (from 0 in tables, from 1 in files) and column
    RefusedError : what is left under the evidence is too wide for an exact answer

    Examples
    --------
    >>> from minfer import FactorGraph, predict
    >>> g = FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> answer = predict(g, {"wet": ["yes", "no", None]})
    >>> answer["rain"].tolist(), answer["P(rain=yes)"].round(3).tolist()
    (['yes', 'no', 'no'], [0.667, 0.053, 0.2])
    """
    asked = Predictor(
        model, targets, evidence=evidence, do=do, keep=keep, on_unknown=on_unknown,
        probabilities=probabilities, missing=missing, workers=workers, check=check,
    )  # fmt: skip
    if out is None:
        return asked(rows, columns=columns)
    if not isinstance(rows, str | os.PathLike):
        raise SettingsError("predict: out= is for a file of rows; a table comes back as a table")
    return asked.file(rows, out, chunk_rows=chunk_rows, report=report)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(visible(name) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _texts(what: str, given: Any) -> list[str]:
    listed = as_list(given, f"predict: {what} must be strings")
    for name in listed:
        if not isinstance(name, str):
            raise SettingsError(f"predict: {what} must be strings, not {type(name).__name__}")
    return listed
