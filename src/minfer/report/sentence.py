"""A sentence as what is swept: its arcs at many sizes of its graph.

Each step is :func:`minfer.parsing.marginals` with the pairs of arcs that the objective keeps, of
those that inference looks at; the last one has every pair and arc.
Differences are *measured*, from belief propagation with every pair and arc run to its end;
the divergence is an *estimate*, the sum of the ignored pairs' gains; there is no bound here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.errors import ModelError
from minfer.factors.group import read_only
from minfer.parsing.graphs import ArcScores, ParserPairs, list_pairs, pair_weights
from minfer.parsing.inference import ArcMarginals, Inference, Reducer, marginals
from minfer.reduction.compare import SWEEPS, Outcome, Reference, Trial
from minfer.reduction.objectives import MinDivergence, SelectionObjective
from minfer.report.sweep import short

MOST_ARCS = 400  # drawn, the most probable ones over the whole sweep
MOST_PAIRS = 60  # listed, those with the largest gains
LEAST_ARC = 0.02  # arcs that never get this probability are not drawn
MOST_TRACED = 20  # iterations of a convergence trace
REFERENCE = "belief propagation with every pair and arc, run to its end"

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

    def pairs(self) -> ParserPairs:
        return list_pairs(self.scores.arcs, self.gp, self.sib, self.projective, self.single_root)


class SweptSentence:
    """A sentence, answered by ArcMarginals; ``gold`` (n,) are heads to compare with, or None."""

    def __init__(
        self, problem: Problem, inference: Inference, gold: NDArray[np.int32] | None = None
    ) -> None:
        n = len(problem.words)
        if len(problem.scores.arcs) != n + 1:
            raise ModelError(f"report: {n} words, but scores of {len(problem.scores.arcs) - 1}")
        if gold is not None and len(gold) != n:
            raise ModelError(f"report: {n} words, but {len(gold)} heads to compare with")
        self.problem, self.inference, self.gold = problem, inference, gold
        self.pairs = problem.pairs()
        self.arcs = self.pairs.heads, self.pairs.modifiers  # the possible ones, (A,) each
        self.tree = problem.run(replace(inference, objective=MinDivergence(0))).probs
        self.theta = pair_weights(problem.scores, self.pairs)
        self.scores, self.seen = self._gains()
        self.eligible = self.scores[self.seen]
        self.everything = "" if self.seen.all() else "none (every pair and arc)"
        self.listed = np.argsort(-self.scores, kind="stable")[:MOST_PAIRS]
        self.drawn = np.zeros(0, dtype=np.int64)  # numbers of arcs

    def _gains(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Gains (P,) of all pairs under the seed, and which of them inference looks at."""
        from minfer.kernels.scores.gains import pair_gains
        from minfer.parsing.kernels.seeds import unary_seed

        mu = self.tree
        if self.inference.seed == "unary":
            mu = np.empty_like(mu)
            unary_seed(bool(self.problem.single_root), self.problem.scores.arcs, mu)
        on = mu[self.arcs]
        gains = np.empty(len(self.theta))
        probs = read_only(np.stack([1 - on, on], axis=1))
        pair_gains(self.pairs.arcs, np.array([0.0, 0.0, 0.0, 1.0]), self.theta, probs, gains)
        both = on[self.pairs.arcs]  # (P, 2)
        likely = both.prod(axis=1) >= self.inference.least
        return gains, likely & (both.min(axis=1) >= self.inference.arc_least)

    def prepare(self, objectives: Sequence[SelectionObjective | None]) -> Reference:
        """The reference; and which arcs are drawn, by the answers of all steps."""
        self.drawn = self._drawn([self.problem.run(self._inference(o)) for o in objectives])
        return Reference(self.problem.run(_CONVERGED).probs[self.arcs], REFERENCE)

    def trial(self, setting: str, objective: SelectionObjective | None) -> Trial:
        return Trial("reduced", setting, False, partial(self._run, self._inference(objective)))

    def baselines(self) -> Iterator[Trial]:
        """Full belief propagation stopped after so many sweeps, and to its end."""
        early = {counted(k, "sweep"): Inference.full(max_iters=k, tol=0.0) for k in SWEEPS}
        for setting, inference in {**early, "to the end": _CONVERGED}.items():
            yield Trial("full BP", setting, True, partial(self._run, inference))

    def step(
        self, objective: SelectionObjective | None, answer: ArcMarginals
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        keep = np.full(len(self.scores), objective is None)
        if objective is not None:
            keep[self.seen] = objective(self.eligible)
        return keep, {
            "full": objective is None,
            "kept": answer.kept,
            "status": "converged" if answer.converged else "not converged",
            "converged": answer.converged,
            "iterations": answer.iterations,
            "residuals": self._trace(self._inference(objective), answer),
            "divergence": short(float(self.scores[~keep].sum())),
            "right": None if self.gold is None else int((answer.heads == self.gold).sum()),
            "rows": [_row(answer, m) for m in range(1, len(answer.heads) + 1)],
            "drawing": {
                "heads": answer.heads.tolist(),
                "p": [short(float(x), 3) for x in answer.probs[self.arcs][self.drawn]],
                "kept": "".join("1" if k else "0" for k in keep[self.listed]),
            },
        }

    def whole(self) -> dict[str, Any]:
        return {
            "score": "gain",
            "n_words": len(self.problem.words),
            "n_arcs": len(self.pairs.heads),
            "n_candidates": len(self.scores),
            "seed_residuals": [],
            "rows": [{"name": f"{i} {word}"} for i, word in enumerate(self.problem.words, 1)],
            "drawing": self._drawing(),
            "notes": self._notes(),
        }

    def _inference(self, objective: SelectionObjective | None) -> Inference:
        if objective is None:
            return replace(self.inference, objective=None, least=0.0, arc_least=0.0)
        return replace(self.inference, objective=cast(Reducer, objective))

    def _run(self, inference: Inference) -> Outcome:
        answer = self.problem.run(inference)
        share = answer.kept / len(self.scores) if len(self.scores) else 1.0
        return Outcome(answer.probs[self.arcs], answer.converged, share, answer)

    def _trace(self, inference: Inference, answer: ArcMarginals) -> list[list[float | None]]:
        out: list[list[float | None]] = []
        before = self.tree
        for k in range(1, min(answer.iterations, MOST_TRACED) + 1):
            now = self.problem.run(replace(inference, max_iters=k, tol=0.0)).probs
            out.append([k, short(float(np.abs(now - before).max()))])
            before = now
        return out

    # ------------------------------------------------------------------ the drawing

    def _drawn(self, answers: list[ArcMarginals]) -> NDArray[np.int64]:
        """Numbers of the arcs that some step finds probable, or that some tree has."""
        heads, modifiers = self.arcs
        top = np.max([a.probs[self.arcs] for a in answers], axis=0)
        for a in answers:
            top[a.heads[modifiers - 1] == heads] = 1.0
        order = np.argsort(-top, kind="stable")[:MOST_ARCS]
        return np.sort(order[top[order] >= LEAST_ARC])

    def _drawing(self) -> dict[str, Any]:
        number = {int(a): i for i, a in enumerate(self.drawn)}
        words = ["ROOT", *self.problem.words]
        pairs = []
        for k in self.listed.tolist():
            a, b, c = (words[i] for i in self.pairs.nodes[k].tolist())
            grandparent = k < self.pairs.n_gp
            pairs.append({
                "kind": "grandparent" if grandparent else "sibling",
                "label": f"{a} → {b} → {c}" if grandparent else f"{b} ← {a} → {c}",
                "theta": short(float(self.theta[k]), 3),
                "gain": short(float(self.scores[k]), 3),
                "arcs": [number.get(int(x), -1) for x in self.pairs.arcs[k]],
            })  # fmt: skip
        return {
            "kind": "sentence",
            "words": words,
            "arcs": np.stack(self.arcs, axis=1)[self.drawn].tolist(),
            "gold": None if self.gold is None else self.gold.tolist(),
            "pairs": pairs,
        }

    def _notes(self) -> list[str]:
        n, arcs = len(self.scores), len(self.pairs.heads)
        out = [
            f"The drawing shows {len(self.drawn):,} of {arcs:,} possible arcs: those of any step's "
            f"tree, and those that reach a probability of {LEAST_ARC:g} at some step."
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


def _row(answer: ArcMarginals, m: int) -> list[float | None]:
    """Head of word m, its probability, the likeliest other head (-1 if none) and its own."""
    column = answer.probs[:, m].copy()
    head = int(answer.heads[m - 1])
    p, column[head] = float(column[head]), -1.0
    second = int(np.argmax(column))
    q = float(column[second])
    return [head, short(p, 4), second if q > 0 else -1, short(max(q, 0.0), 4)]
