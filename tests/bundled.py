"""Bayesian networks for tests: those that come with pgmpy, and drawn ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minfer
from minfer import FactorGraph


def bundled(name: str) -> FactorGraph:
    """A network that comes with pgmpy, read by us."""
    found = importlib.util.find_spec("pgmpy")
    if found is None or found.origin is None:
        pytest.skip("pgmpy is not installed")
    file = Path(found.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    if not file.exists():
        pytest.skip(f"this pgmpy brings no {name}.bif.gz")
    return minfer.read(file)


def drawn_network(rng: np.random.Generator, n: int) -> FactorGraph:
    """A Bayesian network with zeros, so that some evidence is impossible."""
    sizes = rng.integers(2, 5, n).tolist()
    states: dict[str, list[str]] = {}
    tables: dict[str, Any] = {}
    for v, size in enumerate(sizes):
        states[f"v{v}"] = [f"s{k}" for k in range(size)]
        chosen = rng.choice(v, min(v, int(rng.integers(0, 4))), replace=False) if v else []
        parents = [int(p) for p in chosen]
        p = rng.dirichlet(np.full(size, 0.6), size=tuple(sizes[p] for p in parents))
        p[(p < 0.3) & (rng.random(p.shape) < 0.4)] = 0
        p /= p.sum(axis=-1, keepdims=True)
        tables[f"v{v}"] = ([f"v{p}" for p in parents], p)
    return FactorGraph.network(states, tables)
