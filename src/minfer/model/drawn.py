"""Samples of a model's variables, with names: what ``sample`` and circuits give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_flag, load
from minfer.basics.notebook import Face, Faced
from minfer.basics.words import and_more, counted
from minfer.errors import ModelError

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


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
