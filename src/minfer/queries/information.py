"""Value of information: which variable, were it observed, would tell most about the target.

    I(T; X | e) = sum_t P(t | e) KL( P(X | t, e) || P(X | e) )

for every X at once: one row for each state of the target, all posteriors of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minfer.basics.checks import as_list, check_graph, load
from minfer.errors import ContradictionError, ModelError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, log_field, numbered
from minfer.model.joint import mutual_information
from minfer.queries.conflicts import locates
from minfer.solvers.plans import IMPOSSIBLE, plan_for


class Told(NamedTuple):
    """One variable and what it would tell, in nats."""

    variable: str
    mutual_information: float  # between it and the target, given the evidence
    share: float  # ... of the target's entropy
    entropy: float  # of the variable itself


@dataclass(frozen=True, eq=False, repr=False)
class Information:
    """What unobserved variables would tell about a target.

    Attributes
    ----------
    target : str
    entropy : float
        Of the target given the evidence, in nats: what is there to be told.
    rows : tuple of Told
        The one that would tell most first.
    """

    target: str
    entropy: float
    rows: tuple[Told, ...]

    def __getitem__(self, variable: str) -> Told:
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
        return pd.DataFrame(list(self.rows), columns=list(Told._fields))

    def __repr__(self) -> str:
        best = f"; most by {visible(self.rows[0].variable)}" if self.rows else ""
        return f"Information({visible(self.target)}: {self.entropy:.4f} nats{best})"

    def __str__(self) -> str:
        lines = [f"entropy of {visible(self.target)}: {self.entropy:.4f} nats"]
        for row in self.rows[:10]:
            lines.append(
                f"  {visible(row.variable)} would tell {row.mutual_information:.4f} nats "
                f"({row.share:.1%})"
            )
        return "\n".join(lines)


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
    told = []
    for v in candidates:
        lo = int(plan.offsets[plan.place[v]])
        given = probs[:, lo : lo + int(model._n_states[v])]
        found = min(mutual_information(p[:, None] * given), entropy)
        share = found / entropy if entropy > 0.0 else 0.0
        told.append(Told(model.name(v), found, share, _entropy(p @ given)))
    told.sort(key=lambda row: -row.mutual_information)
    return Information(model.name(t), entropy, tuple(told))


def _entropy(p: np.ndarray) -> float:
    some = p[p > 0.0]
    return float(-(some * np.log(some)).sum()) + 0.0 if len(some) else math.nan
