"""Models of other libraries in and out: pgmpy, pyAgrum, networkx, and arrays as PGMax takes them.

Importers return a :class:`minfer.FactorGraph`: the same variables in the same order under the same
names (``str`` of what the library calls them), every factor as a log-table, states numbered in the
library's order and with its names. The tables of a Bayesian network know their children:

    graph = interop.from_pgmpy(model)
    graph.with_evidence({"rain": "yes"})
    interop.to_pgmpy(graph)

Exporters make a Bayesian network of one, and a Markov network of any other model; evidence and
corrections (the graph's field) make it one, as unary factors. They keep log Z.
The libraries are imported when first used and need not be installed.
"""

from minfer.interop.arrays import Arrays, Enumerated, Pairwise, from_arrays, to_arrays
from minfer.interop.networks import from_pgmpy, from_pyagrum, to_pgmpy, to_pyagrum
from minfer.interop.with_networkx import from_networkx, to_networkx

__all__ = [
    "Arrays",
    "Enumerated",
    "Pairwise",
    "from_arrays",
    "from_networkx",
    "from_pgmpy",
    "from_pyagrum",
    "to_arrays",
    "to_networkx",
    "to_pgmpy",
    "to_pyagrum",
]
