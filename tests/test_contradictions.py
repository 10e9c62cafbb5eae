"""Contradictions are proofs: hard zeros make them, numbers that leave their range do not.

Every model here was made around a solution or has none, by ``oracle/puzzles.py`` alone.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import minfer
from draws import draws, few, thorough
from minfer import (
    Auto,
    BeliefPropagation,
    Clamped,
    Components,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    JoinGraph,
    LogZ,
    RefusedError,
    Status,
    Tempering,
    Windows,
    write,
)
from minfer.engine import support
from minfer.engine.conditioning import condition
from oracle import lists, puzzles
from test_cli import ok

SHORT = BeliefPropagation(max_iters=100)
#: All solvers, with little effort; samplers and those that enumerate decline most of these models.
SOLVERS = {
    **{name: replace(s, max_iters=100) for name, s in lists.SOLVERS.items() if name[:3] == "bp-"},
    **{name: s for name, s in lists.SOLVERS.items() if name[:3] in ("trw", "mea", "str")},
    "bp": SHORT,
    "bp-five": BeliefPropagation(max_iters=5),
    "exact": Exact(method="clique-tree", max_gib=2**-7),
    "exact-auto": Exact(max_gib=2**-7),
    "enumerate": Exact(method="enumerate"),
    "gibbs": Gibbs(n_sweeps=30, burn_in=5, n_chains=2, rng=7),
    "tempering": Tempering(n_sweeps=20, burn_in=10, n_replicas=3, n_chains=2, rng=7),
    "auto": Auto(exact_cells=1 << 14),
    "auto-bp": Auto(exact_cells=0),
    "components": Components(SHORT, workers=1, size=4),
    "clamped": Clamped(SHORT, k=1, restarts=1),
    "clamped-exact": Clamped(Exact(method="clique-tree", max_gib=2**-7), k=2, restarts=0),
    "join-graph": JoinGraph(max_cells=512, max_iters=40),
    "join-graph-small": JoinGraph(max_cells=4, max_iters=40, damping=0.3),
    "windows": Windows(max_cells=512),
    "windows-small": Windows(max_cells=8, core=2),
}
NAMES = sorted(SOLVERS)
EXACT = {"exact", "exact-auto", "enumerate", "clamped-exact"}
#: Those that take Sudokus.
FAST = ["bp", "bp-flooding", "bp-residual", "bp-damped", "windows", "auto-bp"]


def taken(puzzle: puzzles.Puzzle, seed: int) -> list[str]:
    """Three of the solvers, in turn, for the puzzle of a seed."""
    names = [NAMES[(7 * seed + seed // len(NAMES) + 5 * k) % len(NAMES)] for k in range(3)]
    most = {"enumerate": 12, "clamped": 40, "clamped-exact": 60}  # bits of what they take
    return [n for n in names if math.log2(math.prod(puzzle.n_states)) <= most.get(n, 1000)]


def check_possible(puzzle: puzzles.Puzzle, name: str, solver) -> None:
    """No contradiction, and a probability for every state of the solution."""
    graph, x = puzzle.graph(), puzzle.solution
    assert x is not None
    assert puzzle.allows(x)
    where = f"{puzzle.name} (seed {puzzle.seed}), {name}"
    try:
        answer = solver(graph)
    except RefusedError:
        return
    except ContradictionError as error:
        pytest.fail(f"{where}: {error}")
    p = answer.probs[graph.offsets[:-1] + np.array(x)]
    assert np.isfinite(answer.probs).all(), where
    totals = np.add.reduceat(answer.probs, graph.offsets[:-1])
    assert np.allclose(totals, 1.0, atol=1e-9), where
    assert (p > 0.0).all(), f"{where}: {answer.status} gives {(p == 0).sum()} true states nothing"


def check_impossible(puzzle: puzzles.Puzzle, name: str, solver) -> None:
    """Nothing called exact; exact solvers say what it is."""
    try:
        answer = solver(puzzle.graph())
    except (ContradictionError, RefusedError):
        return
    where = f"{puzzle.name} (seed {puzzle.seed}), {name}: {answer.status}"
    assert name not in EXACT, where
    assert answer.status is not Status.EXACT, where
    assert answer.log_z_kind is not LogZ.EXACT, where


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(20))
def test_drawn_models_keep_their_solution_or_have_no_exact_answer(block):
    """2,000 models with a solution and without one; each by three of all solvers, in turn."""
    for seed in few(range(block, 2000, 20), 1):
        puzzle = puzzles.possible(seed)
        for name in taken(puzzle, seed):
            check_possible(puzzle, name, SOLVERS[name])
        puzzle = puzzles.impossible(seed)
        assert puzzle.solution is None
        for name in taken(puzzle, seed):
            check_impossible(puzzle, name, SOLVERS[name])
        check_impossible(puzzle, "exact", SOLVERS["exact"])


@pytest.mark.drawn
@pytest.mark.parametrize("seed", few(range(24), 1))
def test_sudokus_with_one_solution_keep_it(seed):
    """Messages of these fall by hundreds of orders of magnitude from sweep to sweep."""
    puzzle = puzzles.sudoku(seed)
    for name in FAST if thorough() else FAST[:4]:
        check_possible(puzzle, name, (lists.SOLVERS if thorough() else SOLVERS)[name])


@pytest.mark.slow
def test_the_sudoku_that_was_called_impossible(tmp_path):
    """By all of these, though its solution has log score 0; `minfer run` had exit code 3."""
    text = "800000000003600000070090200050007000000045700000100030001000068008500010090000400"
    solution = "812753649943682175675491283154237896369845721287169534521974368438526917796318452"
    clues = {v: int(c) - 1 for v, c in enumerate(text) if c != "0"}
    facts = [("one", tuple(u), d) for d in range(9) for u in puzzles.squares(9, (3, 3))]
    x = [int(c) - 1 for c in solution]
    puzzle = puzzles.Puzzle("sudoku 9", [9] * 81, facts, clues, x)
    assert puzzle.graph().log_score(np.array(x)) == 0.0
    for name in FAST if thorough() else ["bp", "bp-flooding"]:
        check_possible(puzzle, name, SOLVERS[name])
    check_possible(puzzle, "auto", Auto(time_limit=2 if thorough() else 0.5))
    check_possible(puzzle, "bp", BeliefPropagation(time_limit=0.05))
    write(puzzle.graph(), tmp_path / "sudoku.minfer")
    ok("run", str(tmp_path / "sudoku.minfer"))


@pytest.mark.slow
def test_numbers_that_left_their_range_are_told_of():
    """Belief propagation does not converge on this one, and its messages grow for ever.

    Of join graphs the solution's probability is e^-1000 or so, which is no zero.
    """
    check_possible(puzzles.sudoku(0), "join-graph", JoinGraph(max_cells=64, max_iters=20))
    answer = BeliefPropagation(schedule="flooding")(puzzles.sudoku(0).graph())
    assert answer.status is Status.MAX_ITERS
    assert answer.note.startswith("lost its range")
    assert "lost their range" in answer.advice
    assert answer.still_to_move is None


def naive_support(puzzle: puzzles.Puzzle) -> list[set[int]] | None:
    """States that every fact allows beside others of the kind; None if a variable has none."""
    left = [set(range(k)) for k in puzzle.n_states]
    for v, s in puzzle.clues.items():
        left[v] &= {s}
    changed = True
    while changed:
        changed = False
        for kind, scope, more in puzzle.facts:
            every = itertools.product(*(sorted(left[v]) for v in scope))
            good = [cell for cell in every if puzzles.holds(kind, cell, more)]
            for a, v in enumerate(scope):
                now = {cell[a] for cell in good}
                changed |= now != left[v]
                left[v] = now
            if not good:
                return None
    return left


@pytest.mark.drawn
@pytest.mark.parametrize("make", [puzzles.possible, puzzles.impossible])
def test_possible_states_are_those_that_all_factors_support(make):
    for seed in range(draws(500)):
        puzzle = make(seed)
        if max(len(scope) for _, scope, _ in puzzle.facts) > 5 or max(puzzle.n_states) > 4:
            continue
        graph, expected = puzzle.graph(), naive_support(puzzle)
        try:
            found = support.possible(condition(graph))
        except ContradictionError:
            assert expected is None, f"{puzzle.name} (seed {seed})"
            continue
        ends = graph.offsets
        states = [set(np.flatnonzero(found[a:b]).tolist()) for a, b in itertools.pairwise(ends)]
        assert states == expected, f"{puzzle.name} (seed {seed})"


def test_labels_global_factors_and_prepared_evidence_exclude_states():
    graph = FactorGraph.empty([5] * 3).add_truncated_linear([[0, 1], [1, 2]], 1.0, 1, hard=True)
    found = support.possible(condition(graph.with_soft_evidence({0: [1, 0, 0, 0, 0]})))
    assert found.reshape(3, 5).tolist() == [[s <= v for s in range(5)] for v in range(3)]
    four = FactorGraph.empty([2] * 4).add_global([0, 1, 2, 3], lists.exactly_one())
    assert support.possible(condition(four)).all()
    found = support.possible(condition(four.with_evidence({2: 1})))
    assert found.reshape(4, 2).tolist() == [[1, 0], [1, 0], [0, 1], [1, 0]]
    with pytest.raises(ContradictionError, match="probability zero"):
        support.possible(condition(four.with_evidence({2: 1, 3: 1})))
    # What it observes is known to the logic, too.
    equal = np.where(np.eye(3) > 0, 0.0, -np.inf)
    graph = FactorGraph.from_tables([3] * 4, [[0, 1], [1, 2], [2, 3], [3, 0]], [equal] * 4)
    run = BeliefPropagation().prepare(graph)
    assert run(evidence={0: 1})[2].tolist() == [0, 1, 0]
    with pytest.raises(ContradictionError):
        run(evidence={0: 1, 2: 2})
    for states in ([2], [3, 2]):
        field = [-1e5, 0.0] if states == [2] else [-1e5, 0.0, -np.inf, 0.0, -1e4]
        p = minfer.BeliefPropagation()(FactorGraph.empty(states).tilt(field)).probs
        assert ((p > 0.0) == np.isfinite(field)).all()


def test_stored_evidence_is_named():
    same, states = [[1.0, 0.0], [0.0, 1.0]], ["n", "y"]
    net = FactorGraph.network(
        {"a": states, "b": states, "c": states},
        {"a": [0.5, 0.5], "b": ("a", same), "c": ("b", same)},
    )
    stored = net.with_evidence({"a": "y"})
    for ask in (
        lambda: minfer.mpe(stored.with_evidence({"c": "n"})),
        lambda: minfer.sample(stored.with_evidence({"c": "n"}), 3),
        lambda: minfer.mpe(stored, {"c": "n"}),
    ):
        with pytest.raises(ContradictionError) as caught:
            ask()
        assert "a=y and c=n together" in str(caught.value)


def _pigeons(holes: int) -> FactorGraph:
    """One more of them than holes, no two of them in one."""
    graph = FactorGraph.empty([2] * (holes * (holes + 1)))
    where = np.arange(graph.n_variables).reshape(holes + 1, holes)
    pairs = [pair for hole in where.T for pair in itertools.combinations(hole.tolist(), 2)]
    return graph.add_clauses(where).add_clauses(pairs, signs=[[-1, -1]] * len(pairs))


def test_factors_that_contradict_each_other_are_named():
    """By themselves or with what is observed: each is needed, and together they suffice."""
    rows = [[0, 1], [0, 2], [4, 5], [2, 3], [1, 3], [3]]
    signs = [[1, 1], [-1, 1], [1, 1], [-1, 1], [-1, 1], [-1]]
    graph = FactorGraph.empty([2] * 6).add_clauses(rows, signs=signs)
    with pytest.raises(ContradictionError) as caught:
        Exact()(graph)
    assert str(caught.value) == (
        "every assignment of the model has probability zero, without any evidence: clause 0 (x0 or "
        "x1), clause 1 (not x0 or x2), clause 3 (not x2 or x3), clause 4 (not x1 or x3) and "
        "clause 5 (not x3) cannot all hold"
    )
    seen = graph.keep(np.arange(5)).with_evidence({3: 0, 4: 1})
    with pytest.raises(ContradictionError, match=r"^x3=0 has probability zero .*: see clause 0 "):
        Exact()(seen)
    with pytest.raises(
        ContradictionError, match=r"clause 0 .x0 or x1 or x2., .* and 10 more cannot all"
    ):
        Exact()(_pigeons(3))
    three = FactorGraph.empty([3, 3]).add_clauses([[0, 1]], states=[[2, 1]])
    three = three.add_tables([[1], [0, 1]], [[0.0, -np.inf, 0.0], np.zeros((3, 3))])
    with pytest.raises(ContradictionError) as caught:
        minfer.query(three, 1, {0: 1})
    assert str(caught.value).endswith("see clause 0 (x0=2 or x1=1) and table 1 (x1)")


@pytest.mark.drawn
def test_named_factors_are_least():
    """Against all subsets, of which each needs a search or only logic."""
    for seed in range(draws(60)):
        rng = np.random.default_rng(seed)
        n, m = 5, int(rng.integers(6, 14))
        rows = [rng.choice(n, int(rng.integers(1, 4)), replace=False).tolist() for _ in range(m)]
        signs = [rng.choice([-1, 1], len(row)).tolist() for row in rows]
        graph = FactorGraph.empty([2] * n).add_clauses(rows, signs=signs)
        holds = [np.isfinite(graph.keep([i]).log_score(_ALL)) for i in range(m)]
        if np.logical_and.reduce(holds).any():
            continue
        with pytest.raises(ContradictionError) as caught:
            Exact(method="clique-tree")(graph)
        named = [int(k) for k in re.findall(r"clause (\d+)", str(caught.value))]
        assert not np.logical_and.reduce([holds[i] for i in named]).any()
        for i in named:
            assert np.logical_and.reduce([holds[k] for k in named if k != i] or [[True]]).any()


_ALL = np.array(list(itertools.product([0, 1], repeat=5)))
