"""Questions to a network through time: sequences in, passes of the kernel, answers out."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.parallel import cores, in_threads
from minfer.errors import ContradictionError, EvidenceError, SettingsError
from minfer.kernels.time.slices import (
    BEST,
    DECODE,
    FILTER,
    LINEAR,
    LOGS,
    SMOOTH,
    L,
    Observed,
    SliceAnswers,
    SlicePlans,
    run_slices,
)
from minfer.through_time.answers import Beliefs, Histories
from minfer.through_time.plan import SlicePlan
from minfer.through_time.sequences import Sequences, sequences_of

if TYPE_CHECKING:
    from minfer.through_time.dynamic import Dynamic

Floats = NDArray[np.float64]
_NO_ROWS, _NO_PATH, _NOTHING = np.empty((0, 0)), np.empty((0, 0), np.int32), np.empty(0)
#: Vectors that a pass back keeps, for as many slices as they do for, but sqrt T at least.
_KEPT = 1 << 14
_CHUNK = 4 * L  # sequences of a thread, at least


class Found(NamedTuple):
    """What passes along all sequences found."""

    beliefs: Floats  # (R, states of targets)
    path: NDArray[np.int32]  # (R, V)
    scores: Floats  # (C,)
    dead: NDArray[np.int64]  # (C,) where a sequence became impossible, or -1
    counts: Floats


class Passes:
    """Plans of the first slice and of a step, and their numbers."""

    def __init__(self, model: Dynamic) -> None:
        graph, interface = model.slice, model._interface
        card = graph._n_states.tolist()
        first = [[*c.parents, v] for v, c in enumerate(model.first)]
        step = [[*c.parents, v] for v, c in enumerate(model.step)]
        begin = SlicePlan(card, first, interface)
        self.plans = [begin, SlicePlan(card, step, interface, begin)]
        self.packed = np.concatenate([plan.ints for plan in self.plans])
        self.size = math.prod(card[v] for v in interface)
        self.n_values = max(plan.n_values for plan in self.plans)
        self._load(model)

    def _load(self, model: Dynamic) -> None:
        self.model = model
        self.tables = [[c.table for c in own] for own in (model.first, model.step)]
        self.numbers = [plan.numbers(own) for plan, own in zip(self.plans, self.tables)]
        self.packed_numbers = [np.concatenate([x[at] for x in self.numbers]) for at in (0, 1)]
        floors = [plan.floor(x[1], x[2]) for plan, x in zip(self.plans, self.numbers)]
        self.floor = max(floors)

    def loaded(self, model: Dynamic) -> Passes:
        """The same plans with another model's numbers."""
        out = copy.copy(self)
        out._load(model)
        return out

    def arguments(self, kind: int) -> SlicePlans:
        return SlicePlans(self.packed, self.packed_numbers[0 if kind == LINEAR else 1])

    # ------------------------------------------------------------ the kernel

    def run(
        self,
        task: int,
        given: Sequences,
        targets: list[int],
        *,
        best: bool = False,
        count: bool = False,
        draws: Floats | None = None,
        workers: int | None = None,
    ) -> Found:
        """Passes along all sequences, eight abreast, in threads."""
        graph = self.model.slice
        wanted = np.zeros(graph.n_variables, dtype=np.uint8)
        if count:
            wanted[:] = 2
        wanted[targets] = 1
        if targets != sorted(targets):
            found = self.run(
                task, given, sorted(targets), best=best, count=count, draws=draws, workers=workers
            )
            return found._replace(beliefs=found.beliefs[:, _columns(graph, targets)])
        total = int(given.length.sum())
        width = int(graph._n_states[targets].sum()) if task != DECODE else 0
        n_counts = self.plans[1].end if count else 0
        found = Found(
            np.zeros((total, width)) if width else _NO_ROWS,
            np.zeros((total, graph.n_variables), np.int32) if task == DECODE else _NO_PATH,
            np.zeros(given.n), np.full(given.n, -1, np.int64), np.zeros(n_counts),
        )  # fmt: skip
        out = np.cumsum(given.length) - given.length
        order = np.argsort(-given.length, kind="stable")
        floor = self.floor
        if len(given.likelihoods):
            low = float(given.likelihoods[given.likelihoods > -np.inf].min())
            floor = max(plan.floor(x[1], x[2] + low) for plan, x in zip(self.plans, self.numbers))
        kind = BEST if best else LOGS if floor >= 1.0 else LINEAR

        def some(mine: NDArray[np.int64]) -> Floats:
            return self._some(task, kind, floor, given, mine, out, wanted, draws, found)

        n_threads = min(workers or cores(), max(given.n // _CHUNK, 1))
        size = -(-given.n // max(n_threads, 1) // L) * L if n_threads > 1 else max(given.n, 1)
        parts = [order[k : k + size] for k in range(0, given.n, size)]
        for counts in in_threads(some, parts, n_threads):
            found.counts[:] += counts
        first = given.scale
        if first.any():
            found.scores[:] += np.add.reduceat(np.append(first, 0.0), given.first)
        return found

    def _some(
        self,
        task: int,
        kind: int,
        floor: float,
        given: Sequences,
        mine: NDArray[np.int64],
        out: NDArray[np.int64],
        wanted: NDArray[np.uint8],
        draws: Floats | None,
        found: Found,
    ) -> Floats:
        """Some sequences; those that linear numbers do not hold again in logarithms."""
        n = len(mine)
        listed = np.zeros((-(-n // L) * L, 3), dtype=np.int64)
        listed[:n] = np.stack([given.first[mine], given.length[mine], out[mine]], axis=1)
        scores = np.zeros((len(listed), 3))
        scores[:, 1:] = -1.0, 1.0
        counts = np.zeros(len(found.counts))
        longest = int(given.length[mine].max(initial=1))
        block = max(_KEPT // self.n_values, math.isqrt(longest - 1) + 1)
        how = np.array([kind, task, block, 1, self.size], dtype=np.int64)
        likelihoods = given.likelihoods if len(given.likelihoods) else np.zeros((1, 1))
        if kind == LINEAR:
            likelihoods = np.exp(likelihoods)
        no_draws = np.zeros((1, 1))
        run_slices(
            self.arguments(kind),
            Observed(given.states, likelihoods, listed, no_draws if draws is None else draws),
            SliceAnswers(found.beliefs, found.path, scores, _NOTHING, counts), wanted, how,
        )  # fmt: skip
        again = scores[:n, 2] < floor if kind == LINEAR else np.zeros(n, dtype=bool)
        if again.any():
            again |= len(counts) > 0  # which are of all together
            counts = self._some(task, LOGS, floor, given, mine[again], out, wanted, draws, found)
        sure = ~again
        found.scores[mine[sure]] = scores[:n][sure, 0]
        found.dead[mine[sure]] = scores[:n][sure, 1].astype(np.int64)
        return counts

    # ------------------------------------------------------------ questions

    def read(self, who: str, rows: Any, given: Mapping[str, Any]) -> tuple[Sequences, int | None]:
        """The sequences of a table, and in how many threads."""
        known = dict(given)
        workers = known.pop("workers", None)
        if workers is not None:
            check_whole(f"{who}: workers", workers, 1)
        strange = set(known) - {"case", "time", "soft", "missing"}
        if strange:
            raise SettingsError(f"{who}: there is no setting {sorted(strange)[0]!r}")
        return sequences_of(self.model.slice, rows, who, **known), workers

    def check_possible(self, who: str, given: Sequences, found: Found) -> None:
        """ContradictionError at the first time at which a case has become impossible."""
        bad = np.flatnonzero(found.dead >= 0)
        if len(bad):
            c = int(bad[0])
            raise ContradictionError(
                f"{who}: {given.place(c, int(found.dead[c]))}: what is observed has probability "
                "zero given what was observed before"
            )

    def beliefs(
        self, who: str, rows: Any, targets: Any, settings: Mapping[str, Any], horizon: int = 0
    ) -> Beliefs:
        """The answer to filter, smooth or predict."""
        given, workers = self.read(who, rows, settings)
        chosen = self.model._targets(targets)
        if targets is None and not horizon:
            there = {self.model.slice.index(name) for name in given.evidence}
            chosen = [v for v in chosen if v not in there]
            if not chosen:
                raise SettingsError(f"{who}: every variable has a column; name the targets")
        asked = given.extended(horizon) if horizon else given
        task = SMOOTH if who == "smooth" else FILTER
        found = self.run(task, asked, chosen, workers=workers)
        self.check_possible(who, given, found)
        if horizon:
            ends = asked.first + asked.length - horizon
            at = (ends[:, None] + np.arange(horizon)).ravel()
        else:
            at = given.where
        numbers = _rows(found.beliefs, at)
        return Beliefs(self.model, who, chosen, numbers, found.scores, given, horizon)

    def best(self, rows: Any, settings: Mapping[str, Any]) -> Histories:
        given, workers = self.read("best", rows, settings)
        found = self.run(DECODE, given, [], best=True, workers=workers)
        self.check_possible("best", given, found)
        path = _rows(found.path, given.where)
        return Histories(self.model, "best", path, found.scores, given)

    def log_likelihood(self, rows: Any, settings: Mapping[str, Any]) -> Floats:
        given, workers = self.read("log_likelihood", rows, settings)
        return self.run(FILTER, given, [], workers=workers).scores

    def counts(
        self, given: Sequences, workers: int | None = None
    ) -> tuple[list[list[Floats]], Floats, NDArray[np.int64]]:
        """Expected counts of the tables of the first slice and of the step, the log-likelihood of
        each sequence, and where it became impossible. A leaf that is not observed adds none."""
        found = self.run(SMOOTH, given, [], count=True, workers=workers)
        listed = [p.counts(found.counts, own) for p, own in zip(self.plans, self.tables)]
        return listed, found.scores, found.dead

    def sample(
        self,
        n: int,
        length: int | None,
        seed: int,
        evidence: Any,
        settings: Mapping[str, Any],
    ) -> Histories:
        """Sequences drawn backwards, after a pass forwards."""
        check_whole("sample: n", n, 1)
        check_whole("sample: seed", seed)
        if length is not None:
            check_whole("sample: length", length, 1)
        if evidence is None and length is None:
            raise SettingsError("sample: say how long the sequences are: length=100")
        rows = [{}] * (length or 1) if evidence is None else evidence
        given, workers = self.read("sample", rows, settings)
        if given.n != 1:
            raise EvidenceError("sample: evidence must be one sequence, with a row at least")
        if length is not None and length < int(given.length[0]):
            raise EvidenceError(
                f"sample: evidence has {int(given.length[0])} slices, more than length={length}"
            )
        one = given.extended((length or int(given.length[0])) - int(given.length[0]))
        t = int(one.length[0])
        many = Sequences(**{
            **one.__dict__, "first": np.zeros(n, np.int64), "length": np.full(n, t),
            "scale": np.zeros(0),
        })  # fmt: skip
        rng = np.random.default_rng(seed)
        draws = rng.random((n * t, max(plan.n_draws for plan in self.plans)))
        found = self.run(DECODE, many, [], draws=draws, workers=workers)
        self.check_possible("sample", given, found)
        found.scores[:] += one.scale.sum()
        return Histories(self.model, "sample", found.path, found.scores, given, n)


def _rows(x: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of an array; the array itself where they are all of it."""
    return x if len(at) == len(x) and (at == np.arange(len(at))).all() else x[at]


def _columns(graph: Any, targets: list[int]) -> NDArray[np.int64]:
    """Columns of targets in their order among those in order of their numbers."""
    sizes = graph._n_states.astype(np.int64)
    order = sorted(targets)
    start = dict(zip(order, np.cumsum([0, *sizes[order][:-1]]).tolist()))
    return np.concatenate([start[v] + np.arange(sizes[v]) for v in targets])
