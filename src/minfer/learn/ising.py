"""Densities over discrete variables from samples: Ising and Potts models.

    Ising   p(y)  proportional to  exp( sum_v a_v y_v + sum_(u,v) w_uv [y_u = y_v] ),  y in {0, 1}
    Potts   the same over K states: a_v(y_v), and w_uv [y_u = y_v] or a table W_uv(y_u, y_v)

Pseudolikelihood is the default: on samples of the model itself it is close to the exact likelihood
and needs no inference. Without edges all pairs are candidates, and L1 leaves those that matter.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_choice, check_whole, edge_array
from minfer.errors import ModelError, RefusedError
from minfer.graph import FactorGraph
from minfer.io import write
from minfer.learn.estimator import Estimator
from minfer.learn.fitting import Fitted, fit
from minfer.learn.model import Instance
from minfer.learn.objectives import Objective, Pseudolikelihood, objective_of
from minfer.solvers.exact import Exact

if TYPE_CHECKING:
    from minfer.io.text import PathLike


class _Samples(Estimator):
    """What the two share."""

    _estimator_type = "density_estimator"

    edges: ArrayLike | None
    objective: str | Objective
    l2: float
    l1: float
    tol: float
    max_iters: int
    n_states_: int
    _pair_weights: int

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Learn from samples X (N, V), states from 0 on; -1 is not known.

        More arguments go to :func:`minfer.learn.fit`.
        """
        x = self._states(X, reset=True)
        n = x.shape[1]
        every = np.stack(np.triu_indices(n, 1), axis=1)
        pairs = edge_array(every if self.edges is None else self.edges)
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= n):
            name = type(self).__name__
            raise ModelError(f"{name}: an edge names a variable outside 0..{n - 1}")
        graph = self._graph(n, pairs)
        count = len(graph.weights)
        from scipy import sparse

        unary = count - len(pairs) * self._pair_weights
        instance = Instance(graph, sparse.eye_array(count, format="csr"), x)
        l1 = np.where(np.arange(count) < unary, 0.0, self.l1)
        self.fitted_: Fitted = fit(
            [instance], self.objective, l2=self.l2, l1=l1, tol=self.tol, max_iters=self.max_iters,
            **more,
        )  # fmt: skip
        self._say_how(self.fitted_)
        self.graph_ = instance.graph_at(self.fitted_.weights)
        self.edges_ = pairs
        self.fields_ = self.fitted_.weights[:unary].reshape(n, -1)
        self.couplings_ = self.fitted_.weights[unary:]
        if self._pair_weights > 1:
            self.couplings_ = self.couplings_.reshape(len(pairs), self._pair_weights)
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """log p of each sample, exact where a clique tree fits; refused elsewhere."""
        self._check_fitted("score_samples")
        x = self._known(X)
        log_z = Exact()(self.graph_).log_z
        return self.graph_.log_score(x) - log_z

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of :meth:`score_samples`; where log Z is out of reach, of pseudolikelihoods."""
        try:
            return float(self.score_samples(X).mean())
        except RefusedError:
            return self.pseudo_score(X)

    def pseudo_score(self, X: Any) -> float:
        """Mean over samples of the sum of log p of each variable given all others."""
        self._check_fitted("pseudo_score")
        x = self._known(X)
        n = len(self.graph_.weights)
        one = Instance(self.graph_, np.zeros((n, 1)), x)
        return -Pseudolikelihood().evaluator([one])(np.zeros(1)).value / len(x)

    def sample(self, n_samples: int = 1, *, seed: int = 0) -> NDArray[np.int64]:
        """Samples of the fitted model (n, V): exact where a clique tree fits, refused elsewhere."""
        from minfer.queries.samples import sample

        self._check_fitted("sample")
        return np.asarray(sample(self.graph_, n_samples, seed=seed))

    def save(self, path: PathLike) -> None:
        """Write the fitted model: .uai, .fg or .minfer, by the file's name; `minfer.read` reads."""
        self._check_fitted("save")
        write(self.graph_, path)

    def marginals(self, solver: Any = None) -> Any:
        """Marginals of the fitted model."""
        self._check_fitted("marginals")
        return (solver or objective_of(self.objective).predictor)(self.graph_)

    def _known(self, X: Any) -> NDArray[np.int32]:
        """Samples whose states are all known."""
        x = self._states(X, reset=False)
        if (x < 0).any():
            row, column = np.argwhere(x < 0)[0].tolist()
            raise ModelError(
                f"{type(self).__name__}: the state in row {row}, column {column} is not known; "
                "samples with hidden states have no score here"
            )
        return x

    def _states(self, X: Any, *, reset: bool) -> NDArray[np.int32]:
        name = type(self).__name__
        x = self._numbers(X, reset=reset)
        states = np.clip(x, -(2.0**31), 2.0**31 - 1).astype(np.int32)
        if (states != x).any():
            row, column = np.argwhere(states != x)[0].tolist()
            raise ModelError(
                f"{name}: X has {x[row, column]} in row {row}, column {column}; states are whole "
                "numbers from 0 on"
            )
        if states.min() < -1:
            raise ModelError(f"{name}: X has a state {states.min()}; states are numbers from 0 on")
        if reset:
            self._learn_states(states)
        if states.max() >= self.n_states_:
            row, column = np.argwhere(states >= self.n_states_)[0].tolist()
            raise ModelError(
                f"{name}: X has state {states[row, column]} in row {row}, column {column}; there "
                f"are {self.n_states_}"
            )
        return states

    def _learn_states(self, states: NDArray[np.int32]) -> None:
        raise NotImplementedError

    def _graph(self, n: int, pairs: NDArray[np.int32]) -> FactorGraph:
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class IsingModel(_Samples):
    """A density over binary variables, by fields and couplings.

    Parameters
    ----------
    edges : int array (E, 2), optional
        Pairs that may be coupled; all of them by default.
    objective : name or Objective
        "pseudolikelihood", or "likelihood" where a clique tree fits.
    l2, l1 : float
        Penalties beside the mean loss of a variable of a sample; L1 is on couplings only.
    tol, max_iters
        As in :func:`minfer.learn.fit`.

    Attributes
    ----------
    edges_ : (E, 2)
    couplings_ : (E,), of [y_u = y_v]
    fields_ : (V, 1), log-odds
    graph_ : FactorGraph, the fitted model
    fitted_ : Fitted, with weights and trace
    status_, converged_, advice_

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, sample
    >>> from minfer.learn import IsingModel
    >>> true = FactorGraph.pairwise([0.0] * 4, [[0, 1], [1, 2], [2, 3]], 1.0, "equal")
    >>> x = sample(true, 2000, seed=0)
    >>> IsingModel([[0, 1], [1, 2], [2, 3]]).fit(x).couplings_.round().tolist()
    [1.0, 1.0, 1.0]
    """

    edges: ArrayLike | None = None
    objective: str | Objective = "pseudolikelihood"
    _: KW_ONLY
    l2: float = 1e-5
    l1: float = 0.0
    tol: float = 1e-5
    max_iters: int = 500
    _pair_weights = 1

    def _learn_states(self, states: NDArray[np.int32]) -> None:
        self.n_states_ = 2
        if (states == -1).any() and (states == 1).any() and not (states == 0).any():
            raise ModelError(
                "IsingModel: X has -1 and 1 and no 0: states are 0 and 1 (-1 is not known); for "
                "spins give (X + 1) // 2"
            )

    def _graph(self, n: int, pairs: NDArray[np.int32]) -> FactorGraph:
        return FactorGraph.pairwise(np.zeros(n), pairs, 0.0, feature="equal")


@dataclass(eq=False, repr=False)
class PottsModel(_Samples):
    """A density over variables of K states.

    Parameters
    ----------
    edges, objective, l2, l1, tol, max_iters
        As in :class:`IsingModel`.
    pairs : "equal" or "table"
        A weight for equal states, or one for each combination of states.
    n_states : int, optional
        One more than the largest state by default.

    Attributes
    ----------
    couplings_, fields_ : (E,) or (E, K * K), and (V, K); others as in :class:`IsingModel`
    """

    edges: ArrayLike | None = None
    objective: str | Objective = "pseudolikelihood"
    _: KW_ONLY
    pairs: str = "equal"
    n_states: int | None = None
    l2: float = 1e-5
    l1: float = 0.0
    tol: float = 1e-5
    max_iters: int = 500

    def _learn_states(self, states: NDArray[np.int32]) -> None:
        check_choice("pairs", self.pairs, ("equal", "table"))
        if self.n_states is not None:
            check_whole("n_states", self.n_states, 2)
        self.n_states_ = max(int(states.max()) + 1, 2) if self.n_states is None else self.n_states

    def _graph(self, n: int, pairs: NDArray[np.int32]) -> FactorGraph:
        k = self.n_states_
        graph = FactorGraph.empty(np.full(n, k))
        graph = graph.add_tables(np.arange(n)[:, None], np.zeros((n, k)))
        if self.pairs == "equal":
            return graph.add_potts(pairs, np.zeros(len(pairs)))
        return graph.add_tables(pairs, np.zeros((len(pairs), k, k)))

    @property
    def _pair_weights(self) -> int:  # type: ignore[override]
        return 1 if self.pairs == "equal" else self.n_states_**2
