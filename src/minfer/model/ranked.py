"""The best assignments of a model, as answers: what ``mpe`` and circuits give."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import load
from minfer.basics.notebook import Face, card
from minfer.basics.words import counted, duration, plain
from minfer.errors import ModelError, visible

_SHOWN = 12


@dataclass(frozen=True, eq=False, repr=False)
class Assignment:
    """One state for each of some variables, by ``numbers``.

    ``log_score`` is the log of the unnormalised probability, evidence included (in a Bayesian
    network log P(assignment, evidence)); of marginal MAP with the other variables summed.
    ``log_probability`` is log P(assignment | evidence), NaN where log Z is out of reach.
    """

    variables: tuple[str, ...]
    numbers: NDArray[np.int64]
    log_score: float
    log_probability: float
    _names: tuple[tuple[str, ...], ...]

    @property
    def states(self) -> dict[str, str]:
        """By names: {variable: state}."""
        named = (names[int(k)] for names, k in zip(self._names, self.numbers))
        return dict(zip(self.variables, named))

    @property
    def probability(self) -> float:
        """P(assignment | evidence)."""
        return math.exp(self.log_probability)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "states": self.states,
            "probability": plain(self.probability),
            "log_score": self.log_score,
            "log_probability": plain(self.log_probability),
        }

    def __getitem__(self, variable: int | str) -> str:
        """The name of a variable's state."""
        if isinstance(variable, str):
            if variable not in self.variables:
                raise ModelError(f"this assignment has no variable {visible(variable)!r}")
            variable = self.variables.index(variable)
        return self._names[variable][int(self.numbers[variable])]

    def __repr__(self) -> str:
        pairs = [f"{visible(v)}={visible(s)}" for v, s in self.states.items()]
        more = f", ... {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        return f"Assignment({', '.join(pairs[:_SHOWN])}{more}; log score {self.log_score:.6g})"


@dataclass(frozen=True, eq=False, repr=False)
class Best:
    """The best assignments, best first; names and attributes refer to the best one.

    Attributes
    ----------
    ranked : tuple of Assignment
        As many as were asked for, or all there are with a positive probability.
    proven : bool
        Whether no other assignment is better (by more than 1e-8 where scores are compared with a
        bound, about the rounding of such sums).
    complete : bool
        Whether all possible assignments are among them.
    upper : float
        No assignment's log score is above this, rounding included: where a clique tree proves it,
        the best one's and what its sums may be off by.
    status : str
        ``"optimal"``: proven. ``"within gap"``: the search ended with :attr:`gap` left between
        score and bound. ``"time limit"``: time ran out.
    steps : tuple of str
        What was run, in order.
    """

    ranked: tuple[Assignment, ...]
    proven: bool = True
    complete: bool = False
    seconds: float = field(default=0.0)
    upper: float = math.nan
    status: str = "optimal"
    steps: tuple[str, ...] = ("clique tree",)

    def __post_init__(self) -> None:
        if math.isnan(self.upper):
            object.__setattr__(self, "upper", self.best.log_score)

    @property
    def gap(self) -> float:
        """What a better assignment could gain at most, in log score."""
        return max(self.upper - self.best.log_score, 0.0)

    @property
    def best(self) -> Assignment:
        return self.ranked[0]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each variable's state in the best assignment."""
        return self.best.numbers

    @property
    def states(self) -> dict[str, str]:
        """The best assignment by names: {variable: state}."""
        return self.best.states

    @property
    def log_score(self) -> float:
        return self.best.log_score

    @property
    def log_probability(self) -> float:
        return self.best.log_probability

    @property
    def probability(self) -> float:
        """P(best assignment | evidence)."""
        return self.best.probability

    def __getitem__(self, variable: int | str) -> str:
        """The name of a variable's state in the best assignment."""
        return self.best[variable]

    def __len__(self) -> int:
        return len(self.ranked)

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self.ranked)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "proven": self.proven,
            "complete": self.complete,
            "status": self.status,
            "upper": self.upper,
            "gap": self.gap,
            "steps": list(self.steps),
            "seconds": self.seconds,
            "assignments": [a.to_dict() for a in self.ranked],
        }

    def to_pandas(self) -> Any:
        """A DataFrame: a row for each assignment, a column for each variable, and the scores."""
        pd = load("pandas")
        frame = pd.DataFrame([a.states for a in self.ranked], columns=list(self.best.variables))
        frame["probability"] = [a.probability for a in self.ranked]
        frame["log_score"] = [a.log_score for a in self.ranked]
        frame["log_probability"] = [a.log_probability for a in self.ranked]
        return frame

    def __repr__(self) -> str:
        proven = (
            "proven" if self.proven else f"{self.status}, at most {self.gap:.4g} below the best"
        )
        return f"Best({counted(len(self), 'assignment')}, {proven}; {self.best!r})"

    def face(self, observed: Collection[str] = ()) -> Face:
        """All assignments side by side, and how good they are known to be."""
        titles = ["state"] if len(self) == 1 else [f"{i + 1}." for i in range(len(self))]
        states = [a.states for a in self.ranked]
        rows = [
            (name + " (observed)" * (name in observed), *(own[name] for own in states))
            for name in self.best.variables
        ]
        if not math.isnan(self.log_probability):
            rows.append(("probability", *(f"{a.probability:.4g}" for a in self.ranked)))
        rows.append(("log score", *(f"{a.log_score:.6g}" for a in self.ranked)))
        told = f"{self.status}: log score {self.log_score:.6g}, none is above {self.upper:.6g}"
        notes = {"best": "proven" if self.proven else told}
        if self.steps != ("clique tree",):
            notes["by"] = ", ".join(self.steps)
        if self.complete and len(self) > 1:
            notes["all"] = f"there are no more than these {len(self)} with a positive probability"
        return Face("", ("variable", *titles), rows, {**notes, "time": duration(self.seconds)})

    def _repr_html_(self) -> str:
        rows = list(self.best.states.items())[:_SHOWN]
        about = f"log score {self.log_score:.6g}"
        if not math.isnan(self.log_probability):
            about += f", probability {self.best.probability:.4g}"
        if not self.proven:
            about += f"; {self.status}: at most {self.gap:.4g} below the best"
        more = len(self.best.variables) - len(rows)
        last = f"and {more:,} more variables" if more else ""
        return card("Best assignment", about, ("variable", "state"), rows, last)
