"""The best assignment where hard factors leave few: puzzles made around a solution, or without."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minfer
from draws import draws, few
from minfer import ContradictionError, FactorGraph, RefusedError
from minfer.basics.limits import clock
from minfer.engine.conditioning import condition
from minfer.queries.map import toulbar
from minfer.queries.map.backtracking import Backtracking
from minfer.queries.map.search import search
from oracle import puzzles
from refused import refused


@given(st.integers(0, 1 << 20))
@settings(max_examples=draws(60), deadline=None)
def test_backtracking_finds_what_is_allowed_and_proves_what_is_not(seed):
    puzzle = puzzles.possible(seed)
    found = Backtracking(condition(puzzle.graph()), np.random.default_rng(seed))
    x = found.go(clock() + 60)
    assert x is not None
    assert puzzle.allows(x.tolist())
    assert not found.exhausted
    puzzle = puzzles.impossible(seed)
    try:
        found = Backtracking(condition(puzzle.graph()), np.random.default_rng(seed))
        assert found.go(clock() + (60 if seed < 100 else 1)) is None
        assert found.exhausted or seed >= 100  # the proof may take longer than anybody waits
    except ContradictionError:  # already before the search
        pass


@pytest.mark.drawn
@pytest.mark.parametrize("seed", few(range(24), 3))
def test_sudokus_are_solved_without_a_tree_or_circuit(seed):
    puzzle = puzzles.sudoku(seed)
    found = search(condition(puzzle.graph()), use_toulbar=False)
    assert found.x.tolist() == puzzle.solution
    assert found.status == "optimal"


HARDEST = "800000000003600000070090200050007000000045700000100030001000068008500010090000400"


def test_the_hardest_and_the_empty_board():
    units = puzzles.squares(9, (3, 3))
    facts = [("one", tuple(u), d) for d in range(9) for u in units]
    for text in (HARDEST, "0" * 81):
        clues = {i: int(c) - 1 for i, c in enumerate(text) if c != "0"}
        puzzle = puzzles.Puzzle("sudoku 9", [9] * 81, facts, clues)
        found = search(condition(puzzle.graph()), use_toulbar=False)
        assert puzzle.allows(found.x.tolist())
    puzzle.clues = {0: 0, 10: 0}  # twice in a box
    with pytest.raises(ContradictionError):
        search(condition(puzzle.graph()), use_toulbar=False)


def test_weights_count_among_what_is_allowed():
    """Assign four jobs to four days; the best by trying all."""
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(4, 4))
    g = FactorGraph.empty([4] * 4).tilt(weight.ravel())
    for d in range(4):
        g = g.add_exactly_one([[0, 1, 2, 3]], states=d)
    best = max(permutations(range(4)), key=lambda p: weight[range(4), p].sum())
    found = search(condition(g), use_toulbar=False)
    assert found.x.tolist() == list(best)
    assert found.score == pytest.approx(weight[range(4), best].sum())


def test_the_refusal_names_the_extra(monkeypatch):
    monkeypatch.setattr(Backtracking, "go", lambda self, until: None)
    monkeypatch.setattr(toulbar, "available", lambda: False)
    puzzle = puzzles.Puzzle("sudoku 9", [9] * 81, [
        ("one", tuple(u), d) for d in range(9) for u in puzzles.squares(9, (3, 3))],
        {i: int(c) - 1 for i, c in enumerate(HARDEST) if c != "0"})  # fmt: skip
    refused(RefusedError, r"pip install 'minfer\[toulbar2\]'", search,
            condition(puzzle.graph()), clock() + 0.2)  # fmt: skip


def test_a_limit_that_is_over_before_the_circuit_is_no_error():
    n = 8
    pairs = [(i, j) for i in range(n) for j in range(i)]
    apart = np.abs(np.arange(n)[:, None] - np.arange(n))
    tables = [np.where((apart == 0) | (apart == i - j), -math.inf, 0.0) for i, j in pairs]
    g = FactorGraph.empty([n] * n).add_tables(pairs, tables)
    found = minfer.mpe(g, time_limit=1e-3, max_gib=1e-9)
    assert all(found.numbers[i] != found.numbers[j] for i, j in pairs)
