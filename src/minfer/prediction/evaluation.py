"""``minfer.evaluate``: how good the posteriors of a variable are, over a table that has it.

Of the n rows whose target is known, with p_i the posterior of row i given its other columns and t_i
the truth:

    accuracy = mean [argmax p_i = t_i]            log-loss = - mean log p_i(t_i), in nats
    Brier    = mean sum_s (p_i(s) - [s = t_i])^2

and how true the probability of the most probable state is (:mod:`minfer.prediction.calibration`).
Beside them stands what the shares of the states in the table would do, told the same for each row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted, plain
from minfer.errors import EvidenceError, ModelError, visible
from minfer.model.evidence import Table, table_of
from minfer.prediction import files
from minfer.prediction.calibration import Calibration, calibration
from minfer.prediction.predictor import Predictor

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

_CHUNK = 1 << 16  # rows of a file


@dataclass(frozen=True, eq=False, repr=False)
class Evaluated(Faced):
    """How good the posteriors of a variable are; see :func:`evaluate`.

    Attributes
    ----------
    accuracy, log_loss, brier : float
    calibration : of the most probable states; ``.ece``, ``.draw(path)``
    confusion : int array (S, S), rows by what is true and predicted state
    states : names of the target's states (S,)
    unknown : rows without a known target, which do not count
    impossible : rows of probability zero, which do not count either
    """

    target: str
    states: tuple[str, ...]
    accuracy: float
    log_loss: float
    brier: float
    calibration: Calibration
    confusion: NDArray[np.int64]
    unknown: int
    impossible: int

    @property
    def by_shares(self) -> tuple[float, float, float]:
        """Accuracy, log-loss and Brier score of the states' shares in the table."""
        share = self.confusion.sum(axis=1) / self.confusion.sum()
        some = share[share > 0]
        loss = float(-(some * np.log(some)).sum())
        return float(share.max()), loss, float(1.0 - (share**2).sum())

    def face(self) -> Face:
        told = (self.accuracy, self.log_loss, self.brier)
        rows: list[tuple[object, ...]] = [
            (name, Right(f"{x:.4f}"), Right(f"{y:.4f}"))
            for name, x, y in zip(("accuracy", "log-loss", "Brier score"), told, self.by_shares)
        ]
        rows.append(("calibration error", Right(f"{self.calibration.ece:.4f}"), ""))
        left = {"target not known": self.unknown, "impossible": self.impossible}
        notes = {name: f"{counted(n, 'row')}, not counted" for name, n in left.items() if n}
        rows_ = counted(int(self.confusion.sum()), "row")
        head = ("", "the model", "shares alone")
        return Face(f"{self.target}: {self.accuracy:.1%} of {rows_} right", head, rows, notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return plain({**vars(self), "calibration": self.calibration.to_dict()})

    def draw(self, path: str) -> None:
        """A reliability plot as a file (needs the extra ``plot``)."""
        self.calibration.draw(path)


def evaluate(
    model: FactorGraph,
    rows: Any,
    target: str | int,
    *,
    evidence: Iterable[str] | None = None,
    missing: Iterable[str] = ("",),
    columns: Sequence[str] | None = None,
    workers: int | None = None,
    bins: int = 10,
) -> Evaluated:
    """Accuracy, log-loss and calibration of a variable's posteriors over a table that has it.

    Parameters
    ----------
    model, rows, evidence, missing, columns, workers : as for `minfer.predict`
        Of files rows are read in chunks.
    target : name or number of a variable, whose own column says what is true
    bins : int
        Bins of equal width, of the calibration.

    Raises
    ------
    EvidenceError : an unknown state, with row and column
    ModelError : no row has a known target and a probability above zero

    Examples
    --------
    >>> from minfer import FactorGraph, evaluate
    >>> g = FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> rows = {"rain": ["no", "yes", "yes", None], "wet": ["no", "yes", "no", "yes"]}
    >>> found = evaluate(g, rows, "rain")
    >>> found, round(found.log_loss, 3), found.confusion.tolist()
    (Evaluated(rain: 66.7% of 3 rows right), 1.135, [[1, 0], [1, 1]])
    """
    asked = Predictor(model, target, evidence=evidence, missing=missing, workers=workers)
    [v] = asked.targets or []
    name = model.name(v)
    if name in (asked.evidence or ()):
        raise EvidenceError(f"evaluate: {visible(name)} cannot be evidence on itself")
    truth, posteriors, impossible = [], [], 0
    for table, where, first in _tables(asked, rows, name, columns):
        if name not in table.names:
            raise EvidenceError(f"evaluate: {where}there is no column {visible(name)!r}")
        read = asked.plan_columns(table.names, where)[1]
        known, _ = asked.states_of(table, [*read, name], where, first)
        true = known[:, v].copy()
        known[:, v] = -1
        found = asked._ask(known, [v], read)
        impossible += int(found.impossible.sum())
        true[found.impossible & (true >= 0)] = -2
        truth.append(true)
        posteriors.append(found.probs)
    states = model.states(v)
    true = np.concatenate(truth) if truth else np.empty(0, dtype=np.int32)
    there = true >= 0
    if not there.any():
        raise ModelError(f"evaluate: no row has a known {visible(name)} and a possible case")
    p, t = np.concatenate(posteriors)[there], true[there]
    best, each = p.argmax(axis=1), np.arange(len(t))
    with np.errstate(divide="ignore"):
        loss = float(-np.log(p[each, t]).mean())
    brier = float(((p - np.eye(len(states))[t]) ** 2).sum(axis=1).mean())
    confusion = np.zeros((len(states), len(states)), dtype=np.int64)
    np.add.at(confusion, (t, best), 1)
    shown = calibration(
        np.minimum(p[each, best], 1.0), best == t, bins, "row", "most probable states"
    )
    return Evaluated(
        name, states, float((best == t).mean()), loss, brier, shown, confusion,
        int((true == -1).sum()), impossible,
    )  # fmt: skip


def _tables(
    asked: Predictor, rows: Any, target: str, columns: Sequence[str] | None
) -> Iterator[tuple[Table, str, int]]:
    """A table, or those of a file, where they are from, and the number of their first row."""
    if not isinstance(rows, str | os.PathLike):
        yield table_of(rows, columns, "evaluate"), "", 0
        return
    with files.open_cases(rows, "evaluate") as source:
        where, first = f"{source.name}: ", 1
        read = asked.plan_columns(source.names, where)[1]
        if target not in source.names:
            raise EvidenceError(f"evaluate: {where}there is no column {visible(target)!r}")
        for table in source.tables([*dict.fromkeys([*read, target])], _CHUNK):
            yield table, where, first
            first += table.n
