"""docs/architecture.md: short, true of the files it names, and its four walks lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import minfer
import own_format
import own_kind
import own_schedule
from minfer import BeliefPropagation, Exact, FactorGraph, TreeReweighted
from minfer.kernels.backend import using
from oracle import truth
from plain_backend import plain_backend

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGE = Path(minfer.__file__).parent


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 250


def test_files_that_the_page_names_exist():
    """From the root, from the package, or anywhere in it for a bare name."""
    anywhere = {path.name for path in PACKAGE.rglob("*.py")}
    anywhere |= {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    for name in re.findall(r"`([\w/.]+(?:\.py|\.npz|/))`", PAGE):
        there = (ROOT / name).exists() or (PACKAGE / name).exists()
        assert there or name in anywhere, name


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


@pytest.mark.parametrize("solver", [BeliefPropagation(), TreeReweighted()], ids=repr)
def test_walk_a_device(solver):
    graph = FactorGraph.grid([[0.4, -0.3], [0.1, 0.2]], 0.5)
    calls: list[str] = []
    with using(plain_backend(calls)):
        there = solver(graph)
    assert calls
    assert np.abs(there.probs - solver(graph).probs).max() < 1e-9
