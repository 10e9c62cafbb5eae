"""What is minimised: a class each, from exact likelihood to the loss of the marginals.

Every objective is a sum over instances; here it is divided by the number of labels, so that a value
is nats (or a loss) for each labelled variable and neither tolerances nor penalties depend on how
much data there is. :meth:`Objective.evaluator` prepares a block of instances once; the evaluator
then answers value and gradient at any weights, cold and converged, or warm after a few sweeps.

* ``likelihood``: log Z(w) - score(labels), exact.
* ``trw``, ``bethe``: the same with the solver's log Z; tree-reweighted it is convex and an upper
  bound, Bethe is neither.
* ``pseudolikelihood``: each variable given the labels of all others; a logistic regression.
* ``marginals``: the loss of the solver's marginals at the labels, by a gradient through the solver
  (:func:`minfer.solvers.gradients.pull_back`); ``squared`` instead of logarithmic if wanted.
* ``perceptron``, ``max-margin``: the best assignment's score (plus its errors) less the labels'.

Which one? To estimate a density, exact likelihood or pseudolikelihood; to predict, the loss of the
marginals or TRW. Train with the solver that will predict.

Hidden variables: likelihoods sum them out (the difference of two log Z), losses of marginals look
at labelled variables only, the perceptron completes them; pseudolikelihood refuses them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, check_solver, check_type, told
from minfer.errors import ContradictionError, RefusedError, SettingsError
from minfer.learn.joined import Evaluation, JoinedBlock, JoinedInference, clamped
from minfer.learn.optimise import dot
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.exact import Exact
from minfer.solvers.trw import TreeReweighted

if TYPE_CHECKING:
    from minfer.learn.model import Instance
    from minfer.solvers.base import Marginals

Floats = NDArray[np.float64]
Loss = tuple[float, Floats, bool]  # value, gradient, whether inference converged

#: Below this probability the log-loss goes on as a straight line, so that it stays finite.
LEAST = 1e-12
#: How exact the way back through the solver is: cold, and in warm steps of a few sweeps.
BACK, BACK_WARM, MOST_BACK = 1e-8, 1e-3, 100


# ---------------------------------------------------------------------- evaluators


class Evaluator:
    """Value and gradient of an objective on one block; keeps the messages of its last run."""

    def __init__(self, block: JoinedBlock, objective: Any) -> None:
        self.block, self.objective = block, objective
        self.last: Marginals | None = None

    @property
    def n_labels(self) -> int:
        return self.block.n_labels

    def __call__(self, w: Floats, warm: bool = False, sweeps: int | None = None) -> Evaluation:
        """The sum of the loss and its gradient at weights w; ``warm`` begins with the messages of
        the last call, and makes at most ``sweeps``."""
        began = time.process_time()
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.block.bounded(w):  # weights have run away: the caller says so
                return Evaluation(math.inf, np.full(len(w), math.nan), False)
            try:
                value, gradient, converged = self.evaluate(w, self.last if warm else None, sweeps)
            except ContradictionError as error:
                raise self.block.contradiction(error) from None
        return Evaluation(value, gradient, converged, time.process_time() - began)

    def evaluate(self, w: Floats, start: Marginals | None, sweeps: int | None) -> Loss:
        raise NotImplementedError

    def freeze(self, w: Floats | None) -> None:
        """Fix what is expected of hidden variables at its value for w (EM); None: no longer."""
        if self.block.hidden:
            raise RefusedError("EM is for likelihoods: exact, tree-reweighted or Bethe")


class _LikelihoodEvaluator(Evaluator):
    def __init__(self, block: JoinedBlock, objective: Likelihood) -> None:
        super().__init__(block, objective)
        solver = objective.solver
        self.free = JoinedInference(solver, block.graph, [one.graph for one in block.instances])
        self.clamped: JoinedInference | None = None
        self._frozen: tuple[float, Floats] | None = None
        if block.hidden:
            if len(block.labels) == 1:
                graph = clamped(block.graph, block.labels[0])
                parts = [clamped(one.graph, one.labels[0]) for one in block.instances]
                self.clamped = JoinedInference(solver, graph, parts)
        else:
            self.base, self.target = block.at_labels()

    def evaluate(self, w: Floats, start: Marginals | None, sweeps: int | None) -> Loss:
        block, n = self.block, len(self.block.labels)
        theta = block.numbers(w)
        m = self.last = self.free(theta, start, sweeps)
        value, gradient = n * m.log_z, n * block.weigh(m.statistics())
        if not block.hidden:
            value -= self.base + dot(self.target, w)
            return value, gradient - self.target, m.converged
        if self._frozen is not None:
            base, target = self._frozen
            return value - base - dot(target, w), gradient - target, m.converged
        known, statistics, converged = self._at_labels(theta)
        return value - known, gradient - block.weigh(statistics), m.converged and converged

    def _at_labels(self, theta: Floats) -> tuple[float, Floats, bool]:
        """Sums of log Z and expectations with the labels known."""
        if self.clamped is not None:
            m = self.clamped(theta)
            return m.log_z, m.statistics(), m.converged
        run = self.free.run
        if run is None:
            raise RefusedError("several observations with hidden states need a solver with prepare")
        batch = run.batch(evidence=self.block.labels, weights=theta, statistics=True)
        if batch.impossible.any():
            raise ContradictionError("a hard factor forbids the labels of an observation")
        assert batch.statistics is not None
        return float(batch.log_z.sum()), batch.statistics.sum(axis=0), bool(batch.converged.all())

    def freeze(self, w: Floats | None) -> None:
        self._frozen = None
        if w is None or not self.block.hidden:
            return
        theta = self.block.numbers(w)
        known, statistics, _ = self._at_labels(theta)
        target = self.block.weigh(statistics)
        self._frozen = (known - dot(target, w), target)


class _PseudoEvaluator(Evaluator):
    """Logistic regression on scores that are computed once."""

    def __init__(self, block: JoinedBlock, objective: Pseudolikelihood) -> None:
        super().__init__(block, objective)
        graph, n = block.graph, len(block.labels)
        self.base, self.x = block.conditionals()
        size = int(graph._offsets[-1])
        self.starts = (np.arange(n)[:, None] * size + graph._offsets[:-1]).ravel()
        self.sizes = np.tile(graph._n_states, n)
        self.at = self.starts + block.labels.ravel()
        if not np.isfinite(self.base[self.at]).all():
            raise block.contradiction()
        self.x_t = self.x.T if isinstance(self.x, np.ndarray) else self.x.T.tocsr()
        self.target = np.asarray(self.x_t @ np.bincount(self.at, minlength=len(self.base)))

    def evaluate(self, w: Floats, start: Marginals | None, sweeps: int | None) -> Loss:
        scores = self.base + self.x @ w
        top = np.maximum.reduceat(scores, self.starts)
        own = scores[self.at]
        scores -= np.repeat(top, self.sizes)
        np.exp(scores, out=scores)
        total = np.add.reduceat(scores, self.starts)
        scores /= np.repeat(total, self.sizes)
        value = float(np.sum(np.log(total) + (top - own)))
        return value, np.asarray(self.x_t @ scores) - self.target, True


class _MarginalEvaluator(Evaluator):
    def __init__(self, block: JoinedBlock, objective: MarginalLoss) -> None:
        super().__init__(block, objective)
        graphs = [one.graph for one in block.instances]
        self.free = JoinedInference(objective.solver, block.graph, graphs)
        self.counts = block.counts()
        if not block.hidden:
            block.at_labels()  # finds labels that a hard factor forbids

    def evaluate(self, w: Floats, start: Marginals | None, sweeps: int | None) -> Loss:
        from minfer.solvers.gradients import pull_back

        m = self.last = self.free(self.block.numbers(w), start, sweeps)
        value, cotangent = marginal_loss(m, self.counts, self.objective.loss)
        # short runs are approximate anyway, and so may be the way back
        tol, most = (BACK, 1000) if sweeps is None else (BACK_WARM, MOST_BACK)
        back = pull_back(m, cotangent, solver=self.free.solver, tol=tol, max_iters=most)
        return value, self.block.weigh(back.weights), m.converged and back.converged


def marginal_loss(m: Marginals, counts: Floats, loss: str) -> tuple[float, Floats]:
    """The loss of marginals at labels that were counted by state, and its derivative by them."""
    p = np.asarray(m.probs)
    if loss == "log":
        low = p < LEAST
        each = np.where(low, -np.log(LEAST) + 1.0 - p / LEAST, -np.log(np.where(low, 1.0, p)))
        used = counts > 0
        return dot(each[used], counts[used]), np.where(used, -counts / np.maximum(p, LEAST), 0.0)
    sizes = m.graph._n_states
    n = np.repeat(np.add.reduceat(counts, m.graph._offsets[:-1]), sizes)  # labels of the variable
    value = float((n * p * p - 2.0 * counts * p + counts).sum())
    return value, 2.0 * (n * p - counts)


class _BestEvaluator(Evaluator):
    """A subgradient: X' (phi(best) - phi(labels))."""

    def evaluate(self, w: Floats, start: Marginals | None, sweeps: int | None) -> Loss:
        from minfer.queries.best import mpe

        block, margin = self.block, self.objective.margin
        graph = block.graph.with_weights(block.numbers(w))
        value, gradient = 0.0, np.zeros(block.n_weights)
        best = None
        for row in block.labels:
            wrong = np.zeros(int(graph._offsets[-1]))
            labelled = row >= 0
            if margin:
                wrong = np.repeat(np.where(labelled, margin, 0.0), graph._n_states)
                wrong[graph._offsets[:-1][labelled] + row[labelled]] = 0.0
            if best is None or margin:
                best = mpe(graph.tilt(wrong)).numbers.astype(np.int32)
            own = row
            if not labelled.all():
                known = {int(v): int(row[v]) for v in np.flatnonzero(labelled)}
                own = mpe(graph, known).numbers.astype(np.int32)
            errors = margin * float((best != row)[labelled].sum())
            high, score = self._score(best, w), self._score(own, w)
            value += high[0] + errors - score[0]
            gradient += high[1] - score[1]
        return value, gradient, True

    def _score(self, states: NDArray[np.int32], w: Floats) -> tuple[float, Floats]:
        base, statistics = self.block.at_labels(states[None])
        return base + dot(statistics, w), statistics


# ---------------------------------------------------------------------- objectives


class Objective:
    """What is minimised. Subclasses are settings: they hold no data."""

    name: ClassVar[str]
    #: Whether its runs can start from the messages of the step before.
    warm: ClassVar[bool] = False
    #: Whether variables may be hidden.
    hidden: ClassVar[bool] = True
    _evaluator: ClassVar[type[Evaluator]]

    @property
    def predictor(self) -> Any:
        """The solver to predict with: the one that was trained with, where there is one."""
        return getattr(self, "solver", None) or TreeReweighted()

    def evaluator(self, instances: Sequence[Instance]) -> Evaluator:
        """Value and gradient over some instances, prepared."""
        block = JoinedBlock(instances)
        if block.hidden and not self.hidden:
            raise RefusedError(
                f"{self.name} needs the labels of all variables; a likelihood sums hidden ones out"
            )
        if block.hidden:
            block.check_labels()
        return self._evaluator(block, self)


@dataclass(frozen=True)
class Likelihood(Objective):
    """log Z - score(labels), with the log Z and the expectations of any solver."""

    solver: Any = field(default_factory=Exact)
    name = "likelihood"
    warm = True
    _evaluator = _LikelihoodEvaluator

    def __post_init__(self) -> None:
        check_solver(self.solver)


@dataclass(frozen=True)
class ExactLikelihood(Likelihood):
    """The likelihood itself, where a clique tree fits."""


@dataclass(frozen=True)
class TRWLikelihood(Likelihood):
    """With the tree-reweighted log Z: convex in the weights, and an upper bound on the loss."""

    solver: Any = field(default_factory=lambda: TreeReweighted(tol=1e-7))
    name = "trw"


@dataclass(frozen=True)
class BetheLikelihood(Likelihood):
    """With the Bethe log Z of belief propagation: neither convex nor a bound."""

    solver: Any = field(default_factory=lambda: BeliefPropagation(tol=1e-7, max_iters=300))
    name = "bethe"


@dataclass(frozen=True)
class Pseudolikelihood(Objective):
    """Each variable given the labels of all others. Good for densities, bad for prediction."""

    name = "pseudolikelihood"
    hidden = False
    _evaluator = _PseudoEvaluator


@dataclass(frozen=True)
class MarginalLoss(Objective):
    """The loss of the solver's marginals at the labels: what prediction is judged by.

    Parameters
    ----------
    solver : TreeReweighted or BeliefPropagation (or any whose marginals have a gradient)
    loss : "log" (-log p of the label) or "squared" (sum of squared errors of the probabilities)
    """

    solver: Any = field(default_factory=lambda: TreeReweighted(tol=1e-7))
    loss: str = "log"
    warm = True
    _evaluator = _MarginalEvaluator

    @property
    def name(self) -> str:  # type: ignore[override]
        return "marginals" if self.loss == "log" else f"marginals-{self.loss}"

    def __post_init__(self) -> None:
        check_solver(self.solver)
        check_choice("loss", self.loss, ("log", "squared"))


@dataclass(frozen=True)
class Perceptron(Objective):
    """The best assignment's score less the labels': zero where these are the best.

    It is also zero at w = 0, where all scores are equal, so use it with ``method="adam"``, which
    leaves that point, not with a line search. The best assignment is exact (:func:`minfer.mpe`), so
    a clique tree must fit.
    """

    name = "perceptron"
    margin: ClassVar[float] = 0.0
    _evaluator = _BestEvaluator

    @property
    def predictor(self) -> Any:
        return Exact()


@dataclass(frozen=True)
class MaxMargin(Perceptron):
    """The perceptron's loss with every wrong variable counted as 1 more: the structured hinge."""

    name = "max-margin"
    margin = 1.0


# ---------------------------------------------------------------------- by name

OBJECTIVES: dict[str, Objective] = {
    "likelihood": ExactLikelihood(),
    "trw": TRWLikelihood(),
    "bethe": BetheLikelihood(),
    "pseudolikelihood": Pseudolikelihood(),
    "marginals": MarginalLoss(),
    "marginals-squared": MarginalLoss(loss="squared"),
    "perceptron": Perceptron(),
    "max-margin": MaxMargin(),
}


def objective_of(value: str | Objective) -> Objective:
    """An objective, or the one of a name."""
    if isinstance(value, str):
        if value not in OBJECTIVES:
            raise SettingsError(
                f"there is no objective {told(value)}: choose from {', '.join(OBJECTIVES)}"
            )
        return OBJECTIVES[value]
    check_type(value, Objective, "an objective is a name or an Objective")
    return value
