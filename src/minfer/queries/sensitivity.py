"""Sensitivity: the derivative of a posterior in every entry of every table, at once.

Z is linear in an entry theta_i(x): its derivative is the *cavity* of factor i at x, the sum over
everything else of all other factors. With e the evidence and t the target's event

    f = P(t | e) = Z(t, e) / Z(e),
    df / d theta_i(x) = ( cavity_i(x; t, e) - f cavity_i(x; e) ) / Z(e),

so two runs over one clique tree have them all (Darwiche 2003), entries that are zero included.
An entry of a distribution cannot change alone. ``covaried`` is the derivative if the other entries
of its row change in proportion, so that the row still sums to one (Laskey 1995).

What the evidence cuts off from the target has derivatives of zero, and no part in the tree. Barren
variables have: without its row's sum an entry of theirs moves the posterior as its parents do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph, check_whole, load
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import plain, power, probability
from minfer.engine.elimination import links
from minfer.errors import ContradictionError, ModelError, RefusedError
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, numbered
from minfer.queries.cliques import Cliques, Factor, check_fits
from minfer.solvers.conflicts import locates
from minfer.solvers.plans import IMPOSSIBLE, part_for, tree_for
from minfer.solvers.pruning import structure_of

#: Cells of a clique beyond which its tables are not held.
MOST_CELLS = 2.0**25
Floats = NDArray[np.float64]


class Entry(NamedTuple):
    """One number of a table, and what the posterior makes of it."""

    factor: int
    variable: str  # the child; the factor's scope where it is not a distribution
    state: str
    given: dict[str, str]
    value: float
    derivative: float  # of the posterior, all other entries as they are
    covaried: float  # ... the row still summing to one; NaN where it is not a distribution


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Faced):
    """Derivatives of P(target = state | evidence), ``probability``, in all table entries.

    Attributes
    ----------
    derivatives : list of arrays, one for each factor, shaped as its table
        In probability space: of the posterior in each entry.
    covaried : list of arrays
        The same if other entries of the row change in proportion; NaN of factors that are no
        conditional distributions.
    """

    graph: FactorGraph
    target: str
    state: str
    probability: float
    derivatives: list[Floats]
    covaried: list[Floats]

    @property
    def log_derivatives(self) -> list[Floats]:
        """In log space: theta d/d theta, the derivative in the logarithm of each entry."""
        return [np.exp(self.graph.log_table(i)) * d for i, d in enumerate(self.derivatives)]

    def __getitem__(self, variable: int | str) -> Floats:
        """The covaried derivatives in the table of a variable: its parents' axes, then its own."""
        v = self.graph.index(variable)
        for i in range(self.graph.n_factors):
            if self.graph.child(i) == v:
                return self.covaried[i]
        raise ModelError(
            f"{self.graph.name(v)} has no conditional distribution in this model; "
            "ask for derivatives[factor]"
        )

    def largest(self, top: int = 10) -> list[Entry]:
        """The entries that move the posterior most, by their covaried derivatives if they have."""
        check_whole("top", top, 0)
        flat = [np.abs(np.where(np.isnan(c), d, c)).ravel()
                for c, d in zip(self.covaried, self.derivatives)]  # fmt: skip
        if not flat:
            return []
        sizes = np.cumsum([0, *(len(x) for x in flat)])
        order = np.argsort(-np.concatenate(flat), kind="stable")[:top]
        out = []
        for k in order.tolist():
            i = int(np.searchsorted(sizes, k, side="right")) - 1
            out.append(self._entry(i, k - int(sizes[i])))
        return out

    def _entry(self, factor: int, cell: int) -> Entry:
        graph = self.graph
        scope = graph.scope(factor).tolist()
        where = np.unravel_index(cell, self.derivatives[factor].shape)
        states = {graph.name(v): graph.states(v)[int(k)] for v, k in zip(scope, where)}
        child = graph.child(factor)
        name = ", ".join(states) if child is None else graph.name(child)
        state = ", ".join(states.values()) if child is None else states.pop(name)
        return Entry(
            factor, name, state, {} if child is None else states,
            float(np.exp(graph.log_table(factor)[where])),
            float(self.derivatives[factor][where]), float(self.covaried[factor][where]),
        )  # fmt: skip

    def to_dict(self, top: int = 10) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        about = {"target": self.target, "state": self.state, "probability": self.probability}
        return plain({**about, "largest": [e._asdict() for e in self.largest(top)]})

    def to_pandas(self, top: int | None = None) -> Any:
        """A DataFrame of all entries, or of the ``top`` largest."""
        pd = load("pandas")
        n = sum(d.size for d in self.derivatives) if top is None else top
        return pd.DataFrame(self.largest(n), columns=list(Entry._fields))

    def _different(self, top: int) -> list[Entry]:
        """The largest, without the other state of a row of two: that is the same, but its sign."""
        out: list[Entry] = []
        rows: set[tuple[Any, ...]] = set()
        for e in self.largest(2 * top):
            child = self.graph.child(e.factor)
            row = (e.factor, *e.given.values())
            if child is not None and self.graph._n_states[child] == 2 and row in rows:
                continue
            rows.add(row)
            out.append(e)
        return out[:top]

    def face(self) -> Face:
        """The probability, then the entries that move it most."""
        n = sum(d.size for d in self.derivatives)
        what = f"P({self.target}={self.state}) = {probability(self.probability)}"
        rows = []
        for e in self._different(10):
            given = ", ".join(f"{v}={s}" for v, s in e.given.items())
            moved = e.derivative if math.isnan(e.covaried) else e.covaried
            entry = f"P({e.variable}={e.state}{f' | {given}' if given else ''})"
            rows.append((entry, e.value, Right(f"{moved:+.4f}")))
        why = "of the probability, where the others of an entry's row change in proportion"
        notes = {"derivative": why}
        conclusion = f"{what} and its derivatives in {n:,} entries"
        return Face(conclusion, ("entry", "is", "derivative"), rows, notes)


@locates
def sensitivity(
    model: FactorGraph,
    target: int | str,
    state: int | str,
    evidence: Evidence | None = None,
    *,
    max_gib: float = 4.0,
) -> Sensitivity:
    """The derivative of P(target = state | evidence) in every entry of every table.

    Parameters
    ----------
    model : FactorGraph
        Of tables; a Bayesian network for derivatives that keep its rows distributions.
    target, state : by name or number
    evidence : as in :func:`minfer.query`

    Examples
    --------
    >>> import minfer
    >>> g = minfer.FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> print(minfer.sensitivity(g, "rain", "yes", {"wet": "yes"}))
    P(rain=yes) = 0.6667 and its derivatives in 6 entries
    <BLANKLINE>
    entry                  is  derivative
    P(wet=no | rain=no)   0.9     +2.2222
    P(rain=no)            0.8     -1.3889
    P(wet=no | rain=yes)  0.2     -0.2778
    <BLANKLINE>
    derivative: of the probability, where the others of an entry's row change in proportion
    """
    check_graph(model, "sensitivity")
    t = model.index(target)
    s = model.state(target, state)
    hard, soft = numbered(model, {} if evidence is None else evidence)
    if t in hard or t in soft:
        raise ModelError(f"sensitivity: {model.name(t)} is the target and has evidence")
    fixed = np.full(model.n_variables, -1, dtype=np.int64)
    fixed[model._n_states == 1] = 0
    for v, k in hard.items():
        fixed[v] = k
    part = part_for(model, (t,), tuple(sorted(hard)), tuple(sorted(soft)), barren=True)
    own, factors = _sliced(model, fixed, part.factors)
    n_own = len(factors)
    free = part.variables[fixed[part.variables] < 0]
    factors += _fields(model, fixed, soft, free)
    derivatives = [np.zeros(_shape(model, i)) for i in range(model.n_factors)]
    f = 1.0
    cliques = _cliques(model, factors, free, max_gib)
    log_z = cliques.collect()
    if fixed[t] < 0:
        at = n_own + free.tolist().index(t)  # its field
        below = cliques.cavities()
        event = np.full(int(model._n_states[t]), -np.inf)
        event[s] = factors[at][1][s]
        cliques.factors[at] = (t,), event
        f = math.exp(cliques.collect(impossible=True) - log_z)
        above = cliques.cavities()
        for k in range(n_own):
            i, index = own[k]
            found = _difference(above[k] - log_z, below[k] - log_z, f)
            derivatives[i][index] = found
    covaried = [_covaried(model, i, d) for i, d in enumerate(derivatives)]
    return Sensitivity(model, model.name(t), model.states(t)[s], f, derivatives, covaried)


def _difference(above: Floats, below: Floats, f: float) -> Floats:
    """e^above - f e^below, infinite where no number holds it, never NaN."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        top = np.maximum(above, below)
        top = np.where(top > -np.inf, top, 0.0)
        part = np.exp(above - top) - f * np.exp(below - top)
        return np.where(part == 0.0, 0.0, part * np.exp(top))


def _shape(model: FactorGraph, factor: int) -> tuple[int, ...]:
    return tuple(int(n) for n in model._n_states[model.scope(factor)])


def _sliced(
    model: FactorGraph, fixed: NDArray[np.int64], inside: NDArray[np.int64]
) -> tuple[list[tuple[int, tuple[Any, ...]]], list[Factor]]:
    """Factors over free variables, each with its number and where in its table it lies."""
    own, factors, mine = [], [], np.zeros(model.n_factors, dtype=bool)
    mine[inside] = True
    for i in range(model.n_factors):
        try:
            table = model.log_table(i)
        except ModelError as error:
            raise RefusedError(f"sensitivity: {error}; it needs models of tables") from None
        scope = model.scope(i).tolist()
        index = tuple(slice(None) if fixed[v] < 0 else int(fixed[v]) for v in scope)
        part, left = table[index], tuple(v for v in scope if fixed[v] < 0)
        if left and mine[i]:
            own.append((i, index))
            factors.append((left, part))
        elif not left and float(part) == -np.inf:
            raise ContradictionError(IMPOSSIBLE)
    return own, factors


def _fields(
    model: FactorGraph,
    fixed: NDArray[np.int64],
    soft: Mapping[int, Floats],
    free: NDArray[np.int64],
) -> list[Factor]:
    """Fields and soft evidence of ``free`` variables; those of others are only checked."""
    out: list[Factor] = []
    inside = set(free.tolist())
    for v in range(model.n_variables):
        field = np.array(model.field[model._offsets[v] : model._offsets[v + 1]])
        if v in soft:
            with np.errstate(divide="ignore"):
                field += np.log(soft[v])
        if v in inside:
            out.append(((v,), field))
        elif (field.max() if fixed[v] < 0 else field[fixed[v]]) == -np.inf:
            raise ContradictionError(IMPOSSIBLE)
    return out


def _cliques(
    model: FactorGraph, factors: list[Factor], free: NDArray[np.int64], max_gib: float
) -> Cliques:
    keep = np.zeros(model.n_variables, dtype=bool)
    keep[free] = True
    shape = links(structure_of(model).where, keep, model._n_states)
    tree = tree_for(model, shape, model.n_variables)
    advice = "Give more evidence, or ask about a smaller part of the model"
    check_fits(tree, "sensitivity", advice, max_gib, None)
    if 2.0**tree.largest > MOST_CELLS:
        raise RefusedError(
            f"sensitivity: the largest clique has {power(tree.largest)} cells, but the limit is "
            f"{power(math.log2(MOST_CELLS))}. {advice}"
        )
    return Cliques(model._n_states, factors, tree)


def _covaried(model: FactorGraph, factor: int, d: Floats) -> Floats:
    """d_c - sum over the others c' of their share theta_c' / (1 - theta_c) times d_c'."""
    child = model.child(factor)
    if child is None:
        return np.full(d.shape, np.nan)
    axis = model.scope(factor).tolist().index(child)
    n = d.shape[axis]
    if n == 1:
        return np.zeros(d.shape)
    theta = np.exp(model.log_table(factor))
    others = theta.sum(axis=axis, keepdims=True) - theta
    alone = others <= 1e-300  # the others have nothing to share by: equally
    weighted = (theta * d).sum(axis=axis, keepdims=True) - theta * d
    equal = (d.sum(axis=axis, keepdims=True) - d) / (n - 1)
    return d - np.where(alone, equal, weighted / np.where(alone, 1.0, others))
