"""Strength of evidence: which observation moved the target, and how much.

Each piece of evidence is left out in turn, P(t | e without it), and taken alone, P(t | it): two
answers, since observations may explain each other away or say the same thing twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minfer.basics.checks import check_graph, load, told
from minfer.basics.words import plain
from minfer.errors import ModelError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, numbered
from minfer.queries.conflicts import locates
from minfer.queries.query import Posterior, query


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
class Influence:
    """What each observation did to P(target = state).

    Attributes
    ----------
    target, state : str
    probability, prior : float
        With all the evidence and without any.
    rows : tuple of Moved
        The one that moved the target's distribution most first.
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

    def __repr__(self) -> str:
        what = f"P({visible(self.target)}={visible(self.state)})"
        return f"Influence({what}: {self.prior:.4f} -> {self.probability:.4f})"

    def __str__(self) -> str:
        what = f"P({visible(self.target)}={visible(self.state)})"
        lines = [f"{what} = {self.probability:.4f}, without evidence {self.prior:.4f}"]
        for m in self.rows:
            seen = f"{visible(m.variable)}={visible(m.observed)}"
            lines.append(
                f"  {seen}: {m.log_odds:+.3f} log-odds; without it {m.without:.4f}, alone "
                f"{m.alone:.4f}"
            )
        return "\n".join(lines)


@locates
def influence(
    model: FactorGraph,
    target: int | str,
    evidence: Evidence,
    *,
    state: int | str | None = None,
) -> Influence:
    """Which observation moved the target, and how much.

    Parameters
    ----------
    model : FactorGraph
    target : by name or number
    evidence : as in :func:`minfer.query`
    state : by name or number, optional
        Whose probability is looked at; by default the most probable one given the evidence.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> seen = {"wet_grass": 1, "sprinkler": 1, "season": 2}
    >>> print(minfer.influence(sprinkler(), "rain", seen, state=1))
    P(rain=1) = 0.1626, without evidence 0.3375
      sprinkler=1: -0.460 log-odds; without it 0.2352, alone 0.2174
      season=2: -0.454 log-odds; without it 0.2341, alone 0.1500
      wet_grass=1: +0.095 log-odds; without it 0.1500, alone 0.6537
    """
    check_graph(model, "influence")
    t = model.index(target)
    hard, soft = numbered(model, evidence)
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
