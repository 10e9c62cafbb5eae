"""Rules over tables, by independent parts: the batch engine solves what no rule ties together.

Groundings of most programs fall apart: people of different towns, papers of different fields. The
database finds all of them, the factor graph falls into its connected components, these are put
together into a few parts of about one size, and each part is a model file of its own. A run of
:class:`~minfer.batch.RunModels` answers them, so that everything a batch can do holds here too: the
processes of this machine or Ray, workers that die and are replaced, going on where a run stopped.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.limits import clock
from minfer.basics.parallel import cores
from minfer.batch.driver import Progress, run
from minfer.batch.jobs import RunModels
from minfer.errors import FormatError
from minfer.graph import Component, FactorGraph
from minfer.io.native import format_native
from minfer.io.owned import Owned
from minfer.rules.answer import Answer
from minfer.rules.program import Rules, default_solver
from minfer.solvers.base import LogZ, Marginals, Plain, Status
from minfer.solvers.batch import joint_kind

if TYPE_CHECKING:
    from minfer.solvers.base import Solver

MODELS = "models"
PARTS = 4  # for each worker, so that none waits long for the last


def infer_rules(
    rules: Rules,
    *,
    solver: Solver | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    parts: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Answer:
    """Probabilities of all open atoms, independent parts of the program solved side by side.

    The answer is that of :meth:`minfer.Rules.infer` with ``grounding="full"`` (to the solver's
    tolerance: parts stop when they have converged). A program that does not fall apart is one part.

    Parameters
    ----------
    solver : any solver that pickles; by default the one that the whole would have
    engine : ``local``, processes on this machine, or ``ray``
    workers : processes or actors; by default one for each core of this machine or of the cluster
    address : of a Ray cluster that is already running
    parts : model files that components are put together in, at most; four for each worker
    folder : for these files and their answers: kept, and a run that was stopped goes on there; on
        a cluster all machines must see it. By default a temporary one
    report : as of :func:`minfer.batch.run`

    Raises
    ------
    RefusedError : ``folder`` has other files where these would be written, or answers of another
        program
    """
    began = clock()
    if parts is not None:
        check_whole("parts", parts, 1)
    if workers is not None:
        check_whole("workers", workers, 1)
    graph = rules.model.graph
    solver = default_solver(graph) if solver is None else solver
    grounded = clock()
    most = parts or PARTS * (workers or cores())
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="minfer-rules-"))
        pieces = graph.split(gathered(graph, most))
        own, answers = Owned(Path(folder)), Path(folder) / "answers"
        names = [f"{MODELS}/{k:06d}.minfer" for k in range(len(pieces))]
        for name, piece in zip(names, pieces):  # apart from what others keep in the folder
            own.write(name, format_native(piece.graph))
        own.keep_only(MODELS, names)
        try:
            run(
                RunModels(solver=solver), [Path(folder) / name for name in names], answers,
                engine=engine, workers=workers,
                address=address, on_error="fail", shard_bytes=1, report=report,
            )  # fmt: skip
        except FormatError:
            rules._solved(solver, graph)  # what is wrong, in the words of the rules
            raise
        marginals = _together(graph, pieces, answers, solver)
    timings = {"ground": grounded - began, "infer": clock() - grounded}
    return Answer(rules, marginals, None, sum(rules.ground().bindings), timings)


def gathered(graph: FactorGraph, most: int) -> NDArray[np.int64]:
    """A part for each variable: components by falling size, each to the part with least so far."""
    component = graph.component_labels()
    n = int(component.max(initial=-1)) + 1
    size = np.bincount(component, minlength=n).astype(np.int64)
    for group in graph.groups:
        if group.arity:
            size += group.arity * np.bincount(component[group.scope[:, 0]], minlength=n)
    order = np.argsort(-size, kind="stable")
    part_of = np.zeros(n, dtype=np.int64)
    large = order[: max(most, 1) * 64]  # what is left is many small ones: shares of equal size
    load = np.zeros(min(most, max(n, 1)), dtype=np.int64)
    for c in large.tolist():
        part_of[c] = int(np.argmin(load))
        load[part_of[c]] += size[c]
    rest = order[len(large) :]
    if len(rest):
        share = np.cumsum(size[rest]) * len(load) // (int(size[rest].sum()) + 1)
        part_of[rest] = np.argsort(load, kind="stable")[share]
    return np.unique(part_of[component], return_inverse=True)[1].ravel().astype(np.int64)


def _together(
    graph: FactorGraph, pieces: list[Component], answers: Path, solver: Solver
) -> Marginals:
    import pyarrow.parquet as pq

    probs = np.full((graph.n_variables, 2), np.nan)
    states: list[Status] = []
    kinds: set[LogZ] = set()
    log_z, iterations = 0.0, 0
    for path in sorted(answers.glob("part-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            piece = pieces[int(Path(row["id"]).stem)]
            probs[piece.variables] = np.array(row["marginals"], dtype=np.float64).reshape(-1, 2)
            states.append(Status(row["status"]))
            kinds.add(LogZ(row["log_z_kind"]))
            log_z += np.nan if row["log_z"] is None else row["log_z"]
            iterations = max(iterations, row["iterations"])
    assert not np.isnan(probs).any(), "a part has no answer"
    status = next((s for s in states if not s.ok), None)
    if status is None:
        status = next((s for s in states if s is not Status.EXACT), Status.EXACT)
    whole = Marginals.from_probs(graph, probs.ravel(), repr(solver), log_z)
    kind: Any = LogZ.NONE if np.isnan(log_z) else joint_kind(kinds)
    return replace(whole, status=status, log_z_kind=kind, iterations=iterations, state=Plain(log_z))
