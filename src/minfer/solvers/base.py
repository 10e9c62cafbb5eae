"""What every solver shares: the protocol, the answer, and its status.

A solver is a black box ``solver(graph, start=None) -> Marginals``: a frozen settings object that
owns no graph, keeps no state and prints as its own constructor call. Any callable of that shape is
a solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    check_graph,
    check_solver,
    check_type,
    integer,
    integers,
    load,
    real_numbers,
)
from minfer.basics.words import counted, duration, plain
from minfer.engine.conditioning import rounding_of_sums
from minfer.engine.layout import normalised as normalised
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import FactorGroup, read_only
from minfer.model.states import Probabilities

if TYPE_CHECKING:
    from minfer.graph import Component, FactorGraph
    from minfer.model.joint import Joint
    from minfer.solvers.pruning import PrunedPart

_MAX_JOINT_BITS = 26.0  # of the cells of a product of marginals

#: Standard error over Gibbs chains beyond which an answer does not count as converged.
MAX_DISAGREEMENT = 0.05
#: Variables, and states of each, that a notebook shows.
SHOWN = 20
#: What rounding may cost a log Z, of its size.
ROUNDING = 1e-9
#: What the note of an answer begins with whose numbers did not hold.
LOST_RANGE = "lost its range"


class Status(Enum):
    """How an answer came about. The value is the word shown; :attr:`Marginals.advice` says more."""

    EXACT = "exact"
    CONVERGED = "converged"
    MAX_ITERS = "not converged"
    TIME_LIMIT = "time limit"
    SAMPLED = "sampled"
    BOUND = "bound"  # the middle of intervals that are proven to contain the true marginals
    GIVEN = "given"  # by someone else: nothing here knows how

    @property
    def ok(self) -> bool:
        """Whether the solver finished what it set out to do; assumed for given answers."""
        return self not in (Status.MAX_ITERS, Status.TIME_LIMIT)


class LogZ(Enum):
    """What a reported log Z is to the true one. ``lower`` and ``upper`` are guarantees."""

    EXACT = "exact"
    LOWER = "lower bound"
    UPPER = "upper bound"
    ESTIMATE = "estimate"
    NONE = "none"


@runtime_checkable
class Solver(Protocol):
    """Turns a factor graph into marginals. Same input and settings, same output."""

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals: ...


def inner(solver: Any) -> Any:
    """The solver that another one calls, or None: of a dataclass, its field ``solver``."""
    return getattr(solver, "solver", None) if is_dataclass(solver) else None


def with_inner(solver: Any, change: Callable[[Any], Any]) -> Any:
    """The solver with the one that does the work, itself or inside it, replaced."""
    inside = inner(solver)
    if inside is None:
        return change(solver)
    changed = with_inner(inside, change)
    return solver if changed is inside else replace(solver, solver=changed)


def in_parts(
    solver: Solver, graph: FactorGraph, parts: Sequence[Component | PrunedPart]
) -> list[Solver]:
    """The solver for each part: what it was told of variables and factors, in the part's numbers.

    A solver with such settings has a method ``_in_parts(graph, parts)`` of its own.
    """
    found: list[Any] = []

    def look(innermost: Any) -> Any:
        own = getattr(innermost, "_in_parts", None)
        found.extend([innermost] * len(parts) if own is None else own(graph, parts))
        return innermost

    with_inner(solver, look)
    return [with_inner(solver, lambda _, s=s: s) for s in found]  # type: ignore[misc]


class State(Protocol):
    """What a solver leaves: read lazily for log Z and factor marginals, or to start again."""

    def log_z(self) -> float: ...

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """Joint marginal of one factor, shape (S_1, ..., S_A); None where the solver has none."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Marginals:
    """The answer of a solver.

    Attributes
    ----------
    graph : FactorGraph
    probs : float array (sum of states,)
        All marginals, one variable after the other (``graph.offsets``); ``m[v]`` is a view of it.
    solver : Solver
        With its settings; :class:`Given` with a name if it was not a solver of minfer.
    status : Status
    log_z_kind : LogZ
    iterations : int
    residuals : float array (iterations,)
        The largest change of any probability in each iteration; the last one of a converged run of
        message passing is what the update that confirmed it moved, messages included.
    timings : dict
        Wall-clock seconds of each step.
    error_estimate : float or None
        The largest error of any probability, as the solver itself estimates it; None where it has
        no estimate, infinite where nothing can be said: chains that may be trapped. It is shown,
        and in JSON, only where it is finite and the answer has :attr:`converged`. (What leaving
        factors out costs is :attr:`minfer.Result.error_estimates`.)
    still_to_move : float or None
        An estimate of how much further iteration would still move a probability, from how fast the
        residuals shrink. Not an error: the fixed point itself may be off. 0 on trees; None where
        it is not known: damping, the residual schedule, fewer than four sweeps, residuals that
        hardly shrink, other solvers. Shown, and in JSON, only if the answer has :attr:`converged`.
    proven_log_z : (float, float) or None
        What the solver proved of log Z besides :attr:`log_z`; :attr:`log_z_bounds` has both.
    note : str
        Why this solver, or what it could not do; empty if there is nothing to say.
    """

    graph: FactorGraph
    probs: NDArray[np.float64]
    solver: Solver
    status: Status
    log_z_kind: LogZ = LogZ.ESTIMATE
    iterations: int = 0
    residuals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    timings: Mapping[str, float] = field(default_factory=dict)
    error_estimate: float | None = None
    note: str = ""
    state: State | None = None
    still_to_move: float | None = None
    proven_log_z: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", read_only(self.probs))

    @classmethod
    def from_probs(
        cls, graph: FactorGraph, probs: ArrayLike, solver: Solver | str, log_z: float = math.nan
    ) -> Marginals:
        """Wrap another library's marginals, flat (sum of states,), so that it can be a solver.

        Their status is "given": whether that library's run converged is not known here. ``solver``
        is who made them: a solver, or a name, which becomes :class:`Given`.
        """
        check_graph(graph, "from_probs")
        solver = Given(solver) if isinstance(solver, str) else solver
        check_solver(solver)
        check_type(log_z, (int, float, np.number), f"{solver}: log_z must be a number", ModelError)
        p = np.array(real_numbers(probs, f"{solver}: probabilities"), dtype=np.float64).ravel()
        if p.shape != (int(graph._offsets[-1]),):
            raise ModelError(f"{solver}: {p.size} probabilities for {graph._offsets[-1]} states")
        if not np.isfinite(p).all() or (p < -1e-9).any():
            raise ModelError(f"{solver}: probabilities must be finite and not negative")
        if graph.n_variables:
            total = np.add.reduceat(p, graph._offsets[:-1])
            if (np.abs(total - 1) > 1e-6).any():
                bad = int(np.argmax(np.abs(total - 1)))
                raise ModelError(f"{solver}: {graph.name(bad)} sums to {total[bad]}, not 1")
        kind = LogZ.NONE if math.isnan(log_z) else LogZ.ESTIMATE
        return cls(graph, p, solver, Status.GIVEN, kind, state=Plain(log_z))

    def __getitem__(self, variable: int | str) -> NDArray[np.float64]:
        """p(x_v), shape (S_v,), by number or name; a state of it by its name too."""
        v = self.graph.index(variable)
        p = read_only(self.probs[self.graph._offsets[v] : self.graph._offsets[v + 1]])
        names = self.graph._states
        return p if names is None else Probabilities.of(p, self.graph.name(v), names[v])

    def __len__(self) -> int:
        return self.graph.n_variables

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        """The marginals of all variables in turn; :meth:`items` has their names too."""
        return (self[v] for v in range(self.graph.n_variables))

    def __contains__(self, variable: object) -> bool:
        """Whether there is a variable of this number or name."""
        if not isinstance(variable, str) and integer(variable) is None:
            return False
        try:
            self.graph.index(variable)  # type: ignore[arg-type]
        except ModelError:
            return False
        return True

    def keys(self) -> list[str]:
        """The names of all variables in turn, so that ``dict(m)`` is the marginals by name."""
        return [self.graph.name(v) for v in range(self.graph.n_variables)]

    def items(self) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Name and marginal of every variable in turn."""
        return zip(self.keys(), self)

    @property
    def log_z(self) -> float:
        """Natural log of the partition function (evidence applied); see :attr:`log_z_kind`."""
        if "_log_z" not in self.__dict__:
            known = self.state is not None and self.log_z_kind is not LogZ.NONE
            self.__dict__["_log_z"] = float(self.state.log_z()) if known else math.nan  # type: ignore[union-attr]
        return self.__dict__["_log_z"]

    @property
    def log_z_bounds(self) -> tuple[float, float] | None:
        """The true log Z lies between these two; None where nothing is proven.

        What :attr:`proven_log_z` says, and what :attr:`log_z` is where it is exact or a bound, with
        1e-9 of its size for rounding, and what may have cancelled in the sums of the model's
        numbers; an end that is not known is infinite.

        >>> from minfer import FactorGraph, MeanField
        >>> pair = FactorGraph.pairwise([1.0, 0.0], [[0, 1]], [0.5])
        >>> lower, upper = MeanField()(pair).log_z_bounds
        >>> round(lower, 3), upper
        (2.214, inf)
        """
        lower, upper = self.proven_log_z or (-math.inf, math.inf)
        value, kind = self.log_z, self.log_z_kind
        slip = 0.0
        if math.isfinite(value) and kind in (LogZ.EXACT, LogZ.LOWER, LogZ.UPPER):
            slip = ROUNDING * (1.0 + abs(value)) + rounding_of_sums(self.graph)
        if kind in (LogZ.EXACT, LogZ.LOWER) and not math.isnan(value):
            lower = max(lower, value - slip)
        if kind in (LogZ.EXACT, LogZ.UPPER) and not math.isnan(value):
            upper = min(upper, value + slip)
        return None if lower == -math.inf and upper == math.inf else (lower, upper)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the whole call."""
        return sum(self.timings.values())

    @property
    def converged(self) -> bool:
        """Whether the solver finished what it set out to do, chains in agreement."""
        return self.status.ok and not self._chains_differ

    @property
    def _shown_error(self) -> float | None:
        """:attr:`error_estimate` as it is shown: None beside an answer that has not converged."""
        known = self.converged and self.error_estimate != math.inf
        return self.error_estimate if known else None

    @property
    def _chains_differ(self) -> bool:
        return self.status is Status.SAMPLED and (self.error_estimate or 0.0) > MAX_DISAGREEMENT

    @property
    def advice(self) -> str:
        """What to do about the status, in a sentence; empty where nothing needs doing."""
        iterations = counted(self.iterations, "iteration")
        if self.status is Status.MAX_ITERS:
            if LOST_RANGE in self.note:
                damping = "add damping=0.5, " if _undamped(self.solver) else ""
                return (
                    f"the numbers lost their range after {iterations}: {damping}or try another "
                    "solver"
                ).replace(": or", ":")
            last = float(self.residuals[-1]) if len(self.residuals) else 0.0
            if last == 0.0:
                return "nothing moves any more: try another solver"
            damping = "add damping=0.3, " if _undamped(self.solver) else ""
            return (
                f"stopped after {iterations} (last change {last:.1e}): raise max_iters, "
                f"{damping}or try another solver"
            )
        if self.error_estimate == math.inf:
            return (
                "chains may be trapped where they began: use Exact, BeliefPropagation or Tempering"
            )
        if self._chains_differ:
            return (
                f"the chains differ by about {self.error_estimate:.2g}: raise n_sweeps, or try "
                "another solver"
            )
        if self.status is Status.TIME_LIMIT:
            return f"the time limit ended the run after {iterations}: raise time_limit"
        return ""

    def factor(self, factor: int) -> NDArray[np.float64]:
        """Joint marginal over a factor's scope, shape (S_1, ..., S_A).

        The solver's own belief where it has one, else the product of the variables' marginals.
        """
        factor = self.graph.factor_index(factor)
        joint = self.state.factor(factor) if self.state is not None else None
        return self.product(self.graph.scope(factor)) if joint is None else joint

    def factors(self, factors: ArrayLike) -> NDArray[np.float64]:
        """Joint marginals of several factors of one shape, shape (n, S_1 * ... * S_A)."""
        many = integers(factors, "factor numbers").astype(np.int64, copy=False).ravel()
        n = self.graph.n_factors
        if many.size and (many.min() < -n or many.max() >= n):
            bad = int(many[(many < -n) | (many >= n)][0])
            raise ModelError(f"there is no factor {bad}; the graph has {n}")
        many = np.where(many < 0, many + n, many)
        if not len(many):
            return np.zeros((0, 0))
        if len({self.graph.groups[k].shape for k in np.unique(self.graph._where[0][many])}) > 1:
            raise ModelError("factors: take factors of one shape, or m.factor(i) one by one")
        batch = getattr(self.state, "factors", None)
        joints = batch(many) if batch else None
        if joints is None:
            joints = np.array([self.factor(int(i)).ravel() for i in many])
        return joints

    def statistics(self) -> NDArray[np.float64]:
        """Expected statistics: E[d log p~ / d weight] of every weight, shape (n_weights,).

        In the order of ``graph.weights``: of a feature P(phi), of a table its joint marginal. That
        is the gradient of log Z, if the marginals are exact; of the (reweighted) Bethe value, if
        they are converged messages'.
        """
        graph = self.graph
        out = np.empty(int(graph.weight_offsets[-1]))
        for g in graph.groups:
            if g.n_weights:
                graph._put_weights(g, self._statistics(g), out)
        return out

    def _statistics(self, group: FactorGroup) -> NDArray[np.float64]:
        """Those of a group, (F, k): from its end states if it is automata, else from its joints."""
        means = getattr(self.state, "means", None)
        found = means(group) if means is not None and group.arity == 2 else None
        if found is not None:
            return found
        ends = getattr(self.state, "ends", None)
        found = ends(group) if ends is not None and group.form == "machine" else None
        if found is not None:
            return group.end_statistics(found)
        batch = getattr(self.state, "factors", None)
        joint = batch(group._ids) if batch is not None else None
        return group.statistics(self.factors(group._ids) if joint is None else joint)

    def product(self, scope: Any) -> NDArray[np.float64]:
        """Product of the marginals of some variables (numbers or names), shape (S_1, ..., S_A)."""
        single = isinstance(scope, str) or not np.iterable(scope)
        variables = [self.graph.index(v) for v in ([scope] if single else scope)]
        bits = float(np.log2(self.graph._n_states[variables]).sum())
        if bits > _MAX_JOINT_BITS:
            raise RefusedError(
                f"a joint marginal over {len(variables)} variables has 2^{bits:.0f} cells: ask for "
                "fewer of them"
            )
        out = np.ones(())
        for v in variables:
            out = out[..., None] * self[v]
        return out

    def joint(self, *variables: int | str) -> Joint:
        """The joint marginal of any variables, by name or number, as a table with names.

        ``Exact`` has that of every set whose clique tree fits. Belief propagation has it where one
        factor, or a tree of them, is all that connects the variables; elsewhere it is refused.

        >>> from minfer import Exact, FactorGraph
        >>> chain = FactorGraph.pairwise([0.5, 0.0, 0.0], [[0, 1], [1, 2]], [1.0, 1.0])
        >>> float(Exact()(chain).joint("x0", "x2")[1, 1].round(4))
        0.5386
        """
        from minfer.solvers.joints import joint

        return joint(self, [self.graph.index(v) for v in variables])

    def entropy(self) -> NDArray[np.float64]:
        """The entropy of each variable's marginal in nats, shape (V,)."""
        if not self.graph.n_variables:
            return np.zeros(0)
        p = self.probs
        each = -p * np.log(p, where=p > 0.0, out=np.zeros(len(p)))
        return np.add.reduceat(each, self.graph._offsets[:-1]) + 0.0

    def mpm(self) -> NDArray[np.int64]:
        """Maximum posterior marginal decoding: each variable's most probable state, shape (V,)."""
        return first_argmax(self.probs, self.graph._offsets)

    def max_prob(self) -> NDArray[np.float64]:
        """The probability of each variable's most probable state, shape (V,)."""
        if not self.graph.n_variables:
            return np.zeros(0)
        return np.maximum.reduceat(self.probs, self.graph._offsets[:-1])

    def to_pandas(self) -> Any:
        """A pandas Series of all marginals, its index variable and state."""
        pd = load("pandas")
        graph = self.graph
        pairs = [(graph.name(v), s) for v in range(graph.n_variables) for s in graph.states(v)]
        index = pd.MultiIndex.from_tuples(pairs, names=["variable", "state"])
        return pd.Series(np.array(self.probs), index=index, name="probability")

    def to_dict(self, variables: Iterable[int | str] | None = None) -> dict[str, Any]:
        """Plain Python values, ready for JSON; infinities and NaN become None."""
        chosen = range(self.graph.n_variables) if variables is None else variables
        check_type(chosen, Iterable, "to_dict takes a list of variables", ModelError)
        chosen, names = list(chosen), {}
        if self.graph.has_state_names:
            names = {"states": {self.graph.name(v): list(self.graph.states(v)) for v in chosen}}
        bounds = self.log_z_bounds
        return {
            "solver": repr(self.solver),
            "status": self.status.value,
            "converged": self.converged,
            "advice": self.advice,
            "note": self.note,
            "log_z": plain(self.log_z),
            "log10_z": plain(self.log_z / math.log(10)),
            "log_z_kind": self.log_z_kind.value,
            "log_z_bounds": None if bounds is None else [plain(end) for end in bounds],
            "iterations": self.iterations,
            "residual": float(self.residuals[-1]) if len(self.residuals) else None,
            "error_estimate": self._shown_error,
            "still_to_move": self.still_to_move if self.converged else None,
            "seconds": self.seconds,
            "timings": dict(self.timings),
            **names,
            "marginals": {self.graph.name(v): self[v].tolist() for v in chosen},
        }

    def __repr__(self) -> str:
        text = f"Marginals({counted(self.graph.n_variables, 'variable')}; {self.status.value}"
        if self.iterations:
            text += f" after {counted(self.iterations, 'iteration')}"
        if self._shown_error is not None:
            text += f", estimated error {self._shown_error:.2g}"
        return f"{text}; {self.solver!r}; {duration(self.seconds)})"

    def _repr_html_(self) -> str:
        """The least certain variables, and what a summary says."""
        from minfer.say import answers
        from minfer.say.tables import marginal_table

        log_z = f"log Z = {self.log_z:.6g} ({self.log_z_kind.value})"
        about = f"{answers.status(self)}, {log_z}, {self.solver!r}"
        told = {k: v for k, v in (("why", self.note), ("advice", self.advice)) if v}
        table = marginal_table(self, None, SHOWN)
        return table._replace(conclusion=about, notes=told).html("Marginals")


def _undamped(solver: Any) -> bool:
    """Whether a solver, or the one inside it, could be damped and is not."""
    if solver is None:
        return False
    own = getattr(solver, "damping", None)
    return own == 0.0 if own is not None else _undamped(getattr(solver, "solver", None))


@dataclass(frozen=True)
class Given:
    """Stands for a solver where marginals came from elsewhere: their maker's name, no more."""

    name: str

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        raise RefusedError(f"{self.name} is a name, not a solver: it cannot be run again")

    def __repr__(self) -> str:
        return self.name


def check_start(start: object) -> None:
    """What a run starts from is an earlier answer, or nothing."""
    check_type(start, (Marginals, type(None)), "a run starts from Marginals or None")


@dataclass(frozen=True)
class Plain:
    """State of a solver that leaves nothing but log Z."""

    value: float = math.nan

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> None:
        return None


def first_argmax(values: NDArray, offsets: NDArray) -> NDArray[np.int64]:
    """Within each segment the position of its (first) largest value, shape (V,)."""
    n = len(offsets) - 1
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    sizes = np.diff(offsets)
    top = np.repeat(np.maximum.reduceat(values, offsets[:-1]), sizes)
    place = np.arange(len(values)) - np.repeat(offsets[:-1], sizes)
    place = np.where(values == top, place, len(values))
    return np.minimum.reduceat(place, offsets[:-1])


def between(
    lo: NDArray[np.float64], hi: NDArray[np.float64], n_states: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The middle of intervals (sum of states,): lo + t (hi - lo), one t for each variable, so that
    its states add up to one; half for two states."""
    if not len(n_states):
        return np.zeros(0)
    starts = np.cumsum(n_states) - n_states
    low, high = np.add.reduceat(lo, starts), np.add.reduceat(hi, starts)
    span = np.where(high > low, high - low, 1.0)
    t = np.repeat(np.clip((1.0 - low) / span, 0.0, 1.0), n_states)
    p = lo + t * (hi - lo)
    return np.clip(p / np.repeat(np.add.reduceat(p, starts), n_states), lo, hi)
