"""docs/architecture.md: short, true of the files it names, and its four walks lead somewhere.

The walk to a device: solvers run unchanged on another backend.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import minfer
import own_format
import own_kind
import own_schedule
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    MeanField,
    Tempering,
    TreeReweighted,
)
from minfer.kernels.backend import NUMPY, backend, using
from oracle import lists, truth
from plain_backend import plain_backend
from test_imports import LAYERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGE = Path(minfer.__file__).parent


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 250


def test_files_that_the_page_names_exist():
    """From the root, from the package, or anywhere in it for a bare name."""
    anywhere = {path.name for kind in ("*.py", "*.cu") for path in PACKAGE.rglob(kind)}
    anywhere |= {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    for name in re.findall(r"`([\w/.]+(?:\.py|\.cu|\.npz|/))`", PAGE):
        there = (ROOT / name).exists() or (PACKAGE / name).exists()
        assert there or name in anywhere, name


def test_layers_are_those_that_are_tested():
    """From the last row of the table to the first."""
    rows = PAGE.split("## Layers")[1].split("## The model")[0]
    files = [row.split("|")[2] for row in rows.splitlines() if re.match(r"\| [a-z ]+ \| `", row)]
    named = [set(re.findall(r"`(?:parsing/)?(\w+)(?:/|\.py|/kernels/)`", cell)) for cell in files]
    assert [LAYERS[0], *named[::-1][1:]] == LAYERS


def test_walk_a_kind_of_factor():
    graph = FactorGraph.grid([[0.4, -0.3], [0.1, 0.2]], 0.5)
    mine = own_kind.add(graph, [[0, 1, 2], [1, 2, 3]])
    assert np.abs(Exact()(mine).probs - truth.marginals(mine)).max() < 1e-12


def test_walk_a_schedule(monkeypatch):
    from minfer.solvers import propagation

    monkeypatch.setitem(propagation.SCHEDULES, "every-other", own_schedule.SCHEDULE)
    rng = np.random.default_rng(0)
    pairs = FactorGraph.grid(rng.normal(size=(6, 6)), 0.6)
    labels = FactorGraph.empty([3] * 6).tilt(rng.normal(size=18))
    labels = labels.add_potts([[k, (k + 1) % 6] for k in range(6)], 0.7)
    for graph in (pairs, labels):
        mine = BeliefPropagation(schedule="every-other", tol=1e-9)(graph)
        assert mine.converged
        assert mine.iterations > 4
        assert np.abs(mine.probs - BeliefPropagation(tol=1e-9)(graph).probs).max() < 1e-7


def test_walk_a_file_format(monkeypatch, tmp_path):
    from minfer.io import formats

    monkeypatch.setattr(formats, "FORMATS", [own_format.FORMAT, *formats.FORMATS])
    monkeypatch.setitem(sys.modules, "minfer.io.ising", own_format)
    path = tmp_path / "m.ising"
    path.write_text("ISING\n3\n0.5 -0.25 1\n2\n0 1 0.75\n1 2 -2\n")
    graph = minfer.read(path)
    assert Exact()(graph).log_z == pytest.approx(truth.log_z(graph), abs=1e-12)
    minfer.write(graph, tmp_path / "again.ising")
    (tmp_path / "again.ising").rename(tmp_path / "known_by_its_first_word")
    again = minfer.read(tmp_path / "known_by_its_first_word")
    np.testing.assert_array_equal(Exact()(again).probs, Exact()(graph).probs)
    path.write_text("ISING\n3\n0.5 -0.25\n")
    with pytest.raises(minfer.errors.FormatError, match=r"m\.ising"):
        minfer.read(path)


RNG = np.random.default_rng(3)
PAIRS = FactorGraph.grid(RNG.normal(size=(2, 3)), 0.7)
LABELS = FactorGraph.empty([3] * 4).tilt(RNG.normal(size=12)).add_potts([[0, 1], [1, 2], [2, 3]], 1)
LOGIC = PAIRS.add_clauses([[0, 1, 2]], weights=1.0)
ZEROS = PAIRS.add_tables([[0, 4]], [[[0.0, -np.inf], [0.3, 0.2]]])
RING = LABELS.add_potts([[0, 3]], 1.0)
HUGE = RING.add_tables([[0, 2]], [np.diag([900.0, 0.0, -900.0])])
ONE_TRUE = PAIRS.add_global([0, 1, 2], lists.exactly_one())
TREE = FactorGraph.pairwise(RNG.normal(size=5), [[0, 1], [1, 2], [1, 3], [3, 4]], 0.8)
SOLVERS = {
    MeanField(max_iters=30): {"ascend"},
    Gibbs(n_sweeps=5, burn_in=2, n_chains=2): {"draw", "sample"},
    Tempering(n_sweeps=4, burn_in=3, n_replicas=3, n_chains=2): {"draw", "place", "temper"},
    BeliefPropagation(): {"log_odds", "pair_terms"},
    TreeReweighted(): {"log_odds"},
}
MESSAGES = [
    BeliefPropagation(damping=0.3, max_iters=25),
    BeliefPropagation(schedule="flooding", max_iters=25),
    BeliefPropagation(schedule="residual", max_iters=25),
    BeliefPropagation(max_iters=2),
    BeliefPropagation(schedule="coloured", max_iters=25),
    TreeReweighted(damping=0.2),
    TreeReweighted(schedule="coloured"),
]


def compare(solver, graph, start=None) -> set[str]:
    """The same answers on both; the kernels that were called there."""
    calls: list[str] = []
    with using(plain_backend(calls)):
        there = solver(graph, start)
        log_z, joint = there.log_z, there.factor(graph.n_factors - 1)
    here = solver(graph, start)
    np.testing.assert_allclose(there.probs, here.probs, rtol=1e-9)
    np.testing.assert_allclose(log_z, here.log_z, rtol=1e-9)
    np.testing.assert_allclose(joint, here.factor(graph.n_factors - 1), rtol=1e-7)
    assert (there.status, there.iterations) == (here.status, here.iterations)
    assert backend() is NUMPY
    return set(calls)


@pytest.mark.parametrize("graph", [PAIRS, LABELS, LOGIC, ZEROS], ids=lambda g: repr(g))
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_answers_do_not_depend_on_the_backend(solver, graph):
    if isinstance(solver, TreeReweighted) and graph is LOGIC:
        graph = RING
    calls = compare(solver, graph)
    if isinstance(solver, (BeliefPropagation, TreeReweighted)):
        assert calls & {"sweep_pairs", "sweeps"}
    assert calls >= SOLVERS[solver]


@pytest.mark.parametrize("solver", MESSAGES, ids=repr)
def test_nor_do_messages_of_any_schedule(solver):
    logic = [] if isinstance(solver, TreeReweighted) else [LOGIC, ONE_TRUE]
    for graph in [PAIRS, RING, HUGE, TREE, ZEROS, *logic]:
        calls = compare(solver, graph)
        assert ("tree_slack" in calls) == (isinstance(solver, TreeReweighted) and graph is not TREE)


def test_nor_do_starts_and_evidence():
    for solver in (BeliefPropagation(), TreeReweighted()):
        for graph in (PAIRS, RING):
            first = solver(graph)
            compare(solver, graph.tilt(np.linspace(0.0, 1.0, len(first.probs))), first)
            run = solver.prepare(graph)
            with using(plain_backend([])):
                there = run({0: 1})
            np.testing.assert_allclose(there.probs, run({0: 1}).probs, rtol=1e-9)


def test_these_solvers_name_no_kernel():
    solvers = ("mean_field", "gibbs", "tempering", "bp", "trw", "propagation")
    for name in (*(f"solvers/{name}" for name in solvers), "engine/message_state"):
        text = (PACKAGE / f"{name}.py").read_text("utf-8")
        names = {
            each.name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("minfer.kernels")
            for each in node.names
        }
        assert {each for each in names if each.islower()} <= {"backend", "wiring"}, name
        assert "plain_backend" not in text
