"""What the number of bins costs, by rows that were held out.

Models over more bins share their rows out among more cells, and their probabilities cannot be
compared as they are: of two bins each is more probable than of ten. What can be compared is a
density over one and the same measure. Here that is, for each column in bins, the share of the
training rows in its bin:

    score(row) = log P(row) - sum over columns in bins of log share(the row's bin)

With one bin it is the log-likelihood of the other columns alone. What more bins add is what the
network learned from them about how the columns hang together, and it falls again where bins are too
many for the rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minfer.basics.checks import as_list, check_type, check_whole
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import plain
from minfer.errors import SettingsError
from minfer.learn.bins import Cuts
from minfer.learn.case_columns import columns_of
from minfer.learn.tables import BayesianNetwork
from minfer.model.evidence import Factorised


@dataclass(frozen=True, eq=False, repr=False)
class BinsCompared(Faced):
    """Numbers of bins, and what they are worth on held-out rows; see :func:`compare_bins`."""

    numbers: list[int]
    scores: list[float]  # mean over the rows
    errors: list[float]  # standard error of the difference from the best
    cells: list[int]  # of all tables
    bins: list[Any]  # what to give as ``bins=``
    columns: list[str]  # that are in bins

    @property
    def best(self) -> int:
        """The number of bins with the largest score."""
        return self.numbers[int(np.argmax(self.scores))]

    @property
    def best_bins(self) -> Any:
        """What to give as ``bins=`` for that."""
        return self.bins[int(np.argmax(self.scores))]

    def face(self) -> Face:
        rows = [
            (n, Right(f"{score:.4f}"), Right(f"{error:.4f}" if n != self.best else ""), cells)
            for n, score, error, cells in zip(self.numbers, self.scores, self.errors, self.cells)
        ]
        head = ("bins", "held-out log-likelihood", "error of the difference", "cells")
        notes = {"in bins": ", ".join(self.columns)}
        return Face(f"{self.best} bins are best", head, rows, notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return plain({**vars(self), "best": self.best, "best_bins": self.best_bins})


def compare_bins(
    network: BayesianNetwork,
    X: Any,
    numbers: Sequence[int] = (1, 2, 3, 5, 8, 12),
    *,
    folds: int = 5,
    random_state: int = 0,
) -> BinsCompared:
    """Cross-validate a network's number of bins, by the log-likelihood of held-out rows.

    Parameters
    ----------
    network : BayesianNetwork
        Its settings, also how columns are cut: ``bins`` of it with other numbers. None stands for
        quantiles of all columns of measurements; edges and supervised bins stay as they are.
    X : a table or file, as for `BayesianNetwork.fit`
    numbers : how many bins to try; 1 leaves the columns out
    folds : int
        Parts of the rows, each of which is held out once.
    random_state : int
        Seed of the parts.

    Returns
    -------
    BinsCompared, with a row for each number: nats a row, relative to each cut column's own
    frequencies (those of its bins among the training rows), so that they can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=400)
    >>> effect = np.where(cause + 0.3 * rng.normal(size=400) > 0, "y", "n")
    >>> rows = {"cause": cause, "effect": effect}
    >>> found = compare_bins(BayesianNetwork([("cause", "effect")]), rows, [1, 2, 5, 100])
    >>> found.best, found.scores[0] < found.scores[3] < found.scores[1]
    (5, True)
    """
    check_type(network, BayesianNetwork, "compare_bins: network must be a BayesianNetwork")
    tried = [int(n) for n in as_list(numbers, "compare_bins: numbers must be whole numbers")]
    for n in tried:
        check_whole("compare_bins: numbers", n, 1)
    check_whole("compare_bins: folds", folds, 2)
    settings = network.get_params(deep=False)
    reader = BayesianNetwork(**settings)
    with columns_of(reader, X, True) as (names, read_columns):
        variables, _, given = reader._structure(names)
        columns = read_columns([v for v in variables if v in names])
    n_rows = len(next(iter(columns.values())).places) if columns else 0
    if n_rows < folds:
        raise SettingsError(f"compare_bins: {n_rows} rows cannot be shared out among {folds} folds")
    fold = np.random.default_rng(random_state).permutation(n_rows) % folds

    def rows(which: Any) -> dict[str, Factorised]:
        return {k: Factorised(x.places[which], x.values) for k, x in columns.items()}

    def fitted(own: dict[str, Any], which: Any) -> BayesianNetwork:
        return BayesianNetwork(**own).fit(
            {k: np.array([*x.values, None], dtype=object)[x.places] for k, x in rows(which).items()}
        )

    scores, cells, bins, cut = [], [], [], []
    for n in tried:
        own = settings | {"bins": _with_number(network.bins, n)}
        whole = fitted(own, slice(None))
        cut = list(whole.bins_)
        if not cut:
            raise SettingsError("compare_bins: no column is in bins: name some, bins={'x': 5}")
        if given is None:
            others = {k: x for k, x in whole.states_.items() if k not in whole.bins_}
            own |= {"states": others, "bins": {k: _rule(own["bins"], k) for k in cut}}
        score = np.zeros(n_rows)
        for f in range(folds):
            net = fitted(own, fold != f)
            score[fold == f] = net._log_likelihoods(rows(fold == f))
            train = net._known(net.model_, rows(fold != f), "raise")
            test = net._known(net.model_, rows(fold == f), "raise")
            for name in cut:
                v = net.model_.index(name)
                count = np.bincount(train[v][train[v] >= 0], minlength=len(net.states_[name])) + 1.0
                log_share = np.append(np.log(count / count.sum()), 0.0)  # the last: not known
                score[fold == f] -= log_share[test[v]]
        scores.append(score)
        cells.append(sum(table.size for table in whole.tables_.values()))
        bins.append(own["bins"])
    means = [float(score.mean()) for score in scores]
    best = scores[int(np.argmax(means))]
    with np.errstate(invalid="ignore"):
        errors = [float((score - best).std(ddof=1) / np.sqrt(n_rows)) for score in scores]
    return BinsCompared(tried, means, errors, cells, bins, cut)


def _rule(spec: Any, name: str) -> Any:
    return spec[name] if isinstance(spec, Mapping) else spec


def _with_number(spec: Any, n: int) -> Any:
    """Bins of the same kind, but so many."""
    if isinstance(spec, Mapping):
        return {name: _with_number(own, n) for name, own in spec.items()}
    rule = Cuts("quantiles", n) if spec is None else Cuts.of(spec, "compare_bins")
    return f"{rule.kind}:{n}" if rule.kind in ("quantiles", "width") else spec
