"""What a report draws of a model, and what of it moves with the slider.

* :class:`GraphDrawing`: variables as nodes, pairwise factors as lines, larger ones as squares.
* :class:`PictureDrawing`: the pixels, the answer, its estimated errors, and the kept pairs.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.cards import stress_layout
from minfer.basics.words import counted
from minfer.images.denoise_result import Denoised
from minfer.report.sweep import moved, short, shown_errors

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.result import Result

MOST_NODES = 120  # variables drawn of a model
MOST_LINES = 1_000  # factors drawn of a model
MOST_NAMED = 60  # nodes that get their name beside them
LONGEST = 8  # the largest arity that is drawn
MOST_PIXELS = 128  # on a side of a picture whose pairs are drawn one by one
PART = 64  # pixels on a side of what is drawn so of a larger one
MOST_BLOCKS = 200  # on a side of the rest, in blocks of pixels


# ---------------------------------------------------------------------- graphs


class GraphDrawing:
    """A drawing of a factor graph, or of a part of it."""

    def __init__(self, result: Result, name: Callable[[int], str]) -> None:
        model = result.model
        self.notes: list[str] = []
        scopes = _Scopes(model)
        self.variables = self._variables(result, scopes)
        self.factors = self._factors(result, scopes)
        node = {int(v): i for i, v in enumerate(self.variables)}
        lines: list[list[int]] = []
        squares: list[int] = []
        for row, f in enumerate(self.factors):
            ends = [node[int(v)] for v in model.scope(int(f))]
            if len(ends) == 2:
                lines.append([*ends, row])
            else:
                square = len(self.variables) + len(squares)
                squares.append(row)
                lines.extend([end, square, row] for end in ends)
        edges = np.array([line[:2] for line in lines], dtype=np.int64).reshape(-1, 2)
        places = stress_layout(len(self.variables) + len(squares), edges)
        self.data: dict[str, Any] = {
            "kind": "graph",
            "places": [[short(x, 4), short(y, 4)] for x, y in places.tolist()],
            "names": [name(int(v)) for v in self.variables],
            "states": [int(model.n_states[v]) for v in self.variables],
            "named": len(self.variables) <= MOST_NAMED,
            "squares": squares,
            "lines": lines,
            "factors": [
                {
                    "label": f"factor {int(f)}: "
                    + ", ".join(name(int(v)) for v in model.scope(int(f))),
                    "seed": bool(result.seed[f]),
                    "score": short(float(result.scores[f]), 3),
                }
                for f in self.factors
            ],
        }

    def step(self, result: Result) -> dict[str, Any]:
        """Which of the drawn factors are kept, and the drawn variables' probabilities."""
        m = result.marginals
        top = [m[int(v)] for v in self.variables]
        return {
            "kept": "".join("1" if k else "0" for k in result.keep[self.factors]),
            "state": [1 if len(p) == 2 else int(np.argmax(p)) for p in top],
            "p": [short(float(p[1] if len(p) == 2 else p.max()), 4) for p in top],
        }

    def _variables(self, result: Result, scopes: _Scopes) -> NDArray[np.int64]:
        n = result.model.n_variables
        if n <= MOST_NODES:
            return np.arange(n)
        order = scopes.surroundings(int(moved(result)[0]))[:MOST_NODES]
        self.notes.append(
            f"The drawing shows {len(order):,} of {n:,} variables: the surroundings of the one "
            "that the kept factors moved most."
        )
        return np.sort(order)

    def _factors(self, result: Result, scopes: _Scopes) -> NDArray[np.int64]:
        inside = np.zeros(result.model.n_variables, dtype=bool)
        inside[self.variables] = True
        found = scopes.within(inside)
        if scopes.undrawn:
            self.notes.append(
                f"Not drawn: {counted(scopes.undrawn, 'factor')} over more than {LONGEST} "
                "variables."
            )
        if len(found) > MOST_LINES:
            best = np.argsort(-result.scores[found], kind="stable")[:MOST_LINES]
            self.notes.append(
                f"Between the drawn variables there are {len(found):,} factors; the drawing shows "
                f"the {MOST_LINES:,} with the highest scores."
            )
            found = np.sort(found[best])
        return found


class _Scopes:
    """Factors over 2 to LONGEST variables, and who is next to whom by them."""

    def __init__(self, model: FactorGraph) -> None:
        self.n = model.n_variables
        self.parts: list[tuple[NDArray, NDArray]] = []  # numbers (F,) and scopes (F, A)
        self.undrawn = 0
        for g in model.groups:
            arity = g._scope.shape[1]
            if arity > LONGEST:
                self.undrawn += len(g._ids)
            elif arity >= 2:
                self.parts.append((g._ids, g._scope))

    def within(self, inside: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Numbers of the factors all of whose variables are inside, increasing."""
        found = [ids[inside[scope].all(axis=1)] for ids, scope in self.parts]
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *found]))

    def surroundings(self, centre: int) -> NDArray[np.int64]:
        """Variables by their distance from one, the nearest first."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import breadth_first_order

        pairs = [
            scope[:, [a, b]]
            for _, scope in self.parts
            for b in range(1, scope.shape[1])
            for a in range(b)
        ]
        i, j = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs]).T
        links = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(self.n, self.n))
        return breadth_first_order(links.tocsr(), centre, directed=False, return_predecessors=False)


# ---------------------------------------------------------------------- pictures


class PictureDrawing:
    """A picture with its pairs of neighbours; ``seen`` (H, W) are grey values."""

    def __init__(
        self, result: Result, seen: NDArray[np.float64], means: NDArray[np.float64] | None
    ) -> None:
        self.height, self.width = seen.shape
        self.means = means
        self.notes: list[str] = []
        longest = max(seen.shape)
        self.large = longest > MOST_PIXELS
        self.block = -(-longest // MOST_BLOCKS) if self.large else 1
        self.rows, self.columns = self._part(result)
        low, high = float(seen.min()), float(seen.max())
        grey = (seen - low) / max(high - low, 1e-12)
        down, across = self._blocks(seen).shape
        self.data: dict[str, Any] = {
            "kind": "picture",
            "width": across,
            "height": down,
            "block": self.block,
            "classes": None if means is None else [short(float(m), 3) for m in means],
            "seen": _packed(self._blocks(grey)),
            "part": {
                "top": self.rows.start,
                "left": self.columns.start,
                "height": self.rows.stop - self.rows.start,
                "width": self.columns.stop - self.columns.start,
                "seen": _packed(grey[self.rows, self.columns]),
            },
        }

    def step(self, result: Result) -> dict[str, Any]:
        """The answer, its estimated errors (or what a refresh would move), and the kept pairs."""
        found = Denoised(result, (self.height, self.width), self.means)
        answer = found.marginals
        if self.means is not None:
            low, high = self.means.min(), self.means.max()
            answer = (found.clean - low) / (high - low)
        errors = shown_errors(result)
        moves = None if errors is not None or result.settled else result.error_estimates
        return {
            "answer": _packed(self._blocks(answer)),
            **self._scaled("errors", "error_top", errors),
            **self._scaled("moves", "move_top", moves),
            "share": _packed(self._blocks(found.kept)) if self.large else None,
            "kept": self._pairs(result.keep),
        }

    def _scaled(
        self, name: str, largest: str, values: NDArray[np.float64] | None
    ) -> dict[str, Any]:
        """Numbers of all pixels (V,) as bytes, relative to the largest; None if not all are."""
        if values is None or not np.isfinite(values).all():
            return {name: None, largest: None}
        top = float(values.max())
        blocks = self._blocks(values.reshape(self.height, self.width))
        return {name: _packed(blocks / (top or 1.0)), largest: short(top)}

    def _part(self, result: Result) -> tuple[slice, slice]:
        """Rows and columns whose pairs are drawn: all, or where the answer is least certain."""
        if not self.large:
            return slice(0, self.height), slice(0, self.width)
        doubt = 1 - result.marginals.max_prob().reshape(self.height, self.width)
        tall, wide = min(PART, self.height), min(PART, self.width)
        places = [
            (r, c)
            for r in range(0, self.height - tall + 1, max(1, tall // 2))
            for c in range(0, self.width - wide + 1, max(1, wide // 2))
        ]
        r, c = max(places, key=lambda at: doubt[at[0] : at[0] + tall, at[1] : at[1] + wide].sum())
        blocks = f"blocks of {self.block}x{self.block}" if self.block > 1 else "single"
        self.notes.append(
            f"The picture has {self.height}x{self.width} pixels. Pairs are drawn one by one in a "
            f"part of {tall}x{wide} pixels, where the answer is least certain; the other drawings "
            f"show means over {blocks} pixels."
        )
        return slice(r, r + tall), slice(c, c + wide)

    def _pairs(self, keep: NDArray[np.bool_]) -> str:
        """Kept pairs of the part as bits: those in rows, row by row, then those in columns."""
        pairs = keep[self.height * self.width :]  # the pixels' own factors come first
        n = self.height * (self.width - 1)
        across = pairs[:n].reshape(self.height, self.width - 1)
        down = pairs[n:].reshape(self.height - 1, self.width)
        r, c = self.rows, self.columns
        bits = [across[r, c.start : c.stop - 1].ravel(), down[r.start : r.stop - 1, c].ravel()]
        return b64encode(np.packbits(np.concatenate(bits)).tobytes()).decode()

    def _blocks(self, pixels: NDArray) -> NDArray[np.float64]:
        """Means over blocks of pixels; those at the rim may be smaller."""
        b = self.block
        rows, columns = np.arange(0, self.height, b), np.arange(0, self.width, b)
        total = np.add.reduceat(np.add.reduceat(pixels, rows, axis=0), columns, axis=1)
        sizes = np.outer(
            np.diff(np.append(rows, self.height)), np.diff(np.append(columns, self.width))
        )
        return total / sizes


def _packed(shares: NDArray[np.float64]) -> str:
    """Numbers from 0 to 1 as bytes, in base64."""
    return b64encode(np.clip(shares * 255, 0, 255).round().astype(np.uint8).tobytes()).decode()
