"""``fit``: weights from instances, by any objective; and what was learned.

The status is about the objective itself, evaluated cold and converged at the weights that are
returned: ``converged`` means that no entry of its gradient is larger than ``tol``. Data that do not
bound their weights, as separable data without a penalty, are found out by going further: where
twice the largest weights have a lower loss, the status is ``diverging``.
"""

from __future__ import annotations

import ast
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    check_choice,
    check_flag,
    check_number,
    check_whole,
    real_numbers,
    told,
)
from minfer.errors import MinferError, ModelError, RefusedError, SettingsError
from minfer.io.opening import reading
from minfer.learn.model import Instance, LogLinear, check_instances
from minfer.learn.objectives import (
    OBJECTIVES,
    MaxMargin,
    Objective,
    Perceptron,
    objective_of,
)
from minfer.learn.optimise import OptimiserState, Penalty, Row, Stop, adam, lbfgs
from minfer.learn.save import digest, read_arrays, saved_weights, write_arrays
from minfer.learn.workers import Data, GivenShards, portions_of

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.io.text import PathLike
    from minfer.solvers.base import Marginals

METHODS = ("lbfgs", "adam")
HIDDEN = ("marginal", "em")
#: Weights beyond which a penalty is advised whatever else holds, and those not to be doubled.
LARGE, FAR = 1e3, 1e100

_ADVICE = {
    "diverging": "the data do not bound the weights (they may be separable): give l2=1e-3, or l1; "
    "or steps were too long: scale huge features down, lower the learning rate",
    "max iterations": "raise max_iters",
    "max epochs": "raise epochs, or evaluate the trace: it may be close enough",
    "stalled": "the line search found no lower value: loosen tol, tighten the solver's tol, use "
    "an objective whose inference converges, or (max-margin has kinks) method='adam'",
    "early stopping": "",
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learned.

    Attributes
    ----------
    weights : float array (W,)
    names : the weights' names
    objective : Objective
    converged : bool
        Whether no entry of the objective's gradient, cold and converged, is larger than ``tol``.
    status : str
        "converged", "max iterations", "max epochs", "early stopping" (the weights are those best on
        the dev data, not the last ones), "stalled" or "diverging".
    loss, value : float
        Mean loss per label, without and with the penalty.
    gradient : float
        The largest entry of the objective's gradient.
    inference_converged : bool
        Whether the solver's runs at these weights converged.
    trace : list of Row
    seconds : float
        CPU seconds of inference, all workers together.
    comparison : list of dict
        What ``compare=True`` printed.
    """

    weights: NDArray[np.float64]
    names: tuple[str, ...]
    objective: Objective
    status: str
    loss: float = math.nan
    value: float = math.nan
    gradient: float = math.nan
    inference_converged: bool = True
    trace: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    comparison: list[dict[str, Any]] = field(default_factory=list)
    model: LogLinear | None = None

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    @property
    def advice(self) -> str:
        """What to do about the status, in a sentence; empty where nothing needs doing."""
        advice = _ADVICE.get(self.status, "")
        if not self.inference_converged:
            more = "the solver did not converge at these weights: raise its max_iters, or damp it"
            advice = f"{advice}; {more}" if advice else more
        return advice

    def __getitem__(self, name: str) -> float:
        """A weight by name."""
        if name not in self.names:
            raise ModelError(f"there is no weight {name!r}; they begin {', '.join(self.names[:5])}")
        return float(self.weights[self.names.index(name)])

    def to_dict(self) -> dict[str, float]:
        """{name: weight}."""
        return dict(zip(self.names, self.weights.tolist()))

    def graph(self, instance: Instance) -> FactorGraph:
        """An instance's graph with these weights."""
        if not isinstance(instance, Instance):
            raise ModelError(f"give one Instance at a time, not {type(instance).__name__}")
        return instance.graph_at(self.weights)

    def marginals(self, instance: Instance, solver: Any = None) -> Marginals:
        """Marginals of an instance, by the solver that was trained with."""
        return (solver or self.objective.predictor)(self.graph(instance))

    def predict(self, instance: Instance, solver: Any = None) -> NDArray[np.int64]:
        """The most probable state of each variable of an instance, shape (V,)."""
        return self.marginals(instance, solver).mpm()

    def scores(
        self, instances: Sequence[Instance] | Instance, solver: Any = None
    ) -> dict[str, float]:
        """Error rate and log-loss of the marginals at the labels of some instances."""
        wrong = loss = n = 0.0
        for one in check_instances(instances):
            m = self.marginals(one, solver)
            best, offsets = m.mpm(), one.graph._offsets[:-1]
            for row in one.labels:
                known = row >= 0
                wrong += float((best != row)[known].sum())
                p = m.probs[offsets[known] + row[known]]
                loss -= float(np.log(np.maximum(p, 1e-300)).sum())
                n += float(known.sum())
        return {"error": wrong / n, "log_loss": loss / n}

    def save(self, path: PathLike) -> None:
        """Write weights, names and how they were found; :meth:`load` reads it. No pickle."""
        write_arrays(path, "fitted model", self._header(), {"weights": self.weights})

    def _header(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "objective": self.objective.name,
            "settings": repr(self.objective),
            "status": self.status,
            "numbers": [self.loss, self.value, self.gradient, self.seconds],
            "inference_converged": self.inference_converged,
            "trace": [list(row) for row in self.trace],
        }

    @classmethod
    def load(cls, path: PathLike, objective: str | Objective | None = None) -> Fitted:
        """Read what :meth:`save` wrote. Pass an objective with its own settings again."""
        header, arrays = read_arrays(path, "fitted model")
        return cls._read(path, header, arrays, objective)

    @classmethod
    def _read(
        cls, path: PathLike, header: Any, arrays: Any, objective: str | Objective | None
    ) -> Fitted:
        with reading(path, "a fitted model is needed"):
            known = objective_of(objective if objective is not None else header["objective"])
            told_ = str(header["settings"])
            loss, value, gradient, seconds = map(float, header["numbers"])
            weights = saved_weights(arrays["weights"])
            names = tuple(str(name) for name in header["names"])
            if weights.shape != (len(names),):
                raise ValueError("weights and names do not match")
            found = cls(
                weights, names, known, str(header["status"]), loss, value, gradient,
                bool(header["inference_converged"]), [Row(*row) for row in header["trace"]],
                seconds,
            )  # fmt: skip
        if known.name != header["objective"]:
            raise SettingsError(
                f"{path} was fitted with the objective {told_}, not with {known.name!r}: leave "
                "objective= out, or give that one"
            )
        if objective is None and not _agree(told_, repr(known)):
            raise SettingsError(
                f"{path} was fitted with an objective of its own, {told_}: give it as objective="
            )
        return found

    def __repr__(self) -> str:
        return (
            f"Fitted({len(self.weights)} weights by {self.objective.name}; {self.status}; "
            f"loss {self.loss:.6g})"
        )


def fit(
    data: Any,
    objective: str | Objective = "trw",
    *,
    l2: ArrayLike = 0.0,
    l1: ArrayLike = 0.0,
    method: str = "lbfgs",
    names: Sequence[str] | LogLinear | None = None,
    start: ArrayLike | None = None,
    tol: float = 1e-5,
    max_iters: int = 500,
    epochs: int = 100,
    batch_size: int | None = None,
    accumulate: int = 1,
    learning_rate: float = 0.05,
    decay: bool = True,
    warm: bool = True,
    sweeps: int | None = 2,
    evaluate_every: int = 10,
    hidden: str = "marginal",
    dev: Any = None,
    patience: int | None = None,
    progress: bool = False,
    checkpoint: PathLike | None = None,
    checkpoint_every: int = 10,
    seed: int = 0,
    workers: int = 1,
    engine: str = "local",
    compare: bool | Sequence[str | Objective] = False,
) -> Fitted:
    """Weights that minimise an objective over instances.

    Parameters
    ----------
    data : Instances, or portions: callables that load some, as :func:`minfer.learn.shards` makes
    objective : name or Objective
        "likelihood", "trw", "bethe", "pseudolikelihood", "marginals", "marginals-squared",
        "perceptron" or "max-margin"; see :mod:`minfer.learn.objectives`.
    l2, l1 : float, or one for each weight
        Penalties l2/2 w^2 and l1 abs(w) beside the *mean* loss of a label.
    method : "lbfgs" or "adam"
        All data at each step, cold and converged; or warm mini-batches of ``batch_size`` instances.
    names : names of the weights, or the LogLinear model that made the instances
    start : float array (W,), zeros by default
    tol : float
        Converged: no entry of the gradient is larger.
    max_iters : int
        For L-BFGS.
    epochs, batch_size, accumulate, learning_rate, decay
        For Adam: passes over the data; instances in a batch; batches to a step; its learning rate,
        which falls to zero over the epochs with ``decay``. Batches keep their members, in an order
        that is drawn anew for each epoch.
    warm, sweeps
        For Adam: steps begin with the messages of the step before and make so many sweeps at most
        (None: until they converge).
    evaluate_every : int
        Epochs from one cold, converged evaluation of everything to the next.
    hidden : "marginal" or "em"
        How hidden variables of likelihoods are summed out: by the gradient, or by
        expectation-maximisation.
    dev : Instances, optional
        The weights with the lowest objective on these are returned.
    patience : int, optional
        Stop after so many evaluations (iterations of L-BFGS) without a better one on dev data.
    progress : bool
        Print the trace on stderr.
    checkpoint : path, optional
        Written every ``checkpoint_every`` iterations, at every evaluation of Adam; if it exists,
        the run continues from there and ends with the same result, bit for bit. ``max_iters`` and
        ``patience`` may be raised meanwhile.
    workers, engine : int, "local" or "ray"
        Processes, or actors of Ray, that share the portions; results do not depend on them.
    compare : bool, or objectives
        Fit the other objectives too and print them side by side on the dev data.
    """
    settings = dict(locals())
    objective = objective_of(objective)
    check_choice("method", method, METHODS)
    check_choice("hidden", hidden, HIDDEN)
    check_choice("engine", engine, ("local", "ray"))
    check_number("tol", tol, 0.0)
    check_number("learning_rate", learning_rate, above=0.0)
    counts = "max_iters", "epochs", "accumulate", "evaluate_every", "workers", "checkpoint_every"
    for name in counts:
        check_whole(name, settings[name], 1)
    for name in ("batch_size", "sweeps", "patience"):
        if settings[name] is not None:
            check_whole(name, settings[name], 1)
    for name in ("decay", "warm", "progress"):
        check_flag(name, settings[name])
    check_whole("seed", seed, 0)
    if isinstance(compare, str):
        raise SettingsError(
            f"compare must be True or a list of objectives, such as [{told(compare)}]"
        )
    if isinstance(objective, Perceptron) and not objective.margin and method == "lbfgs":
        raise SettingsError(
            "the perceptron's loss is least at w = 0: give method='adam', or take max-margin"
        )
    if patience is not None and dev is None:
        raise SettingsError("patience needs dev data: give dev=")
    if hidden == "em" and (method != "lbfgs" or not hasattr(objective, "solver")):
        raise SettingsError("hidden='em' is for likelihoods by L-BFGS")
    portions = portions_of(data, batch_size if method == "adam" else None)
    held_out = None if dev is None else check_instances(dev)
    fitted = _fit(portions, objective, held_out, settings, checkpoint, checkpoint_every)
    if compare is not False:
        if held_out is None:
            raise SettingsError("compare needs held-out data: give dev=")
        others = [one for one in OBJECTIVES.values() if one.name != objective.name]
        if compare is not True:
            others = [objective_of(one) for one in compare]
        rows = _compared(fitted, portions, held_out, others, settings)
        fitted = replace(fitted, comparison=rows)
    return fitted


def _fit(
    portions: list[Any], objective: Objective, dev: list[Instance] | None, s: dict[str, Any],
    checkpoint: PathLike | None = None, checkpoint_every: int = 1,
) -> Fitted:  # fmt: skip
    batch_size = s["batch_size"] if s["method"] == "adam" else None
    with closing(
        Data(portions, objective, batch_size=batch_size, workers=s["workers"], engine=s["engine"])
    ) as data:
        n = data.n_weights
        names, model = _names(s["names"], n)
        penalty = Penalty(_per_weight("l1", s["l1"], n), _per_weight("l2", s["l2"], n))
        begin = np.zeros(n)
        if s["start"] is not None:
            begin = np.array(real_numbers(s["start"], "start", SettingsError), dtype=np.float64)
            if begin.shape != (n,):
                raise SettingsError(f"start: expected {n} weights, not {begin.shape}")
            if not np.isfinite(begin).all():
                raise SettingsError("start has a NaN or infinity")
        mark = digest(
            repr(objective), repr({k: v for k, v in s.items() if k in _MARKED}), data.labels,
            penalty.l1, penalty.l2, begin, *_contents(portions),
        )  # fmt: skip
        state = OptimiserState(begin, stop=Stop(s["patience"]))
        if checkpoint is not None and os.path.exists(checkpoint):
            state = _resumed(checkpoint, mark, s["patience"], n)
        state.began = data.seconds - (state.trace[-1].seconds if state.trace else 0.0)
        if dev is not None:  # the perceptron's own loss is least at w = 0
            judge = MaxMargin() if isinstance(objective, Perceptron) else objective
            held_out = Data(portions_of(dev, batch_size), judge)
            state.dev = lambda w: held_out.evaluate(w).value
        state.progress = _printer(objective.name) if s["progress"] else None
        if checkpoint is not None:
            state.save, state.save_every = partial(_save, checkpoint, mark), checkpoint_every
        over = bool(state.done)  # or may a run that a checkpoint says is over go on by now?
        if state.done == "early stopping":
            over = state.stop.over
        elif state.done == "max iterations":
            over = state.step >= s["max_iters"]
        if over:
            status = state.done
        elif s["hidden"] == "em":
            status = _em(data, state, penalty, s)
        elif s["method"] == "lbfgs":
            status = lbfgs(data, state, penalty, tol=s["tol"], max_iters=s["max_iters"])
        else:
            warm = s["warm"] and objective.warm
            status = adam(data, state, penalty, {**s, "warm": warm})
        state.done = status
        state.keep(now=True)
        w = state.weights
        if state.stop.weights is not None and status != "diverging":
            w = state.stop.weights  # the best on dev data
            if status == "converged" and not np.array_equal(w, state.weights):
                status = "early stopping"
        seconds = state.trace[-1].seconds if state.trace else data.seconds
        return _finished(data, w, penalty, status, s["tol"], Fitted(
            w, names, objective, status, trace=state.trace, seconds=seconds, model=model,
        ))  # fmt: skip


#: Settings that a checkpoint depends on.
_MARKED = (
    "method", "tol", "epochs", "batch_size", "accumulate", "learning_rate", "decay", "warm",
    "sweeps", "evaluate_every", "hidden", "seed",
)  # fmt: skip


def _finished(
    data: Data, w: NDArray, penalty: Penalty, status: str, tol: float, fitted: Fitted
) -> Fitted:
    """With the objective as it is at the weights, cold and converged, and the status it earns."""
    e = data.evaluate(w)
    gradient = float(np.abs(penalty.gradient(w, e.gradient)).max(initial=0.0))
    if status in ("converged", "stalled", "max iterations", "max epochs"):
        if gradient <= tol:
            status = "converged"
        elif status == "converged":
            status = "stalled"
        if _unbounded(data, w, penalty, e.value):
            status = "diverging"
    return replace(
        fitted, status=status, loss=e.value, value=e.value + penalty.value(w), gradient=gradient,
        inference_converged=e.converged,
    )  # fmt: skip


def _unbounded(data: Data, w: NDArray, penalty: Penalty, loss: float) -> bool:
    """Whether the loss falls on where the largest weights without a penalty are doubled."""
    free = (penalty.l1 == 0) & (penalty.l2 == 0)
    top = float(np.abs(w[free]).max(initial=0.0))
    if top < 1.0 or not math.isfinite(loss):
        return False
    if top > FAR:
        return True
    further = np.where(free & (np.abs(w) >= 0.5 * top), 2.0 * w, w)
    try:
        value = data.evaluate(further).value
    except MinferError:
        return False
    return top > LARGE or value < loss


def _em(data: Data, state: OptimiserState, penalty: Penalty, s: dict[str, Any]) -> str:
    """Expectation of the hidden, then maximisation, until the whole gradient is small."""
    while state.step < s["max_iters"]:
        data.freeze(None)
        e = data.evaluate(state.weights)
        if not math.isfinite(e.value):
            return "diverging"
        w = state.weights
        largest = float(np.abs(penalty.gradient(w, e.gradient)).max(initial=0.0))
        if not state.trace or state.trace[-1].step < state.step:  # else a run goes on here
            state.row(data, e.value, e.value + penalty.value(w), largest)
            if state.stop.over:
                return "early stopping"
        if largest <= s["tol"]:
            return "converged"
        data.freeze(w)
        inner = OptimiserState(w)
        ended = lbfgs(data, inner, penalty, tol=0.1 * min(largest, 1.0), max_iters=25)
        data.freeze(None)
        if ended == "diverging":
            return ended
        if np.array_equal(inner.weights, w):
            return "stalled"
        state.weights, state.step = inner.weights, state.step + 1
    return "max iterations"


# ---------------------------------------------------------------------- side by side


def _compared(
    fitted: Fitted, portions: list[Any], dev: list[Instance], others: list[Objective],
    settings: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """Each objective fitted and judged on held-out data; prints a table, a line when it is known,
    and on stderr what is being fitted: max-margin may take many times as long as the others."""
    print(f"{'objective':<18}{'error':>8}{'log-loss':>10}{'CPU s':>8}  status", flush=True)
    rows = [_judged(fitted, dev)]
    _print_row(rows[0])
    for k, objective in enumerate(others, 1):
        print(f"compare: fitting {objective.name}, {k} of {len(others)}", file=sys.stderr)
        began = {**settings, "progress": False}
        if objective.name == "perceptron":
            began |= {"method": "adam", "hidden": "marginal"}
        try:
            rows.append(_judged(_fit(portions, objective, dev, began), dev))
        except RefusedError as error:
            rows.append({"objective": objective.name, "refused": str(error)})
        _print_row(rows[-1])
    return rows


def _print_row(row: dict[str, Any]) -> None:
    told = f"  {row['refused']}" if "refused" in row else (
        f"{row['error']:>8.4f}{row['log_loss']:>10.4f}{row['seconds']:>8.2f}  {row['status']}"
    )  # fmt: skip
    print(f"{row['objective']:<18}{told}", flush=True)


def _judged(fitted: Fitted, dev: list[Instance]) -> dict[str, Any]:
    return {
        "objective": fitted.objective.name,
        **fitted.scores(dev),
        "seconds": fitted.seconds,
        "status": fitted.status,
        "weights": fitted.weights,
    }


# ---------------------------------------------------------------------- small parts


def _names(given: Any, n: int) -> tuple[tuple[str, ...], LogLinear | None]:
    if isinstance(given, str):
        raise SettingsError(f"names must be a list, one for each weight, not {told(given)}")
    model = given if isinstance(given, LogLinear) else None
    names = tuple(model.names if model is not None else given or (f"w{j}" for j in range(n)))
    if len(names) != n or len(set(names)) < n:
        raise ModelError(f"names: expected {n} distinct names, not {len(set(names))}")
    return names, model


def _per_weight(what: str, value: ArrayLike, n: int) -> NDArray[np.float64]:
    numbers = real_numbers(value, what, SettingsError).astype(np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != n):
        raise SettingsError(f"{what} must be a number, or one for each of {n} weights")
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise SettingsError(f"{what} must be finite and not negative")
    return np.broadcast_to(numbers, (n,)).copy()


def _contents(portions: list[Any]) -> list[Any]:
    """What tells data in memory from other data; files are told by their names."""
    out: list[Any] = []
    for portion in portions:
        if not isinstance(portion, GivenShards):
            out.append(repr(portion))
            continue
        for one in portion.instances:
            x = one.features
            out += [one.labels, one.graph.weights, one.graph._n_states, one.graph.field]
            out += [part for g in one.graph.groups for part in (repr(type(g)), g._scope)]
            out += [x] if isinstance(x, np.ndarray) else [x.data, x.indices, x.indptr]
    return out


def _printer(name: str) -> Callable[[Row], None]:
    began = time.perf_counter()

    def tell(row: Row) -> None:
        dev = "" if math.isnan(row.dev) else f"  dev {row.dev:.6f}"
        print(
            f"{name} {row.step:>5}  objective {row.objective:.6f}  gradient "
            f"{row.gradient:.1e}{dev}  {time.perf_counter() - began:.1f} s",
            file=sys.stderr,
        )

    return tell


def _save(path: PathLike, mark: str, state: OptimiserState) -> None:
    header, arrays = state.pack()
    write_arrays(path, "checkpoint", {"mark": mark, "state": header}, arrays)


def _resumed(path: PathLike, mark: str, patience: int | None, n: int) -> OptimiserState:
    header, arrays = read_arrays(path, "checkpoint")
    if header.get("mark") != mark:
        raise SettingsError(
            f"{path} is a checkpoint of other data or settings: remove it to start over, or name "
            "another file"
        )
    with reading(path, "a checkpoint is needed"):
        state = OptimiserState.unpack(header["state"], arrays, n)
    state.stop.patience = patience
    return state


def _agree(one: str, other: str) -> bool:
    """Whether two settings written by ``repr`` are the same where both have them.

    A later version may have gained a setting, or lost one.
    """
    if one == other:
        return True
    try:
        return _same(*(ast.parse(text, mode="eval").body for text in (one, other)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no settings at all
        return False


def _same(a: ast.expr, b: ast.expr) -> bool:
    if not (isinstance(a, ast.Call) and isinstance(b, ast.Call)):
        return ast.dump(a) == ast.dump(b)
    mine, theirs = ({word.arg: word.value for word in call.keywords} for call in (a, b))
    return (
        ast.dump(a.func) == ast.dump(b.func)
        and len(a.args) == len(b.args)
        and all(map(_same, a.args, b.args))
        and all(_same(mine[name], theirs[name]) for name in mine.keys() & theirs.keys())
    )
