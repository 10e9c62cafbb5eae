"""Exact samples of the posterior: states drawn clique by clique, from the roots of a clique tree.

After one pass of sums each clique's table at given states of its separator is proportional to the
probabilities of its other states. Samples with the same separator states share that table. A state
of probability zero is never drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_flag, check_graph, check_whole, load
from minfer.basics.notebook import Face, Faced
from minfer.basics.words import and_more, counted
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import clique_tree
from minfer.errors import ModelError
from minfer.graph import FactorGraph, with_any_evidence
from minfer.model.evidence import Evidence
from minfer.queries.cliques import Cliques, check_fits, with_tree
from minfer.queries.conflicts import locates

_BLOCK = 1 << 22  # cells of separate tables at a time
_ROWS, _COLUMNS = 10, 10  # of samples that are shown


class Samples(Faced, np.ndarray):
    """States of all variables, an int array (n, V), with names."""

    variables: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, x: NDArray, graph: FactorGraph) -> Samples:
        out = x.view(cls)
        out.variables = tuple(graph.name(v) for v in range(graph.n_variables))
        out.states = tuple(graph.states(v) for v in range(graph.n_variables))
        return out

    def __array_finalize__(self, other: Any) -> None:
        self.variables = getattr(other, "variables", ())
        self.states = getattr(other, "states", ())

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if plain.ndim == 0 else plain

    def __getitem__(self, key: Any) -> Any:
        """As of any array, but plain; by a variable's name its column."""
        if isinstance(key, str):
            if key not in self.variables:
                raise ModelError(f"there is no variable {key!r} in these samples")
            return np.asarray(self)[:, self.variables.index(key)]
        return np.asarray(self)[key]

    def face(self) -> Face:
        """The first samples, by the names of states."""
        x, some = np.asarray(self)[:_ROWS], list(zip(self.variables, self.states))[:_COLUMNS]
        rows = [[names[s] for s, (_, names) in zip(row, some)] for row in x.tolist()]
        n, k = self.shape
        told = [and_more(n - _ROWS), f"{counted(k - _COLUMNS, 'variable')} not shown"]
        more = "; ".join(filter(None, [told[0], told[1] * (k > _COLUMNS)]))
        what = f"{counted(n, 'sample')} of {counted(k, 'variable')}"
        return Face(what, tuple(v for v, _ in some), rows, more=more)

    def __str__(self) -> str:
        return super().__str__() if self._is_whole else np.asarray(self).__str__()

    def __repr__(self) -> str:
        return super().__repr__() if self._is_whole else repr(np.asarray(self))

    def _repr_html_(self) -> str:
        return super()._repr_html_() if self._is_whole else f"<pre>{np.asarray(self)}</pre>"

    @property
    def _is_whole(self) -> bool:
        """Not a part of samples, or made from them."""
        return self.ndim == 2 and 0 < len(self.variables) == self.shape[1]

    def to_dict(self) -> dict[str, list[str]]:
        """Columns of state names: {variable: n names}."""
        x = np.asarray(self)
        return {
            v: np.array(names, dtype=object)[x[:, k]].tolist()
            for k, (v, names) in enumerate(zip(self.variables, self.states))
        }

    def to_pandas(self, categories: bool = False) -> Any:
        """A DataFrame of states' names: a row for each sample, a column for each variable.

        With ``categories`` its columns are categorical: smaller, with states that were not drawn.
        """
        check_flag("categories", categories)
        pd = load("pandas")
        if not categories:
            return pd.DataFrame(self.to_dict(), columns=list(self.variables))
        x = np.asarray(self)
        return pd.DataFrame(
            {
                v: pd.Categorical.from_codes(x[:, k], categories=list(names))
                for k, (v, names) in enumerate(zip(self.variables, self.states))
            }
        )


@locates
def sample(
    model: FactorGraph,
    n: int,
    evidence: Evidence | None = None,
    *,
    seed: int = 0,
    max_gib: float = 4.0,
) -> Samples:
    """Independent samples of P(all variables | evidence), exactly distributed.

    Parameters
    ----------
    model : FactorGraph
    n : int
    evidence : {variable: state, or likelihoods}, optional
        As in :func:`minfer.query`.
    seed : int
        The same model, evidence, seed and n give the same samples.
    max_gib : float
        Refuse a model whose largest clique would fill more than this.

    Returns
    -------
    Samples
        An int array (n, V) of states' numbers; ``to_dict`` and ``to_pandas`` have their names.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> x = minfer.sample(sprinkler(), 1000, {"wet_grass": 1})
    >>> x.shape, bool((x["wet_grass"] == 1).all())
    ((1000, 7), True)
    """
    check_graph(model, "sample")
    check_whole("n", n, 0)
    check_whole("seed", seed, 0)
    graph = with_any_evidence(model, evidence)
    problem = only_tables(condition(graph))
    tree = clique_tree(problem)
    advice = "Gibbs samples approximately (minfer.Gibbs)"
    check_fits(tree, "sample", advice, max_gib, None)
    cliques = with_tree(problem, tree)
    cliques.collect()
    x = np.repeat(np.maximum(problem.fixed, 0).astype(np.int32)[None], n, axis=0)
    rng = np.random.default_rng(seed)
    for c in range(cliques.n - 1, -1, -1):
        _draw(cliques, c, rng.random(n), x)
    return Samples.of(np.ascontiguousarray(x[:, : model.n_variables]), model)


def _draw(cliques: Cliques, c: int, u: NDArray[np.float64], x: NDArray[np.int32]) -> None:
    """States of a clique's own variables, given its separator's, for each row of x (n, V)."""
    if not len(x):
        return
    separator = cliques.separator[c]
    n_cells = math.prod(cliques.card[v] for v in cliques.rest[c])
    key = np.zeros(len(x), dtype=np.int64)
    for v in separator:
        key = key * cliques.card[v] + x[:, v]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    which = which.ravel()
    step = max(1, _BLOCK // n_cells)
    by = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[by], np.arange(0, len(first) + step, step))
    for k, begin in enumerate(range(0, len(first), step)):
        rows = by[ends[k] : ends[k + 1]]
        table = cliques.local(c, x[first[begin : begin + step]])
        table -= table.max(axis=1, keepdims=True)
        np.exp(table, out=table)
        cells = _pick(np.cumsum(table, axis=1, out=table), which[rows] - begin, u[rows])
        some = x[rows]
        cliques.put(c, cells, some)
        x[rows] = some


def _pick(
    cumulated: NDArray[np.float64], row: NDArray[np.int64], u: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The first cell of each row whose cumulated weight is above u times the row's total."""
    wanted = u * cumulated[row, -1]
    low = np.zeros(len(row), dtype=np.int64)
    high = np.full(len(row), cumulated.shape[1] - 1)
    while (low < high).any():
        middle = (low + high) // 2
        above = cumulated[row, middle] > wanted
        high = np.where(above, middle, high)
        low = np.where(above, low, np.minimum(middle + 1, high))
    return low
