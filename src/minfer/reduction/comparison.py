"""A reduced answer beside the full one: size, time and difference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minfer.certified.result import REFUTED
from minfer.errors import RefusedError
from minfer.graph import FactorGraph
from minfer.notebook import Face, Right
from minfer.planning import exact_seconds
from minfer.reduction.result import Result
from minfer.solvers.base import Marginals, Solver
from minfer.solvers.exact import Exact
from minfer.solvers.status import LogZ
from minfer.words import duration

TIMED_AGAIN = 30.0  # seconds; what took less is timed once more, with all kernels loaded


class Difference(NamedTuple):
    """How far two answers for the same variables are apart."""

    mean: float
    largest: float
    where: str  # the variable of the largest difference

    @classmethod
    def between(cls, model: FactorGraph, a: Marginals, b: Marginals) -> Difference:
        off = np.abs(np.asarray(a.probs) - np.asarray(b.probs))
        if not len(off):
            return cls(0.0, 0.0, "")
        v = int(np.searchsorted(model._offsets, int(np.argmax(off)), side="right")) - 1
        return cls(float(off.mean()), float(off.max()), model.name(v))


class Full(NamedTuple):
    """One inference in the full model."""

    marginals: Marginals
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        plain = self.marginals.to_dict([])
        del plain["marginals"]
        return plain


class Comparison(NamedTuple):
    """The full inference beside the reduced one: exact where that fits, else by the same solver."""

    full: Full
    reduced_seconds: float
    difference: Difference
    same: Full | None = None  # by the same solver, where ``full`` is not
    same_difference: Difference | None = None  # of that from ``full``

    @property
    def is_exact(self) -> bool:
        return self.full.marginals.status.value == "exact"

    def refuted(self, result: Result, full: Full) -> bool:
        """Whether an estimate of the full log Z is refuted: by an exact one, or by bounds."""
        if full.marginals.log_z_kind is not LogZ.ESTIMATE:
            return False
        return self._is_off(result, full.marginals.log_z)

    def reduced_refuted(self, result: Result) -> bool:
        """The same of the reduced answer's estimate."""
        return self._is_off(result, result.log_z_estimate)

    def _is_off(self, result: Result, estimate: float) -> bool:
        if not math.isfinite(estimate):
            return False
        if self.is_exact and abs(estimate - self.full.marginals.log_z) > REFUTED:
            return True
        return result._has_certificate and result._outside_log_z_bounds(estimate)

    def speed_up(self, full: Full) -> float:
        return full.seconds / self.reduced_seconds if self.reduced_seconds > 0 else math.inf

    def to_dict(self, result: Result) -> dict[str, Any]:
        return {
            "compared_with": repr(self.full.marginals.solver),
            "reduced_factors": int(result.keep.sum()),
            "full_factors": result.n_factors,
            "reduced_seconds": self.reduced_seconds,
            "full_seconds": self.full.seconds,
            "speed_up": self.speed_up(self.full),
            "mean_difference": self.difference.mean,
            "largest_difference": self.difference.largest,
            "largest_at": self.difference.where,
            "full": self.full.to_dict() | {"log_z_refuted": self.refuted(result, self.full)},
            "same_solver": self._same(result),
        }

    def _same(self, result: Result) -> dict[str, Any] | None:
        if self.same is None or self.same_difference is None:
            return None
        return {
            **self.same.to_dict(),
            "log_z_refuted": self.refuted(result, self.same),
            "seconds": self.same.seconds,
            "speed_up": self.speed_up(self.same),
            "mean_difference": self.same_difference.mean,
            "largest_difference": self.same_difference.largest,
            "largest_at": self.same_difference.where,
        }


def compare(result: Result, solver: Solver, again: Callable[[], Result] | None) -> Comparison:
    """The full inference; all is timed on a second call where the first was short.

    Exact where that takes seconds at most; then also by the same solver, whose own error shows.
    ``again`` repeats the reduced inference; None where it is not to be repeated.
    """
    model, reduced_seconds = result.model, result.seconds
    if reduced_seconds < TIMED_AGAIN and again is not None:
        reduced_seconds = again().seconds
    exact: Full | None = None
    if not isinstance(solver, Exact) and exact_seconds(model, None) is not None:
        exact = _full(Exact(), model)
    same: Full | None = None
    try:
        same = _full(solver, model)
    except RefusedError:
        if exact is None:
            raise
    if exact is None or (same is not None and same.marginals.status.value == "exact"):
        assert same is not None
        return Comparison(
            same, reduced_seconds, Difference.between(model, result.marginals, same.marginals)
        )
    return Comparison(
        exact,
        reduced_seconds,
        Difference.between(model, result.marginals, exact.marginals),
        same,
        same and Difference.between(model, same.marginals, exact.marginals),
    )


def _full(solver: Solver, model: FactorGraph) -> Full:
    """One inference in the full model, timed again where it was short."""
    found = solver(model)
    _ = found.log_z
    seconds = found.seconds if found.seconds >= TIMED_AGAIN else solver(model).seconds
    return Full(found, seconds)


def face(result: Result, found: Comparison) -> Face:
    """The reduced answer, full ones beside it, and how far they are from the last of them."""
    full = [("full", found.full)]
    if found.same is not None:
        full = [("full, by the same solver", found.same), ("full, exact", found.full)]
    elif found.is_exact:
        full = [("full, exact", found.full)]
    titles = ["reduced", *(title for title, _ in full)]
    rows: list[tuple[object, ...]] = []

    def add(name: str, *cells: str) -> None:
        rows.append((name, *map(Right, cells)))

    add("factors", f"{int(result.keep.sum()):,}", *[f"{result.n_factors:,}"] * len(full))
    add("status", result.status.value, *(f.marginals.status.value for _, f in full))
    add(
        "time, kernels loaded",
        duration(found.reduced_seconds),
        *(duration(f.seconds) for _, f in full),
    )
    add("speed against it", "", *(_times(found.speed_up(f)) for _, f in full))
    z = [result.log_z_estimate, *(f.marginals.log_z for _, f in full)]
    refuted = [found.reduced_refuted(result), *(found.refuted(result, f) for _, f in full)]
    cells = [f"{x:.6g}" if math.isfinite(x) else "unknown" for x in z]
    add(
        "log Z of the full model",
        *(f"{cell} (refuted)" if wrong else cell for cell, wrong in zip(cells, refuted)),
    )
    differences = [found.difference]
    if found.same_difference is not None:
        differences.append(found.same_difference)
    blank = [""] * (len(titles) - len(differences))
    of = "exact" if found.is_exact else "full"
    add(f"mean difference from {of}", *(f"{d.mean:.2g}" for d in differences), *blank)
    add("largest", *(f"{d.largest:.2g} at {d.where}" for d in differences), *blank)
    return Face("", ("compared", *titles), rows)


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"
