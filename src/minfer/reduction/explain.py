"""Explain: which factors moved a variable, which ignored ones could, and where the kept ones lie.

A factor i and the answer's marginals p have one joint of the form b_i(x) = Psi_i(x) prod_a q_a(x_a)
with the marginals p_a (found by iterative proportional fitting, Deming & Stephan 1940). The cavity
q_v is what p_v would be without the factor: exactly so in a tree; at a fixed point of belief
propagation it is p_v without the factor's message. A *kept* factor moved p_v from q_v to p_v. An
*ignored* factor would move p_v by its message (:mod:`minfer.reduction.compensation`)

    m(x_v) = sum_{x_i \\ x_v} Psi_i(x_i) prod_{b != v} q_b(x_b),     q_b ∝ p_b e^{-c_{i -> b}},

to p_v e^{log m - c_{i -> v}}, with c the messages it left behind (0 without compensation); what it
left behind moved p_v from p_v e^{-c_{i -> v}} to p_v.

Effects are estimates of what one factor alone does, all others in place, and do not add up. Global
factors, and those too large for a table, are not among them. If the solver has not converged,
ignored factors are listed by their scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type, check_whole
from minfer.basics.notebook import Face, Faced
from minfer.basics.words import counted, plain
from minfer.errors import SettingsError, renamed, visible
from minfer.factors.group import Floats
from minfer.reduction.compensation import log_messages
from minfer.reduction.result import Result
from minfer.solvers.base import Marginals

if TYPE_CHECKING:
    from minfer.factors.group import FactorGroup

_FITS = 200  # rounds of proportional fitting, at most
_FITTED = 1e-12


class Effect(NamedTuple):
    """One factor, and how it moves (or would move) the variable."""

    factor: int  # its number in the full model
    others: tuple[str, ...]  # names of its other variables
    effect: float  # change of the probability of the variable's most probable state; or NaN
    score: float  # infinite on the seed and where it must be kept
    seed: bool


@dataclass(frozen=True, repr=False)
class ResultExplanation(Faced):
    """Why one variable's marginal is what it is: the factors with the largest effects.

    Attributes
    ----------
    state, state_name
        Its most probable state, whose probability the effects are about.
    probability, seed_probability : float
        Of that state in the answer and in the seed's answer.
    kept, ignored, left : tuple of Effect
        The largest first: what kept factors did, what ignored ones could still do, and what they
        did by the part they left behind, if they were compensated.
    n_kept, n_ignored, n_global : int
        All factors of the variable; those without a table (global, or too large) are not explained.
    converged : bool
        Whether the answer's solver has; if not, effects of ignored factors are NaN.
    """

    variable: str
    state: int
    probability: float
    seed_probability: float
    kept: tuple[Effect, ...]
    ignored: tuple[Effect, ...]
    left: tuple[Effect, ...]
    n_kept: int
    n_ignored: int
    n_global: int
    score_kind: str
    state_name: str = ""
    converged: bool = True

    if not TYPE_CHECKING:
        __getattr__ = renamed(score="score_kind")

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON; infinite scores and NaN become None."""
        named = {"state_name": self.state_name or str(self.state), "score": self.score_kind}
        told = {name: value for name, value in vars(self).items() if name != "score_kind"} | named
        effects = {name: [e._asdict() for e in told[name]] for name in ("kept", "left", "ignored")}
        return plain(told | effects)

    def __str__(self) -> str:
        could = "ignored factors (what they could still do is not estimated)"
        if self.converged:
            could = "ignored factors that could still move it (estimates)"
        lines = [self._first]
        if self.n_global:
            what = counted(self.n_global, "factor")
            lines.append(f"{what} without a table (global, or too large) left out")
        left = "ignored factors that moved it most, by what they left behind"
        for title, rows, n in (
            ("kept factors that moved it most", self.kept, self.n_kept),
            *([(left, self.left, self.n_ignored)] if self.left else []),
            (could, self.ignored, self.n_ignored),
        ):
            lines.append(f"{title}, {len(rows)} of {n:,}:" if n else f"{title}: none")
            for e in rows:
                others = f"with {', '.join(map(visible, e.others))}" if e.others else "alone"
                why = f"{_by(e)}{', ' * isfinite(e.effect)}{_why(e, self.score_kind)}"
                lines.append(f"  factor {e.factor} {others}: {why}")
        return "\n".join(lines)

    @property
    def _first(self) -> str:
        what = f"p({visible(self.variable)} = {visible(self.state_name or str(self.state))})"
        warning = "" if self.converged else "; the solver has not converged"
        return f"{what} = {self.probability:.4f}, in the seed {self.seed_probability:.4f}{warning}"

    def face(self) -> Face:
        """The probability, and what every factor did."""
        parts = (("kept", self.kept), ("left behind", self.left), ("ignored", self.ignored))
        rows = [
            (word, e.factor, ", ".join(e.others), _by(e), _why(e, self.score_kind))
            for word, effects in parts
            for e in effects
        ]
        return Face(self._first, ("", "factor", "with", "moves it by", ""), rows)


def explain(result: Result, variable: int | str, *, top: int = 10) -> ResultExplanation:
    """The kept factors that moved a variable, by number or name, most, and the ignored ones that
    could still: at most ``top`` of each kind.

    Examples
    --------
    >>> from minfer import FactorGraph, MinDivergence, infer
    >>> from minfer.reduction.explain import explain
    >>> model = FactorGraph.pairwise([1.0, 0.2, -1.0], [[0, 1], [1, 2]], [2.0, 0.1])
    >>> print(explain(infer(model, MinDivergence(1)), "x1"))
    p(x1 = 1) = 0.8738, in the seed 0.5498
    kept factors that moved it most, 2 of 2:
      factor 3 with x0: +0.3240, score 0.468
      factor 1 alone: +0.0237, seed
    ignored factors that could still move it (estimates), 1 of 1:
      factor 4 with x2: +0.0030, score 0.000645
    """
    _check(result, top)
    model, p = result.model, np.asarray(result.marginals.probs)
    v = model.index(variable)
    here = slice(int(model._offsets[v]), int(model._offsets[v + 1]))
    state = int(np.argmax(p[here]))
    ids, effects, kept = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0, bool)]
    behind = [np.zeros(0)]
    for part in _factors_of(result, v):
        before = np.where(part.keep[:, None], _fitted_cavity(part), p[here])
        after = np.where(part.keep[:, None], p[here], _moved(part))
        ids.append(part.ids)
        effects.append(after[:, state] - before[:, state])
        kept.append(part.keep)
        without = p[here] if part.left is None else _normalised(p[here] * _exp(-part.left[0]))
        behind.append(np.broadcast_to(p[here] - without, after.shape)[:, state])
    factor, effect, keep = np.concatenate(ids), np.concatenate(effects), np.concatenate(kept)
    done = np.concatenate(behind)

    converged = result.marginals.converged
    if not converged:
        effect[~keep] = np.nan

    def largest(effect: Floats, of: NDArray[np.bool_]) -> tuple[Effect, ...]:
        size = np.where(np.isnan(effect), result.scores[factor], np.abs(effect))
        order = np.lexsort((factor, -size))
        out = []
        for k in order[of[order]][:top]:
            i = int(factor[k])
            others = tuple(model.name(int(b)) for b in model.scope(i) if b != v)
            number = i if result.untouched is None else int(model.origin[i])
            about = float(result.scores[i]), bool(result.seed[i])
            out.append(Effect(number, others, float(effect[k]), *about))
        return tuple(out)

    return ResultExplanation(
        variable=model.name(v),
        state=state,
        probability=float(p[here][state]),
        seed_probability=float(result.seed_marginals.probs[here][state]),
        kept=largest(effect, keep),
        ignored=largest(effect, ~keep),
        left=largest(done, ~keep) if result.compensation is not None else (),
        n_kept=int(keep.sum()),
        n_ignored=int((~keep).sum()),
        n_global=sum(
            int((g._scope == v).any(axis=1).sum()) for g in model.groups if not _is_table(g)
        ),
        score_kind=result.score_kind,
        state_name=model.states(v)[state],
        converged=converged,
    )


def _check(result: object, top: object) -> None:
    if isinstance(result, Marginals):
        raise SettingsError(
            "explain takes the result of minfer.infer or minfer.relax, not Marginals: "
            "infer(model, MinJoint(0.01)) keeps what matters and can be explained"
        )
    check_type(result, Result, "explain takes the result of minfer.infer or minfer.relax")
    check_whole("top", top)


def _by(e: Effect) -> str:
    return f"{e.effect:+.4f}" if isfinite(e.effect) else ""


def _why(e: Effect, kind: str) -> str:
    if e.seed:
        return "seed"
    if not isfinite(e.score):
        return "must be kept"
    return f"{'score' if kind == 'gain' else kind} {e.score:.3g}"


# ------------------------------------------------------------------ factors of one variable


class _ExplainedPart(NamedTuple):
    """n factors of one shape that have the variable as their first axis."""

    ids: NDArray[np.int64]  # (n,)
    keep: NDArray[np.bool_]  # (n,)
    psi: Floats  # (n, S_v, S_2, ..., S_A), largest entry 1
    probs: list[Floats]  # marginals of each axis, (n, S)
    left: list[Floats] | None  # log-messages left behind on each axis, (n, S); None of none


def _factors_of(result: Result, v: int) -> Iterator[_ExplainedPart]:
    """Every factor of a variable, batches of one shape and one place of the variable in it."""
    model, p = result.model, np.asarray(result.marginals.probs)
    messages = None
    if result.compensation is not None:
        messages = result.compensation.remembered().messages
    for i, g in enumerate(model.groups):
        if not _is_table(g):
            continue
        for a in range(g.arity):
            rows = np.flatnonzero(g._scope[:, a] == v)
            if not len(rows):
                continue
            axes = [a, *(b for b in range(g.arity) if b != a)]
            tables = np.asarray(g.log_tables(rows)).reshape(len(rows), *g.shape)
            tables = tables - tables.max(axis=tuple(range(1, tables.ndim)), keepdims=True)
            psi = np.exp(tables.transpose(0, *(b + 1 for b in axes)))
            first = [model._offsets[g._scope[rows, b], None] for b in axes]
            probs = [p[at + np.arange(g.shape[b])] for at, b in zip(first, axes)]
            left = None
            if messages is not None:
                told = log_messages(g, messages[i], rows, None)
                left = [told[b] for b in axes]
            yield _ExplainedPart(g._ids[rows], result.keep[g._span][rows], psi, probs, left)


def _is_table(group: FactorGroup) -> bool:
    return group.form != "messages" and group.has_tables


def _message(psi: Floats, q: list[Floats], axis: int) -> Floats:
    """sum over all axes but one of psi times the others' q, shape (n, S)."""
    out = psi
    for b in range(len(q) - 1, -1, -1):
        if b != axis:
            shape = [len(psi), *(q[b].shape[1] if c == b else 1 for c in range(out.ndim - 1))]
            out = (out * q[b].reshape(shape)).sum(axis=b + 1)
    return out


def _normalised(x: Floats) -> Floats:
    total = x.sum(axis=1, keepdims=True)
    return x / np.where(total > 0, total, 1.0)


def _fitted_cavity(part: _ExplainedPart) -> Floats:
    """q_v of every factor, shape (n, S_v), from the answer's marginals alone."""
    q = list(part.probs)
    for _ in range(_FITS):
        moved = 0.0
        for a in range(len(q)):
            m = _message(part.psi, q, a)
            new = _normalised(np.where(m > 0, part.probs[a] / np.where(m > 0, m, 1.0), 0.0))
            moved = max(moved, float(np.abs(new - q[a]).max()))
            q[a] = new
        if moved <= _FITTED:
            break
    return q[0]


def _moved(part: _ExplainedPart) -> Floats:
    """p_v as every factor's next message would make it, shape (n, S_v)."""
    p = part.probs
    if part.left is None:
        return _normalised(p[0] * _message(part.psi, p, 0))
    q = [_normalised(p[b] * _exp(-part.left[b])) for b in range(len(p))]
    return _normalised(p[0] * _exp(-part.left[0]) * _message(part.psi, q, 0))


def _exp(log_x: Floats) -> Floats:
    """Exponentials, each row scaled to a largest entry of 1; rows of -inf only become 1."""
    finite = np.where(np.isfinite(log_x), log_x, -np.inf)
    top = finite.max(axis=1, keepdims=True)
    return np.exp(finite - np.where(np.isfinite(top), top, 0.0))


# ------------------------------------------------------------------ where the kept factors lie


class Share(NamedTuple):
    """How many of some factors outside the seed were kept."""

    what: str
    kept: int
    factors: int

    @property
    def share(self) -> float:
        return self.kept / self.factors if self.factors else 0.0


@dataclass(frozen=True, repr=False)
class ModelExplanation(Faced):
    """Where the kept factors of a model lie; the seed's own are not counted.

    By quarters of the seed's certainty of their variables (the mean probability of their most
    probable states), the least certain first; by kind; and at the variables with most of them.
    """

    by_certainty: tuple[Share, ...]
    by_kind: tuple[Share, ...]
    variables: tuple[Share, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            name: [{**s._asdict(), "share": s.share} for s in getattr(self, name)]
            for name in ("by_certainty", "by_kind", "variables")
        }

    def __str__(self) -> str:
        lines = []
        for title, shares in (
            ("by the seed's certainty of their variables", self.by_certainty),
            ("by kind", self.by_kind),
            ("variables with most kept factors", self.variables),
        ):
            lines.append(f"{title}:" if shares else f"{title}: none")
            lines += [
                f"  {visible(s.what)}: {s.kept:,} of {s.factors:,} ({s.share:.1%})" for s in shares
            ]
        return "\n".join(lines)

    def face(self) -> Face:
        """How many factors are kept, and where."""
        kept, factors = (sum(getattr(s, of) for s in self.by_kind) for of in ("kept", "factors"))
        parts = (("certainty", self.by_certainty), ("kind", self.by_kind), ("at", self.variables))
        rows = [(by, s.what, s.kept, s.factors) for by, shares in parts for s in shares]
        conclusion = f"{kept:,} of {factors:,} factors outside the seed kept"
        return Face(conclusion, ("by", "", "kept", "factors"), rows)


def explain_model(result: Result, *, top: int = 10) -> ModelExplanation:
    """Where the kept factors lie: by certainty of the seed, by kind, and at which variables."""
    _check(result, top)
    model = result.model
    outside, kept = ~result.seed, result.keep & ~result.seed
    certain = result.seed_marginals.max_prob()
    certainty = np.zeros(model.n_factors)
    n_all, n_kept = np.zeros(model.n_variables, int), np.zeros(model.n_variables, int)
    kinds: dict[str, list[int]] = {}
    for g in model.groups:
        there, here = outside[g._span], kept[g._span]
        if g.form == "messages":
            word = f"{g.noun}s"
        else:
            word = f"{g.kind}s over {counted(g.arity, 'variable')}"
            if g.arity:
                certainty[g._ids] = certain[g._scope].mean(axis=1)
            n_all += np.bincount(g._scope[there].ravel(), minlength=model.n_variables)
            n_kept += np.bincount(g._scope[here].ravel(), minlength=model.n_variables)
        count = kinds.setdefault(word, [0, 0])
        count[0] += int(here.sum())
        count[1] += int(there.sum())
    most = np.lexsort((np.arange(model.n_variables), -n_kept))[:top]
    return ModelExplanation(
        by_certainty=tuple(_quartiles(certainty[outside], kept[outside])),
        by_kind=tuple(Share(word, a, n) for word, (a, n) in kinds.items() if n),
        variables=tuple(
            Share(model.name(int(v)), int(n_kept[v]), int(n_all[v])) for v in most if n_kept[v]
        ),
    )


def _quartiles(certainty: Floats, kept: NDArray[np.bool_]) -> Iterator[Share]:
    """Kept shares of four parts by certainty; factors of equal certainty stay together."""
    if not len(certainty):
        return
    edges = np.quantile(certainty, [0.25, 0.5, 0.75])
    part = np.searchsorted(edges, certainty, side="left")
    for k in np.unique(part):
        rows = part == k
        low, high = certainty[rows].min(), certainty[rows].max()
        yield Share(f"{low:.3f} to {high:.3f}", int(kept[rows].sum()), int(rows.sum()))
