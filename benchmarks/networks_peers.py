"""Bayesian networks for benchmarks/networks.py, and the same questions put to pyAgrum and pgmpy."""

from __future__ import annotations

import gzip
import pickle
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minfer
from minfer import FactorGraph, interop

OBSERVED = 0.2  # of the variables


def folder() -> Path:
    """Where the pgmpy wheel keeps bnlearn's repository."""
    found = find_spec("pgmpy")
    if found is None or found.origin is None or find_spec("pyagrum") is None:
        raise SystemExit("this needs pgmpy and pyagrum: pip install pgmpy pyagrum")
    return Path(found.origin).parent / "utils" / "example_models"


def all_networks() -> list[str]:
    """Names of the networks, the smaller files first."""
    files = sorted(folder().glob("*.bif.gz"), key=lambda path: path.stat().st_size)
    return [path.name.removesuffix(".bif.gz") for path in files]


def bundled(name: str) -> bytes:
    """A network as BIF."""
    return gzip.decompress((folder() / f"{name}.bif.gz").read_bytes())


class Net:
    """A network as minfer reads it, and the same numbers for the others.

    pyAgrum reads BIF in single precision and states' names that are words only, so it gets the
    network through :func:`minfer.interop.to_pyagrum`, in doubles.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.graph: FactorGraph = minfer.read(folder() / f"{name}.bif.gz")
        self._bytes = pickle.dumps(self.graph)
        self.names = [self.graph.name(v) for v in range(self.graph.n_variables)]
        self.labels = [list(self.graph.states(v)) for v in range(self.graph.n_variables)]

    def fresh(self) -> FactorGraph:
        """The model as if just read: nothing is prepared or kept from an earlier question."""
        return pickle.loads(self._bytes)

    @cached_property
    def pyagrum(self) -> Any:
        return interop.to_pyagrum(self.graph)

    @cached_property
    def pgmpy(self) -> Any:
        return interop.to_pgmpy(self.graph)

    def sample(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Cases drawn from the network, parents first."""
        graph = self.graph
        x = np.full((n, graph.n_variables), -1, dtype=np.int32)
        todo = list(range(graph.n_factors))
        while todo:
            f = todo.pop(0)
            *parents, child = (int(v) for v in graph.scope(f))
            if (x[0, parents] < 0).any():
                todo.append(f)
                continue
            p = np.exp(graph.log_table(f))[tuple(x[:, q] for q in parents)]
            p = np.broadcast_to(p, (n, p.shape[-1]))
            below = (np.cumsum(p, axis=1) < rng.random((n, 1))).sum(axis=1)
            x[:, child] = np.minimum(below, p.shape[1] - 1)
            lost = p[np.arange(n), x[:, child]] <= 0  # rounding: never a state that cannot be
            x[lost, child] = p[lost].argmax(axis=1)
        return x

    def observed_set(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], int]:
        """A fifth of the variables, and another one as the target."""
        order = rng.permutation(self.graph.n_variables)
        k = max(1, round(OBSERVED * self.graph.n_variables))
        return np.sort(order[:k]), int(order[k])

    def evidence(self, row: NDArray[np.int32]) -> dict[str, str]:
        """A row as {variable: state}, by names."""
        return {self.names[v]: self.labels[v][row[v]] for v in np.flatnonzero(row >= 0).tolist()}

    def frame(self, rows: NDArray[np.int32], seen: NDArray[np.integer]) -> Any:
        """The observed columns as a data frame of states' names."""
        import pandas as pd

        labels = {v: np.array(self.labels[v], dtype=object) for v in seen.tolist()}
        return pd.DataFrame({self.names[v]: labels[v][rows[:, v]] for v in seen.tolist()})


class PyAgrum:
    """Lazy propagation, its fastest exact engine, on one thread."""

    def __init__(self, model: Any, names: Sequence[str], targets: Sequence[int] | None) -> None:
        import pyagrum

        self.engine = pyagrum.LazyPropagation(model)
        self.engine.setNumberOfThreads(1)
        self.names = names
        self.targets = [names[v] for v in (range(len(names)) if targets is None else targets)]
        if targets is not None:
            self.engine.setTargets(set(self.targets))

    def first(self, evidence: Mapping[str, Any]) -> list[Any]:
        """Posteriors for evidence on other variables than before."""
        self.engine.setEvidence(dict(evidence))
        return self.answer()

    def next(self, evidence: Mapping[str, Any]) -> list[Any]:
        """The same variables are observed, in other states: its best case."""
        change = self.engine.chgEvidence
        for name, state in evidence.items():
            change(name, state)
        return self.answer()

    def answer(self) -> list[Any]:
        self.engine.makeInference()
        posterior = self.engine.posterior
        return [posterior(name).toarray() for name in self.targets]


class Pgmpy:
    """Variable elimination, one target."""

    def __init__(self, model: Any, target: str) -> None:
        from pgmpy.inference import VariableElimination

        self.engine, self.target = VariableElimination(model), target

    def __call__(self, evidence: Mapping[str, str]) -> NDArray[np.float64]:
        found = self.engine.query([self.target], dict(evidence), show_progress=False)
        return found.values / found.values.sum()


class TooLong(Exception):
    """A call was stopped at its limit."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Stop what runs longer, in real time; as soon as it is back in Python."""

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
