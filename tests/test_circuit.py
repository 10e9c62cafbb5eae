"""Circuits against enumeration: passes, evidence, rows, the best, draws, gradients, files."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import chisquare

import minfer
import minfer.io.native
from draws import few
from minfer import (
    ContradictionError,
    EvidenceError,
    Exact,
    FactorGraph,
    FormatError,
    MinferError,
    ModelError,
    RefusedError,
)
from minfer.solvers.circuit_passes import Leaves
from minfer.solvers.gradients import pull_back
from oracle import circuits, lists
from oracle import truth as naive
from refused import refused


@pytest.fixture(params=["search", "plain"])
def builder(request, monkeypatch):
    """Circuits by the search, and by a plain one."""
    if request.param == "plain":
        monkeypatch.setattr("minfer.engine.circuits.driver.build", circuits.build)


def drawn(seed: int, wide: bool = False) -> FactorGraph:
    """A few variables of 1 to 4 states, tables with zeros and repeated rows, clauses, evidence."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    n_states = rng.integers(1, 5, n)
    n_states[rng.random(n) < 0.5] = 2
    scopes, tables = [], []
    for _ in range(int(rng.integers(2, n + 3))):
        scope = rng.permutation(n)[: int(rng.integers(1, 4))]
        shape = [int(n_states[v]) for v in scope]
        table = rng.normal(size=shape) * (12.0 if wide else 1.0)
        table[rng.random(shape) < 0.3] = -np.inf
        if rng.random() < 0.3 and shape[0] > 1:  # states that are proportional
            table[1] = table[0] + rng.normal()
        scopes.append(scope.tolist())
        tables.append(table)
    graph = FactorGraph.from_tables(n_states, scopes, tables)
    binary = np.flatnonzero(n_states == 2)
    if len(binary) >= 3:
        graph = graph.add_clauses([binary[:3].tolist()])
        if rng.random() < 0.5:
            graph = graph.add_cardinality([binary.tolist()], at_most=len(binary) - 1)
    if rng.random() < 0.4:
        graph = graph.tilt(rng.normal(size=int(graph.offsets[-1])))
    if rng.random() < 0.4:
        v = int(rng.integers(n))
        graph = graph.with_evidence({v: int(rng.integers(n_states[v]))})
    return graph


def truth(graph):
    """Log Z and p(x) of all assignments; None if none is possible."""
    x, scores = naive.assignments(graph), naive.log_scores(graph)
    log_z = np.logaddexp.reduce(scores)
    return None if log_z == -np.inf else (float(log_z), x, np.exp(scores - log_z), scores)


def marginals(graph, x, p):
    return np.concatenate(
        [np.bincount(x[:, v], p, minlength=int(s)) for v, s in enumerate(graph.n_states)]
    )


def table_of(graph, scope, x, p):
    out = np.zeros([int(graph.n_states[v]) for v in scope])
    np.add.at(out, tuple(x[:, v] for v in scope), p)
    return out


def checked(answer, graph, found):
    log_z, x, p, _ = found
    assert answer.status is minfer.Status.EXACT
    assert answer.log_z_kind is minfer.LogZ.EXACT
    np.testing.assert_allclose(answer.log_z, log_z, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(answer.probs, marginals(graph, x, p), atol=1e-9)


def some_evidence(graph, rng, circuit=None):
    """One or two observed variables, of those that are free."""
    able = [graph.index(v) for v in circuit.free] if circuit else range(graph.n_variables)
    chosen = rng.permutation(np.array(list(able), dtype=int))[: int(rng.integers(1, 3))]
    return {int(v): int(rng.integers(graph.n_states[v])) for v in chosen}


@pytest.mark.parametrize("seed", few(range(40), 12))
def test_drawn_models_once(builder, seed):
    graph = drawn(seed, wide=seed % 3 == 0)
    found = truth(graph)
    if found is None:
        with pytest.raises(ContradictionError):
            Exact(method="circuit")(graph)
        return
    answer = Exact(method="circuit")(graph)
    checked(answer, graph, found)
    _, x, p, _ = found
    for f in range(graph.n_factors):
        want = table_of(graph, graph.scope(f).tolist(), x, p)
        np.testing.assert_allclose(answer.factor(f), want, atol=1e-9)
    scope = np.random.default_rng(seed).permutation(graph.n_variables)[:3].tolist()
    np.testing.assert_allclose(answer.joint(*scope).table, table_of(graph, scope, x, p), atol=1e-9)


@pytest.mark.parametrize("seed", few(range(40), 12))
def test_drawn_evidence_on_one_circuit(builder, seed):
    """Several evidences, likelihoods and fields on one object, and rows; against enumeration."""
    graph, rng = drawn(seed, wide=seed % 3 == 0), np.random.default_rng(seed)
    if truth(graph) is None:
        with pytest.raises(ContradictionError):
            minfer.compile(graph)
        return
    named = None
    if seed % 2:
        observed = [v for v in range(graph.n_variables) if graph.n_states[v] > 1]
        left = np.add.reduceat(graph.field > -np.inf, graph.offsets[:-1])
        named = [v for v in observed if left[v] > 1][:3]
    circuit = minfer.compile(graph, free=named)
    checked(circuit(), graph, truth(graph))
    rows, fields, want = [], [], []
    for _ in range(11):
        seen = some_evidence(graph, rng, circuit) if circuit.free else {}
        soft = {}
        if circuit.free and rng.random() < 0.5:
            v = graph.index(circuit.free[int(rng.integers(len(circuit.free)))])
            if v not in seen:
                soft[v] = (rng.random(int(graph.n_states[v])) + 0.01).tolist()
        try:
            other = graph.with_evidence(seen)
            other = other.with_soft_evidence(soft) if soft else other
            found = truth(other)
        except ContradictionError:
            found = None
        if found is None:
            with pytest.raises(ContradictionError):
                circuit({**seen, **soft})
        else:
            checked(circuit({**seen, **soft}), other, found)
        field = np.zeros(int(graph.offsets[-1]))
        for v, like in soft.items():
            field[graph.offsets[v] : graph.offsets[v + 1]] = np.log(like)
        rows.append(seen)
        fields.append(field)
        want.append((other, found))
    batch = circuit.batch(rows, field=np.array(fields))
    for k, (other, found) in enumerate(want):
        if found is None:
            assert batch.impossible[k]
            assert batch.log_z[k] == -np.inf
            assert np.isnan(batch.probs[k]).all()
        else:
            assert batch.status[k] is minfer.Status.EXACT
            np.testing.assert_allclose(batch.log_z[k], found[0], rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(
                batch.probs[k], marginals(other, found[1], found[2]), atol=1e-9
            )


@pytest.mark.parametrize("seed", few(range(30), 10))
def test_drawn_best(builder, seed):
    graph = drawn(seed, wide=seed % 3 == 0)
    found = truth(graph)
    if found is None:
        return
    log_z, _, _, scores = found
    circuit = minfer.compile(graph, free=[] if seed % 2 else None)
    able = np.sort(scores[scores > -np.inf])[::-1]
    for k in (1, 2, 7, len(able), len(able) + 1):
        best = circuit.k_best(k)
        assert len(best) == min(k, len(able))
        assert best.complete == (k >= len(able))
        np.testing.assert_allclose([a.log_score for a in best], able[:k], rtol=1e-9, atol=1e-9)
        assert len({tuple(a.numbers.tolist()) for a in best}) == len(best)
        assert best.proven
        assert best.upper >= best.log_score
    np.testing.assert_allclose(circuit.best().log_probability, able[0] - log_z, atol=1e-9)


def test_ties_are_all_found():
    """As many equally good ones as asked for, and not one of them twice."""
    graph = FactorGraph.empty([2] * 12).add_exactly_one([[0, 1, 2]])
    circuit = minfer.compile(graph)
    best = circuit.k_best(700)
    assert len({tuple(a.numbers.tolist()) for a in best}) == 700
    assert not best.complete
    every = circuit.k_best(5000)
    assert len(every) == 3 * 2**9
    assert every.complete
    numbers = [tuple(a.numbers.tolist()) for a in every]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("seed", few(range(12), 4))
def test_drawn_samples(builder, seed):
    graph = drawn(100 + seed)
    found = truth(graph)
    if found is None:
        return
    p = found[2]
    circuit = minfer.compile(graph, free=[] if seed % 2 else None)
    n = 20_000
    drawn_ = np.asarray(circuit.sample(n, seed=seed))
    np.testing.assert_array_equal(drawn_, circuit.sample(n, seed=seed))
    steps = np.append(np.cumprod(graph.n_states[::-1])[::-1][1:], 1)
    counts = np.bincount(drawn_ @ steps, minlength=len(p))
    assert not counts[p == 0.0].any()
    common = p * n >= 5
    rest = counts[~common].sum(), p[~common].sum() * n
    seen, wanted = np.append(counts[common], rest[0]), np.append(p[common] * n, rest[1])
    if rest[1] < 5:
        seen, wanted = seen[:-1], wanted[:-1]
        wanted = wanted * seen.sum() / wanted.sum()
    if len(seen) > 1:
        assert chisquare(seen, wanted).pvalue > 1e-6


@pytest.mark.parametrize("seed", few(range(20), 6))
def test_drawn_gradients(builder, seed):
    """Covariances times a direction, of marginals and of tables, to nine digits."""
    graph, rng = drawn(seed), np.random.default_rng(seed)
    found = truth(graph)
    if found is None:
        return
    _, x, p, _ = found
    answer = Exact(method="circuit")(graph)
    c = rng.normal(size=len(answer.probs))
    t = c[graph.offsets[:-1] + x].sum(axis=1)
    moved = p * (t - (p * t).sum())
    tables = all(g.form == "table" for g in graph.groups)
    back = pull_back(answer, c, weights=tables)
    assert back.method in ("adjoint", "independent")
    assert back.converged
    np.testing.assert_allclose(back.field, marginals(graph, x, moved), atol=1e-9)
    if tables:
        want = [table_of(graph, graph.scope(f).tolist(), x, moved) for f in range(graph.n_factors)]
        got = np.split(back.weights, graph.weight_offsets[1:-1])
        for a, b, f in zip(got, want, range(graph.n_factors)):
            able = np.isfinite(graph.log_table(f)).ravel() if hasattr(graph, "log_table") else ...
            np.testing.assert_allclose(a[able], b.ravel()[able], atol=1e-9)


def network():
    from minfer.examples import sprinkler

    return sprinkler()


def test_free_variables_are_kept_to():
    graph = network()
    circuit = minfer.compile(graph, free=["wet_grass"])
    assert circuit.free == ("wet_grass",)
    with pytest.raises(EvidenceError, match="rain is not free"):
        circuit({"rain": 1})
    with pytest.raises(EvidenceError, match="rain is not free"):
        circuit.batch([{"rain": 1}])
    with pytest.raises(EvidenceError, match="not free"):
        circuit(field=np.ones(len(graph.field)) * np.arange(len(graph.field)))
    with pytest.raises(ModelError, match="twice"):
        minfer.compile(graph, free=["rain", "rain"])
    seen = graph.with_evidence({"rain": 1})
    with pytest.raises(EvidenceError, match="rain is observed"):
        minfer.compile(seen, free=["rain"])
    circuit = minfer.compile(seen)
    assert "rain" not in circuit.free
    np.testing.assert_allclose(circuit({"rain": 1}).probs, circuit().probs)
    with pytest.raises(ContradictionError):
        circuit({"rain": 0})


def test_what_a_circuit_says_of_itself():
    circuit = minfer.compile(network())
    assert circuit.size.nodes > 0
    assert circuit.size.edges > circuit.size.nodes
    assert circuit.size.bytes > 0
    assert "7 variables, 7 free" in repr(circuit)
    np.testing.assert_allclose(circuit.log_z, 0.0, atol=1e-12)
    assert isinstance(circuit, minfer.Prepared)
    assert isinstance(Exact(method="circuit").prepare(network()), minfer.Circuit)
    table = circuit.joint("rain", "sprinkler", evidence={"wet_grass": 1})
    want = minfer.query(network(), ["rain", "sprinkler"], {"wet_grass": 1})
    np.testing.assert_allclose(table.table, want.table, atol=1e-12)


def test_likelihoods_of_calls_and_rows():
    """Prepared runs of any solver take them like any question does, and add a field to them."""
    soft, hard = {"rain": [0.2, 0.9], "season": {"0": 0.5, "3": 1.0}}, {"wet_grass": 1}
    graph, field = network(), np.linspace(-1.0, 1.0, 16)
    rows = [soft, hard, {**soft, **hard}, {**soft, "wet_grass": None}, {}]
    clean = [{v: s for v, s in row.items() if s is not None} for row in rows]
    for run in (
        minfer.compile(network()),
        Exact(method="clique-tree").prepare(network()),
        minfer.BeliefPropagation(tol=1e-12).prepare(network()),
    ):
        for more in (None, field):
            batch = run.batch(rows, field=more)
            for k, row in enumerate(clean):
                one = run(row, field=more)
                other = graph if more is None else graph.tilt(field)
                other = other.with_evidence({v: s for v, s in row.items() if v == "wet_grass"})
                likes = {v: s for v, s in row.items() if v != "wet_grass"}
                want = run.solver(other.with_soft_evidence(likes) if likes else other)
                for found in (one.probs, batch.probs[k]):
                    np.testing.assert_allclose(found, want.probs, atol=1e-7)
                np.testing.assert_allclose([one.log_z, batch.log_z[k]], want.log_z, atol=1e-6)
        for wrong in ({"rain": [0.2]}, {"rain": [0.0, 0.0]}, {"rain": {"wet": 1.0}}):
            with pytest.raises(EvidenceError):
                run(wrong)
            with pytest.raises(EvidenceError, match="row 1"):
                run.batch([{}, wrong])


def test_other_weights_are_another_model():
    graph = network()
    circuit = minfer.compile(graph)
    weights = graph.weights + 0.1
    np.testing.assert_allclose(
        circuit(weights=weights).probs, Exact()(graph.with_weights(weights)).probs, atol=1e-12
    )


@pytest.mark.parametrize("name", [*lists.graphs(), *lists.every_kind()])
def test_named_graphs(name):
    graph = {**lists.graphs(), **lists.every_kind()}[name]
    want = Exact()(graph)
    for answer in (Exact(method="circuit")(graph), minfer.compile(graph)()):
        np.testing.assert_allclose(answer.probs, want.probs, atol=1e-10)
        np.testing.assert_allclose(answer.log_z, want.log_z, rtol=1e-10, atol=1e-10)


def test_far_ranges_are_kept():
    """Z far outside the range of floats, and evidence next to impossible."""
    graph = FactorGraph.pairwise([300.0] * 9, [[i, i + 1] for i in range(8)], [200.0] * 8)
    graph = graph.add_clauses([[0, 1, 2]])
    circuit = minfer.compile(graph)
    want = Exact(method="clique-tree")
    seen = dict.fromkeys(range(1, 8), 0)
    for evidence in ({}, seen):
        other = graph.with_evidence(evidence)
        np.testing.assert_allclose(circuit(evidence).log_z, want(other).log_z, rtol=1e-12)
        np.testing.assert_allclose(circuit(evidence).probs, want(other).probs, atol=1e-12)
    batch = circuit.batch([{}, seen])
    np.testing.assert_allclose(batch.log_z[1], want(graph.with_evidence(seen)).log_z, rtol=1e-12)


def test_shares_too_small_for_a_float():
    """Sums can do without them, best assignments cannot."""
    n = 1200
    table = np.log([[1.0, 1.0], [1.0, np.finfo(float).tiny]])
    table[1, 1] = -np.inf
    scopes = [(0, i) for i in range(1, n + 1)]
    gate = FactorGraph.from_tables([2] * (n + 1), [*scopes, (0,)], [table] * n + [[0.0, 10.0]])
    circuit = minfer.compile(gate, free=[])
    assert circuit.log_z == pytest.approx(n * np.log(2.0))
    refused(RefusedError, "below 1e-300.*use minfer.mpe", circuit.best)
    best = minfer.mpe(gate)
    assert best["x0"] == "1"
    assert best.log_score == 10.0
    pair = FactorGraph.from_tables([2, 3], [(0, 1)], [[[0.0, 1.0, -899.0], [0.0, 2.0, -898.0]]])
    assert len(minfer.mpe(pair, k=9).ranked) == 6
    far = FactorGraph.from_tables([2, 2], [(0, 1), (0,)], [[[0.0, 1.0], [2.0, 0.5]], [0.0, -500.0]])
    found = minfer.compile(far, free=["x1"])
    assert len(found.k_best(9).ranked) == 4  # in logs


def test_states_that_became_one_are_not_free():
    apart = FactorGraph.from_tables([2, 2, 2], [(0, 1), (2,)], [np.eye(2) + 1.0, [0.0, -5.0]])
    circuit = minfer.compile(apart, free=["x0"])
    refused(EvidenceError, "x2 is not free", circuit, {"x2": 1})


def test_errors_are_ours():
    circuit = minfer.compile(network())
    for wrong in ({"nobody": 1}, {"rain": 7}, [0, 1], 3):
        with pytest.raises(MinferError):
            circuit(wrong)
    with pytest.raises(MinferError):
        circuit.k_best(0)
    with pytest.raises(MinferError):
        circuit.sample(-1)


def test_a_drawing_shows_every_node_and_says_what_is_too_large():
    """Small ones in full: names as XML may have them, probabilities, products as dots."""
    graph = drawn(4)
    circuit = minfer.compile(graph)
    for seen in (circuit, minfer.compile(network().with_evidence({"wet_grass": 1}))):
        root = ElementTree.fromstring(seen.draw())
        kinds = [element.get("class") for element in root.iter()]
        assert kinds.count("card") == seen.size.nodes
        shares = [float(e.text) for e in root.iter() if e.get("class") == "share"]
        assert len(shares) == seen.size.edges
        np.testing.assert_allclose(sum(shares), seen.size.nodes, atol=2e-3 * len(shares))
        wires = seen._wires
        rests = np.diff(wires.frame.cptr)
        assert kinds.count("line") >= int((rests > 0).sum())
        assert (kinds.count("dot") > 0) == (bool((rests > 1).any()) or len(wires.roots) > 1)
        assert seen._repr_svg_() == seen.draw()
    names = ["<a> & 'b'", "b\x07"]
    odd = FactorGraph.from_tables([2, 2], [[0, 1]], [np.eye(2)], names=names)
    assert ElementTree.fromstring(minfer.compile(odd).draw()).tag.endswith("svg")
    large = minfer.compile(FactorGraph.empty([2] * 301))
    with pytest.raises(RefusedError, match="301 nodes, and a drawing shows up to 300"):
        large.draw()
    assert large._repr_svg_() is None


# ---------------------------------------------------------------- files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A circuit with auxiliary variables, merged states and evidence, and its file."""
    graph = drawn(4).with_evidence({})
    circuit = minfer.compile(graph, free=[v for v in range(graph.n_variables) if v % 2])
    path = tmp_path_factory.mktemp("circuits") / "drawn.circuit"
    circuit.save(path)
    return circuit, path


@pytest.mark.parametrize("seed", few(range(20), 6))
def test_saved_and_loaded(builder, tmp_path, seed):
    graph = drawn(seed, wide=seed % 3 == 0)
    if truth(graph) is None:
        return
    circuit = minfer.compile(graph, free=[] if seed % 2 else None)
    circuit.save(tmp_path / "a.circuit")
    again = minfer.Circuit.load(tmp_path / "a.circuit")
    again.save(tmp_path / "b.circuit")
    assert (tmp_path / "a.circuit").read_bytes() == (tmp_path / "b.circuit").read_bytes()
    assert again.free == circuit.free
    assert again.size == circuit.size
    np.testing.assert_array_equal(again().probs, circuit().probs)
    np.testing.assert_array_equal(again.sample(9, seed=3), circuit.sample(9, seed=3))
    read = minfer.read(tmp_path / "a.circuit")
    answer = Exact(method="circuit")(read)  # what was read remembers its circuit
    np.testing.assert_array_equal(answer.probs, circuit().probs)


def test_files_cut_short_or_changed(saved, tmp_path):
    _, path = saved
    data, bad = path.read_bytes(), tmp_path / "bad.circuit"
    for n in (0, 5, 30, len(data) // 2, len(data) - 1):
        bad.write_bytes(data[:n])
        with pytest.raises(FormatError):
            minfer.Circuit.load(bad)
    bad.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(FormatError, match="checksum"):
        minfer.Circuit.load(bad)
    with pytest.raises(FormatError):
        minfer.io.read_native(path)
    bad.write_bytes(minfer.io.native.format_native(network()))
    with pytest.raises(FormatError):
        minfer.Circuit.load(bad)


def change(made, **arrays):
    return made._replace(arrays=made.arrays._replace(**arrays))


def wrong_files(made):
    """Circuits that are wrong in one place, with a checksum that is right."""
    a, e = made.arrays, len(made.arrays.weight)
    last = len(a.child) - 1
    yield change(made, weight=np.where(np.arange(e) == e // 2, -1.0, a.weight))
    yield change(made, weight=np.where(np.arange(e) == e // 2, np.nan, a.weight))
    yield change(made, weight=np.where(np.arange(e) == e - 1, 3.0 * a.weight, a.weight))
    yield change(made, child=np.where(np.arange(last + 1) == last, len(a.variable), a.child))
    yield change(made, child=np.where(np.arange(last + 1) == last, len(a.variable) - 1, a.child))
    yield change(made, child=np.where(np.arange(last + 1) == last, -1, a.child))
    yield change(made, child=np.where(np.arange(last + 1) == last, 0, a.child))
    yield change(made, roots=a.roots + 10_000)
    yield change(made, roots=a.roots[:0])
    yield change(made, roots=np.append(a.roots, a.roots[:1]))
    yield change(made, state=a.state + 7)
    yield change(made, state=a.state - 7)
    yield change(made, variable=a.variable - 100)
    yield change(made, variable=a.variable[::-1].copy())
    yield change(made, variable=a.variable + 1_000_000)
    yield change(made, eptr=a.eptr[::-1].copy())
    yield change(made, cptr=a.cptr + 5)
    yield change(made, log_scale=a.log_scale + 1.0)
    yield change(made, log_scale=np.inf)
    leaves = made.leaves
    yield made._replace(leaves=Leaves(leaves.offsets, leaves.first, leaves.leaf + 3, leaves.share))
    yield made._replace(leaves=Leaves(leaves.offsets, leaves.first, leaves.leaf, leaves.share * 2))
    yield made._replace(leaves=Leaves(leaves.offsets, leaves.first * 2, leaves.leaf, leaves.share))
    yield made._replace(logs=np.full(len(made.logs), np.nan))
    yield made._replace(logs=made.logs + 1.0)


def test_damaged_circuits_are_refused(saved, tmp_path):
    """With the right checksum: each is an error of ours, and no kernel sees it."""
    circuit, _ = saved
    n, bad, log_z = 0, tmp_path / "bad.circuit", circuit.log_z
    for made in wrong_files(circuit._made):
        wrong = object.__new__(minfer.Circuit)
        vars(wrong).update(graph=circuit.graph, _made=made, _base=circuit._base)
        assert wrong.log_z == log_z
        wrong.save(bad)
        with pytest.raises(FormatError):
            minfer.Circuit.load(bad)
        n += 1
    assert n > 20
