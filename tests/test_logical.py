"""Logical factors against their definitions: each kind by plain Python over its literals.

And in the solvers that read their automata: against tables, sums and enumeration.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal, getcontext

import numpy as np
import pytest

import own_kind
from draws import few, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    Marginals,
    MeanField,
    MinDivergence,
    ModelError,
    RefusedError,
    infer,
)
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.layout import in_order, lay_out, same_steps
from minfer.factors import Logical, Machine
from minfer.io.native import format_native, parse_native
from minfer.reduction.gains import factor_scores
from minfer.reduction.recipes import Compensated
from minfer.solvers.irreducible import haven
from minfer.solvers.planning import plan
from oracle import lists, models
from oracle import truth as naive
from refused import all_refused, refused


def _weight(w: float, true: bool) -> float:
    if w == np.inf:
        return 0.0 if true else -np.inf
    return w if true else 0.0


def _clause(w):
    return lambda x: _weight(w, any(x)), lambda g, s, **o: g.add_clauses(s, w, **o)


def _counts(weights, **how):
    def psi(x):
        return weights[min(sum(x), len(weights) - 1)]

    how = how or {"log_weights": weights}
    return psi, lambda g, s, **o: g.add_cardinality(s, **how, **o)


def _gate(add, some, w=np.inf):
    def psi(x):
        return _weight(w, some(x[:-1]) == x[-1])

    return psi, lambda g, s, **o: getattr(g, add)(np.array(s)[:, :-1], np.array(s)[:, -1], w, **o)


#: Log psi of a tuple of truth values, and how the factor is added to a graph.
KINDS = {
    "clause": _clause(1.3),
    "clause-negative": _clause(-0.9),
    "clause-hard": _clause(np.inf),
    "clause-huge": _clause(1e3),
    "clause-impossible": _clause(-1e3),
    "exactly-one": (
        lambda x: 0.0 if sum(x) == 1 else -np.inf,
        lambda g, s, **o: g.add_exactly_one(s, **o),
    ),
    "at-most-one": (
        lambda x: 0.0 if sum(x) <= 1 else -np.inf,
        lambda g, s, **o: g.add_at_most_one(s, **o),
    ),
    "parity": (
        lambda x: 0.0 if sum(x) % 2 == 0 else -np.inf,
        lambda g, s, **o: g.add_parity(s, **o),
    ),
    "parity-odd-soft": (
        lambda x: 0.7 if sum(x) % 2 else 0.0,
        lambda g, s, **o: g.add_parity(s, 0.7, odd=True, **o),
    ),
    "cardinality": _counts([0.5, -1.0, 0.25, -np.inf, 2.0]),
    "cardinality-huge": _counts([-1e3, 0.0, 1e3]),
    "at-most-2": _counts([0.0, 0.0, 0.0, -np.inf], at_most=2),
    "or": _gate("add_or", any),
    "and-soft": _gate("add_and", all, 1.1),
    "own": (own_kind.log_psi, own_kind.add),
}


def table(kind: str, cards, states, signs) -> np.ndarray:
    """A factor's log-table, cell by cell."""
    psi = KINDS[kind][0]
    out = np.empty(tuple(cards))
    for cell in itertools.product(*(range(c) for c in cards)):
        out[cell] = psi(tuple((x == s) == (g > 0) for x, s, g in zip(cell, states, signs)))
    return out


def drawn(kind: str, arity: int, rng, most: int = 2):
    """A graph with one such factor over the last variables, and its log-table."""
    cards = rng.integers(2, most + 1, size=arity)
    states = [int(rng.integers(c)) for c in cards]
    signs = rng.choice([-1, 1], size=arity)
    scope = rng.permutation(arity) + 1
    all_cards = np.full(arity + 1, 2)
    all_cards[scope] = cards
    graph = FactorGraph.empty(all_cards)
    graph = KINDS[kind][1](graph, [scope.tolist()], states=[states], signs=[signs.tolist()])
    return graph, table(kind, cards, states, signs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [2, 3])
def test_tables_are_the_definition(kind, most):
    rng = np.random.default_rng(3)
    for arity in (1, 2, 3, 5):
        graph, want = drawn(kind, arity, rng, most)
        np.testing.assert_array_equal(graph.log_table(0), want)
        graph.validate()
        x = np.array(list(itertools.product(*(range(c) for c in graph.n_states))))
        scores = graph.log_score(x)
        np.testing.assert_array_equal(scores, want[tuple(x[:, graph.scope(0)].T)])
        group = graph.groups[0]
        assert group.forbids()[0] == np.isneginf(want).any()
        np.testing.assert_array_equal(
            group.without_zeros(np.ones(1, bool)).log_tables()[0].reshape(want.shape),
            np.where(np.isneginf(want), 0.0, want),
        )
        np.testing.assert_array_equal(
            group.support().log_tables()[0].reshape(want.shape),
            np.where(np.isneginf(want), -np.inf, 0.0),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_slices_of_the_table(kind):
    rng = np.random.default_rng(4)
    for most in (2, 3):
        graph, want = drawn(kind, 5, rng, most)
        group, scope = graph.groups[0], graph.scope(0)
        for known in itertools.product([False, True], repeat=5):
            touched = np.zeros(graph.n_variables, dtype=bool)
            touched[scope] = known
            fixed = rng.integers(graph.n_states).astype(np.int32)
            (part,) = group.sliced(touched, fixed)
            index = tuple(int(fixed[v]) if touched[v] else slice(None) for v in scope)
            got = part.log_tables()[0].reshape(part.shape)
            if part.arity == 0:  # constant in what is left
                assert (want[index] == got).all()
            else:
                np.testing.assert_array_equal(got, want[index])
            assert part.form == ("table" if part.arity <= 2 else "machine")


@pytest.mark.parametrize("kind", KINDS)
def test_native_files_and_scores(kind):
    rng = np.random.default_rng(5)
    graph, want = drawn(kind, 4, rng, 3)
    data = format_native(graph)
    back = parse_native("file", data)
    np.testing.assert_array_equal(back.log_table(0), want)
    assert back.groups[0].kind == graph.groups[0].kind
    assert format_native(back) == data
    condensed = graph.groups[0].as_automata()
    graph = FactorGraph(graph._n_states, (condensed,))
    np.testing.assert_array_equal(parse_native("file", format_native(graph)).log_table(0), want)
    for arity in (2, 3, 6):
        graph, want = drawn(kind, arity, rng, 3)
        plain = FactorGraph.from_tables(graph.n_states, [graph.scope(0)], [want])
        probs = np.concatenate([rng.dirichlet(np.ones(s)) for s in graph.n_states])
        for score in ("gain", "reverse", "residual"):
            values = [
                factor_scores(g, Marginals.from_probs(g, probs, "drawn"), None, score)[0]
                for g in (graph, plain)
            ]
            np.testing.assert_allclose(*values, rtol=1e-9, atol=1e-12)


def test_small_gains_keep_their_digits():
    """A clause of three literals, all but surely true, and a tiny weight: u w^2 / 2 and p_i p_j."""
    graph = FactorGraph.empty([2] * 3).add_clauses([[0, 1, 2]], 1e-6)
    off = np.array([1e-5, 2e-5, 3e-5])
    probs = np.stack([off, 1 - off], axis=1).ravel()
    m = Marginals.from_probs(graph, probs, "drawn")
    u = off.prod()
    np.testing.assert_allclose(factor_scores(graph, m)[0], u * 1e-12 / 2, rtol=1e-6)
    probs = np.stack([1 - off, off], axis=1).ravel()  # literals all but surely false
    m = Marginals.from_probs(graph, probs, "drawn")
    pairs = off[0] * off[1] + off[0] * off[2] + off[1] * off[2]
    got = factor_scores(graph, m, None, "residual")[0]
    np.testing.assert_allclose(got, 0.5 * 1e-12 * pairs, rtol=1e-3)


def test_evidence_propagates():
    one = FactorGraph.empty([2] * 6).add_exactly_one([[0, 1, 2, 3, 4]])
    assert condition(one.with_evidence({2: 1})).fixed.tolist() == [0, 0, 1, 0, 0, -1]
    two = FactorGraph.empty([2] * 6).add_cardinality([[5, 4, 3, 2, 1]], at_most=2)
    assert condition(two.with_evidence({2: 1, 4: 1})).fixed.tolist() == [-1, 0, 1, 0, 1, 0]
    chain = FactorGraph.empty([2] * 9).add_and([[0, 1, 2], [3, 4, 5]], [3, 6])
    chain = chain.add_clauses([[6, 7, 8]], signs=[[-1, 1, 1]])
    fixed = condition(chain.with_evidence({6: 1, 7: 0})).fixed
    assert fixed.tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 1]
    refused(ContradictionError, "", condition, chain.with_evidence({6: 1, 2: 0}))
    refused(ContradictionError, "", condition, one.with_evidence({2: 1, 3: 1}))
    colours = FactorGraph.empty([3] * 4).add_exactly_one([[0, 1, 2, 3]], states=2)
    fixed = condition(colours.with_evidence({0: 2})).fixed
    assert fixed.tolist() == [2, -1, -1, -1]
    field = condition(colours.with_evidence({0: 2})).field
    assert field[3:].tolist() == [0, 0, -np.inf] * 3


def test_scopes_of_any_lengths_keep_their_numbers():
    scopes = [[0, 1, 2], [3], [], [2, 0], [1, 2, 3]]
    graph = FactorGraph.empty([2] * 4).add_clauses(scopes, np.arange(5.0))
    for i, scope in enumerate(scopes):
        assert graph.scope(i).tolist() == scope
    assert graph.log_table(2) == 0.0
    assert graph.weights.tolist() == [0, 1, 2, 3, 4]
    again = graph.with_weights(graph.weights + 1)
    assert again.lineage == graph.lineage
    assert again.log_table(1).tolist() == [0, 2]
    assert graph.keep([0, 4]).log_table(1).max() == 4.0
    hard = graph.add_clauses([[0, 1, 2]])
    assert hard.with_weights(hard.weights).log_table(5).min() == -np.inf


class Half(Logical):
    """Without its final weights."""

    kind = "half"

    def automaton(self):
        return np.array([[0, 1], [1, 1]])


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (lambda g: g.add_clauses([[0, 1, 9]]), "factor 1: scope .* outside 0..3"),
        (lambda g: g.add_clauses([[0, 1, 2]], np.nan), "factor 1: the weight of a clause"),
        (lambda g: g.add_clauses([[0, 1, 2], [1, 2, 3]], [1.0, 2.0, 3.0]), "2 scopes"),
        (lambda g: g.add_clauses([[0, 1]], signs=[[1, 2]]), "factor 1: signs must be 1 and -1"),
        (lambda g: g.add_clauses([[0, 1], [1]], signs=[[1, 1]] * 2), "factor 2: 1 literals"),
        (lambda g: g.add_clauses([[0, 1]], states=2), r"factor 1: .*\(x0, x1\) have \[2, 2\]"),
        (lambda g: g.add_clauses([[0, 0, 1]]), "factor 1: .* twice"),
        (lambda g: g.add_clauses(3), "scopes must be F sequences"),
        (lambda g: g.add_parity([[0, 1]], odd=3), "odd must be True or False"),
        (lambda g: g.add_cardinality([[0, 1]]), "at_most=k"),
        (lambda g: g.add_cardinality([[0, 1]], at_most=-1), "a count"),
        (lambda g: g.add_cardinality([[0, 1]], [np.inf, 0.0]), "factor 1: a weight"),
        (lambda g: g.add_cardinality([[0, 1]], np.zeros((2, 3))), "1 scopes"),
        (lambda g: g.add_cardinality([[0, 1]], np.zeros((1, 4))), "counts 0 to 2"),
        (lambda g: g.add_or([[0, 1]], [2, 3]), "1 gates"),
        (lambda g: g.add_cardinality([[0, 1, 2]], 1), ""),
        (lambda g: g.add_clauses([[0, 1, 2]], True), ""),
        (lambda g: g.add_logical("clause", [[0, 1]]), ""),
        (lambda g: g.add_logical(type("Nameless", (Logical,), {}), [[0, 1]]), ""),
        (lambda g: g.add_logical(Half, [[0, 1]]), ""),
        (lambda g: type("Mine", (Logical,), {"kind": "clause", "__module__": "mine"}), ""),
    ],
)
def test_wrong_factors_are_named(add, says):
    refused(ModelError, says, add, FactorGraph.from_tables([2] * 4, [[0]], [[0.0, 0.0]]))


def test_files_that_lie_are_refused():
    """Literals, steps and weights that do not fit are errors, not crashes later."""
    graph = FactorGraph.empty([2] * 3).add_cardinality([[0, 1, 2]], [0.0, 1.0, 0.0])
    group = graph.groups[0]
    auto = group.as_automata()
    wrong = [
        group.replace(_literal=group._literal + 2),
        group.replace(_log_weights=np.array([[np.nan, 0.0]])),
        group.replace(_log_weights=np.zeros((1, 9))),
        auto.replace(_step=auto._step + 7),
        auto.replace(_step=auto._step - 3),
        auto.replace(_start=auto._start - 1),
        auto.replace(_final=np.full((1, 3), np.inf)),
    ]
    for bad in wrong:
        refused(ModelError, "", FactorGraph(graph._n_states, (bad,)).validate)


SCHEDULES = ["sequential", "flooding", "residual", "coloured"]


def with_fields(graph: FactorGraph, rng, scale: float = 1.0) -> FactorGraph:
    return graph.tilt(rng.normal(size=int(graph.offsets[-1])) * scale)


@pytest.mark.drawn
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [2, 3])
def test_one_factor_is_exact(kind, most):
    """Beliefs and log Z of one factor under any field: all of its messages by enumeration."""
    rng = np.random.default_rng(7)
    for arity in few((3, 4, 7, 5), 2):
        graph, _ = drawn(kind, arity, rng, most)
        for scale in (0.0, 1.0, 30.0, 800.0):
            tilted = with_fields(graph, rng, scale)
            m = BeliefPropagation()(tilted)
            np.testing.assert_allclose(m.probs, naive.marginals(tilted), atol=1e-9)
            assert m.log_z == pytest.approx(naive.log_z(tilted), rel=1e-12, abs=1e-9)
            np.testing.assert_allclose(m.factor(0), naive.factor_marginal(tilted, 0), atol=1e-9)


@pytest.mark.drawn
@pytest.mark.parametrize("kind", KINDS)
def test_evidence_on_every_subset(kind):
    rng = np.random.default_rng(9)
    graph, _ = drawn(kind, 4, rng, 3)
    graph = with_fields(graph, rng)
    for known in few(itertools.product([False, True], repeat=5), 12):
        states = rng.integers(graph.n_states)
        seen = graph.with_evidence({v: int(states[v]) for v in np.flatnonzero(known)})
        if not np.isfinite(naive.log_z(seen)):
            refused(ContradictionError, "", BeliefPropagation(), seen)
            continue
        m = BeliefPropagation()(seen)
        np.testing.assert_allclose(m.probs, naive.marginals(seen), atol=1e-10)
        assert m.log_z == pytest.approx(naive.log_z(seen), abs=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_trees_are_exact(schedule):
    """Factors of all kinds in a tree; and hanging on a loop of pairs, which is exact nowhere."""
    rng = np.random.default_rng(10)
    for _ in range(6):
        kinds = rng.permutation([k for k in KINDS if "huge" not in k and "impossible" not in k])[:5]
        graph, n = FactorGraph.empty([2] * 13), 1
        for kind in kinds:
            scope = [int(rng.integers(n)), n, n + 1]
            n += 2
            graph = KINDS[str(kind)][1](graph, [scope], signs=[rng.choice([-1, 1], 3).tolist()])
        graph = with_fields(graph, rng)
        m = BeliefPropagation(schedule=schedule)(graph)
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
        assert m.log_z == pytest.approx(naive.log_z(graph), abs=1e-9)
        assert m.iterations == 1


@pytest.mark.drawn
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_loops_are_those_of_the_tables(schedule, damping):
    """Loopy models of all kinds, pairs and tables among them, against the same model as tables."""
    rng = np.random.default_rng(11)
    for draw in range(12 if thorough() else 5):
        most = 2 + draw % 2
        graph = FactorGraph.empty(rng.integers(2, most + 1, size=8))
        scopes = [rng.permutation(8)[:2].tolist() for _ in range(draw % 4)]
        shapes = [tuple(graph.n_states[s]) for s in scopes]
        graph = graph.add_tables(scopes, [rng.normal(size=s) for s in shapes])
        for kind in rng.permutation(["clause", "clause-negative", "cardinality-soft", "and-soft"]):
            scope = rng.permutation(8)[:4].tolist()
            if kind == "cardinality-soft":
                graph = graph.add_cardinality([scope], [0.0, 0.5, -0.3])
            else:
                graph = KINDS[str(kind)][1](graph, [scope])
        graph = with_fields(graph, rng)
        plain = models.as_tables(graph)
        solver = BeliefPropagation(schedule=schedule, damping=damping, tol=1e-10)
        m, want = solver(graph), BeliefPropagation(tol=1e-10)(plain)
        assert m.converged
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-8)
        assert m.log_z == pytest.approx(want.log_z, abs=1e-8)
        for i in range(graph.n_factors):
            np.testing.assert_allclose(m.factor(i), want.factor(i), atol=1e-8)
        warm = solver(graph, start=m)
        assert warm.iterations <= m.iterations
        np.testing.assert_allclose(warm.probs, m.probs, atol=1e-8)


getcontext().prec = 60


def decimal_odds(kind: str, log_odds: np.ndarray, weight: float) -> list[Decimal]:
    """Posterior odds of n literals under one factor, by closed forms in 60 digits."""
    p = [1 / (1 + (-Decimal(float(x))).exp()) for x in log_odds]
    q = [1 - x for x in p]
    n = len(p)
    if kind == "clause":
        e = Decimal(weight).exp()
        none = math.prod(q)
        return [p[i] * e / (q[i] * e + (1 - e) * none) for i in range(n)]
    if kind == "exactly-one":
        odds = [p[i] / q[i] for i in range(n)]
        total = sum(odds)
        return [odds[i] / (total - odds[i]) for i in range(n)]
    if kind == "parity":  # even: the product of 1 - 2 p, without one, is E[(-1)^others]
        whole = math.prod(1 - 2 * x for x in p)
        out = []
        for i in range(n):
            others = whole / (1 - 2 * p[i])
            out.append(p[i] * (1 - others) / (q[i] * (1 + others)))
        return out
    counts = [Decimal(1), Decimal(0), Decimal(0)]  # at most two
    odds = [p[i] / q[i] for i in range(n)]
    for x in odds:
        counts = [counts[0], counts[1] + x * counts[0], counts[2] + x * counts[1]]
    out = []
    for x in odds:
        one = counts[1] - x
        two = counts[2] - x * one
        out.append(x * (1 + one) / (1 + one + two))
    return out


@pytest.mark.parametrize(
    ("kind", "scale", "shift", "weight"),
    [
        ("clause", 2.0, -9.0, 1.5),
        ("clause", 1.0, -40.0, 30.0),
        ("exactly-one", 5.0, -8.0, 0.0),
        ("parity", 2.0, -7.0, 0.0),
        ("parity", 1.0, 20.0, 0.0),
        ("at-most-2", 2.0, -6.0, 0.0),
    ],
)
def test_a_thousand_literals(kind, scale, shift, weight):
    rng = np.random.default_rng(12)
    n = 1000
    log_odds = rng.normal(size=n) * scale + shift
    add = _clause(weight)[1] if kind == "clause" else KINDS[kind][1]
    m = BeliefPropagation()(add(FactorGraph.pairwise(log_odds, [], []), [rng.permutation(n)]))
    want = decimal_odds(kind, log_odds, weight)
    on, off = m.probs[1::2], m.probs[::2]
    np.testing.assert_allclose(on, [float(x / (1 + x)) for x in want], rtol=1e-10)
    np.testing.assert_allclose(off, [float(1 / (1 + x)) for x in want], rtol=1e-10)


def test_end_states_are_the_expected_statistics():
    rng = np.random.default_rng(13)
    graph = FactorGraph.empty([2] * 5).add_cardinality([[0, 1, 2, 3, 4]], [0.1, 0.5, -0.2, 0.0])
    graph = with_fields(graph, rng)
    m = BeliefPropagation()(graph)
    (group,) = graph.groups
    ends = m.state.ends(group)
    x, p = naive.joint(graph)
    want = np.bincount(np.minimum(x.sum(axis=1), 3), p, minlength=4)
    np.testing.assert_allclose(group.end_statistics(ends)[0], want, atol=1e-12)
    np.testing.assert_allclose(group.statistics(m.factor(0).reshape(1, -1))[0], want, atol=1e-12)


def test_what_no_message_shows_is_no_nan():
    """Even and odd at once, exactly one on and one off: impossible, but no message tells."""
    graph = FactorGraph.empty([2] * 4).add_parity([[0, 1, 2, 3]])
    one = FactorGraph.empty([2] * 3).add_exactly_one([[0, 1, 2]])
    both = graph.add_parity([[0, 1, 2, 3]], odd=True), one.add_exactly_one([[0, 1, 2]], signs=-1)
    for impossible in both:
        assert np.isfinite(BeliefPropagation()(impossible).probs).all()


@pytest.mark.parametrize("name", lists.every_kind())
@pytest.mark.parametrize("solver", [s for s in lists.SOLVERS if s.startswith("bp")])
def test_the_zoo(solver, name):
    """Every kind is a tree there, so that belief propagation is exact; so are files of it."""
    graph = lists.every_kind()[name]
    m = lists.SOLVERS[solver](graph)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-6)
    assert m.log_z == pytest.approx(naive.log_z(graph), abs=1e-6)
    back = parse_native("file", format_native(graph))
    np.testing.assert_array_equal(lists.SOLVERS[solver](back).probs, m.probs)


def test_large_factors_are_scored_but_not_compensated():
    rng = np.random.default_rng(14)
    graph = FactorGraph.pairwise(rng.normal(size=20), [], [])
    graph = graph.add_clauses([list(range(3)), list(range(20))], [1.0, 0.5])
    result = infer(graph, MinDivergence(1))
    assert np.isfinite(result.scores[20:]).all()
    with pytest.raises(RefusedError, match=r"factor 21, a clause over 20 .* into the seed"):
        infer(graph, MinDivergence(0), recipe=Compensated(refreshes=0))
    small = graph.keep(np.arange(21))
    assert infer(small, MinDivergence(0), recipe=Compensated(refreshes=0)).marginals.converged


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("name", [*lists.every_kind(), *lists.graphs(), *lists.higher_order()])
def test_a_group_gives_all_its_messages(name, best):
    """Sums and maxima over a factor's own table, by enumeration of its cells."""
    graph = {**lists.every_kind(), **lists.graphs(), **lists.higher_order()}[name]
    rng = np.random.default_rng(3)
    over = (lambda x: x.max()) if best else naive.logsumexp
    for g in graph.groups:
        if not g.arity:
            continue
        sizes, n = list(g.shape), len(g)
        incoming = rng.normal(size=(n, sum(sizes))) * 2
        incoming[rng.random(incoming.shape) < 0.1] = -np.inf
        out = np.empty_like(incoming)
        with np.errstate(invalid="ignore"):
            value = g.messages(np.arange(n), incoming, out, best)
        for r, i in enumerate(g.ids):
            table = graph.log_table(int(i))
            q = np.split(incoming[r], np.cumsum(sizes)[:-1])
            for a, size in enumerate(sizes):
                for s in range(size):
                    cells = [
                        table[x] + sum(q[b][x[b]] for b in range(g.arity) if b != a)
                        for x in np.ndindex(*sizes) if x[a] == s
                    ]  # fmt: skip
                    got = out[r, sum(sizes[:a]) + s]
                    np.testing.assert_allclose(got, over(np.array(cells)), rtol=1e-12, atol=1e-12)
            every = [table[x] + sum(q[b][x[b]] for b in range(g.arity)) for x in np.ndindex(*sizes)]
            np.testing.assert_allclose(value[r], over(np.array(every)), rtol=1e-12, atol=1e-12)


GRAPHS = lists.logical()
SOFT = [name for name in GRAPHS if name not in lists.HAVENS | lists.TRAPS]


def as_tables(graph: FactorGraph) -> FactorGraph:
    """The same model with every logical factor written out."""
    groups = tuple(g.as_tables() if g.form == "machine" else g for g in graph.groups)
    return replace(graph, groups=groups)


@pytest.mark.parametrize("shuffled", [False, True])
def test_exact_at_arity_1000(shuffled):
    """Of a chain with a clause over all: Z less the weight of all false."""
    n = 1000
    scope = np.random.default_rng(1).permutation(n) if shuffled else np.arange(n)
    draw = np.random.default_rng(0)
    edges = [[i, i + 1] for i in range(n - 1)]
    graph = FactorGraph.pairwise(draw.normal(size=n) - 8, edges, 1.0, feature="equal")
    whole, none = Exact()(graph).log_z, float(graph.log_score(np.zeros((1, n), dtype=int))[0])
    m = Exact()(graph.add_clauses([scope]))
    assert m.log_z == pytest.approx(whole + np.log1p(-np.exp(none - whole)), abs=1e-9)
    tree = only_tables(condition(graph.add_clauses([scope])))
    assert tree.graph.n_variables == 2 * n - 1
    with pytest.raises(RefusedError, match="joint marginal over 1000 unobserved"):
        m.factor(-1)


def test_exact_counts_at_arity_1000():
    """Independent variables of which at most 20 are on: a sum over counts."""
    n, k = 1000, 20
    odds = np.exp(np.random.default_rng(3).normal(size=n) - 4)
    ways = np.zeros(k + 1)
    ways[0] = 1.0
    for o in odds:
        ways[1:] += o * ways[:-1]
    graph = FactorGraph.pairwise(np.log(odds), [], []).add_cardinality([np.arange(n)], at_most=k)
    assert Exact()(graph).log_z == pytest.approx(np.log(ways.sum()), abs=1e-9)


def test_what_is_refused():
    n = 800
    field = FactorGraph.pairwise(np.zeros(n), [], [])
    squares = field.add_cardinality([np.arange(n)], np.linspace(0, 1, n + 1) ** 2)
    never = FactorGraph.empty([2] * 6).add_cardinality([np.arange(6)], [-np.inf, -np.inf])
    soft = field.add_clauses([np.arange(n)], 1.0)
    many = [MeanField()(soft), Gibbs(n_sweeps=5, burn_in=0)(soft)]
    all_refused(
        (lambda: Exact()(squares), RefusedError,
         f"factor {n}, a .*too many states.*BeliefPropagation"),
        (lambda: Exact()(never), ContradictionError, ""),
        *((lambda m=m: m.factor(n), RefusedError, r"over 800 variables has 2\^800 cells")
          for m in many),
        *((lambda name=name: MeanField()(GRAPHS[name]), RefusedError,
           r"MeanField cannot use factor \d+: it is a hard .* finite weight")
          for name in sorted(lists.HAVENS | lists.TRAPS)),
        *((lambda name=name: Gibbs()(GRAPHS[name]), RefusedError,
           r"Gibbs cannot use factor \d+, a hard .*one variable at a time.*Exact")
          for name in sorted(lists.TRAPS)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_drawn_logical_models(seed):
    """Kinds, signs, states and evidence by lot: exact by sums, the others as with tables."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 8))
    draft = models.Draft(rng.integers(2, 4, size=n))
    for v in range(n):
        draft.drawn(rng, [v])
    for _ in range(int(rng.integers(1, 4))):
        draft.logical(rng, 1.0, 3, n)
    if rng.random() < 0.5:
        v = int(rng.integers(n))
        draft.known(v, int(rng.integers(draft.n_states[v])))
    graph = draft.graph
    log_z = naive.log_z(graph)
    if log_z == -np.inf:
        with pytest.raises(ContradictionError):
            Exact()(graph)
        return
    m = Exact()(graph)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-10)
    assert m.log_z == pytest.approx(log_z, abs=1e-10)
    for i in range(graph.n_factors):
        np.testing.assert_allclose(m.factor(i), naive.factor_marginal(graph, i), atol=1e-10)
    if any(g.forbids().any() for g in condition(graph).groups):
        return
    for solver in (MeanField(tol=1e-10, max_iters=3000), Gibbs(n_sweeps=400, burn_in=40)):
        m, want = solver(graph), solver(as_tables(graph))
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-6)
        if isinstance(solver, MeanField):
            assert m.log_z == pytest.approx(want.log_z, abs=1e-6)
            assert (np.diff(m.state.bounds) > -1e-9).all()
            assert m.log_z <= log_z + 1e-9


def test_mean_field_at_arity_1000():
    """A soft clause over all, at its fixed point q_v = sigma(field + w prod(others off))."""
    n, w = 1000, 3.0
    field = np.random.default_rng(0).normal(size=n) - 6.5
    graph = FactorGraph.pairwise(field, [], []).add_clauses(
        [np.random.default_rng(1).permutation(n)], w
    )
    m = MeanField(tol=1e-13)(graph)
    q = m.probs.reshape(-1, 2)
    log_off = np.log(q[:, 0])
    others = np.exp(log_off.sum() - log_off)
    np.testing.assert_allclose(q[:, 1], 1 / (1 + np.exp(-field - w * others)), atol=1e-10)


@pytest.mark.parametrize("name", [*SOFT, *sorted(lists.HAVENS)])
def test_gibbs_draws_as_with_tables(name):
    """The same conditionals, hence the same chains, from the same first states."""
    graph = GRAPHS[name]
    solver = Gibbs(n_sweeps=3000, burn_in=100)
    m = solver(graph)
    if name in SOFT:
        want = solver(as_tables(graph))
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-9)
        for i in range(graph.n_factors):
            if i not in (9, 10) or name != "evidence":  # true by evidence: no factor any more
                np.testing.assert_allclose(m.factor(i), want.factor(i), atol=1e-9)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.05)
    for x in m.state.states:
        assert graph.log_score(x[None].astype(np.int64))[0] > -np.inf


def test_gibbs_havens_by_kind():
    graph = FactorGraph.pairwise(np.zeros(4), [], [])
    every = [[0, 1, 2, 3]]
    for model, state in (
        (graph.add_cardinality(every, at_most=2), 0),
        (graph.add_at_most_one(every), 0),
        (graph.add_clauses(every), 1),
        (graph.add_clauses(every, signs=-np.ones((1, 4), dtype=int)), 0),
        (graph.add_cardinality(every, [-np.inf, -np.inf, 0.0]), 1),
        (graph.add_cardinality(every, [0.0, -np.inf, 0.0]), None),
        (graph.add_parity(every), None),
        (graph.add_exactly_one(every), None),
        (graph.add_or([[0, 1, 2]], [3]), None),
        (graph.add_clauses(every, 3.0), "none needed"),
        (graph.add_exactly_one(every).with_evidence({0: 1}), "none needed"),
        (graph.add_exactly_one(every).with_evidence({0: 0}), None),
        (graph.add_exactly_one(every).with_evidence({0: 0, 1: 0}), None),  # a table by now
    ):
        target, why = haven(condition(model))
        if state is None or state == "none needed":
            assert target is None
            assert ("cannot use factor 4" in why) == (state is None)
        else:
            assert (why, target.tolist()) == ("", [state] * 4)


def test_a_haven_agrees_with_tables():
    """Hard tables beside hard logical factors must share the haven."""
    graph = FactorGraph.pairwise(np.zeros(4), [], []).add_cardinality([[0, 1, 2, 3]], at_most=2)
    lower = graph.add_tables([[0, 1]], [[[0.0, 0.0], [0.0, -np.inf]]])
    upper = graph.add_tables([[0, 1]], [[[-np.inf, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(Gibbs()(lower).probs, naive.marginals(lower), atol=0.05)
    with pytest.raises(RefusedError, match="cannot use factor 4, a hard"):
        Gibbs()(upper)


def test_positions_that_commute_are_sorted_and_others_are_not():
    graph = FactorGraph.pairwise(np.zeros(5), [], []).add_or([[3, 1, 4, 2]], [0], 1.0)
    m, scope = in_order(graph.groups[-1])
    assert scope.tolist() == [[1, 2, 3, 4, 0]]
    assert lay_out(condition(graph)).machine[0, 3] == 0
    no_two = Machine(  # "no two in a row" does not commute
        np.array([[[0, 1], [0, -1]]] * 3, dtype=np.int32), *np.zeros((3, 1, 3), dtype=np.int32)
    )
    assert same_steps(no_two.step) == [(0, 3, False)]
    assert same_steps(m.step) == [(0, 4, True), (4, 5, same_steps(m.step[4:])[0][2])]


def test_a_plan_for_logical_factors():
    p = plan(GRAPHS["exactly-one"])
    assert "hard exactly" in p["mean-field"].refuses
    assert "one variable at a time" in p["gibbs"].refuses
    assert "pairs only" in p["trw"].refuses
    assert p["exact"].refuses == ""
    assert p.recommendation == "exact"
    p = plan(GRAPHS["clauses"])
    assert p["mean-field"].refuses == p["gibbs"].refuses == ""
    assert 0 < p["bp"].seconds < 1


@pytest.mark.parametrize("schedule", ["sequential", "flooding"])
def test_checks_that_all_hold_have_converged(schedule):
    """The log-odds of their messages double for ever; nothing hangs on them any more."""
    rng = np.random.default_rng(3)
    checks = np.array([rng.choice(24, 6, replace=False) for _ in range(14)])
    field = np.zeros((24, 2))
    field[:, 0] = rng.normal(9.0, 3.0, 24)
    graph = FactorGraph.empty([2] * 24).add_parity(checks)
    prepared = BeliefPropagation(schedule=schedule, max_iters=60, tol=1e-3).prepare(graph)
    answer = prepared(field=field.ravel())
    assert answer.converged
    assert answer.probs[1::2].max() < 1e-6


@pytest.mark.parametrize("seed", few(range(400), 20))
def test_what_sank_into_silence_stays_there(seed):
    """A run that converged while messages grew comes no farther if it is made to go on."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 20))
    graph = FactorGraph.empty([2] * n)
    for _ in range(2):
        size = int(rng.integers(2, 6))
        scopes = np.array([rng.choice(n, size, replace=False) for _ in range(n // 2)])
        weights = rng.choice([np.inf, 5.0, 300.0], len(scopes))
        graph = graph.add_parity(scopes, weights) if rng.random() < 0.6 else graph
        signs = rng.choice([-1, 1], scopes.shape)
        graph = graph.add_clauses(scopes, weights, signs=signs) if rng.random() < 0.5 else graph
    field = np.zeros((n, 2))
    field[:, 0] = rng.normal(rng.choice([0.0, 4.0, 12.0]), rng.choice([1.0, 5.0]), n)
    schedule = str(rng.choice(["sequential", "flooding"]))

    def run(tol: float, most: int):
        solver = BeliefPropagation(max_iters=most, tol=tol, schedule=schedule)
        return solver.prepare(graph)(field=field.ravel())

    try:
        answer = run(1e-3, 80)
    except ContradictionError:
        return
    if answer.converged:
        longer = run(1e-15, answer.iterations + 40)
        assert np.abs(longer.probs - answer.probs).max() < 0.02
