"""What estimators of networks are given: structures, and tables of cases column by column."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minfer.basics.checks import brief
from minfer.errors import ModelError, SettingsError, visible
from minfer.learn.estimator import Estimator
from minfer.model.evidence import Factorised, is_array, table_of
from minfer.prediction import files

_ALL_ROWS = 1 << 31  # of a file


def nodes_and_edges(given: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """Of a list of edges, {child: parents}, or an object that has both."""
    nodes: Iterable[Any] = ()
    edges = given
    if isinstance(given, Mapping):
        for child, own in given.items():
            if not isinstance(own, Iterable):
                raise SettingsError(
                    f"BayesianNetwork: the parents of {visible(str(child))} must be a list "
                    f"of names, not {brief(own)}"
                )
        nodes, of = given, {c: [own] if isinstance(own, str) else own for c, own in given.items()}
        edges = [(p, child) for child, own in of.items() for p in own]
    elif hasattr(given, "edges"):
        edges = given.edges() if callable(given.edges) else given.edges
        nodes = getattr(given, "nodes", ())
        nodes = nodes() if callable(nodes) else nodes
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        raise SettingsError(
            "BayesianNetwork: structure must be a list of edges (parent, child), {child: "
            f"parents}}, a Bayesian network or its file, not {brief(given)}"
        )
    out = []
    for edge in edges:
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise SettingsError(
                f"BayesianNetwork: an edge must be a pair (parent, child), not {brief(edge)}"
            )
        out.append((str(edge[0]), str(edge[1])))
    return [str(x) for x in nodes], out


@contextmanager
def columns_of(
    owner: Estimator, X: Any, reset: bool
) -> Iterator[tuple[list[str], Callable[[list[str]], dict[str, Factorised]]]]:
    """Names of the columns of a table of any kind, or a file, and what reads some of them."""
    name = type(owner).__name__
    if isinstance(X, str | os.PathLike):
        with files.open_cases(X, name) as source:
            owner._check_width(len(source.names), source.names, reset)

            def read_whole(columns: list[str]) -> dict[str, Factorised]:
                found = list(source.tables(columns, _ALL_ROWS))
                if not found:
                    raise ModelError(_empty(name, 0, len(source.names)))
                [table] = found
                return {c: table.column(c) for c in columns}

            yield source.names, read_whole
        return
    plain = hasattr(X, "tocsr") or is_array(X)
    if not plain:
        table = table_of(X, who=name)  # or says what may be given
    else:
        x = owner._array(X)
        if x.dtype.kind == "f" and np.isinf(x).any():
            raise ModelError(f"{name}: X has infinity, which is not a state (NaN or inf)")
        table = table_of(x, [f"x{k}" for k in range(x.shape[1])], name)
    owner._check_width(len(table.names), None if plain else table.names, reset)
    if not table.n or not table.names:
        raise ModelError(_empty(name, table.n, len(table.names)))
    yield table.names, lambda columns: {c: table.column(c) for c in columns}


def _empty(name: str, rows: int, columns: int) -> str:
    what = "sample" if columns else "feature"
    return (
        f"{name}: found a table with 0 {what}(s) (shape=({rows}, {columns})) while a minimum of 1 "
        "is required."
    )


def state_name(value: Any) -> str:
    """The name of a state that a value is."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
