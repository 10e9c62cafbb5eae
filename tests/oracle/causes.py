"""Noisy gates written out by the sum over all that their causes may draw, and networks of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from minfer import FactorGraph, NoisyAnd, NoisyMax, NoisyMin, NoisyOr


def written_out(rows: list[np.ndarray], leak: np.ndarray, highest: bool) -> np.ndarray:
    """The table (parents..., child): every draw of every cause, one by one."""
    size = len(leak)
    table = np.zeros([*(len(q) for q in rows), size])
    for x in np.ndindex(*table.shape[:-1]):
        given = [q[s] for q, s in zip(rows, x)]
        now = dict(enumerate(leak))
        for q in given:
            then = dict.fromkeys(range(size), 0.0)
            for (s, p), z in product(now.items(), range(size)):
                then[max(s, z) if highest else min(s, z)] += p * q[z]
            now = then
        table[x] = [now[s] for s in range(size)]
    return table


def _binary(p: Any, n: int, towards: int) -> np.ndarray:
    """As an entry's numbers say: of one state, or of each."""
    values = np.asarray(p, dtype=float)
    if values.ndim == 0:
        values = np.array([p if s == towards else 0.0 for s in range(n)])
    yes = values if towards else 1.0 - values
    return np.stack([1.0 - yes, yes], axis=1)


def table_of(entry: Any, sizes: list[int], size: int) -> np.ndarray:
    """The table that an entry of a network stands for."""
    given = list(entry.causes.values())
    if isinstance(entry, (NoisyOr, NoisyAnd)):
        towards = int(isinstance(entry, NoisyOr))
        rows = [_binary(p, n, towards) for p, n in zip(given, sizes)]
        leak = _binary([entry.leak], 1, towards)[0]
    else:
        rows = [np.asarray(q, dtype=float) for q in given]
        none = 0 if isinstance(entry, NoisyMax) else size - 1
        leak = np.eye(size)[none] if entry.leak is None else np.asarray(entry.leak, dtype=float)
    return written_out(rows, leak, isinstance(entry, (NoisyOr, NoisyMax)))


def tables_for(states: dict[str, int], entries: dict[str, Any]) -> dict[str, Any]:
    """The same entries, all of them tables."""
    out = {}
    for name, entry in entries.items():
        if isinstance(entry, (NoisyOr, NoisyAnd, NoisyMax, NoisyMin)):
            parents = list(entry.causes)
            out[name] = parents, table_of(entry, [states[p] for p in parents], states[name])
        else:
            out[name] = entry
    return out


def network(n: int) -> FactorGraph:
    """n causes of one effect with three states, and what it entails, called as if by number."""
    rng = np.random.default_rng(n)
    *names, y, z = (f"x{i}" for i in range(n + 2))
    rows = {name: np.vstack([[1.0, 0.0, 0.0], rng.dirichlet(np.ones(3))]) for name in names}
    return FactorGraph.network(
        {**dict.fromkeys(names, 2), y: 3, z: 2},
        {
            **{name: [0.7, 0.3] for name in names},
            y: NoisyMax(rows, leak=[0.8, 0.15, 0.05]),
            z: NoisyOr({y: [0.0, 0.4, 0.9], "x0": 0.3}, leak=0.05),
        },
    )


def drawn(rng: np.random.Generator) -> tuple[dict[str, int], dict[str, Any]]:
    """States and entries of a random network: gates of up to six parents, zeros among them."""
    n = int(rng.integers(3, 9))
    card = [int(rng.integers(2, 4)) for _ in range(n)]
    entries: dict[str, Any] = {}

    def thinned(p: np.ndarray) -> np.ndarray:
        return np.where(rng.random(p.shape) < 0.3, 0.0, p)

    def distributions(rows: int, size: int) -> np.ndarray:
        q = thinned(rng.dirichlet(np.ones(size), size=rows))
        q[:, rng.integers(size)] += 0.01
        return q / q.sum(axis=1, keepdims=True)

    for i in range(n):
        parents = rng.permutation(i)[: rng.integers(0, min(i, 6) + 1)].tolist()
        names, size = [f"v{p}" for p in parents], card[i]
        if not parents or rng.random() < 0.2:
            shape = [card[p] for p in parents[:2]]
            table = rng.dirichlet(np.ones(size), size=shape)
            entries[f"v{i}"] = (names[:2], table) if parents else table
        elif size == 2 and rng.random() < 0.6:
            gate = NoisyOr if rng.random() < 0.5 else NoisyAnd
            scalar = rng.random() < 0.5
            p: Any = {}
            for x, v in zip(names, parents):
                p[x] = rng.random() if scalar and card[v] == 2 else thinned(rng.random(card[v]))
            entries[f"v{i}"] = gate(p, leak=rng.random() if rng.random() < 0.5 else 0.0)
        else:
            gate = NoisyMax if rng.random() < 0.5 else NoisyMin
            rows = {x: distributions(card[v], size) for x, v in zip(names, parents)}
            leak = distributions(1, size)[0] if rng.random() < 0.5 else None
            entries[f"v{i}"] = gate(rows, leak)
    return {f"v{i}": s for i, s in enumerate(card)}, entries
