"""The best assignments, the k best and marginal MAP, also by search, against all assignments."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import minfer
from draws import blocks, draws
from minfer import (
    ContradictionError,
    EvidenceError,
    FactorGraph,
    ModelError,
    RefusedError,
    SettingsError,
)
from minfer.engine.conditioning import condition
from minfer.engine.elimination import clique_tree
from minfer.graph import with_any_evidence
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree, all_arcs
from minfer.queries import cliques
from minfer.queries.map import toulbar
from minfer.queries.map.dual import Dual
from minfer.queries.map.flow import Ising, best_cut, by_flow, persistent
from minfer.queries.map.moves import Moves
from minfer.queries.map.problem import lay_out
from minfer.queries.map.search import search
from oracle import models, promises
from oracle import truth as naive
from refused import all_refused, refused
from test_states import sprinkler


@pytest.mark.drawn
@pytest.mark.parametrize("kind", promises.KINDS)
def test_promises_on_drawn_models(kind):
    first, n = promises.KINDS.index(kind), draws(40) * blocks(1)
    found = Counter(promises.check_best(first + len(promises.KINDS) * k) for k in range(n))
    assert found["optimal"] >= (n - found["impossible"]) // 2
    assert found["nothing found"] <= 2 * blocks(1)


def some_pairs(rng, n=7):
    every = [(a, b) for a in range(n) for b in range(a + 1, n)]
    m = int(rng.integers(0, len(every) + 1))
    return np.array([every[k] for k in rng.choice(len(every), m, replace=False)]).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(60))
def test_cuts_and_roof_duality_against_all_assignments(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    pairs = some_pairs(rng, n).astype(np.int64)
    size = 10.0 ** int(rng.integers(-6, 7))
    unary = rng.normal(size=n) * size
    unary = np.round(unary) if seed % 3 == 0 else unary
    model = Ising(0.0, unary, pairs, rng.normal(size=len(pairs)) * rng.choice([0.1, 1.0, 1e4]), 0.0)
    every = np.indices([2] * n).reshape(n, -1).T
    differ = every[:, pairs[:, 0]] != every[:, pairs[:, 1]]
    values = every @ unary - differ @ model.price
    room = 1e-12 * (np.abs(unary).sum() + np.abs(model.price).sum())
    flip = model.flips()
    if flip is not None:
        x, bound = by_flow(model, flip)
        own = values[(every == x).all(axis=1)][0]
        assert own >= values.max() - room
        assert values.max() - room <= bound <= own + 1e-11 * (1.0 + np.abs(values).max())
    x, bound = persistent(model)
    assert bound >= values.max() - room
    best = every[values >= values.max() - room]
    assert (best[:, x >= 0] == x[x >= 0]).all(axis=1).any()


def test_cuts_by_hand():
    # balanced: no cycle with an odd number of negative prices
    ring = np.array([[0, 1], [1, 2], [0, 2]])
    odd = Ising(0.0, np.zeros(3), ring, np.array([1.0, 1.0, -1.0]), 0.0)
    assert odd.flips() is None
    even = Ising(0.0, np.zeros(3), ring, np.array([-1.0, 1.0, -1.0]), 0.0)
    flip = even.flips()
    assert (flip[ring[:, 0]] != flip[ring[:, 1]]).tolist() == [True, False, True]
    # capacities beyond 32 bits are exact: the best cut hangs on the last of some fifty
    unary, price = np.array([1.0 + 2.0**-50, -1.0]), np.array([5.0])
    x, bound = best_cut(unary, np.array([[0, 1]]), price)
    assert x.tolist() == [1, 1]
    assert 2.0**-50 <= bound <= 2.0**-48
    x, _ = best_cut(np.array([1.0 - 2.0**-50, -1.0]), np.array([[0, 1]]), price)
    assert x.tolist() == [0, 0]


def test_an_ising_grid_is_proven_by_a_flow():
    rng = np.random.default_rng(0)
    g = FactorGraph.grid(rng.normal(size=(60, 60)), np.abs(rng.normal(size=7080)))
    best = minfer.mpe(g)
    assert best.proven
    assert best.status == "optimal"
    assert best.steps == ("maximum flow",)
    assert 0.0 <= best.gap < 1e-8
    assert math.isnan(best.log_probability)
    assert json.loads(json.dumps(best.to_dict()))["assignments"][0]["probability"] is None
    assert "proven" in repr(best)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_never_rises_and_moves_never_lose(seed):
    number = [3, 5, 6, 7, 8, 0, 1, 2][seed] + 10 * seed
    _, graph, seen = promises.draw_best(number)
    try:
        problem = lay_out(condition(with_any_evidence(graph, seen)))
    except ContradictionError:
        return
    dual = Dual(problem)
    if not dual.supported or not problem.n:
        return
    bounds = []
    for _ in range(20):
        assert dual.sweep()
        bounds.append(dual.bound())
    size = 1e-12 * (1.0 + abs(bounds[0]))
    assert all(b <= a + size for a, b in itertools.pairwise(bounds))
    moves, rng = Moves(problem, np.random.default_rng(0)), np.random.default_rng(seed)
    x = (rng.random(problem.n) * problem.cards).astype(np.int32)
    for turn in range(12):
        before = moves.value(x)
        if turn % 3 == 0:
            moves.trees(x)
        elif turn % 3 == 1:
            moves.block(x, 2.5)
        elif moves.can_fuse:
            x = moves.expansions(x, math.inf)
        assert moves.value(x) >= before - 1e-9 * (1.0 + abs(before))


def frustrated(seed=0, n=14, strength=2.0):
    rng = np.random.default_rng(seed)
    return FactorGraph.grid(rng.normal(size=(n, n)), strength * rng.normal(size=2 * n * (n - 1)))


def test_no_assignment_is_below_the_floor():
    tables = [np.array([[-2.0, 1.0], [-np.inf, 3.0]]), np.array([[0.5, 4.0], [1.0, 2.0]])]
    g = FactorGraph.from_tables([2, 2, 2], [[0, 1], [1, 2]], tables)
    g = g.add_tables([[0, 2]], [tables[0]]).tilt([0.0, -1.0, 0.0, 0.0, 2.0, 0.0])
    problem = lay_out(condition(g))
    assert problem.floor / problem.scale == pytest.approx(-1.0 - 2.0 - 2.0, abs=1e-6)


def test_an_allowed_gap_and_the_clock_end_the_search():
    best = minfer.mpe(frustrated(n=30), max_gib=1e-6, time_limit=1e-6)
    assert best.status == "time limit"
    assert best.log_score <= best.upper < math.inf
    flow = minfer.mpe(frustrated(n=100), time_limit=0.2)  # which would outlast the limit
    assert flow.steps[0].startswith("no roof duality, which needs about 0.79 s")
    assert flow.log_score < flow.upper < math.inf
    best = minfer.mpe(frustrated(), max_gib=1e-6, gap=1e6)
    assert best.status == "within gap"
    assert not best.proven
    assert best.gap <= 1e6
    assert "within gap" in repr(best)
    assert "within gap" in best._repr_html_()


def test_what_moves_cannot_reach_is_enumerated_where_it_is_small():
    """A tree over three words and pairs that leave one tree alone possible."""
    heads, modifiers = all_arcs(3)
    arcs = FactorGraph.pairwise(np.zeros(9), [], []).add_global(
        np.arange(9), NonProjectiveTree(heads, modifiers, 3)
    )
    parents = (2, 3, 0)  # of words 1, 2, 3
    only = [int(parents[m - 1] == h) for h, m in zip(heads.tolist(), modifiers.tolist())]
    hidden = arcs
    for a, b in itertools.combinations(range(9), 2):
        table = np.zeros((2, 2))
        table[1 - only[a], 1 - only[b]] = -np.inf  # at most one of all may differ
        hidden = hidden.add_tables([[a, b]], [table])
    best = minfer.mpe(hidden, max_gib=1e-9)
    assert best.numbers.tolist() == only
    assert best.proven


def test_walks_begin_at_drawn_assignments_too():
    g = frustrated(n=12, strength=3.0)
    found = search(condition(g))
    assert found.x.tolist() == search(condition(g)).x.tolist()
    assert "parallel tempering" in found.steps
    assert found.score == pytest.approx(minfer.mpe(g).log_score)


def test_what_a_search_does_not_do():
    class Sums:
        def messages(self, incoming, out):
            out[:] = 0.0
            return np.zeros(len(incoming))

        def score(self, assignments):
            return np.zeros(len(assignments))

    g, small = frustrated(), frustrated(n=4)
    own = FactorGraph.pairwise(np.zeros(20), [[0, 1]], [1.0]).add_global(np.arange(20), Sums())
    all_refused(
        (lambda: minfer.mpe(g, k=2, max_gib=1e-6), RefusedError, "k=1 goes on"),
        (lambda: minfer.mpe(own), RefusedError, r"global factor 2.* \(Sums\).*max_messages"),
        *((lambda gap=gap: minfer.mpe(small, gap=gap), SettingsError, "gap")
          for gap in (-1, math.nan, True, "a", None, np.array([1.0]))),
    )  # fmt: skip
    best = minfer.mpe(small, gap=math.inf, max_gib=1e-9)
    assert best.status in ("within gap", "optimal")
    assert best.log_score > -math.inf


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_max_messages_of_trees(seed, projective, single_root):
    rng = np.random.default_rng(seed)
    arcs = all_arcs(3)
    keep = np.flatnonzero(rng.random(9) < 0.85)
    kind = ProjectiveTree if projective else NonProjectiveTree
    tree = kind(arcs[0][keep], arcs[1][keep], 3, single_root)
    n = len(keep)
    q = rng.normal(size=(2, n, 2))
    q[rng.random(q.shape) < 0.1] = -np.inf
    out = np.empty((2, 2 * n))
    tops = tree.max_messages(q.reshape(2, -1), out)
    cells = np.indices([2] * n).reshape(n, -1).T
    cells = cells[tree.score(cells) == 0.0]
    for row in range(2):
        each = q[row][np.arange(n), cells]
        assert tops[row] == pytest.approx(each.sum(axis=1).max(initial=-np.inf))
        for a in range(n):
            rest = np.delete(each, a, axis=1).sum(axis=1)
            for s in (0, 1):
                want = rest[cells[:, a] == s].max(initial=-np.inf)
                assert out[row, 2 * a + s] == pytest.approx(want)


@pytest.mark.skipif(not toulbar.available(), reason="pytoulbar2 is not installed")
@pytest.mark.parametrize("number", [0, 1, 3, 5, 6, 7, 10, 13, 15])
def test_proof_by_toulbar2(number):
    _, graph, seen = promises.draw_best(number)
    scores = naive.log_scores_with(graph, seen)
    try:
        problem = lay_out(condition(with_any_evidence(graph, seen)))
    except ContradictionError:
        return
    if not problem.n or scores.max() == -np.inf:
        return
    answer = toulbar.solve(problem, -math.inf, 20.0)
    assert answer is not None
    assert answer[0] is not None
    assert problem.score(answer[0]) == pytest.approx(scores.max(), abs=1e-6)
    assert scores.max() - 1e-12 <= answer[1] <= scores.max() + 1e-6
    known = toulbar.solve(problem, float(scores.max()), 20.0)
    assert known is not None
    assert scores.max() - 1e-12 <= known[1] <= scores.max() + 1e-6


def test_a_pass_is_given_up_by_its_pace(monkeypatch):
    model = condition(FactorGraph.grid(np.zeros((2, 2)), np.ones(4)))

    def tables(deadline):
        factors = cliques.factors_of(model)
        return cliques.Cliques(model.graph._n_states, factors, clique_tree(model), deadline)

    tree = tables(110.0)
    monkeypatch.setattr(cliques, "clock", lambda: 101.0)
    tree.check_pace(100.0, 0.2)  # it will take 5 s of 10,
    tree.check_pace(100.0, 0.09)  # or about 11
    with pytest.raises(RefusedError, match="would pass"):
        tree.check_pace(100.0, 0.05)  # or 20
    monkeypatch.setattr(cliques, "clock", lambda: 100.4)
    tree.check_pace(100.0, 0.0)  # too early to tell
    with_limit, without = tables(200.0), tables(math.inf)
    everything = range(4)
    assert with_limit.collect(everything) == without.collect(everything)


CASES = [(kind, seed) for kind in models.NETWORKS for seed in range(40)]


@pytest.mark.parametrize("marginal", [False, True])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_k_best(kind, seed, marginal):
    """Of all variables, or of some, the others summed out."""
    rng = np.random.default_rng([seed, 7, len(kind)] if marginal else [seed, len(kind)])
    graph = models.NETWORKS[kind](rng, zeros=float(rng.choice([0.0, 0.3])))
    seen = models.evidence(rng, graph)
    w, n = naive.weights(graph, seen), graph.n_variables
    some, options = list(range(n)), {}
    if marginal:
        some = [int(v) for v in rng.choice(n, int(rng.integers(1, n + 1)), replace=False)]
        options = {"variables": some}
    if w.sum() == 0.0:
        refused(ContradictionError, "", minfer.mpe, graph, seen, **options)
        return
    table = naive.table(w, some) * w.sum()
    k, possible = int(rng.integers(1, 9)), int((table > 0.0).sum())
    best = minfer.mpe(graph, seen, k=k, **options)
    assert len(best) == len({tuple(a.numbers) for a in best}) == min(k, possible)
    assert best.proven
    assert best.complete == (possible <= k)
    want = np.sort(table.ravel())[::-1][: len(best)]
    assert [a.log_score for a in best] == pytest.approx(np.log(want), abs=1e-11)
    for a in best:
        own = table[tuple(a.numbers)]
        assert math.log(own) == pytest.approx(a.log_score, abs=1e-11)
        assert a.log_probability == pytest.approx(math.log(own / w.sum()), abs=1e-10)
        if not marginal:
            assert [graph.state(v, a[v]) for v in some] == a.numbers.tolist()
    assert best.best.variables == tuple(graph.name(v) for v in some)


@pytest.mark.drawn
@pytest.mark.parametrize("max_gib", [1.0, promises.NO_TREE])
def test_no_score_is_above_the_upper_bound(max_gib):
    """Scores as fractions: the best one's rounded sum is too low half of the time."""
    rng = np.random.default_rng(0)
    for _ in range(draws(200)):
        n = int(rng.integers(1, 7))
        graph = FactorGraph.empty(rng.integers(1, 4, size=n))
        size = float(rng.choice([1e-3, 1.0, 30.0, 1e6, 1e12]))
        if rng.random() < 0.5:
            graph = graph.tilt(size * rng.normal(size=len(graph.field)))
        for _ in range(int(rng.integers(1, 12))):
            scope = rng.choice(n, size=int(rng.integers(1, min(n, 3) + 1)), replace=False)
            graph = graph.add_tables([scope], [size * rng.normal(size=graph.n_states[scope])])
        top = max(
            sum(Fraction(float(table[tuple(x[list(scope)])])) for scope, table in factors)
            for factors in [naive.factors_of(graph)]
            for x in naive.assignments(graph)
        )
        best = minfer.mpe(graph, max_gib=max_gib)
        assert Fraction(best.upper) >= top
        assert best.log_score <= best.upper
        assert best.proven
        assert best.gap <= 1e-8 + 1e-11 * size


def test_answers_speak_names_also_in_pandas():
    best = minfer.mpe(sprinkler(), {"wet": "yes"}, k=3)
    assert best["wet"] == "yes"
    assert best.states["rain"] in ("no", "yes")
    assert list(best.states) == ["rain", "sprinkler", "wet", "count"]
    assert "wet=yes" in repr(best)
    assert best.to_dict()["assignments"][0]["states"] == best.states
    assert best.probability == next(iter(best)).probability
    assert best._repr_html_()
    with pytest.raises(ModelError, match="no variable 'snow'"):
        best["snow"]
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = minfer.mpe(sprinkler(), k=3).to_pandas()
    assert frame.shape == (3, 7)
    assert frame["log_score"].is_monotonic_decreasing


def test_rules_and_ties():
    g = FactorGraph.empty([2] * 8).add_exactly_one([list(range(8))])
    best = minfer.mpe(g, k=20)
    assert len(best) == 8
    assert best.complete
    assert {tuple(a.numbers) for a in best} == {tuple(row) for row in np.eye(8, dtype=int)}
    again = minfer.mpe(g, k=20)
    assert [a.numbers.tolist() for a in best] == [a.numbers.tolist() for a in again]
    parity = FactorGraph.pairwise(np.linspace(-1, 1, 9), np.zeros((0, 2), int), [])
    parity = parity.add_parity([list(range(9))], np.inf)
    w = naive.weights(parity)
    assert minfer.mpe(parity).log_score == pytest.approx(math.log(w.max()))


def test_refused_with_an_estimate():
    rng = np.random.default_rng(0)
    pairs = [[a, b] for a in range(50) for b in range(a + 1, 50)]
    g = FactorGraph.pairwise(np.zeros(50), pairs, rng.normal(size=len(pairs)))
    refused(RefusedError, r"^mpe: .*GiB.*Marginals\.mpm", minfer.mpe, g, k=2)
    chain = FactorGraph.pairwise(np.zeros(120), [[k, k + 60] for k in range(60)]
                                 + [[k, k + 1] for k in range(59)], np.ones(119))  # fmt: skip
    assert minfer.mpe(chain).proven
    found = minfer.mpe(chain, variables=range(60, 120), time_limit=1.0)  # no tree fits
    assert found.steps[0] == "best-first search"
    assert -math.inf < found.log_score <= found.upper < math.inf
    with pytest.raises(RefusedError, match="time_limit=1e-09"):
        minfer.mpe(FactorGraph.grid(np.zeros((12, 12)), 0.5), k=2, time_limit=1e-9)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"k": 0}, SettingsError),
        ({"time_limit": -1}, SettingsError),
        ({"variables": []}, ModelError),
        ({"variables": ["rain", 0]}, ModelError),
        ({"variables": ["snow"]}, ModelError),
        ({"evidence": {"rain": "maybe"}}, EvidenceError),
    ],
)
def test_wrong_settings(settings, error):
    refused(error, "", minfer.mpe, sprinkler(), **settings)


@pytest.mark.parametrize("name", ["asia", "alarm"])
def test_no_worse_than_pyagrum(name, tmp_path):
    gum, bn, graph = models.loaded(name, tmp_path)
    engine = gum.LazyPropagation(bn)
    if not hasattr(engine, "mpe"):
        pytest.skip("this pyAgrum has no MPE")
    rng = np.random.default_rng(0)
    compared = 0
    for k, row in enumerate(minfer.sample(graph, 10)):
        chosen = rng.choice(graph.n_variables, min(k, 3), replace=False)
        seen = {graph.name(int(v)): graph.states(int(v))[row[v]] for v in chosen}
        engine.setEvidence(seen)
        try:
            theirs = engine.mpe().todict()
        except (gum.GumException, gum.FatalError):  # "Empty tensor", with some evidence
            continue
        theirs = [theirs[name] for name in graph.names]
        if any(graph.state(v, s) != theirs[graph.index(v)] for v, s in seen.items()):
            continue
        assert minfer.mpe(graph, seen).log_score >= graph.log_score(theirs) - 1e-9
        compared += 1
    if not compared:
        pytest.skip("this pyAgrum gives no MPE of the network")
