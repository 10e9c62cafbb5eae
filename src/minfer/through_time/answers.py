"""Answers along sequences: beliefs, and states of all variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import integer, load, told
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError
from minfer.model.states import Probabilities
from minfer.prediction import files
from minfer.through_time.sequences import unused

if TYPE_CHECKING:
    from minfer.through_time.dynamic import Dynamic
    from minfer.through_time.sequences import Sequences

Floats = NDArray[np.float64]


class Timeline:
    """What answers about sequences have in common: rows, and which case and time they are of."""

    def __init__(
        self, model: Dynamic, question: str, given: Sequences, horizon: int = 0, copies: int = 0
    ) -> None:
        self.model, self.question, self._given = model, question, given
        #: The sequence (N,) of each row, and its time (N,).
        if horizon:
            ends = given.begin + given.length
            self.case = np.repeat(np.arange(given.n), horizon)
            self.time = (ends[:, None] + np.arange(horizon)).ravel()
        elif copies:
            self.case = np.repeat(np.arange(copies), self._rows() // copies)
            first = int(given.begin[0]) if given.n else 0
            self.time = first + np.tile(np.arange(self._rows() // copies), copies)
        else:
            self.case, self.time = given.row_case, given.times
        self._new = bool(horizon or copies)

    scores: Floats

    def _rows(self) -> int:
        raise NotImplementedError

    def _content(self) -> dict[str, Any]:
        """Columns beside case and time."""
        raise NotImplementedError

    def columns(self) -> dict[str, Any]:
        """Columns of the answer by name, as :func:`minfer.prediction.files.plain` makes lists."""
        given, out = self._given, dict[str, Any]()
        table = given.table
        time = given.time or unused("time", self.model.slice)
        if self.question == "sample":
            out[unused("case", self.model.slice)], out[time] = self.case, self.time
        elif self._new:
            if given.case is not None:
                first = np.unique(given.row_case, return_index=True)[1]
                out[given.case] = files.taken(table.raw(given.case), first[self.case])
            out[time] = self.time
        else:
            kept = [name for name in (given.case, given.time) if name is not None]
            out |= {name: table.raw(name) for name in kept}
        return out | self._content()

    def rows_of(self, case: Any = None) -> NDArray[np.int64]:
        """The rows of a sequence, given by number or by what it is called; by default the first."""
        n = int(self.case.max(initial=-1)) + 1
        labels = self._given.labels()
        number = 0 if case is None else labels.index(case) if case in labels else integer(case)
        if number is None or not 0 <= number < n:
            raise SettingsError(f"there is no case {told(case)} among {counted(n, 'sequence')}")
        return np.flatnonzero(self.case == number)

    def table(self) -> Any:
        """A table of the kind that came in: the columns of case and time, and the answer's."""
        kind = self._given.table.kind
        columns = self.columns()
        if kind == "pandas" and self._new:
            columns = {k: files.plain(x) for k, x in columns.items()}
            return load("pandas").DataFrame(columns)
        return files.as_kind(kind, self._given.table.given, columns, None)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns as lists."""
        out = {}
        for name, column in self.columns().items():
            x = files.plain(column)
            out[name] = x.to_pylist() if hasattr(x, "to_pylist") else np.asarray(x).tolist()
        return out

    def to_pandas(self) -> Any:
        """A data frame, a line for each row."""
        return load("pandas").DataFrame(self.to_dict())

    def __len__(self) -> int:
        return self._rows()

    def _told(self) -> str:
        n = int(self.case.max(initial=-1)) + 1
        return f"{counted(len(self), 'row')} of {counted(n, 'sequence')}"


class Beliefs(Timeline):
    """Probabilities of the states of some variables, a line for each row.

    Attributes
    ----------
    probabilities : float array (N, states of all targets)
    log_likelihood : float array (cases,), log P of what was observed in each
    case, time : int arrays (N,)
    """

    def __init__(
        self,
        model: Dynamic,
        question: str,
        targets: list[int],
        probabilities: Floats,
        log_likelihood: Floats,
        given: Sequences,
        horizon: int = 0,
    ) -> None:
        self.probabilities = probabilities
        self.log_likelihood = self.scores = log_likelihood
        self._targets = targets
        super().__init__(model, question, given, horizon)

    def _rows(self) -> int:
        return len(self.probabilities)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.model.slice.name(v) for v in self._targets)

    def __getitem__(self, variable: str | int) -> Floats:
        """The beliefs about a variable, (N, S)."""
        graph = self.model.slice
        v = graph.index(variable)
        if v not in self._targets:
            raise ModelError(f"{graph.name(v)} is not among the targets: name it in targets=")
        sizes = graph._n_states[self._targets].astype(np.int64)
        at = self._targets.index(v)
        first = int(sizes[:at].sum())
        return self.probabilities[:, first : first + int(sizes[at])]

    def _content(self) -> dict[str, Any]:
        problems = files.Texts(np.full(len(self), -1, dtype=np.int32), [])
        columns = files.answer_columns(
            self.model.slice, self._targets, self.probabilities, None, problems, True
        )
        del columns[files.PROBLEM]
        return columns

    def plot(self, variable: str | None = None, case: Any = None, ax: Any = None) -> Any:
        """Draw the beliefs about a variable over time (:func:`minfer.plots.beliefs`)."""
        from minfer.plots import beliefs

        return beliefs(self, variable, case, ax)

    def __repr__(self) -> str:
        return f"Beliefs({self.question} of {', '.join(self.targets[:5])}; {self._told()})"


class Histories(Timeline):
    """States of all variables, a line for each row: of the best sequences, or of samples.

    Attributes
    ----------
    states : int array (N, V)
    log_score : float array (cases,), log P of the best states and what was observed; of samples
        log P of what was observed
    case, time : int arrays (N,)
    """

    def __init__(
        self,
        model: Dynamic,
        question: str,
        states: NDArray[np.int32],
        log_score: Floats,
        given: Sequences,
        copies: int = 0,
    ) -> None:
        self.states = states
        self.log_score = self.scores = log_score
        super().__init__(model, question, given, copies=copies)

    def _rows(self) -> int:
        return len(self.states)

    def __getitem__(self, variable: str | int) -> NDArray[np.int32]:
        """The states of a variable, (N,)."""
        return self.states[:, self.model.slice.index(variable)]

    def _content(self) -> dict[str, Any]:
        graph = self.model.slice
        out: dict[str, Any] = {}
        for v in range(graph.n_variables):
            own = self.states[:, v]
            named = graph._own_states(v) is not None
            out[graph.name(v)] = files.Texts(own, list(graph.states(v))) if named else own
        return out

    def __repr__(self) -> str:
        return f"Histories({self.question}; {self._told()})"


class Moment:
    """Beliefs at one time, by variable.

    Attributes
    ----------
    time : int, slices observed before this one
    log_likelihood : float, log P of all that was observed so far
    """

    def __init__(self, model: Dynamic, targets: list[int], p: Floats, time: int, ll: float) -> None:
        self._graph, self._targets, self.time, self.log_likelihood = model.slice, targets, time, ll
        self.probabilities = p

    def __getitem__(self, variable: str | int) -> Probabilities:
        graph, first = self._graph, 0
        v = graph.index(variable)
        for u in self._targets:
            size = int(graph._n_states[u])
            if u == v:
                own = self.probabilities[first : first + size]
                return Probabilities.of(own, graph.name(v), graph._own_states(v))
            first += size
        raise ModelError(f"{graph.name(v)} is not among the targets of this stream")

    def to_dict(self) -> dict[str, dict[str, float]]:
        """{variable: {state: probability}}."""
        names = [self._graph.name(v) for v in self._targets]
        return {name: dict(zip(self._graph.states(name), self[name].tolist())) for name in names}

    def __repr__(self) -> str:
        return f"Moment(time {self.time}, {counted(len(self._targets), 'variable')})"
