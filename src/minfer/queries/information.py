"""What observations do: which one moved the target, and which one would tell most about it.

Strength of evidence (:func:`influence`): each piece is left out in turn, P(t | e without it), and
taken alone, P(t | it), since observations may explain each other away or say the same thing twice.
Value of information (:func:`information`), for every X at once,

    I(T; X | e) = sum_t P(t | e) KL( P(X | t, e) || P(X | e) ):

one row for each state of the target, all posteriors of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minfer.basics.checks import as_list, check_graph, load, told
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import and_more, plain, probability
from minfer.errors import ContradictionError, ModelError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, log_field, numbered
from minfer.model.joint import mutual_information
from minfer.queries.query import Posterior, query
from minfer.solvers.conflicts import locates
from minfer.solvers.plans import IMPOSSIBLE, acted_on, plan_for

_SHOWN = 10  # variables in a table


class MovedPosterior(NamedTuple):
    """One piece of evidence and what it did."""

    variable: str
    observed: str  # its state, or "likelihoods"
    without: float  # P(state | all other evidence)
    alone: float  # P(state | this evidence alone)
    log_odds: float  # how much it raised the log-odds of the state, given all other evidence
    alone_log_odds: float  # ... given nothing else
    divergence: float  # KL(P(t | e) || P(t | e without it)), in nats


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Faced):
    """What each observation did to P(target = state), from ``prior`` to ``probability``.

    In ``rows`` the one that moved the target's distribution most is the first.
    """

    target: str
    state: str
    probability: float
    prior: float
    rows: tuple[MovedPosterior, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON; infinite log-odds become None."""
        return plain({**vars(self), "rows": [row._asdict() for row in self.rows]})

    def to_pandas(self) -> Any:
        """A DataFrame of the rows."""
        pd = load("pandas")
        return pd.DataFrame(list(self.rows), columns=list(MovedPosterior._fields))

    def face(self) -> Face:
        """The probability, then a row for each observation: how far it moved the log-odds."""
        what = f"P({self.target}={self.state})"
        conclusion = f"{what} = {probability(self.probability)}, without evidence "
        rows = [
            (f"{m.variable}={m.observed}", Right(f"{m.log_odds:+.3f}"),
             Right(probability(m.without)), Right(probability(m.alone)))
            for m in self.rows
        ]  # fmt: skip
        head = ("evidence", "log-odds", "without it", "alone")
        return Face(conclusion + probability(self.prior), head, rows)


@locates
def influence(
    model: FactorGraph,
    target: int | str,
    evidence: Evidence,
    *,
    do: Evidence | None = None,
    state: int | str | None = None,
) -> Influence:
    """Which observation moved the target, and how much.

    Parameters
    ----------
    model : FactorGraph
    target : by name or number
    evidence : as in :func:`minfer.query`
    do : {variable: state}, optional
        What is set, as in :func:`minfer.query`; it stays so throughout.
    state : by name or number, optional
        Whose probability is looked at; by default the most probable one given the evidence.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> seen = {"wet_grass": 1, "sprinkler": 1, "season": 2}
    >>> print(minfer.influence(sprinkler(), "rain", seen, state=1))
    P(rain=1) = 0.1626, without evidence 0.3375
    <BLANKLINE>
    evidence     log-odds  without it   alone
    sprinkler=1    -0.460      0.2352  0.2174
    season=2       -0.454      0.2341  0.1500
    wet_grass=1    +0.095      0.1500  0.6537
    """
    check_graph(model, "influence")
    t = model.index(target)
    hard, soft = numbered(model, evidence)
    model = acted_on(model, do, evidence)
    if t in hard or t in soft:
        raise ModelError(f"influence: {told(target)} is the target and has evidence itself")
    known: dict[int, Any] = {**hard, **soft}
    full = _ask(model, t, known)
    s = int(np.argmax(full)) if state is None else model.state(target, state)
    prior = _ask(model, t, {})
    rows = []
    for v, value in known.items():
        without = _ask(model, t, {u: x for u, x in known.items() if u != v})
        alone = _ask(model, t, {v: value})
        rows.append(
            MovedPosterior(
                model.name(v),
                model.states(v)[hard[v]] if v in hard else "likelihoods",
                float(without[s]),
                float(alone[s]),
                _log_odds(full, s) - _log_odds(without, s),
                _log_odds(alone, s) - _log_odds(prior, s),
                _divergence(full, without),
            )
        )
    rows.sort(key=lambda m: -m.divergence)
    return Influence(
        model.name(t), model.states(t)[s], float(full[s]), float(prior[s]), tuple(rows)
    )


def _ask(model: FactorGraph, target: int, known: dict[int, Any]) -> np.ndarray:
    found = query(model, target, known)
    assert isinstance(found, Posterior)
    return np.asarray(found)


def _log_odds(p: np.ndarray, state: int) -> float:
    yes, no = float(p[state]), float(p.sum() - p[state])
    if yes <= 0.0 or no <= 0.0:
        return -math.inf if yes <= 0.0 else math.inf
    return math.log(yes) - math.log(no)


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p || q) in nats; where p is positive q is, up to rounding."""
    some = (p > 0.0) & (q > 0.0)
    return max(float((p[some] * np.log(p[some] / q[some])).sum()), 0.0)


class InformationRow(NamedTuple):
    """One variable and what it would tell, in nats."""

    variable: str
    mutual_information: float  # between it and the target, given the evidence
    share: float  # ... of the target's entropy
    entropy: float  # of the variable itself


@dataclass(frozen=True, eq=False, repr=False)
class Information(Faced):
    """What unobserved variables would tell about a target, the one that would tell most first.

    ``entropy`` is that of the target given the evidence, in nats: what is there to be told.
    """

    target: str
    entropy: float
    rows: tuple[InformationRow, ...]

    def __getitem__(self, variable: str) -> InformationRow:
        for row in self.rows:
            if row.variable == variable:
                return row
        raise ModelError(f"there is no {visible(variable)!r} among the candidates")

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "target": self.target,
            "unit": "nats",
            "entropy": self.entropy,
            "rows": [row._asdict() for row in self.rows],
        }

    def to_pandas(self) -> Any:
        """A DataFrame of the rows."""
        pd = load("pandas")
        return pd.DataFrame(list(self.rows), columns=list(InformationRow._fields))

    def face(self) -> Face:
        """The entropy, then a row for each variable, as far as they fit."""
        conclusion = f"entropy of {self.target}: {self.entropy:.4f} nats"
        if self.rows:
            conclusion += f"; {self.rows[0].variable} would tell most"
        rows = [
            (row.variable, Right(f"{row.mutual_information:.4f}"), Right(f"{row.share:.1%}"))
            for row in self.rows[:_SHOWN]
        ]
        more = and_more(len(self.rows) - _SHOWN, "none tells more")
        return Face(conclusion, ("variable", "would tell, nats", "of the entropy"), rows, more=more)


@locates
def information(
    model: FactorGraph,
    target: int | str,
    evidence: Evidence | None = None,
    variables: Iterable[int | str] | None = None,
) -> Information:
    """Which unobserved variable would tell most about the target: mutual information of each.

    Parameters
    ----------
    model : FactorGraph
    target : by name or number
    evidence : as in :func:`minfer.query`
    variables : optional
        The candidates; by default all variables that are not observed.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> minfer.information(sprinkler(), "rain", {"wet_grass": 1}).rows[0].variable
    'wet_street'
    """
    check_graph(model, "information")
    t = model.index(target)
    hard, soft = numbered(model, {} if evidence is None else evidence)
    if t in hard:
        raise ModelError(f"information: the target {model.name(t)} is observed")
    asked: Iterable[int] = range(model.n_variables)
    if variables is not None:
        listed = as_list(variables, "information: variables must be a list of them", ModelError)
        asked = [model.index(v) for v in listed]
    candidates = [v for v in asked if v != t and v not in hard]
    every = tuple(range(model.n_variables))
    plan = plan_for(
        model, every, tuple(sorted([*hard, t])), tuple(sorted(soft)), each=True,
        whole=True,
    )  # fmt: skip
    n = int(model._n_states[t])
    rows = np.repeat(plan.row(hard), n, axis=0)
    rows[:, plan.place[t]] = np.arange(n)
    field = log_field(plan.part.graph, plan.place, soft)[None] if soft else None
    probs, weight = plan.run(rows, field)
    top = weight.max()
    if top == -np.inf:
        raise ContradictionError(IMPOSSIBLE)
    p = np.exp(weight - top)
    p /= p.sum()
    probs, p = probs[p > 0.0], p[p > 0.0]
    entropy = _entropy(p)
    rows_told = []
    for v in candidates:
        lo = int(plan.offsets[plan.place[v]])
        given = probs[:, lo : lo + int(model._n_states[v])]
        found = min(mutual_information(p[:, None] * given), entropy)
        share = found / entropy if entropy > 0.0 else 0.0
        rows_told.append(InformationRow(model.name(v), found, share, _entropy(p @ given)))
    rows_told.sort(key=lambda row: -row.mutual_information)
    return Information(model.name(t), entropy, tuple(rows_told))


def _entropy(p: np.ndarray) -> float:
    some = p[p > 0.0]
    return float(-(some * np.log(some)).sum()) + 0.0 if len(some) else math.nan
