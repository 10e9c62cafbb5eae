"""``separated``: what the structure of a model alone says of independence.

In a Bayesian network this is d-separation: a path is open if it passes no known variable but where
two arrows meet, and there only one that is known or has known descendants. Equivalently (Lauritzen
et al. 1990), a and b are apart in what is left without barren variables when what is known is cut
out; and that is what :func:`~minfer.solvers.pruning.prune` leaves out of every question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minfer.basics.checks import as_list, check_graph
from minfer.errors import ModelError, visible
from minfer.graph import FactorGraph
from minfer.solvers.pruning import prune

Named = int | str | Iterable[int | str]


def separated(model: FactorGraph, a: Named, b: Named, given: Named = ()) -> bool:
    """Whether ``given`` separates ``a`` from ``b``: then they are independent given it.

    By d-separation in a Bayesian network, by separation in any other model. What is not separated
    may still be independent, by the numbers. Evidence that the model has already counts as given.

    Parameters
    ----------
    model : FactorGraph
    a, b, given : a variable, or several
        By name or number; none of them in two of the three.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> minfer.separated(sprinkler(), "rain", "sprinkler", given="season")
    True
    >>> minfer.separated(sprinkler(), "rain", "sprinkler", given=["season", "wet_shoes"])
    False
    """
    check_graph(model, "separated")
    sides = [_numbers(model, what, x) for what, x in zip("ab", (a, b))]
    known = _numbers(model, "given", given)
    for one, other in ((sides[0], sides[1]), (sides[0], known), (sides[1], known)):
        if both := sorted(one & other):
            raise ModelError(
                f"separated: {visible(model.name(both[0]))} is in two of a, b and given; a "
                "variable is in one of them"
            )
    if not (sides[0] and sides[1]):
        raise ModelError("separated: name at least one variable on either side")
    if model._field is not None and model.n_variables:
        left = np.add.reduceat(model._field > -np.inf, model._offsets[:-1], dtype=np.int64)
        known |= {*np.flatnonzero((left == 1) & (model._n_states > 1)).tolist()}
    one, other = (side - known for side in sides)
    return other.isdisjoint(prune(model, one, known, other, check=False).variables.tolist())


def _numbers(model: FactorGraph, what: str, named: Any) -> set[int]:
    return {model.index(v) for v in as_list(named, f"separated: {what}: variables", ModelError)}
