"""The best assignments, the k best and marginal MAP, against all assignments."""

import math
from fractions import Fraction

import numpy as np
import pytest

import minfer
from draws import draws
from minfer import ContradictionError, EvidenceError, FactorGraph, ModelError, RefusedError
from oracle import models, promises
from oracle import truth as naive
from refused import refused
from test_states import sprinkler

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
    refused(RefusedError, "fewer variables", minfer.mpe, chain, variables=range(60, 120))
    with pytest.raises(RefusedError, match="time_limit=1e-09"):
        minfer.mpe(FactorGraph.grid(np.zeros((12, 12)), 0.5), k=2, time_limit=1e-9)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"k": 0}, minfer.SettingsError),
        ({"time_limit": -1}, minfer.SettingsError),
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
