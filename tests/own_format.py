"""A file format of somebody's own, in one file: fields and bonds of binary variables.

``ISING``, the number of variables, their fields, the number of bonds, and i, j, w of each: the
bond adds w where both variables are on.
"""

from __future__ import annotations

import numpy as np

from minfer import FactorGraph
from minfer.errors import FormatError
from minfer.io.formats import Format
from minfer.io.text import write_bytes

FORMAT = Format("ising", "ising", (".ising",), rb"ISING(?![A-Za-z])")


def parse_ising(name: str, data: bytes) -> FactorGraph:
    """The model in ``data``; ``name`` is the file for messages."""
    try:
        _, n, *words = data.split()
        h = np.array(words[: int(n)], dtype=float)
        bonds = np.array(words[int(n) + 1 :], dtype=float).reshape(int(words[int(n)]), 3)
    except (ValueError, IndexError):
        raise FormatError(f"{name}: not the numbers that ISING files have") from None
    graph = FactorGraph.empty([2] * len(h)).tilt(np.stack([np.zeros_like(h), h], axis=1).ravel())
    table = [[[0.0, 0.0], [0.0, w]] for w in bonds[:, 2]]
    return graph.add_tables(bonds[:, :2].astype(int), table)


def write_ising(graph: FactorGraph, path) -> None:
    """Write a model of such factors."""
    [pairs], field = graph.groups, graph.field.reshape(-1, 2)
    w = pairs.log_tables()[:, 3]
    lines = [f"{i} {j} {x!r}" for (i, j), x in zip(pairs.scope.tolist(), w.tolist(), strict=True)]
    text = ["ISING", str(len(field)), *map(repr, (field[:, 1] - field[:, 0]).tolist())]
    write_bytes(path, "\n".join([*text, str(len(lines)), *lines, ""]).encode())
