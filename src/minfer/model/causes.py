"""Causes that combine: entries of :meth:`minfer.FactorGraph.network` that are no tables.

Each parent acts on its own, so a distribution has a number for each of them and not for each
combination of their states; :mod:`minfer.factors.causes` has the mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from minfer.basics.checks import real_numbers, told
from minfer.errors import ModelError, visible
from minfer.factors.causes import IndependentCauses
from minfer.factors.group import Floats

if TYPE_CHECKING:
    from minfer.model.build import Growing

G = TypeVar("G", bound="Growing")

ROW_SUM = 1e-4  # how far a distribution may be from one, as with tables


@dataclass(frozen=True)
class NoisyCauses:
    """Parents that act on a variable, each by itself; see its subclasses."""

    causes: Mapping[str, Any]
    leak: Any = None

    _highest: ClassVar[bool] = True

    def _draws(self, own: str, sizes: Sequence[int], size: int) -> list[Floats]:
        """What parents of so many states draw from, (states, size) each, and the leak, (1, size).

        ``own`` is the child, for messages.
        """
        out = []
        for (parent, given), n in zip(self.causes.items(), sizes):
            who = f"network: {self._name} of {visible(own)}: {visible(parent)}"
            out.append(_checked(self._rows(given, n, size, who), (n, size), who))
        who = f"network: {self._name} of {visible(own)}: its leak"
        out.append(_checked(self._leak(size, who)[None], (1, size), who))
        return out

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _rows(self, given: Any, n: int, size: int, who: str) -> Floats:
        return _numbers(given, who)

    def _leak(self, size: int, who: str) -> Floats:
        if self.leak is not None:
            return _numbers(self.leak, who)
        return np.eye(size)[0 if self._highest else size - 1]


@dataclass(frozen=True)
class NoisyMax(NoisyCauses):
    """An entry of `FactorGraph.network`: the highest of the states that its causes draw.

    P(Y <= y | x) = P(leak <= y) prod_i P(q_i(x_i) <= y), states counted in the order they have.

    Parameters
    ----------
    causes : {parent: float array (S_parent, S)}
        For each state of the parent a distribution over the states of the variable; one without
        effect is [1, 0, ..., 0].
    leak : float array (S,), optional
        What is drawn where no cause has any effect; none by default.

    Examples
    --------
    >>> from minfer import FactorGraph, NoisyMax, query
    >>> levels = ["none", "mild", "severe"]
    >>> g = FactorGraph.network(
    ...     {"flu": ["no", "yes"], "cold": ["no", "yes"], "fever": levels},
    ...     {
    ...         "flu": [0.9, 0.1],
    ...         "cold": [0.7, 0.3],
    ...         "fever": NoisyMax(
    ...             {"flu": [[1, 0, 0], [0.2, 0.3, 0.5]], "cold": [[1, 0, 0], [0.6, 0.4, 0]]}
    ...         ),
    ...     },
    ... )
    >>> query(g, "fever", {"flu": "yes", "cold": "yes"}).round(2).tolist()
    [0.12, 0.38, 0.5]
    """


@dataclass(frozen=True)
class NoisyMin(NoisyCauses):
    """An entry of `FactorGraph.network`: the lowest of the states that its causes draw.

    P(Y >= y | x) = P(leak >= y) prod_i P(q_i(x_i) >= y); the other end of :class:`NoisyMax`.

    Parameters
    ----------
    causes : {parent: float array (S_parent, S)}
        For each state of the parent a distribution over the states of the variable; one without
        effect is [0, ..., 0, 1].
    leak : float array (S,), optional
        What is drawn where no cause has any effect; the last state by default.
    """

    _highest: ClassVar[bool] = False


@dataclass(frozen=True)
class NoisyOr(NoisyCauses):
    """An entry of `FactorGraph.network`: an effect that any of its causes may bring about.

    P(yes | x) = 1 - (1 - leak) prod_i (1 - p_i(x_i)), *yes* being state 1 of two.

    Parameters
    ----------
    causes : {parent: float, or float array (S_parent,)}
        How probable it is that the parent brings the effect about: in its state 1 of two, or in
        each of its states.
    leak : float
        How probable the effect is without any of them.

    Examples
    --------
    >>> from minfer import FactorGraph, NoisyOr, query
    >>> g = FactorGraph.network(
    ...     {"flu": ["no", "yes"], "cold": ["no", "yes"], "fever": ["no", "yes"]},
    ...     {
    ...         "flu": [0.9, 0.1],
    ...         "cold": [0.7, 0.3],
    ...         "fever": NoisyOr({"flu": 0.8, "cold": 0.4}, leak=0.01),
    ...     },
    ... )
    >>> float(query(g, "fever", {"flu": "yes", "cold": "yes"})["yes"].round(4))
    0.8812
    >>> float(query(g, "flu", {"fever": "yes"})["yes"].round(4))
    0.416
    """

    leak: Any = 0.0

    def _rows(self, given: Any, n: int, size: int, who: str) -> Floats:
        return _switches(given, n, size, 1, who)

    def _leak(self, size: int, who: str) -> Floats:
        return _switches(_one(self.leak, who), 1, size, 1, who)[0]


@dataclass(frozen=True)
class NoisyAnd(NoisyCauses):
    """An entry of `FactorGraph.network`: an effect that any of its conditions may prevent.

    P(yes | x) = (1 - leak) prod_i (1 - p_i(x_i)), *yes* being state 1 of two.

    Parameters
    ----------
    causes : {parent: float, or float array (S_parent,)}
        How probable it is that the parent prevents the effect: in its state 0 of two, where the
        condition is not met (1 is a plain AND), or in each of its states.
    leak : float
        How probable it is that the effect is missing though all conditions are met.
    """

    leak: Any = 0.0
    _highest: ClassVar[bool] = False

    def _rows(self, given: Any, n: int, size: int, who: str) -> Floats:
        return _switches(given, n, size, 0, who)

    def _leak(self, size: int, who: str) -> Floats:
        return _switches(_one(self.leak, who), 1, size, 0, who)[0]


@dataclass(frozen=True)
class DrawnCauses(NoisyCauses):
    """Distributions as files have them, for the lowest or the highest: rows of arrays by parent."""

    top: bool = field(default=True)

    @property
    def _highest(self) -> bool:  # type: ignore[override]
        return self.top

    def named(self) -> NoisyCauses:
        """The same by its name, with as few numbers as that takes; two states are OR and AND."""
        if np.size(self.leak) != 2:
            return (NoisyMax if self.top else NoisyMin)(dict(self.causes), self.leak)
        towards = int(self.top)
        numbers = {name: np.asarray(q)[:, towards] for name, q in self.causes.items()}
        short = {
            name: float(p[towards]) if len(p) == 2 and p[1 - towards] == 0.0 else p
            for name, p in numbers.items()
        }
        return (NoisyOr if self.top else NoisyAnd)(short, float(self.leak[towards]))


def _numbers(given: Any, who: str) -> Floats:
    return np.asarray(real_numbers(given, who), dtype=np.float64)


def _one(given: Any, who: str) -> Any:
    if np.ndim(given):
        raise ModelError(f"{who} must be one probability, not {told(given)}")
    return [given]


def _switches(given: Any, n: int, size: int, towards: int, who: str) -> Floats:
    """Distributions (n, 2) from the probability of state ``towards`` in each of n states."""
    if size != 2:
        raise ModelError(f"{who}: the variable has {size} states, and must have 2; NoisyMax and "
                         "NoisyMin take any number")  # fmt: skip
    p = _numbers(given, who)
    if p.ndim == 0:
        if n != 2:
            raise ModelError(
                f"{who} has {n} states: one probability is of a parent with 2; give one for each"
            )
        p = np.where(np.arange(2) == towards, p, 0.0)
    if p.shape != (n,):
        raise ModelError(f"{who}: {n} states, but probabilities of shape {p.shape}")
    out = np.empty((n, 2))
    out[:, towards], out[:, 1 - towards] = p, 1.0 - p
    return out


def _checked(rows: Floats, shape: tuple[int, int], who: str) -> Floats:
    """Rows divided by their sums."""
    if rows.shape != shape:
        raise ModelError(
            f"{who}: numbers of shape {rows.shape}, not {shape}, a distribution for each state"
        )
    if not (np.isfinite(rows) & (rows >= 0.0)).all():
        raise ModelError(f"{who} has a probability that is negative, above 1 or not finite")
    total = rows.sum(axis=1)
    if not (np.abs(total - 1.0) <= ROW_SUM).all():
        k = int(np.argmax(np.abs(total - 1.0)))
        raise ModelError(f"{who}: distribution {k + 1} sums to {total[k]:.6g}, not 1")
    total[np.abs(total - 1.0) < 1e-12] = 1.0
    return np.asarray(rows / total[:, None])


def entry_of(graph: Any, factor: int) -> NoisyCauses | None:
    """The entry of a network that a factor is; None of a table."""
    group, row = graph._locate(factor)
    if not isinstance(group, IndependentCauses):
        return None
    *q, leak = group.distributions(row)
    names = [graph.name(v) for v in graph.scope(factor).tolist()[:-1]]
    return DrawnCauses(dict(zip(names, q)), leak[0], top=group.highest).named()


def table_of(entry: NoisyCauses, child: str, shape: Sequence[int]) -> Floats:
    """The table (parents..., child) that an entry stands for."""
    size = shape[-1]
    q = entry._draws(child, shape[:-1], size)
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate(q).reshape(1, -1))
    scope = np.arange(len(shape), dtype=np.int32)[None]
    none = np.full(1, -1, dtype=np.int32)
    group = IndependentCauses(
        np.zeros(1, np.int64), scope, tuple(shape), size, entry._highest, logs, none
    )
    return np.exp(group.log_tables()).reshape(shape)


def with_causes(graph: G, entries: Mapping[int, tuple[Sequence[int], NoisyCauses]]) -> G:
    """A graph with the distributions of children added, by their numbers: parents and entry."""
    first, groups = graph.n_factors, []
    kinds: dict[Any, list[tuple[int, list[int], Floats]]] = {}
    children = []
    for k, (child, (parents, entry)) in enumerate(entries.items()):
        name = visible(graph.name(child))
        scope = [*parents, child]
        if len(set(scope)) < len(scope):
            raise ModelError(f"network: {name} is its own parent, or has a parent twice")
        if not parents:
            raise ModelError(f"network: {entry._name} of {name} has no causes; give it a table")
        shape = tuple(int(graph._n_states[v]) for v in scope)
        if shape[-1] < 2:
            raise ModelError(f"network: {entry._name} of {name}, which has one state: give a table")
        q = entry._draws(graph.name(child), shape[:-1], shape[-1])
        with np.errstate(divide="ignore"):
            logs = np.log(np.concatenate(q).ravel())
        kinds.setdefault((shape, entry._highest), []).append((first + k, scope, logs))
        children.append(child)
    for (shape, highest), mine in kinds.items():
        numbers, scopes, logs_of = zip(*mine)
        groups.append(
            IndependentCauses(
                np.array(numbers, dtype=np.int64), np.array(scopes, dtype=np.int32), shape,
                shape[-1], highest, np.array(logs_of), np.full(len(mine), -1, dtype=np.int32),
            )
        )  # fmt: skip
    return graph._append(*groups, child=np.array(children, dtype=np.int32))
