"""Columns of numbers in bins: where they are cut.

| rule | edges |
|---|---|
| K, or "quantiles:K" | the k/K quantiles (`numpy.quantile`), without bins that no row is in |
| "width:K" | K - 1 edges that cut the range of the numbers into equal parts |
| [edges], or "edges:18,65" | as given |
| "supervised:CLASS" | that tell most about a column of classes, as many as its rows pay for |

A number's bin is the number of edges at most that number (`numpy.digitize`). Edges that are found
are written with as few digits as leave every number of the column in its bin: the edges are what
the states' names say (:func:`minfer.model.states.bin_names`), and nothing else is kept.

"supervised" is the recursion of Fayyad and Irani (IJCAI 1993): the cut of n rows S into S1 and S2
that leaves the least entropy H of the classes is made if

    n gain > log2(n - 1) + log2(3^k - 2) - (k H(S) - k1 H(S1) - k2 H(S2)),

where k, k1, k2 count the classes there are in each, and H is in bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import integer, told
from minfer.errors import EvidenceError, SettingsError, visible
from minfer.model.evidence import Factorised, is_missing
from minfer.model.states import did_you_mean, finite, number_of

Floats = NDArray[np.float64]

MANY_NUMBERS = 20  # whole numbers with more different values are taken for measurements
FEW_NUMBERS = 10  # and any with no more become states without a word
_FORMS = 'a number of bins, "quantiles:5", "width:5", "edges:18,65", [18, 65] or "supervised:CLASS"'


class Cuts(NamedTuple):
    """How a column is cut."""

    kind: str  # "quantiles", "width", "edges" or "supervised"
    given: Any  # how many bins, edges (B-1,), or the column of classes

    @classmethod
    def of(cls, spec: Any, who: str) -> Cuts:
        """What is asked for, as a number, text or list."""
        said = SettingsError(f"{who}: bins must be {_FORMS}, not {told(spec)}")
        kind, argument = "quantiles", spec
        if isinstance(spec, str):
            kind, colon, argument = spec.partition(":")
            if not colon:
                kind, argument = "quantiles", spec
            if kind == "supervised" and argument:
                return cls(kind, argument)
            if kind == "edges":
                argument = [number_of(text) for text in argument.split(",")]
            elif argument.isdecimal() and len(argument) < 9:
                argument = int(argument)
        elif isinstance(spec, Sequence | np.ndarray):
            kind, argument = "edges", [finite(x) for x in spec]
        if kind == "edges":
            if not argument or None in argument or not (np.diff(argument) > 0).all():
                raise SettingsError(f"{who}: edges must be increasing numbers, not {told(spec)}")
            return cls(kind, np.array(argument, dtype=np.float64))
        number = integer(argument)
        if kind not in ("quantiles", "width") or number is None:
            raise said
        if number < 1:
            raise SettingsError(f"{who}: there must be at least 1 bin, not {number}")
        return cls(kind, number)

    def edges(self, values: Floats, classes: NDArray[np.int64] | None = None) -> list[float]:
        """Where the numbers (N,), all finite, are cut; ``classes`` (N,) of the rows.

        >>> Cuts("quantiles", 3).edges(np.arange(10.0)), Cuts("width", 2).edges(np.arange(10.0))
        ([3.0, 6.0], [4.5])
        """
        x = np.unique(values)
        if self.kind == "edges":
            return self.given.tolist()
        if not len(x):
            return []
        if self.kind == "quantiles":
            cuts = np.quantile(values, np.arange(1, self.given) / self.given)
            at = np.searchsorted(x, cuts)  # the first number of the bin above
            cuts = cuts[np.flatnonzero(np.diff(at, prepend=0) > 0)]
        elif self.kind == "width":
            low, high = float(x[0]), float(x[-1])
            share = np.arange(1, self.given) / self.given
            cuts = low * (1.0 - share) + high * share if high > low else np.empty(0)
        else:
            assert classes is not None
            cuts = _supervised(values, classes)
        out: list[float] = []
        for k, cut in enumerate(cuts.tolist()):
            at = int(np.searchsorted(x, cut))
            low = max([-math.inf, *x[:at][-1:].tolist(), *out[-1:]])
            high = min([math.inf, *x[at : at + 1].tolist()])
            if k + 1 < len(cuts):
                high = min(high, 0.5 * (cut + float(cuts[k + 1])))
            out.append(_short(cut, low, high))
        return out


def _short(cut: float, low: float, high: float) -> float:
    """The number of fewest digits nearest to a cut in (low, high].

    >>> _short(5.133333333333334, 5.1, 5.2), _short(1234.6, 1200.0, 1300.0)
    (5.13, 1230.0)
    """
    for digits in range(1, 17):
        short = float(f"{cut:.{digits}g}")
        if low < short <= high:
            return short
    return cut


def _supervised(values: Floats, classes: NDArray[np.int64]) -> Floats:
    """Cuts between neighbouring numbers, by the length of the message that they make shorter."""
    order = np.argsort(values, kind="stable")
    x = values[order]
    which = np.eye(int(classes.max(initial=0)) + 1, dtype=np.float64)[classes[order]]
    total = np.concatenate([np.zeros((1, which.shape[1])), np.cumsum(which, axis=0)])
    cuts: list[float] = []
    parts = [(0, len(x))]
    while parts:
        a, b = parts.pop()
        at = a + 1 + np.flatnonzero(x[a + 1 : b] > x[a : b - 1]) if b - a > 1 else np.empty(0, int)
        if not len(at):
            continue
        n = b - a
        left, right = total[at] - total[a], total[b] - total[at]
        h, own = _entropy((total[b] - total[a])[None]), ((total[b] - total[a]) > 0).sum()
        h1, h2 = _entropy(left), _entropy(right)
        rest = ((at - a) * h1 + (b - at) * h2) / n
        k = int(np.argmin(rest))
        less = own * h[0] - (left[k] > 0).sum() * h1[k] - (right[k] > 0).sum() * h2[k]
        price = math.log2(n - 1) + math.log2(3.0 ** int(own) - 2.0) - less if own > 1 else math.inf
        if n * (h[0] - rest[k]) > price:
            m = int(at[k])
            cuts.append(0.5 * float(x[m - 1]) + 0.5 * float(x[m]))
            parts += [(a, m), (m, b)]
    return np.sort(np.array(cuts))


def _entropy(counts: Floats) -> Floats:
    """In bits, of each row of counts (R, K)."""
    share = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0.0)
    return -(share * logs).sum(axis=1)


# ---------------------------------------------------------------------- columns of tables


def numbers_of(column: Factorised, missing: frozenset[str]) -> tuple[Floats, str]:
    """The different values as numbers, NaN where nothing is known, and the first that is none."""
    out, wrong = np.full(len(column.values), np.nan), ""
    for k, value in enumerate(column.values):
        if is_missing(value) or (isinstance(value, str) and value.strip() in missing):
            continue
        number = number_of(value) if isinstance(value, str) else finite(value)
        if number is not None:
            out[k] = number
        elif not wrong:
            wrong = str(value)
    return out, wrong


def used_numbers(column: Factorised, missing: frozenset[str]) -> Floats | None:
    """The different numbers that occur in a column; None where something else does."""
    numbers, wrong = numbers_of(column, missing)
    used = np.zeros(len(numbers) + 1, dtype=bool)
    used[column.places] = True
    if wrong and numbers_of(used_part(column, used[:-1]), missing)[1]:
        return None
    return np.unique(numbers[used[:-1] & ~np.isnan(numbers)])


def used_part(column: Factorised, used: NDArray[np.bool_]) -> Factorised:
    values = [column.values[k] for k in np.flatnonzero(used).tolist()]
    return Factorised(np.arange(len(values)), values)


def is_measured(numbers: Floats | None) -> bool:
    """Whether a column's different numbers are measurements, and not the names of states."""
    if numbers is None or not len(numbers):
        return False
    return len(numbers) > MANY_NUMBERS or bool((numbers != np.rint(numbers)).any())


def edges_of_columns(
    spec: Any, columns: Mapping[str, Factorised], missing: frozenset[str], who: str
) -> dict[str, list[float]]:
    """Edges of each column that is cut: those named, or all that hold measurements."""
    if spec is None:
        return {}
    rules: dict[str, Cuts] = {}
    if isinstance(spec, Mapping):
        for name in spec:
            if name not in columns:
                raise SettingsError(
                    f"{who}: bins: no variable that has a column is called "
                    f"{visible(str(name))!r}{did_you_mean(str(name), columns)}"
                )
        rules = {name: Cuts.of(own, who) for name, own in spec.items()}
    else:
        one = Cuts.of(spec, who)
        rules = {
            name: one for name, column in columns.items()
            if one != ("supervised", name) and is_measured(used_numbers(column, missing))
        }  # fmt: skip
    out = {}
    for name, rule in rules.items():
        numbers, wrong = numbers_of(columns[name], missing)
        known = np.append(numbers, np.nan)[columns[name].places]
        if wrong and used_numbers(columns[name], missing) is None:
            raise EvidenceError(
                f"{who}: column {visible(name)!r} has {visible(wrong)!r}, which is no finite "
                "number, and so no bin: name it in missing= if it is a text, write None if it is "
                "not known, or leave bins= out for this column"
            )
        there, classes = ~np.isnan(known), None
        if rule.kind == "supervised":
            if rule.given not in columns or rule.given == name:
                raise SettingsError(
                    f"{who}: bins: supervised:{rule.given} must name another column of the network"
                    f"{did_you_mean(str(rule.given), columns)}"
                )
            classes = _classes(columns[rule.given], missing)
            there &= classes >= 0
            classes = classes[there]
        out[name] = rule.edges(known[there], classes)
    return out


def _classes(column: Factorised, missing: frozenset[str]) -> NDArray[np.int64]:
    """A number for each different text or value, -1 where nothing is known."""
    known = [
        not (is_missing(x) or (isinstance(x, str) and x.strip() in missing)) for x in column.values
    ]
    return np.append(np.where(known, np.arange(len(known)), -1), -1)[column.places]
