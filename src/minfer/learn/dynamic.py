"""Tables of a network through time from sequences: counts, or EM where something is missing.

Every step has one table for all times. Where all cells are known they are counts; else EM: each
step of it asks for the expected counts of all families (:mod:`minfer.kernels.time.slices`, eight
sequences abreast), and normalises them. Of a hidden Markov model this is the algorithm of Baum and
Welch (1970). What is maximised, and how that is checked, is as in :mod:`minfer.learn.em`. A
leaf that is not observed is summed out, and adds no counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from minfer.basics.checks import (
    as_list,
    check_choice,
    check_flag,
    told,
)
from minfer.errors import ContradictionError, ModelError, SettingsError
from minfer.io.native import write_dynamic
from minfer.learn.em import Expected, Floats, LearnedTables, TablesByEM, dot_logs, drawn_weights
from minfer.model.states import declared_states
from minfer.through_time.dynamic import BEFORE, Dynamic
from minfer.through_time.sequences import Sequences, sequences_of

if TYPE_CHECKING:
    from minfer.io.text import PathLike

Tables = list[list[Floats]]  # of the first slice and of the step, by variable

#: Probabilities below this become zero: that of no data of any length is 1e-60.
_LEAST = 1e-60


@dataclass(eq=False, repr=False)
class DynamicNetwork(TablesByEM):
    """A network through time whose tables are learned from sequences; its structure is given.

    Parameters
    ----------
    structure : Dynamic, path, or {variable: parents}
        A network or its file; or the parents of each variable in a step, ``rain@-1`` being ``rain``
        of the slice before. In the first slice they are those of the same slice.
    states : {variable: names, or how many}, optional
        With a mapping.
    prior : "uniform" or "none"
        Pseudo-counts: ``strength`` for each cell, or none. Rows without data are uniform.
    strength : float
    tied : bool
        Whether a variable that has the same parents in the first slice and in steps, all in its own
        slice, has one table for both, as the symbols of a hidden Markov model do.
    start : "counts", "random" or "structure"
        Where EM begins: counts of what is known, random tables, or those of the structure.
    restarts : int
        Times EM is run, from the second on with random tables; the best is kept.
    max_iterations : int
    tol : float
        EM stops where a step raises the objective by at most this share of itself.
    random_state : int or None
    missing : strings that mean not observed, besides empty cells, None and NaN
    progress : bool
        Print a line for each step of EM.
    workers : int
        Threads.

    Attributes
    ----------
    model_ : Dynamic, written by `save`
    counts_ : of the first slice and of the step, {variable: array (parents..., variable)} each
    objective_ : log P(data) + sum of pseudo-counts times log theta
    log_likelihood_ : the first part of it
    trace_ : the objective of each iteration, rising
    n_iter_, converged_, status_, advice_

    Examples
    --------
    >>> rows = {"rain": ["no", "no", "yes", None, "yes"], "wet": ["no", "no", "yes", "yes", "yes"]}
    >>> parents = {"rain": ["rain@-1"], "wet": ["rain"]}
    >>> states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    >>> net = DynamicNetwork(parents, states, prior="none", tol=1e-12).fit(rows)
    >>> net.status_, net.model_.step[0].table.round(3).tolist()
    ('converged', [[0.5, 0.5], [0.0, 1.0]])
    """

    _estimator_type = "density_estimator"
    _tags: ClassVar[Mapping[str, Any]] = {"input.allow_nan": True, "input.two_d_array": False}

    structure: Any = None
    states: Mapping[str, Any] | None = None
    _: KW_ONLY
    prior: str = "uniform"
    strength: float = 1.0
    tied: bool = True
    start: str = "counts"
    restarts: int = 1
    max_iterations: int = 200
    tol: float = 1e-6
    random_state: int | None = 0
    missing: Sequence[str] = ("",)
    progress: bool = False
    workers: int = 1

    def _check_settings(self) -> None:
        check_choice("DynamicNetwork: prior", self.prior, ("uniform", "none"))
        super()._check_settings()
        for name in ("tied", "progress"):
            check_flag(f"DynamicNetwork: {name}", getattr(self, name))

    # ------------------------------------------------------------ learning

    def fit(
        self, X: Any, y: Any = None, *, case: str | None = None, time: str | None = None
    ) -> Self:
        """Learn the tables from sequences, as :meth:`minfer.Dynamic.filter` takes them."""
        self._check_settings()
        model = self._structure()
        given = self._sequences(model, X, case, time)
        if not given.n:
            raise ModelError("DynamicNetwork: there are no rows")
        same = [a.parents == b.parents for a, b in zip(model.first, model.step)]
        self._same = [self.tied and x for x in same]
        alpha = self.strength if self.prior == "uniform" else 0.0
        known, complete = _count(model, given)
        if complete:
            theta = self._normalised(known, alpha)
            score = self._prior(theta, alpha)
            likelihood = sum(map(dot_logs, *map(_flat, (known, theta))))
            found = LearnedTables(theta, known, likelihood, [likelihood + score], "counted")
        else:
            found = self._by_em(model, given, known, alpha)
        self.model_ = model.with_tables(*found.theta)
        self.counts_ = tuple(dict(zip(model.names, own)) for own in found.counts)
        self._say(found)
        return self

    def _by_em(
        self, model: Dynamic, given: Sequences, known: Tables, alpha: float
    ) -> LearnedTables[Tables]:
        """The best of some climbs."""
        rng = np.random.default_rng(self.random_state)

        def begin(start: str) -> Tables:
            if start == "structure":
                return [[c.table for c in own] for own in (model.first, model.step)]
            sure = start == "counts"
            weights = [
                [x + alpha + 0.1 if sure and x.any() else drawn_weights(rng, x.shape) for x in own]
                for own in known
            ]
            return self._normalised(weights, 0.0)

        def expect(theta: Tables) -> Expected[Tables]:
            passes = model.with_tables(*theta)._passes
            counts, scores, dead = passes.counts(given, self.workers)
            if (dead >= 0).any():
                c = int(np.argmax(dead >= 0))
                raise ContradictionError(
                    f"DynamicNetwork: {given.place(c, int(dead[c]))}: the tables to begin with "
                    'give what is observed probability zero; start="counts", or a prior, leaves '
                    "none at zero"
                )
            likelihood = float(scores.sum())
            return Expected(counts, likelihood, likelihood + self._prior(theta, alpha))

        def say(run: int, step: int, value: float) -> None:
            head = f"run {run + 1}, " if self.restarts > 1 else ""
            line = f"minfer: {head}step {step}: objective {value:.9g}"
            print(line, file=sys.stderr, flush=True)

        def improved(counts: Tables, _: Tables) -> Tables:
            return self._normalised(counts, alpha)

        return self._best_climb(begin, expect, improved, say if self.progress else None)

    def _normalised(self, counts: Tables, alpha: float) -> Tables:
        """Rows divided by their sums, those of zeros uniform; tied tables together."""
        first, step = ([x + 0.0 for x in own] for own in counts)
        for v, same in enumerate(self._same):
            if same:
                first[v] = step[v] = first[v] + step[v]
        out = []
        for own in (first, step):
            rows = []
            for x in own:
                total = (x + alpha).sum(axis=-1, keepdims=True)
                with np.errstate(invalid="ignore", divide="ignore"):
                    p = np.where(total > 0.0, (x + alpha) / total, 1.0 / x.shape[-1])
                rows.append(np.where(p < _LEAST, 0.0, p))
            out.append(rows)
        return out

    def _prior(self, theta: Tables, alpha: float) -> float:
        """Pseudo-counts times logs of the tables; a tied one counts once."""
        first = [x for x, same in zip(theta[0], self._same) if not same]
        return sum(dot_logs(np.full(x.size, alpha), x.ravel()) for x in [*first, *theta[1]])

    # ------------------------------------------------------------ input

    def _structure(self) -> Dynamic:
        given = self.structure
        if isinstance(given, str | os.PathLike):
            given = Dynamic.load(given)
        if isinstance(given, Dynamic):
            return given
        if not isinstance(given, Mapping) or self.states is None:
            raise SettingsError(
                "DynamicNetwork: structure must be a Dynamic, its file, or {variable: parents} "
                "with states={variable: names, or how many}"
            )
        if self.start == "structure":
            raise SettingsError('DynamicNetwork: start="structure" needs a Dynamic as structure')
        sizes = dict(zip(self.states, declared_states(self.states, "DynamicNetwork")[0]))
        tables: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for name in self.states:
            what = f"DynamicNetwork: structure: parents of {name!r} must be names"
            parents = as_list(given.get(name, ()), what)
            if not all(isinstance(p, str) for p in parents):
                raise SettingsError(f"{what}, not {told(parents)}")
            for own, into in zip(([p for p in parents if not p.endswith(BEFORE)], parents), tables):
                shape = [sizes.get(p.removesuffix(BEFORE), 1) for p in own]
                size = sizes[name]
                into[name] = own, np.full((*shape, size), 1.0 / size)
        for name in given:
            if name not in sizes:
                raise SettingsError(f"DynamicNetwork: states: {name!r} has none")
        return Dynamic(*tables, self.states)

    def _sequences(self, model: Dynamic, X: Any, case: str | None, time: str | None) -> Sequences:
        who = "DynamicNetwork"
        return sequences_of(model.slice, X, who, case=case, time=time, missing=self.missing)

    def score(
        self, X: Any, y: Any = None, *, case: str | None = None, time: str | None = None
    ) -> float:
        """The mean log-likelihood of a sequence."""
        self._check_fitted("score")
        found = self.model_.log_likelihood(X, case=case, time=time, missing=self.missing)
        return float(np.mean(found))

    def save(self, path: PathLike) -> None:
        """Write the network as a .minfer file."""
        self._check_fitted("save")
        write_dynamic(self.model_.unroll(2), path)


def _count(model: Dynamic, given: Sequences) -> tuple[Tables, bool]:
    """Counts of families that are known, and whether all are."""
    states, n = given.states, model.n_variables
    begins = np.zeros(len(states), dtype=bool)
    begins[given.first] = True
    past = np.vstack([states[:1], states[:-1]])
    out: Tables = []
    for own, mine in ((model.first, begins), (model.step, ~begins)):
        rows = []
        for v, family in enumerate(own):
            columns = [states[:, p] if p < n else past[:, p - n] for p in (*family.parents, v)]
            sure = mine & np.logical_and.reduce([c >= 0 for c in columns])
            at = np.ravel_multi_index([c[sure] for c in columns], family.table.shape)
            flat = np.bincount(at, minlength=family.table.size).astype(np.float64)
            rows.append(flat.reshape(family.table.shape))
        out.append(rows)
    return out, bool((states >= 0).all())


def _flat(tables: Tables) -> list[Floats]:
    return [x.ravel() for own in tables for x in own]
