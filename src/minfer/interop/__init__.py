"""Models of other libraries in and out: pgmpy, pyAgrum, networkx, and arrays as PGMax takes them.

Importers return a :class:`minfer.FactorGraph`: the same variables in the same order under the same
names (``str`` of what the library calls them), every factor as a log-table, states numbered in the
library's order. minfer knows states by number only; :func:`state_names` gives a model's own names
for them, and exporters take that mapping back:

    states = interop.state_names(model)              # {"rain": ("no", "yes"), ...}
    graph = interop.from_pgmpy(model)
    graph.with_evidence({"rain": states["rain"].index("yes")})
    interop.to_pgmpy(graph, states)

Exporters multiply evidence and corrections (the graph's field) in as unary factors and keep log Z.
The libraries are imported when first used and need not be installed.
"""

from minfer.interop._shared import state_names
from minfer.interop.arrays import Arrays, Enumerated, Pairwise, from_arrays, to_arrays
from minfer.interop.with_networkx import from_networkx, to_networkx
from minfer.interop.with_pgmpy import from_pgmpy, to_pgmpy
from minfer.interop.with_pyagrum import from_pyagrum, to_pyagrum

__all__ = [
    "Arrays",
    "Enumerated",
    "Pairwise",
    "from_arrays",
    "from_networkx",
    "from_pgmpy",
    "from_pyagrum",
    "state_names",
    "to_arrays",
    "to_networkx",
    "to_pgmpy",
    "to_pyagrum",
]
