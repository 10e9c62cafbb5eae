"""Tables of Bayesian networks from cases: against all completions, by hand, and pgmpy."""

from __future__ import annotations

import itertools
import json
import math
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minfer
from draws import draws
from minfer.errors import (
    ContradictionError,
    EvidenceError,
    ModelError,
    NotFittedError,
    RefusedError,
    SettingsError,
)
from minfer.learn import BayesianNetwork, families
from minfer.model.evidence import table_of
from minfer.prediction.predictor import Predictor
from minfer.solvers.row_plans import RowPlan
from oracle import models
from test_cli import call, ok

SPRINKLER = [("rain", "wet"), ("sprinkler", "wet"), ("rain", "sprinkler")]


def drawn(seed, n=30, missing=0.3, n_variables=4):
    """A random structure, and rows of states with holes, as columns."""
    rng = np.random.default_rng(seed)
    card = rng.integers(2, 4, size=n_variables)
    parents = {
        f"v{k}": [f"v{p}" for p in range(k) if rng.random() < 0.5] for k in range(n_variables)
    }
    X = {}
    for k in range(n_variables):
        column = rng.integers(0, card[k], size=n)
        column[: card[k]] = np.arange(card[k])[: min(n, card[k])]  # all states occur
        known = rng.random(n) >= missing
        known[: card[k]] = True
        X[f"v{k}"] = [int(x) if there else None for x, there in zip(column, known)]
    return parents, X, {f"v{k}": int(c) for k, c in enumerate(card)}


def em_step(parents, X, card, theta, alpha):
    """One step and the objective before it, over all completions of every row."""
    names = list(parents)
    counts = {v: np.zeros_like(theta[v]) for v in names}
    total = 0.0
    for row in zip(*(X[v] for v in names)):
        known = dict(zip(names, row))
        options = [range(card[v]) if known[v] is None else [known[v]] for v in names]
        weights = []
        for states in itertools.product(*options):
            full = dict(zip(names, states))
            weights.append(
                (
                    math.prod(theta[v][(*(full[p] for p in parents[v]), full[v])] for v in names),
                    full,
                )
            )
        mass = sum(w for w, _ in weights)
        total += math.log(mass)
        for w, full in weights:
            for v in names:
                counts[v][(*(full[p] for p in parents[v]), full[v])] += w / mass
    for v in names:
        total += float((alpha[v] * np.log(theta[v]))[alpha[v] > 0].sum())
    new = {}
    for v in names:
        whole = counts[v] + alpha[v]
        sums = whole.sum(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            new[v] = np.where(sums > 0, whole / sums, 1.0 / card[v])
    return new, total


@settings(max_examples=draws(15), deadline=None)
@given(seed=st.integers(0, 10**6), prior=st.sampled_from(["none", "uniform", "bdeu"]))
def test_em_is_em_over_all_completions(seed, prior):
    """Every value of the trace, and the tables after so many steps."""
    parents, X, card = drawn(seed)
    net = BayesianNetwork(
        parents, prior=prior, strength=0.5, states=card, tol=0.0, max_iterations=4,
        start="random", random_state=seed,
    ).fit(X)  # fmt: skip
    rng = np.random.default_rng(seed)
    order = [v for v in X if v in parents]
    shapes = {v: (*(card[p] for p in parents[v]), card[v]) for v in order}
    size = sum(math.prod(s) for s in shapes.values())
    flat = rng.gamma(1.0, size=size) + 1e-3
    theta, alpha, at = {}, {}, 0
    for v in order:
        cells = math.prod(shapes[v])
        table = flat[at : at + cells].reshape(shapes[v])
        theta[v] = table / table.sum(axis=-1, keepdims=True)
        alpha[v] = np.full(shapes[v], {"none": 0.0, "uniform": 0.5, "bdeu": 0.5 / cells}[prior])
        at += cells
    theta = {v: theta[v] for v in parents}
    for k, value in enumerate(net.trace_):
        after, objective = em_step(parents, X, card, theta, alpha)
        assert value == pytest.approx(objective, rel=1e-10)
        if k == len(net.trace_) - 1:
            for v in parents:
                np.testing.assert_allclose(net.tables_[v], theta[v], atol=1e-10)
        theta = after
    assert (np.diff(net.trace_) >= -1e-9 * abs(net.objective_)).all()


@settings(max_examples=draws(20), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_em_rises_and_ends_at_a_fixed_point(seed):
    parents, X, card = drawn(seed, n=40, missing=0.4)
    net = BayesianNetwork(parents, states=card, tol=1e-13, max_iterations=5000).fit(X)
    assert net.converged_
    assert (np.diff(net.trace_) >= -1e-9 * abs(net.objective_)).all()
    alpha = {v: np.ones_like(t) for v, t in net.tables_.items()}
    after, objective = em_step(parents, X, card, net.tables_, alpha)
    assert net.objective_ == pytest.approx(objective, rel=1e-10)
    for v in parents:
        np.testing.assert_allclose(net.tables_[v], after[v], atol=1e-4)
    assert net.log_likelihood_ == pytest.approx(net.score_samples(X).sum(), rel=1e-10)


def test_counts_are_counts():
    rows = {"rain": ["no", "no", "yes", "yes", "no"], "wet": ["no", "yes", "yes", "yes", "no"]}
    net = BayesianNetwork([("rain", "wet")], prior="none").fit(rows)
    assert net.status_ == "counted"
    assert net.counts_["wet"].tolist() == [[2, 1], [0, 2]]
    np.testing.assert_allclose(net.tables_["wet"], [[2 / 3, 1 / 3], [0, 1]])
    np.testing.assert_allclose(net.tables_["rain"], [0.6, 0.4])
    assert net.states_ == {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    assert net.parents_ == {"rain": [], "wet": ["rain"]}
    assert net.model_.directed
    expected = 3 * math.log(0.6) + 2 * math.log(0.4) + 2 * math.log(2 / 3) + math.log(1 / 3)
    assert net.log_likelihood_ == pytest.approx(expected)
    assert net.score_samples(rows).sum() == pytest.approx(expected)
    smooth = BayesianNetwork([("rain", "wet")], strength=2.0).fit(rows)
    np.testing.assert_allclose(smooth.tables_["wet"], [[4 / 7, 3 / 7], [2 / 6, 4 / 6]])
    bdeu = BayesianNetwork([("rain", "wet")], prior="bdeu", strength=4.0).fit(rows)
    np.testing.assert_allclose(bdeu.tables_["wet"], [[3 / 5, 2 / 5], [1 / 4, 3 / 4]])
    own = BayesianNetwork([("rain", "wet")], prior={"wet": [[0, 0], [3, 0]]}).fit(rows)
    np.testing.assert_allclose(own.tables_["wet"], [[2 / 3, 1 / 3], [3 / 5, 2 / 5]])
    np.testing.assert_allclose(own.tables_["rain"], [0.6, 0.4])
    states = {"a": ["x", "y"]}  # y is never seen
    net = BayesianNetwork([("a", "b")], prior="none", states=states).fit(
        {"a": ["x", "x"], "b": ["0", "1"]}
    )
    np.testing.assert_allclose(net.tables_["b"], [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(net.tables_["a"], [1.0, 0.0])


def test_pgmpy_counts_the_same():
    estimators = pytest.importorskip("pgmpy.parameter_estimator")
    pd = pytest.importorskip("pandas")
    from pgmpy.models import DiscreteBayesianNetwork

    graph = models.bundled("asia")
    frame = cases(graph, 500, 3)
    edges = [(p, graph.name(v)) for v in range(graph.n_variables) for p in graph.parents(v)]
    theirs = DiscreteBayesianNetwork(edges)
    theirs = theirs.fit(frame, estimator=estimators.DiscreteMLE())
    ours = BayesianNetwork(theirs, prior="none").fit(frame)
    assert isinstance(frame, pd.DataFrame)
    for name in ours.tables_:
        cpd = theirs.get_cpds(name)
        order = [cpd.variables.index(x) for x in [*ours.parents_[name], name]]
        table = cpd.values.transpose(order)
        at = [
            [cpd.state_names[x].index(s) for s in ours.states_[x]]
            for x in [*ours.parents_[name], name]
        ]
        table = table[np.ix_(*at)]
        seen = ours.counts_[name].sum(axis=-1) > 0
        np.testing.assert_allclose(ours.tables_[name][seen], table[seen], atol=1e-12)


def cases(graph, n, seed):
    """Rows drawn from a network, by the names of states."""
    return minfer.sample(graph, n, seed=seed).to_pandas()


def sprinkler():
    return minfer.FactorGraph.network(
        {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["no", "yes"]},
        {
            "rain": [0.8, 0.2],
            "sprinkler": ("rain", [[0.6, 0.4], [0.99, 0.01]]),
            "wet": (["rain", "sprinkler"], [[0.99, 0.01], [0.1, 0.9], [0.2, 0.8], [0.01, 0.99]]),
        },
    )


def test_all_kinds_of_tables_and_files_agree(tmp_path):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    frame = cases(sprinkler(), 2000, 1)
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame["id"] = range(len(frame))
    whole = BayesianNetwork(SPRINKLER).fit(frame)
    frame.to_csv(tmp_path / "cases.csv", index=False)
    frame.to_parquet(tmp_path / "cases.parquet")
    columns = {k: [None if pd.isna(x) else x for x in frame[k]] for k in frame}
    kinds = [
        frame.astype({"wet": "category"}),
        *([pytest.importorskip("polars").from_pandas(frame)] if find_spec("polars") else []),
        pa.Table.from_pandas(frame),
        columns,
        [dict(zip(columns, row)) for row in zip(*columns.values())],
        str(tmp_path / "cases.csv"),
        tmp_path / "cases.parquet",
    ]
    frame.to_parquet(kinds[-1], row_group_size=300)
    for rows in kinds:
        net = BayesianNetwork(SPRINKLER).fit(rows)
        assert net.objective_ == pytest.approx(whole.objective_, rel=1e-12), type(rows)
        assert net.states_ == whole.states_
        assert net.score(rows) == pytest.approx(whole.score(frame), rel=1e-12)
    frame.iloc[:0].to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(ModelError, match=r"0 sample\(s\)"):
        BayesianNetwork(SPRINKLER).fit(tmp_path / "none.csv")
    two = BayesianNetwork(SPRINKLER, workers=2).fit(frame)
    assert two.trace_ == pytest.approx(whole.trace_, rel=1e-12)


def test_structures_of_all_kinds(tmp_path):
    frame = cases(sprinkler(), 100, 4)
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    minfer.write(sprinkler(), tmp_path / "net.bif")
    mapping = {"wet": ["rain", "sprinkler"], "sprinkler": "rain"}
    found = [
        BayesianNetwork(structure).fit(frame).objective_
        for structure in (SPRINKLER, mapping, sprinkler(), tmp_path / "net.bif")
    ]
    assert found == pytest.approx([found[0]] * 4, rel=1e-12)
    nx = pytest.importorskip("networkx")
    assert BayesianNetwork(nx.DiGraph(SPRINKLER)).fit(frame).objective_ == pytest.approx(found[0])
    alone = BayesianNetwork().fit(frame)
    assert alone.parents_ == {"rain": [], "sprinkler": [], "wet": []}
    near = BayesianNetwork(sprinkler(), start="structure", prior="none").fit(frame)
    assert near.trace_[0] == pytest.approx(minfer_log_likelihood(sprinkler(), frame), rel=1e-10)


def minfer_log_likelihood(graph, frame):
    ask = Predictor(graph, [])

    known, _ = ask.states_of(table_of(frame), list(frame))
    return float(ask.network.ask(known, []).log_pe.sum())


def test_hidden_variables_are_found():
    """A mixture of two: rows of three coins, with a hidden state that says which kind they are."""
    rng = np.random.default_rng(0)
    kind = rng.random(3000) < 0.4
    X = {f"x{k}": (rng.random(3000) < np.where(kind, 0.9, 0.1)).astype(int) for k in range(4)}
    edges = [("h", name) for name in X]
    net = BayesianNetwork(edges, states={"h": 2}, restarts=3, tol=1e-9, max_iterations=1000).fit(X)
    assert net.converged_
    h = net.tables_["h"]
    assert sorted(h) == pytest.approx([0.4, 0.6], abs=0.03)
    high = net.tables_["x0"][:, 1]
    assert sorted(high) == pytest.approx([0.1, 0.9], abs=0.05)
    with pytest.raises(EvidenceError, match=r"no column 'h': a hidden variable needs states="):
        BayesianNetwork(edges).fit(X)


@settings(max_examples=draws(20), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_different_rows_are_those_of_numpy(seed):
    rng = np.random.default_rng(seed)
    known = rng.integers(-1, 3, size=(3, 40)).astype(np.int32)
    rows, weight, first = families.different_rows(known)
    _, index, counts = np.unique(known.T, axis=0, return_index=True, return_counts=True)
    order = np.argsort(index)
    assert first.tolist() == index[order].tolist()
    assert weight.tolist() == counts[order].tolist()
    np.testing.assert_array_equal(rows, known.T[first])


def test_rows_that_linear_numbers_cannot_hold_are_solved_in_logarithms(monkeypatch):
    parents, X, card = drawn(3)
    plain = BayesianNetwork(parents, states=card, max_iterations=3).fit(X)

    real = RowPlan.run

    def unsafe(self, *args, **settings_):
        found = real(self, *args, **settings_)
        found.unsafe[::2] = True
        found.joints[::2] = np.nan
        return found

    monkeypatch.setattr(RowPlan, "run", unsafe)
    careful = BayesianNetwork(parents, states=card, max_iterations=3).fit(X)
    assert careful.trace_ == pytest.approx(plain.trace_, rel=1e-12)


def test_numbers_and_truths_as_states():
    net = BayesianNetwork([("a", "b")]).fit({"a": [0, 1, 2, 1], "b": [True, False, True, True]})
    assert net.states_ == {"a": ["0", "1", "2"], "b": ["False", "True"]}
    assert not net.model_.has_state_names or net.model_.states("b") == ("False", "True")
    net = BayesianNetwork([("a", "b")]).fit({"a": [10, 9, 2.5, np.nan], "b": ["z", "y", " z ", ""]})
    assert net.states_ == {"a": ["2.5", "9", "10"], "b": ["y", "z"]}
    again = net.score_samples({"a": [2.5], "b": ["z"]})
    assert np.isfinite(again).all()


def test_a_column_of_measurements_is_noticed():
    x = np.random.default_rng(0).normal(size=300)
    with pytest.warns(UserWarning, match="'x' has 300 different values in 300 rows.*bins"):
        BayesianNetwork().fit({"x": x})
    cold = BayesianNetwork().fit({"x": np.digitize(x, [-1.0, 0.0, 1.0])})
    assert cold.model_.n_states.tolist() == [4]


@pytest.mark.parametrize(
    ("settings_", "X", "kind", "said"),
    [
        ({"structure": [("a", "b"), ("b", "a")]}, None, ModelError, "form a cycle"),
        ({"structure": [("a", "a")]}, None, ModelError, "own parent"),
        ({"structure": [("a", "b"), ("a", "b")]}, None, ModelError, "a parent twice"),
        ({"structure": ["ab"]}, None, SettingsError, "an edge must be a pair"),
        ({"structure": [("aB", "b")]}, None, EvidenceError, "column 'AB' is not a variable"),
        ({"states": {"c": 2}, "structure": [("a", "b")]}, None, SettingsError, "no variable"),
        ({"states": {"a": ["u", "v"]}}, None, EvidenceError, "row 0, column a: .*x"),
        ({"structure": [("u", "v")]}, None, EvidenceError, "no column is a variable"),
        ({"prior": "k2"}, None, SettingsError, "prior"),
        ({"strength": -1.0}, None, SettingsError, "strength"),
        ({"prior": {"a": [-1.0, 0.0]}}, None, SettingsError, "negative"),
        ({"start": "structure"}, None, SettingsError, "needs a model"),
        ({}, {"a": [], "b": []}, ModelError, r"0 sample\(s\)"),
        ({}, {"a": [None, None], "b": ["x", "y"]}, EvidenceError, "has no value at all"),
        ({}, {"a": ["x"], "b": ["x", "y"]}, EvidenceError, "the same length"),
        ({}, 3, SettingsError, "rows must be a data frame"),
        ({"prior": {"a": "much"}}, None, SettingsError, "of a: pseudo-counts must be real numbers"),
        ({"structure": {"a": None}}, None, SettingsError, "of a must be a list of names, not None"),
        ({"missing": 3}, None, SettingsError, "missing must be a list of texts, not 3"),
        ({"structure": sprinkler()}, {"Rian": ["no"], "wet": ["no"], "sprinkler": ["on"]},
         EvidenceError, "column 'Rian' is not a variable; did you mean rain, which"),
        ({"structure": {"v3": ["v0", "v1", "v2"]}}, {f"v{k}": np.arange(300) for k in range(4)},
         RefusedError, r"the table of v3 has 8\.1e\+09 cells"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*different values")
def test_bad_input_is_refused(settings_, X, kind, said):
    X = {"a": ["x", "y", "x"], "b": ["p", "p", None], "AB": [1, 2, 2]} if X is None else X
    with pytest.raises(kind, match=said) as error:
        BayesianNetwork(**settings_).fit(X)
    assert "predict" not in str(error.value)


def test_rows_that_contradict_the_tables_to_begin_with_are_named():
    graph = minfer.FactorGraph.network(
        {"a": ["x", "y"], "b": ["p", "q"]}, {"a": [0.5, 0.5], "b": ("a", [[1, 0], [0, 1]])}
    )
    rows = {"a": ["x", None, "y", "x"], "b": ["p", "p", "q", "q"], "c": [1, 2, 3, 4]}
    with pytest.raises(ContradictionError, match="probability zero"):
        BayesianNetwork(graph, start="structure", prior="none").fit(rows)
    three = minfer.FactorGraph.network(
        {"a": ["x", "y"], "b": ["p", "q"], "c": ["u", "v"]},
        {"a": [0.5, 0.5], "b": ("a", [[1, 0], [0, 1]]), "c": [0.5, 0.5]},
    )
    rows["c"] = ["u", "v", "u", None]
    with pytest.raises(ContradictionError, match="row 3 has probability zero"):
        BayesianNetwork(three, start="structure", prior="none").fit(rows)
    assert BayesianNetwork(three, prior="none").fit(rows).converged_


def test_asking_before_fit_and_states_never_seen():
    with pytest.raises(NotFittedError, match="call fit"):
        BayesianNetwork().score([[1]])
    net = BayesianNetwork().fit({"a": ["x", "y"]})
    assert net.score_samples({"a": ["x", "z", None]}).tolist() == pytest.approx(
        [math.log(0.5), -math.inf, 0.0]
    )


CASES = "id,rain,wet\n1,no,no\n2,no,yes\n3,yes,yes\n4,?,yes\n5,no,\n"


@pytest.fixture
def files(tmp_path):
    graph = minfer.FactorGraph.network(
        {"rain": ["no", "yes"], "wet": ["no", "yes"]},
        {"rain": [0.5, 0.5], "wet": ("rain", [[0.5, 0.5], [0.5, 0.5]])},
    )
    minfer.write(graph, tmp_path / "net.bif")
    (tmp_path / "cases.csv").write_text(CASES)
    return str(tmp_path / "net.bif"), str(tmp_path / "cases.csv"), str(tmp_path / "out.bif")


def test_it_writes_what_the_estimator_learns(files):
    model, cases, out = files
    done = ok("learn", model, cases, "-o", out, "--missing", "?", "--prior", "bdeu", "--json")
    facts = json.loads(done.stdout)
    assert facts["status"] == "converged"
    net = BayesianNetwork(model, prior="bdeu", missing=("", "?")).fit(cases)
    assert facts["objective"] == pytest.approx(net.objective_)
    learned = minfer.read(out)
    assert learned.directed
    assert learned.states("rain") == ("no", "yes")
    for name, table in net.tables_.items():
        factor = learned._conditional_of(learned.index(name))
        np.testing.assert_allclose(np.exp(learned.log_table(factor)), table, atol=1e-12)


def test_it_says_what_it_did_and_refuses_what_it_cannot_read_or_write(files):
    model, cases, out = files
    done = call("learn", model, cases, "-o", out, "--missing", "?")
    assert "converged after" in done.stdout + done.stderr
    done = call("learn", model, cases, "-o", out)
    assert done.exit_code == 3
    assert "row 3, column rain" in done.stderr
    assert "--missing ?" in done.stderr
    done = call("learn", model, cases, "-o", out, "--prior", "k2")
    assert done.exit_code == 2
    done = call("learn", model, "no-such-cases.csv", "-o", f"{out}.png")
    assert done.exit_code == 2
    assert "the name should end in" in done.stderr
