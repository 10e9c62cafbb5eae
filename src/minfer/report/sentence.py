"""The sweep behind the report of a sentence: its arcs at many sizes of its graph.

Each step is :func:`minfer.parsing.marginals` with the pairs of arcs that the objective keeps, of
those that inference looks at; the last one has every pair and arc.
Differences are *measured*, from belief propagation with every pair and arc run to its end;
the divergence is an *estimate*, the sum of the ignored pairs' gains; there is no bound here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from minfer.checks import check_whole
from minfer.errors import ModelError
from minfer.factors.group import read_only
from minfer.parsing.inference import ArcMarginals, Inference, Reducer, marginals
from minfer.parsing.pairs import ArcScores, Pairs, list_pairs, pair_weights
from minfer.reduction.objectives import MinDivergence, MinJoint
from minfer.reduction.result import finite_or_none
from minfer.reduction.trials import SWEEPS, Point, Reference, Tradeoff, Trial, measured
from minfer.report.parts import (
    PARAMETERS,
    REPEATS,
    STEPS,
    Histogram,
    parameter_of,
    short,
    threshold,
    tradeoff_data,
    values,
)
from minfer.solvers.base import Marginals
from minfer.words import counted

MOST_ARCS = 400  # drawn, the most probable ones over the whole sweep
MOST_PAIRS = 60  # listed, those with the largest gains
LEAST_ARC = 0.02  # arcs that never get this probability are not drawn
MOST_TRACED = 20  # iterations of a convergence trace
REFERENCE = "belief propagation with every pair and arc, run to its end"
EVERYTHING = "none (every pair and arc)"

_CONVERGED = Inference.full(max_iters=200, tol=1e-6)


class Problem(NamedTuple):
    """One sentence with its scores, and how it is answered."""

    words: Sequence[str]
    scores: ArcScores
    gp: bool
    sib: bool
    projective: bool
    single_root: bool

    def run(self, inference: Inference) -> ArcMarginals:
        arcs, gp, sib = self.scores
        return marginals(
            arcs, sib=sib if self.sib else None, gp=gp if self.gp else None,
            projective=self.projective, single_root=self.single_root, inference=inference,
        )  # fmt: skip

    def pairs(self) -> Pairs:
        return list_pairs(self.scores.arcs, self.gp, self.sib, self.projective, self.single_root)


class Setting(NamedTuple):
    """One step: a value of the parameter (None: no limit), its name, how to infer, what is kept."""

    value: float | None
    name: str
    inference: Inference
    keep: NDArray[np.bool_]


class SentenceSweep:
    """Runs a sentence through the factor costs and collects what a report shows.

    Parameters
    ----------
    problem : Problem
    inference : Inference
        The slider moves the parameter of its objective; without one all pairs that are looked at
        are kept, and it is the factor cost 0.
    gold : (n,) heads to compare with, or None
    """

    def __init__(
        self,
        problem: Problem,
        inference: Inference,
        gold: NDArray[np.int32] | None = None,
        steps: int = STEPS,
    ) -> None:
        n = len(problem.words)
        if len(problem.scores.arcs) != n + 1:
            raise ModelError(f"report: {n} words, but scores of {len(problem.scores.arcs) - 1}")
        if gold is not None and len(gold) != n:
            raise ModelError(f"report: {n} words, but {len(gold)} heads to compare with")
        check_whole("steps", steps, 2)
        self.problem, self.inference, self.gold = problem, inference, gold
        self.pairs = problem.pairs()
        self.tree = problem.run(replace(inference, objective=MinDivergence(0))).probs
        self.theta = pair_weights(problem.scores, self.pairs)
        unary = inference.seed == "unary"
        self.gains, self.seen = self._gains(_softmax(problem.scores.arcs) if unary else self.tree)
        self.parameter = parameter_of(inference.objective or MinJoint(0.0))
        found = values(self.parameter, self.gains[self.seen], steps)
        self.settings = [self._setting(value) for value in found]
        self.start = found.index(self.parameter.value)
        if not self.seen.all():
            every = replace(inference, objective=None, least=0.0, arc_least=0.0)
            self.settings.append(Setting(None, EVERYTHING, every, np.ones_like(self.seen)))
        self.histogram = Histogram(self.gains)
        self.listed = np.argsort(-self.gains, kind="stable")[:MOST_PAIRS]

    def _gains(self, mu: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Gains (P,) of all pairs under the seed, and which of them inference looks at."""
        from minfer.kernels.gains import pair_gains

        on = mu[self.pairs.heads, self.pairs.modifiers]
        gains = np.empty(len(self.theta))
        probs = read_only(np.stack([1 - on, on], axis=1))
        pair_gains(self.pairs.arcs, np.array([0.0, 0.0, 0.0, 1.0]), self.theta, probs, gains)
        both = on[self.pairs.arcs]  # (P, 2)
        seen = (both.prod(axis=1) >= self.inference.least) & (both >= self.inference.arc_least).all(
            axis=1
        )
        return gains, seen

    def collect(self) -> dict[str, Any]:
        """Run all of it."""
        there = self.problem.scores.arcs > -np.inf
        there[:, 0] = False
        np.fill_diagonal(there, False)
        truth = self.problem.run(_CONVERGED).probs
        reference = Reference(truth[there], REFERENCE)
        answers, points = [], []
        for setting in self.settings:
            answer, point = self._measure(
                "reduced", f"{self.label} {setting.name}", setting.inference, reference, there,
                setting.keep.mean() if len(self.gains) else 1.0,
            )  # fmt: skip
            answers.append(answer)
            points.append(point)
        baselines = [
            self._measure("full BP", name, inference, reference, there, 1.0)[1]
            for name, inference in _baselines()
        ]
        arcs = self._drawn_arcs(answers)
        steps = [
            self._step(setting, answer, point, arcs)
            for setting, answer, point in zip(self.settings, answers, points)
        ]
        n = len(self.gains)
        return {
            "parameter": self.parameter.name,
            "parameter_label": self.label,
            "start": self.start,
            "score": "gain",
            "n_words": len(self.problem.words),
            "n_arcs": int(there.sum()),
            "n_candidates": n,
            "steps": steps,
            "seed_residuals": [],
            "histogram": self.histogram.data,
            "rows": [{"name": f"{i} {word}"} for i, word in enumerate(self.problem.words, 1)],
            "drawing": self._drawing(arcs),
            "notes": self._notes(n, arcs, there),
            **tradeoff_data(Tradeoff.of([*points, *baselines], reference, n, n), baselines),
        }  # fmt: skip

    @property
    def label(self) -> str:
        return PARAMETERS[self.parameter.name]

    def _setting(self, value: float) -> Setting:
        objective = cast(Reducer, self.parameter.make(value))
        keep = np.zeros(len(self.gains), dtype=bool)
        keep[self.seen] = objective(self.gains[self.seen])
        return Setting(value, f"{value:g}", replace(self.inference, objective=objective), keep)

    def _measure(
        self, method: str, setting: str, inference: Inference, reference: Reference,
        there: NDArray[np.bool_], share: float,
    ) -> tuple[ArcMarginals, Point]:  # fmt: skip
        found: list[ArcMarginals] = []

        def work() -> tuple[Marginals, float]:
            found[:] = [self.problem.run(inference)]
            answer = replace(found[0], probs=found[0].probs[there])
            return cast(Marginals, answer), share  # probabilities are all that is read

        point = measured(Trial(method, setting, method != "reduced", work), reference, REPEATS)
        return found[0], point

    def _step(
        self, setting: Setting, answer: ArcMarginals, point: Point, arcs: NDArray[np.int64]
    ) -> dict[str, Any]:
        value, kept = setting.value, setting.keep
        p = answer.probs[self.pairs.heads[arcs], self.pairs.modifiers[arcs]]
        right = None
        if self.gold is not None:
            right = int((answer.heads == self.gold).sum())
        return {
            "value": finite_or_none(value),
            "label": setting.name,
            "full": value is None,
            "kept": answer.kept,
            "seconds": short(point.seconds),
            "status": "converged" if answer.converged else "not converged",
            "converged": answer.converged,
            "iterations": answer.iterations,
            "residuals": self._trace(setting.inference, answer),
            "divergence": short(float(self.gains[~kept].sum())),
            "measured_mean": short(point.mean_error),
            "measured_max": short(point.max_error),
            "right": right,
            "threshold": None
            if value is None
            else short(threshold(self.parameter.name, value, self.gains[kept])),
            "histogram": self.histogram.kept(kept),
            "rows": [_row(answer, m) for m in range(1, len(answer.heads) + 1)],
            "drawing": {
                "heads": answer.heads.tolist(),
                "p": [short(float(x), 3) for x in p],
                "kept": "".join("1" if k else "0" for k in kept[self.listed]),
            },
        }

    def _trace(self, inference: Inference, answer: ArcMarginals) -> list[list[float | None]]:
        """Largest change of any arc probability in each iteration."""
        out: list[list[float | None]] = []
        before = self.tree
        for k in range(1, min(answer.iterations, MOST_TRACED) + 1):
            now = self.problem.run(replace(inference, max_iters=k, tol=0.0)).probs
            out.append([k, short(float(np.abs(now - before).max()))])
            before = now
        return out

    # ------------------------------------------------------------------ the drawing

    def _drawn_arcs(self, answers: list[ArcMarginals]) -> NDArray[np.int64]:
        """Numbers of the arcs that some step finds probable, or that some tree has."""
        heads, modifiers = self.pairs.heads, self.pairs.modifiers
        top = np.max([a.probs[heads, modifiers] for a in answers], axis=0)
        for a in answers:
            top[a.heads[modifiers - 1] == heads] = 1.0
        order = np.argsort(-top, kind="stable")[:MOST_ARCS]
        return np.sort(order[top[order] >= LEAST_ARC])

    def _drawing(self, arcs: NDArray[np.int64]) -> dict[str, Any]:
        number = {int(a): i for i, a in enumerate(arcs)}
        words = ["ROOT", *self.problem.words]
        pairs = []
        for k in self.listed.tolist():
            a, b, c = (words[i] for i in self.pairs.nodes[k].tolist())
            grandparent = k < self.pairs.n_gp
            pairs.append({
                "kind": "grandparent" if grandparent else "sibling",
                "label": f"{a} → {b} → {c}" if grandparent else f"{b} ← {a} → {c}",
                "theta": short(float(self.theta[k]), 3),
                "gain": short(float(self.gains[k]), 3),
                "arcs": [number.get(int(x), -1) for x in self.pairs.arcs[k]],
            })  # fmt: skip
        return {
            "kind": "sentence",
            "words": words,
            "arcs": [
                [int(self.pairs.heads[a]), int(self.pairs.modifiers[a])] for a in arcs
            ],
            "gold": None if self.gold is None else self.gold.tolist(),
            "pairs": pairs,
        }  # fmt: skip

    def _notes(self, n: int, arcs: NDArray[np.int64], there: NDArray[np.bool_]) -> list[str]:
        out = [
            f"The drawing shows {len(arcs):,} of {int(there.sum()):,} possible arcs: those of any "
            f"step's tree, and those that reach a probability of {LEAST_ARC:g} at some step."
        ]
        if n > len(self.listed):
            out.append(
                f"Of {n:,} pairs of arcs the {len(self.listed)} with the largest gains are listed; "
                "all of them count in every number."
            )
        if skipped := n - int(self.seen.sum()):
            out.append(
                f"{skipped:,} pairs are never looked at before the last step: their arcs are too "
                f"improbable together (below {self.inference.least:g}) or alone (below "
                f"{self.inference.arc_least:g}). The last step has every pair and arc."
            )
        return out


def _softmax(arcs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Arc scores normalised over the heads of each word, (N, N): the unary seed."""
    out = np.zeros_like(arcs)
    top = arcs[:, 1:].max(axis=0)
    out[:, 1:] = np.exp(arcs[:, 1:] - top)
    out[:, 1:] /= out[:, 1:].sum(axis=0)
    return out


def _row(answer: ArcMarginals, m: int) -> list[float | None]:
    """Head of word m, its probability, the likeliest other head (-1 if none) and its own."""
    column = answer.probs[:, m].copy()
    head = int(answer.heads[m - 1])
    p, column[head] = float(column[head]), -1.0
    second = int(np.argmax(column))
    q = float(column[second])
    return [head, short(p, 4), second if q > 0 else -1, short(max(q, 0.0), 4)]


def _baselines() -> list[tuple[str, Inference]]:
    """Full belief propagation stopped after so many sweeps, and to its end."""
    early = [(counted(k, "sweep"), Inference.full(max_iters=k, tol=0.0)) for k in SWEEPS]
    return [*early, ("to the end", _CONVERGED)]
