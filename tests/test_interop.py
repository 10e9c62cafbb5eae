"""Bridges: what comes over is the same model, by the other library's own exact answer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from minfer import Exact, FactorGraph, ModelError, RefusedError, interop
from minfer.interop.networks import LARGEST_LOG
from oracle import lists, models
from oracle import truth as naive
from refused import refused

NAMED = {k: g for k, g in {**lists.graphs(), **lists.higher_order()}.items() if k != "huge"}
BRIDGES = {
    "pgmpy": (interop.to_pgmpy, interop.from_pgmpy),
    "pyagrum": (interop.to_pyagrum, interop.from_pyagrum),
    "networkx": (interop.to_networkx, interop.from_networkx),
    "arrays": (interop.to_arrays, lambda arrays: interop.from_arrays(*arrays)),
}


def need(library):
    if library != "arrays":
        pytest.importorskip(library, reason=f"{library} is not installed")


def pgmpy_exact(model, evidence=None):
    from pgmpy.inference import VariableElimination

    engine = VariableElimination(model)

    def ask(v):
        if v in (evidence or {}):
            phi = [float(s == evidence[v]) for s in model.states[v]]
            return np.array(phi)
        values = engine.query([v], evidence=evidence, show_progress=False).values
        return values / values.sum()  # of a Markov network they come unnormalised

    return {v: ask(v) for v in model.nodes()}


def pyagrum_exact(model, evidence=None):
    import pyagrum as gum

    markov = isinstance(model, gum.MarkovRandomField)
    engine = (gum.ShaferShenoyMRFInference if markov else gum.LazyPropagation)(model)
    engine.setEvidence(evidence or {})
    engine.makeInference()
    return {v: engine.posterior(v).toarray() for v in model.names()}


def same_model(graph, other, atol=1e-9):
    """Same variables, names, states, and the same unnormalised probability of everything."""
    assert list(other.n_states) == list(graph.n_states)
    assert [other.name(v) for v in range(len(other.n_states))] == [
        graph.name(v) for v in range(len(graph.n_states))
    ]
    want = naive.log_scores(graph)
    np.testing.assert_allclose(naive.log_scores(other), want, rtol=1e-12, atol=atol)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("library", BRIDGES)
def test_there_and_back(library, name):
    need(library)
    graph = NAMED[name]
    there, back = BRIDGES[library]
    if library == "networkx" and (graph.arity > 2).any():
        refused(ModelError, "to_pgmpy", there, graph)
        return
    same_model(graph, back(there(graph)))


@pytest.mark.parametrize("library", BRIDGES)
@given(graph=models.table_graphs())
def test_drawn_models_there_and_back(library, graph):
    """Every model survives, or is refused because its potentials are not floats."""
    need(library)
    there, back = BRIDGES[library]
    tables = [graph.log_table(i).ravel() for i in range(graph.n_factors)]
    logs = np.concatenate([*tables, [0.0]])
    constant = sum(float(graph.log_table(i)) for i in np.flatnonzero(graph.arity == 0))
    largest = np.abs(logs[np.isfinite(logs)]).max() + abs(constant)
    large = library == "networkx" and (graph.arity > 2).any()
    if large or (largest > LARGEST_LOG and library in ("pgmpy", "pyagrum")):
        try:
            model = there(graph)
        except ModelError:
            return
    else:
        model = there(graph)
    same_model(graph, back(model), atol=1e-9 * (1 + largest))


@pytest.mark.parametrize("name", [k for k in NAMED if NAMED[k].n_variables])
@pytest.mark.parametrize("library", ["pgmpy", "pyagrum"])
def test_exported_models_have_the_same_exact_marginals(library, name):
    need(library)
    graph = NAMED[name]
    exact = {"pgmpy": pgmpy_exact, "pyagrum": pyagrum_exact}[library]
    found = exact(BRIDGES[library][0](graph))
    want = naive.marginals(graph)
    got = np.concatenate([found[graph.name(v)] for v in range(graph.n_variables)])
    np.testing.assert_allclose(got, want, atol=1e-9)


RAIN = {"season": ("dry", "wet", "mixed"), "rain": ("no", "yes"), "grass": ("wet", "dry")}
SEASON = np.array([0.5, 0.3, 0.2])
RAIN_GIVEN = np.array([[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])  # [rain, season]
GRASS_GIVEN = np.array([[0.1, 0.8, 0.2, 0.95, 0.3, 0.9], [0.9, 0.2, 0.8, 0.05, 0.7, 0.1]])


def pgmpy_network():
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    model = DiscreteBayesianNetwork([("season", "rain"), ("season", "grass"), ("rain", "grass")])
    names = {v: list(s) for v, s in RAIN.items()}
    model.add_cpds(
        TabularCPD("season", 3, SEASON[:, None], state_names={"season": names["season"]}),
        TabularCPD(
            "rain", 2, RAIN_GIVEN, ["season"], [3],
            state_names={v: names[v] for v in ("rain", "season")},
        ),
        TabularCPD("grass", 2, GRASS_GIVEN, ["season", "rain"], [3, 2], state_names=names),
    )  # fmt: skip
    return model


def pyagrum_network():
    import pyagrum as gum

    model = gum.BayesNet()
    for name, states in RAIN.items():
        model.add(gum.LabelizedVariable(name, "", list(states)))
    for arc in (("season", "rain"), ("season", "grass"), ("rain", "grass")):
        model.addArc(*arc)
    model.cpt("season").fillWith(SEASON.tolist())
    for s, season in enumerate(RAIN["season"]):
        model.cpt("rain")[{"season": season}] = RAIN_GIVEN[:, s].tolist()
        for r, rain in enumerate(RAIN["rain"]):
            where = {"season": season, "rain": rain}
            model.cpt("grass")[where] = GRASS_GIVEN[:, 2 * s + r].tolist()
    return model


@pytest.mark.parametrize("library", ["pgmpy", "pyagrum"])
def test_bayesian_networks_with_named_states(library):
    need(library)
    model = {"pgmpy": pgmpy_network, "pyagrum": pyagrum_network}[library]()
    exact = {"pgmpy": pgmpy_exact, "pyagrum": pyagrum_exact}[library]
    to, back = BRIDGES[library]
    graph = back(model)
    assert {name: graph.states(name) for name in graph.names} == RAIN
    assert graph.directed
    assert [graph.scope(i).tolist() for i in range(3)] == [[0], [0, 1], [0, 1, 2]]
    for evidence in ({}, {"grass": "wet"}, {"grass": "dry", "season": "mixed"}):
        answer = Exact()(graph.with_evidence(evidence))
        assert answer.log_z <= 1e-12  # the probability of the evidence
        for name, want in exact(model, evidence).items():
            np.testing.assert_allclose(answer[name], want, atol=1e-9, err_msg=name)
    theirs = to(graph)
    assert type(theirs) is type(model)  # a Bayesian network again
    again = back(theirs)
    assert again._states == graph._states
    assert again.directed
    for i in range(3):
        assert again.scope(i).tolist() == graph.scope(i).tolist()
        np.testing.assert_allclose(again.log_table(i), graph.log_table(i), atol=1e-12)
    seen = graph.with_evidence({"grass": "wet"})
    observed = back(to(seen))  # evidence makes a Markov network of it
    assert not observed.directed
    assert observed._states == graph._states
    np.testing.assert_allclose(Exact()(observed).probs, Exact()(seen).probs, atol=1e-12)
    other = back(to(graph, {"rain": ["dry", "soaked"]}))
    assert other.states("rain") == ("dry", "soaked")


@pytest.mark.parametrize("library", ["pgmpy", "pyagrum"])
def test_parents_in_any_order_come_back(library):
    need(library)
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.ones(2), (4, 3, 2))
    graph = FactorGraph.network(
        {"a": 2, "y": ["no", "yes"], "b": ["p", "q", "r"], "c": 4},
        {
            "y": (["c", "b", "a"], table),
            "a": [0.3, 0.7],
            "b": ("a", rng.dirichlet(np.ones(3), 2)),
            "c": rng.dirichlet(np.ones(4)),
        },
    )
    to, back = BRIDGES[library]
    again = back(to(graph))
    y = next(i for i in range(4) if again.child(i) == again.index("y"))
    assert [again.name(v) for v in again.scope(y)] == ["c", "b", "a", "y"]
    np.testing.assert_allclose(np.exp(again.log_table(y)), table, atol=1e-12)
    assert again._states == graph._states


def test_pgmpy_factor_graph_and_default_states():
    need("pgmpy")
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import FactorGraph as Theirs

    values = np.random.default_rng(1).random((3, 2))
    pair = DiscreteFactor(["b", 7], [3, 2], values)
    named = DiscreteFactor([7], [2], [1, 3], state_names={7: ["off", "on"]})
    model = Theirs()
    model.add_nodes_from(["b", 7, pair, named])
    model.add_edges_from([("b", pair), (7, pair), (7, named)])
    model.add_factors(pair, named)
    graph = interop.from_pgmpy(model)
    assert graph.names == ("b", "7")
    assert graph._states == (None, ("off", "on"))
    named_again = interop.from_pgmpy(interop.to_pgmpy(graph))
    assert named_again._states == graph._states
    joint = values * [1, 3]
    np.testing.assert_allclose(Exact()(graph)["b"], joint.sum(1) / joint.sum())
    assert Exact()(graph).log_z == pytest.approx(np.log(model.get_partition_function()))


def test_networkx_attributes():
    need("networkx")
    import networkx as nx

    G = nx.path_graph(["c", "a", "b"])
    nx.set_node_attributes(G, {"c": [0.0, 1.0, -1.0], "a": 0.5}, "unary")
    table = np.arange(6.0).reshape(3, 2)
    G.add_edge("a", "c", pairwise=table.T, scope=("a", "c"))
    G.add_edge("b", "a", pairwise=[[0.0, 2.0], [1.0, 0.0]])
    with pytest.raises(ModelError, match="not symmetric, and an undirected edge has no order"):
        interop.from_networkx(G)
    G.edges["a", "b"]["scope"] = ("a", "b")
    graph = interop.from_networkx(G)
    want = FactorGraph.named(
        {"c": 3, "a": 2, "b": 2},
        [("c", [0, 1, -1]), ("a", [0, 0.5]), (("c", "a"), table), (("a", "b"), [[0, 2], [1, 0]])],
    )
    same_model(want, graph)
    directed = nx.DiGraph([("b", "a", {"weight": table.T})])
    same_model(
        FactorGraph.named({"b": 2, "a": 3}, [(("b", "a"), table.T)]),
        interop.from_networkx(directed, pairwise="weight"),
    )
    grid = nx.grid_2d_graph(2, 3)
    nx.set_node_attributes(grid, 0.3, "unary")
    nx.set_edge_attributes(grid, 0.7, "weight")
    found = Exact()(interop.from_networkx(grid, pairwise="weight"))
    np.testing.assert_allclose(
        found.probs, naive.marginals(FactorGraph.grid(np.full((2, 3), 0.3), 0.7)), atol=1e-12
    )
    assert found.graph.names[1] == "(0, 1)"


def test_enumerated_configurations():
    """Exactly one of three is on, and a shared table over pairs."""
    one = interop.Enumerated([[0, 1, 2]], np.eye(3, dtype=int), [0.0, 1.0, 2.0])
    shared = interop.Pairwise([[0, 1], [1, 2]], [[0.0, 0.5], [0.5, 0.0]])
    graph = interop.from_arrays([2, 2, 2], np.zeros((3, 2)), [shared], [one])
    w = np.exp([0.5, 2.0, 2.5])
    np.testing.assert_allclose([p[1] for p in Exact()(graph)], w / w.sum())


def test_models_that_cannot_come_over():
    need("pgmpy")
    need("pyagrum")
    need("networkx")
    import networkx as nx
    import pyagrum as gum
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork, LinearGaussianBayesianNetwork

    def markov(*factors):
        model = DiscreteMarkovNetwork([("a", "b")])
        model.add_factors(*factors)
        return model

    def edge(**attributes):
        return nx.Graph([("a", "b", attributes)])

    ab = DiscreteFactor(["a", "b"], [2, 2], [1, 2, 3, 4], {"a": ["x", "y"], "b": ["x", "y"]})
    swapped = DiscreteFactor(["a"], [2], [1, 2], {"a": ["y", "x"]})
    negative = DiscreteFactor(["a", "b"], [2, 2], [1, 2, -3, 4])
    cases = [
        (interop.from_pgmpy, LinearGaussianBayesianNetwork([("a", "b")]), "discrete"),
        (interop.from_pgmpy, markov(DiscreteFactor(["a"], [2], [1, 1])), "pgmpy finds a fault"),
        (interop.from_pgmpy, markov(), "how many states a has"),
        (interop.from_pgmpy, markov(ab, swapped), "disagree on the states of a"),
        (interop.from_pgmpy, markov(negative), "-3.0"),
        (interop.from_pgmpy, 3, "not int"),
        (interop.from_pyagrum, gum.InfluenceDiagram(), "utilities"),
        (interop.from_networkx, [1], "networkx graph"),
        (interop.from_networkx, edge(), "no attribute 'pairwise'"),
        (interop.from_networkx, edge(pairwise=1.0), "how many states a"),
        (interop.from_networkx, edge(pairwise=[1.0]), r"shape \(1,\)"),
        (interop.from_networkx, edge(pairwise=[[np.nan, 1.0]]), "NaN"),
        (interop.from_networkx, nx.path_graph([1, "1"]), "same name"),
    ]
    for convert, model, words in cases:
        refused(ModelError, words, convert, model)


def test_graphs_that_cannot_go_over():
    tree = FactorGraph.empty([2] * 20).add_global(range(20), lists.exactly_one())
    huge = lists.graphs()["huge"]
    pair = FactorGraph.pairwise([0.0, 1.0], [[0, 1]], 1.0, names=["a", "b"])
    for library, (there, _) in BRIDGES.items():
        need(library)
        refused(ModelError, r"global|variables", there, tree)
        if library in ("pgmpy", "pyagrum"):
            refused(ModelError, "x0 has log-potentials from 0 to 900", there, huge)
            twice = FactorGraph.pairwise([0.0, 0.0], [[0, 1], [1, 0]], 600.0)
            if library == "pyagrum":  # one factor for both: beyond any float
                refused(ModelError, "from 0 to 1200", there, twice)
            refused(ModelError, "no variable 'c'", there, pair, {"c": ["x", "y"]})
            refused(ModelError, "state names of b", there, pair, {"b": ["x", "x"]})
    for arrays, words in [
        (([2, 2], np.zeros((2, 3))), "evidence has shape"),
        (([2, 2], None, [], [interop.Enumerated([[0, 5]], [[0, 0]], [0.0])]), "outside 0..1"),
        (([2, 2], None, [], [interop.Enumerated([[0, 1]], [[0, 2]], [0.0])]), "a state"),
        (([2, 2], None, [], [interop.Enumerated([[0, 1]], [[0, 1]] * 2, [0.0] * 2)]), "twice"),
        (([2] * 70, None, [], [interop.Enumerated([range(70)], [[0] * 70], [0.0])]), r"2\^70"),
        (([2, 2], None, [], [interop.Enumerated([[0, 1]], [[0, 1]], [[0.0] * 3])]), "shape"),
        (([2, 3, 2], None, [], [interop.Enumerated([[0, 1], [0, 2]], [[0, 1]], [0.0])]), "same"),
    ]:
        refused(ModelError, words, interop.from_arrays, *arrays)


def test_importing_the_bridges_loads_no_library():
    code = (
        "import sys, minfer.interop as i; found = {'pgmpy', 'pyagrum', 'networkx'} & {*sys.modules}"
        "; assert not found, found; sys.modules['networkx'] = None; i.to_networkx(None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert RefusedError.__name__ in done.stderr
    assert "pip install networkx" in done.stderr
