"""``compile``: a circuit of a model, kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minfer.basics.checks import check_graph
from minfer.solvers.circuit import Circuit, keep_circuit
from minfer.solvers.exact import Exact

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


def compile(
    graph: FactorGraph,
    free: Any = None,
    *,
    max_gib: float = 4.0,
    time_limit: float | None = None,
    progress: Callable[[Any], None] | None = None,
) -> Circuit:
    """Compile a model into a circuit, which answers exactly for any evidence on free variables.

    Worth it where a clique tree is too large and the model has many zeros or repeated numbers
    (diagnosis networks, pedigrees, rules, clauses), or where many questions follow. The model
    remembers its circuit: ``query``, ``Exact`` and ``Auto`` use it from then on, ``predict``,
    ``mpe`` and ``sample`` where no clique tree fits.

    Parameters
    ----------
    graph : FactorGraph
        Evidence that it has is compiled in.
    free : list of variables, optional
        By name or number: evidence may be about these only, which makes a smaller circuit. None:
        about all that are not observed already.
    max_gib : float
        Refuse a model whose circuit, or the search for it, takes more memory.
    time_limit : float, optional
        Seconds; refuse a model that takes longer.
    progress : callable, optional
        Called now and then with how far the search is: ``nodes`` so far, and about what ``share``
        of it is done, up to 1.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> circuit = minfer.compile(sprinkler(), free=["wet_grass"])
    >>> [circuit({"wet_grass": s})["rain"].round(3).tolist() for s in (0, 1)]
    [[0.954, 0.046], [0.346, 0.654]]
    """
    check_graph(graph, "compile")
    solver = Exact(method="circuit", max_gib=max_gib, time_limit=time_limit)
    return keep_circuit(Circuit(solver, graph, free, progress=progress))
