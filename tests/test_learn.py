"""Objectives against enumeration and differences; fitting and resuming; grids, samples, growth."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from draws import few
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    MinDivergence,
    MinJoint,
    TreeReweighted,
    read,
    sample,
)
from minfer.errors import ContradictionError, FormatError, ModelError, RefusedError, SettingsError
from minfer.graph import grid_edges
from minfer.learn import (
    BetheLikelihood,
    ExactLikelihood,
    Fitted,
    GridCRF,
    Instance,
    IsingModel,
    LogLinear,
    MarginalLoss,
    MaxMargin,
    Perceptron,
    PottsModel,
    Pseudolikelihood,
    Template,
    TRWLikelihood,
    fit,
    fitting,
    grow,
    read_instances,
    sample_shards,
    shards,
    write_instances,
)
from minfer.learn.workers import GivenShards
from minfer_experiments import learned_denoising as denoising
from oracle.learning import (
    drawn_instance,
    hinge,
    log_likelihood,
    log_pseudolikelihood,
    slopes,
)
from refused import all_refused

SEEDS = few(range(6), 2)
TIGHT = {"tol": 1e-13, "max_iters": 3000}


def several(seed: int, **more) -> tuple[list[Instance], np.ndarray]:
    rng = np.random.default_rng(seed)
    w = 0.3 * rng.normal(size=4)
    return [drawn_instance(rng, 4, sparse=bool(k % 2), **more) for k in range(3)], w


LOSSES = {
    "likelihood": (ExactLikelihood(), lambda one, w: -log_likelihood(one, w)),
    "pseudolikelihood": (Pseudolikelihood(), lambda one, w: -log_pseudolikelihood(one, w)),
    "perceptron": (Perceptron(), lambda one, w: hinge(one, w, 0.0)),
    "max-margin": (MaxMargin(), lambda one, w: hinge(one, w, 1.0)),
}
CASES = [
    *(("likelihood", hidden, rows) for hidden in (0.0, 0.4) for rows in (1, 3)),
    *(("pseudolikelihood", 0.0, rows) for rows in (1, 3)),
    *((name, hidden, 1) for name in ("perceptron", "max-margin") for hidden in (0.0, 0.4)),
]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "hidden", "rows"), CASES)
def test_losses_are_enumerations(seed, name, hidden, rows):
    objective, loss = LOSSES[name]
    data, w = several(seed, hidden=hidden, rows=rows)
    data = data if rows == 1 else data[:1]
    e = objective.evaluator(data)(w)
    assert e.value == pytest.approx(sum(loss(one, w) for one in data), abs=1e-9)
    wanted = slopes(lambda u: sum(loss(one, u) for one in data), w)
    np.testing.assert_allclose(e.gradient, wanted, atol=1e-7 if "likelihood" in name else 1e-6)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize(
    "objective",
    [
        TRWLikelihood(TreeReweighted(**TIGHT)),
        BetheLikelihood(BeliefPropagation(**TIGHT, damping=0.3)),
        MarginalLoss(TreeReweighted(**TIGHT)),
        MarginalLoss(TreeReweighted(**TIGHT), "squared"),
        MarginalLoss(BeliefPropagation(**TIGHT)),
        MarginalLoss(Exact()),
    ],
    ids=repr,
)
def test_gradients_are_differences(seed, hidden, objective):
    data, w = several(seed, pairs=True, binary=seed % 2 == 0, hidden=hidden)
    evaluate = objective.evaluator(data)
    e = evaluate(w)
    assert e.converged
    wanted = slopes(lambda u: evaluate(u).value, w, 1e-4)
    np.testing.assert_allclose(e.gradient, wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", SEEDS)
def test_a_union_is_the_sum_of_its_instances(seed):
    data, w = several(seed, pairs=True)
    objective = TRWLikelihood(TreeReweighted(**TIGHT))
    together = objective.evaluator(data)(w)
    alone = [objective.evaluator([one])(w) for one in data]
    assert together.value == pytest.approx(sum(e.value for e in alone), abs=1e-8)
    np.testing.assert_allclose(together.gradient, sum(e.gradient for e in alone), atol=1e-7)


def test_marginal_losses_are_their_definitions():
    data, w = several(3, pairs=True, hidden=0.3)
    log = squared = 0.0
    for one in data:
        m = Exact()(one.graph_at(w))
        for v, label in enumerate(one.labels[0]):
            if label >= 0:
                log -= np.log(m[v][label])
                squared += ((m[v] - np.eye(len(m[v]))[label]) ** 2).sum()
    assert MarginalLoss(Exact()).evaluator(data)(w).value == pytest.approx(log)
    assert MarginalLoss(Exact(), "squared").evaluator(data)(w).value == pytest.approx(squared)


def test_templates_make_the_tables_they_promise():
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(2, 3, 2))
    model = LogLinear(
        [
            Template("one", (3,), ["bias", "x"]),
            Template("same", (2, 2), ["a", "b"], "equal"),
            Template("own", (3, 2), 2, basis),
            Template("full", (2, 2), ("bias",), "all"),
        ]
    )
    assert model.names[:4] == ["one[1]:bias", "one[2]:bias", "one[1]:x", "one[2]:x"]
    x1, x2, x3 = rng.normal(size=(1, 2)), rng.normal(size=(1, 2)), rng.normal(size=(1, 2))
    one = model.instance(
        [3, 2, 2],
        {"one": ([[0]], x1), "same": ([[1, 2]], x2), "own": ([[0, 1]], x3), "full": [[1, 2]]},
    )
    w = rng.normal(size=model.n_weights)
    at = dict(zip(model.names, w))
    graph = one.graph_at(w)
    np.testing.assert_allclose(
        graph.log_table(0),
        [0.0, *(at[f"one[{k}]:bias"] * x1[0, 0] + at[f"one[{k}]:x"] * x1[0, 1] for k in (1, 2))],
    )
    np.testing.assert_allclose(
        graph.log_table(1), np.eye(2) * (at["same:a"] * x2[0, 0] + at["same:b"] * x2[0, 1])
    )
    own = sum(at[f"own[{b}]:x{d}"] * x3[0, d] * basis[b] for b in range(2) for d in range(2))
    np.testing.assert_allclose(graph.log_table(2), own)
    full = [
        [at["full[0,0]:bias"], at["full[0,1]:bias"]],
        [at["full[1,0]:bias"], at["full[1,1]:bias"]],
    ]
    np.testing.assert_allclose(graph.log_table(3), full)
    model = LogLinear([Template("seen", (2,))])  # one feature may be a vector
    one = model.instance([2, 2], {"seen": ([[0], [1]], [1.0, 2.0])}, [0, 1])
    np.testing.assert_array_equal(one.features.toarray(), [[1.0], [2.0]])
    pair = LogLinear([Template("pair", (2, 2))])
    assert pair.instance([2, 2, 2], {"pair": ((0, 1), (1, 2))}).graph.n_factors == 2


@cache
def chain_data(n: int = 12, length: int = 8, seed: int = 0) -> tuple[LogLinear, list[Instance]]:
    """Chains with noisy observations, labels drawn from the model itself; tests change none."""
    rng = np.random.default_rng(seed)
    model = LogLinear([Template("seen", (2,), ["bias", "x"]), Template("pair", (2, 2), 1, "equal")])
    w, data = np.array([-0.2, 1.0, 0.8]), []
    for _ in range(n):
        x = np.stack([np.ones(length), rng.normal(size=length)], 1)
        factors = {
            "seen": (np.arange(length)[:, None], x),
            "pair": np.stack([np.arange(length - 1), np.arange(1, length)], 1),
        }
        graph = model.instance(np.full(length, 2), factors).graph_at(w)
        labels = sample(graph, 1, seed=int(rng.integers(1 << 30)))[0]
        data.append(model.instance(np.full(length, 2), factors, labels))
    return model, data


@pytest.mark.parametrize(
    "objective",
    ["likelihood", "trw", "bethe", "pseudolikelihood", "marginals", "marginals-squared"],
)
def test_objectives_converge_and_likelihoods_agree_on_trees(objective):
    model, data = chain_data()
    likelihood = objective in ("likelihood", "trw", "bethe")
    tol = {"tol": 1e-7} if likelihood else {}
    fitted = fit(data, objective, l2=1e-2, names=model, **tol)
    assert fitted.converged, fitted.status
    assert fitted["pair:x0"] == fitted.weights[2] != 0.0
    losses = [row.objective for row in fitted.trace]
    assert losses[-1] == min(losses)
    assert fitted.names == tuple(model.names)
    if likelihood:
        assert fitted.gradient <= 1e-7
        exact = fit(data, "likelihood", l2=1e-2, tol=1e-8)
        np.testing.assert_allclose(fitted.weights, exact.weights, atol=1e-4)


def test_l1_leaves_exact_zeros_and_adam_comes_to_the_same_optimum():
    rng = np.random.default_rng(0)
    _, data = chain_data()
    from scipy.sparse import csr_array, hstack

    noise = [rng.normal(size=(d.features.shape[0], 10)) for d in data]
    noisy = [
        Instance(d.graph, csr_array(hstack([d.features, x])), d.labels) for d, x in zip(data, noise)
    ]
    fitted = fit(noisy, "likelihood", l1=0.05)
    assert fitted.converged
    assert (fitted.weights == 0.0).sum() >= 5
    assert fitted.weights[1] > 0.3
    adam = {"method": "adam", "batch_size": 4}
    some = fit(noisy, "likelihood", l1=0.05, epochs=200, learning_rate=0.02, **adam)
    assert some.value == pytest.approx(fitted.value, abs=1e-3)
    warm, exact = fit(data, "trw", l2=1e-2, **adam), fit(data, "trw", l2=1e-2)
    assert warm.value == pytest.approx(exact.value, abs=1e-3)


@pytest.mark.parametrize("how", [{}, {"hidden": "em"}])
def test_hidden_variables(how):
    _, data = chain_data(15)
    rng = np.random.default_rng(0)
    some = []
    for d in data:
        labels = d.labels[0].copy()
        labels[rng.random(len(labels)) < 0.3] = -1
        some.append(Instance(d.graph, d.features, labels))
    fitted = fit(some, "likelihood", l2=1e-2, **how)
    assert fitted.converged
    rows = np.array([row.objective for row in fitted.trace])
    assert (np.diff(rows) <= 1e-12).all()
    other = fit(some, "likelihood", l2=1e-2, tol=1e-7)
    np.testing.assert_allclose(fitted.weights, other.weights, atol=1e-2)


HOW = [
    ("trw", {"max_iters": 50}),
    ("trw", {"max_iters": 50, "l1": 0.01}),
    ("marginals", {"max_iters": 50, "l1": 0.01}),
    ("trw", {"method": "adam", "epochs": 12, "batch_size": 3, "evaluate_every": 2}),
    ("marginals", {"method": "adam", "epochs": 12, "batch_size": 3, "evaluate_every": 2}),
    ("likelihood", {"hidden": "em", "max_iters": 12, "tol": 1e-7}),
]


@pytest.mark.drawn
@pytest.mark.parametrize(("objective_how", "when"), few(product(HOW, [1, 3]), len(HOW)))
def test_checkpoints_resume_bit_for_bit(tmp_path, objective_how, when, monkeypatch):
    objective, how = objective_how
    _, data = chain_data(6)
    if "hidden" in how:
        some = np.where(np.random.default_rng(0).random((len(data), 8)) < 0.3, -1, 0)
        data = [
            Instance(d.graph, d.features, np.where(h, h, d.labels[0])) for d, h in zip(data, some)
        ]
    dev = chain_data(4, seed=1)[1]
    whole = fit(data, objective, l2=1e-3, dev=dev, **how)
    path = tmp_path / "run.npz"
    save, saved = fitting._save, 0

    def break_off(*args):
        nonlocal saved
        save(*args)
        saved += 1
        if saved == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "_save", break_off)
    with pytest.raises(KeyboardInterrupt):
        fit(data, objective, l2=1e-3, dev=dev, checkpoint=path, checkpoint_every=2, **how)
    monkeypatch.setattr(fitting, "_save", save)
    for _ in range(2):  # the second time it is over
        fitted = fit(data, objective, l2=1e-3, dev=dev, checkpoint=path, checkpoint_every=2, **how)
        assert fitted.weights.tobytes() == whole.weights.tobytes()
        assert [row[:5] for row in fitted.trace] == [row[:5] for row in whole.trace]
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(data, objective, l2=1e-2, dev=dev, checkpoint=path, **how)


def test_a_checkpoint_goes_on_where_more_is_allowed_and_not_of_another_structure(tmp_path):
    _, data = chain_data()
    dev, path = chain_data(seed=1)[1], tmp_path / "run.npz"
    whole = fit(data, "trw", l2=1e-4, tol=1e-8)
    short = fit(data, "trw", l2=1e-4, tol=1e-8, max_iters=3, checkpoint=path)
    assert short.status == "max iterations"
    more = fit(data, "trw", l2=1e-4, tol=1e-8, checkpoint=path)
    assert more.weights.tobytes() == whole.weights.tobytes()
    assert more.status == whole.status
    few = {"dev": dev, "checkpoint": tmp_path / "patient.npz", "tol": 1e-9}
    stopped = fit(data, "likelihood", patience=1, **few)
    assert stopped.status == "early stopping"
    assert len(fit(data, "likelihood", patience=4, **few).trace) > len(stopped.trace)
    path, data = tmp_path / "other.npz", []
    for edges in ([[0, 1], [1, 2], [2, 3]], [[0, 2], [1, 3], [0, 3]]):
        graph = FactorGraph.pairwise(np.zeros(4), edges, 0.0, feature="equal")
        data.append(Instance(graph, np.eye(len(graph.weights)), [[0, 1, 1, 0], [1, 1, 0, 0]]))
    fit(data[:1], "pseudolikelihood", l2=0.1, checkpoint=path)
    with pytest.raises(SettingsError, match="other data"):
        fit(data[1:], "pseudolikelihood", l2=0.1, checkpoint=path)


def test_early_stopping_returns_the_best_on_dev_data():
    _, data = chain_data(3, seed=4)
    dev = chain_data(20, seed=5)[1]
    assert fit(data, "likelihood", l2=1e-2).converged
    for how in ({"patience": 2, "tol": 1e-9}, {"l2": 1e-2}):  # the latter was called stalled
        fitted = fit(data, "likelihood", dev=dev, **how)
        best = min(row.dev for row in fitted.trace)
        loss = ExactLikelihood().evaluator(dev)(fitted.weights).value
        assert loss / sum(d.n_labels for d in dev) == pytest.approx(best, abs=1e-12)
        assert fitted.gradient > 1e-5
        assert (fitted.status, fitted.converged, fitted.advice) == ("early stopping", False, "")


def test_models_are_saved_without_pickle(tmp_path):
    model, data = chain_data()
    fitted = fit(data, "trw", l2=1e-2, names=model)
    fitted.save(tmp_path / "model.npz")
    again = Fitted.load(tmp_path / "model.npz")
    assert again.weights.tobytes() == fitted.weights.tobytes()
    assert again.to_dict() == fitted.to_dict()
    assert again.status == fitted.status
    np.testing.assert_array_equal(again.trace, fitted.trace)
    assert again.objective == fitted.objective
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        assert file["weights"].dtype == np.float64
    np.testing.assert_array_equal(again.predict(data[0]), fitted.predict(data[0]))
    with pytest.raises(ModelError, match="one Instance at a time, not list"):
        fitted.predict(data)
    own = MarginalLoss(BeliefPropagation(tol=1e-5))  # whose solver is not replaced in silence
    fit(data, own, l2=1e-2).save(tmp_path / "model.npz")
    with pytest.raises(SettingsError, match=r"BeliefPropagation.*objective="):
        Fitted.load(tmp_path / "model.npz")
    assert Fitted.load(tmp_path / "model.npz", own).objective == own
    for other in ("pseudolikelihood", MarginalLoss(loss="squared")):
        with pytest.raises(SettingsError, match=r"was fitted with the objective MarginalLoss"):
            Fitted.load(tmp_path / "model.npz", other)


@pytest.mark.slow
@pytest.mark.drawn
def test_any_number_of_workers_gives_the_same_weights():
    _, data = chain_data(6)
    for how in few([{}, {"method": "adam", "epochs": 3, "batch_size": 2, "accumulate": 2}], 1):
        portions = [GivenShards(tuple(data[k : k + 2])) for k in (0, 2, 4)]
        one = fit(portions, "trw", l2=1e-2, **how)
        two = fit(portions, "trw", l2=1e-2, workers=2, **how)
        assert one.weights.tobytes() == two.weights.tobytes()


def test_bad_labels_features_data_and_settings():
    _, data = chain_data(2)
    graph, x = data[0].graph, data[0].features
    bad = x.toarray()
    bad[3, 1] = np.nan
    wide = Instance(graph, np.zeros((len(graph.weights), 7)), data[1].labels)
    rng = np.random.default_rng(0)
    both = [drawn_instance(rng, 2, rows=rows) for rows in (1, 3)]
    assert fit(both, "likelihood", l2=1.0).status == "converged"
    all_refused(
        (lambda: Instance(graph, x, np.full(8, 2)), ModelError, "label 2 of x0, .* states 0 to 1"),
        (lambda: Instance(graph, bad, np.zeros(8, int)), ModelError, "NaN"),
        (lambda: ExactLikelihood().evaluator(both), ModelError, "1 and 3 observations"),
        (lambda: fit([], "trw"), ModelError, "empty"),
        (lambda: fit([Instance(graph, x, np.full(8, -1))], "trw"), ModelError, "has a label"),
        (lambda: fit([GivenShards((data[0],)), GivenShards((wide,))]), ModelError, "7 weights"),
        *((lambda d=d: fit(d), ModelError, "Instance") for d in (None, 3, "abc", [None])),
        (lambda: fit([Instance(graph, x, [0, 1, -1, 0, 0, 0, 0, 0])], "pseudolikelihood"),
         RefusedError, "hidden"),
        (lambda: fit(data, "least squares"), SettingsError, "objective"),
        (lambda: fit(data, "perceptron"), SettingsError, "adam"),
        (lambda: fit(data, dev=data, compare="trw"), SettingsError, "compare"),
        (lambda: fit(data, names="abc"), SettingsError, "names"),
        (lambda: fit(data, start=[np.inf, 0.0, 0.0]), SettingsError, "start"),
        *((lambda s=s: fit(data, method="adam", seed=s), SettingsError, "seed")
          for s in (-1, "x", 1.5)),
    )  # fmt: skip


@pytest.mark.parametrize("objective", ["likelihood", "trw", "pseudolikelihood", "marginals"])
@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_separable_data_end_with_a_status(objective, method):
    model = LogLinear([Template("seen", (2,), ["bias", "x"]), Template("pair", (2, 2), 1, "equal")])
    factors = {"seen": ([[0], [1]], [[1.0, -1.0], [1.0, 1.0]]), "pair": [[0, 1]]}
    data = [model.instance([2, 2], factors, [0, 1])]
    how = {"epochs": 150, "learning_rate": 1.0, "decay": False} if method == "adam" else {}
    fitted = fit(data, objective, method=method, **how)
    assert np.isfinite(fitted.weights).all()
    assert fitted.status == "diverging"
    assert "l2" in fitted.advice
    assert not fitted.converged
    assert fit(data, objective, l2=1e-2).converged


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("objective", ["likelihood", "trw", "pseudolikelihood", "max-margin"])
def test_weights_that_run_away_end_with_a_status(objective):
    _, data = chain_data(3)
    far = fit(data, objective, start=[1e200, -1e200, 1e5], l2=1e-3, max_iters=3)
    fast = fit(data, objective, method="adam", learning_rate=1e307, epochs=2)
    model = LogLinear([Template("seen", (2,), 1)])
    seen = {"seen": ([[0], [1]], [[1e200], [-1e200]])}
    huge = fit([model.instance([2, 2], seen, [1, 1])], objective, start=[1e150], max_iters=5)
    for fitted in (far, fast, huge):
        assert np.isfinite(fitted.weights).all()
        assert fitted.status == "diverging"
        assert "scale" in fitted.advice


@pytest.mark.parametrize("last", [-1, 0])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "objective",
    ["likelihood", "trw", "bethe", "pseudolikelihood", "marginals", "marginals-squared",
     "max-margin"],
)  # fmt: skip
def test_labels_that_a_hard_factor_forbids_are_named(objective, rows, last):
    """Also where some of them are hidden, which the pseudolikelihood does not know."""
    last = 0 if objective == "pseudolikelihood" else last
    graph = FactorGraph.empty([2, 2, 2]).add_tables([[0, 1]], [[[0.0, 0.0], [0.0, -np.inf]]])
    graph = graph.add_tables([[1, 2]], [np.zeros((2, 2))])
    x = np.zeros((8, 1))
    x[5] = 1.0
    good = Instance(graph, x, [0, 1, last], "good")
    bad = Instance(graph, x, [[0, 1, last], [1, 1, last]][2 - rows :], "the bad one")
    with pytest.raises(ContradictionError, match="the bad one"):
        fit([good, bad], objective, l2=0.1)
    assert np.isfinite(fit([good], objective, l2=0.1, max_iters=20).weights).all()


def test_batches_without_labels_change_nothing():
    _, data = chain_data(4)
    hidden = Instance(data[0].graph, data[0].features, np.full(8, -1))
    for objective in ("likelihood", "marginals"):
        how = {"method": "adam", "epochs": 3, "batch_size": 1, "l2": 1e-2}
        fitted = fit([*data, hidden], objective, **how)
        assert np.isfinite(fitted.weights).all()
        assert fitted.status == "max epochs"


def test_objectives_side_by_side_and_a_name_for_each(tmp_path, capsys):
    _, data = chain_data(3)
    some = ["likelihood", "pseudolikelihood"]
    fitted = fit(data, "trw", l2=1e-2, dev=chain_data(seed=1)[1], compare=some)
    out = capsys.readouterr().out
    assert [row["objective"] for row in fitted.comparison] == ["trw", *some]
    assert out.count("\n") == 4
    fitted = fit(data, "trw", l2=1e-2, dev=data, compare=True, max_iters=30, epochs=10)
    names = [row["objective"] for row in fitted.comparison]
    assert sorted(names) == sorted(
        ["likelihood", "trw", "bethe", "pseudolikelihood", "marginals", "marginals-squared",
         "perceptron", "max-margin"]
    )  # fmt: skip
    assert all(0.0 < np.abs(row["weights"]).max() < np.inf for row in fitted.comparison)
    squared = fit(data, "marginals-squared", l2=1e-2)
    squared.save(tmp_path / "model.npz")
    assert Fitted.load(tmp_path / "model.npz").objective == MarginalLoss(loss="squared")


def squares(n: int, side: int = 10, classes: int = 2, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.zeros((n, side, side), int)
    for one in y:
        r, c = rng.integers(1, side // 2, 2)
        one[r : r + side // 2, c : c + side // 2] = 1
        if classes > 2:
            one[-2:] = 2
    return y + 0.8 * rng.normal(size=y.shape), y


@pytest.mark.parametrize(
    "edges", ["bias", "direction", "contrast", lambda i, j, a: np.ones((len(i), 2))]
)
def test_grid_crf_beats_pixels_alone(edges):
    x, y = squares(6)
    crf = GridCRF("trw", edges=edges).fit(x[:4], y[:4])
    assert crf.fitted_.converged
    alone = ((x[4:] > 0.5) == y[4:]).mean()
    assert crf.score(x[4:], y[4:]) > alone + 0.1
    p = crf.predict_proba(x[4:])
    assert p.shape == (2, 10, 10, 2)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0)


def test_grid_crf_of_three_classes_and_sizes_that_differ():
    x, y = squares(3, classes=3)
    names = np.array([5, 7, 9])
    crf = GridCRF("trw", pairs="all", max_iters=10).fit(
        [x[0], x[1][:, :8]], [names[y[0]], names[y[1][:, :8]]]
    )
    found = crf.predict([x[2], x[2][:5]])
    assert [one.shape for one in found] == [(10, 10), (5, 10)]
    assert set(np.unique(found[0])) <= {5, 7, 9}
    assert crf.score([x[2]], [names[y[2]]]) > 0.6
    single = np.array([[[0.0]], [[1.0]], [[0.2]], [[0.9]]])
    crf = GridCRF("likelihood", edges="contrast", l2=1e-2).fit(single, (single > 0.5).astype(int))
    assert np.isfinite(crf.spread_)
    assert crf.predict(np.array([[[0.1, 1.0], [0.0, 0.9]]])).shape == (1, 2, 2)


def test_grid_crf_says_how_it_ended_and_refuses():
    x, y = squares(3)
    crf = GridCRF("pseudolikelihood", max_iters=3).fit(x, y)
    assert crf.status_ == crf.fitted_.status == "max iterations"
    assert (crf.converged_, bool(crf.advice_)) == (False, True)
    cut = np.where(x == x[0, 0, 0], np.nan, x)
    all_refused(
        (lambda: GridCRF().fit(x, y[:1]), ModelError, "labellings"),
        (lambda: GridCRF().fit(cut, y), ModelError, "NaN"),
        (lambda: GridCRF().fit(x, np.zeros_like(y)), ModelError, "1 class"),
        (lambda: GridCRF().fit(x, y + 0.25), ModelError, r"continuous, it has 0\.25"),
        (lambda: crf.fit(x, 2 * y - 1), ModelError, "-1"),
        (lambda: crf.fit(x, y, dev=x), ModelError, "dev"),
        (lambda: crf.score(x, y[:2]), ModelError, "3 pictures but 2"),
        (lambda: crf.score(x[:1], np.full((1, 10, 10), -1)), ModelError, "no label"),
        (lambda: crf.instance(x[0][:, :, None], y[0] + 5), ModelError, "not one of the classes"),
    )


@pytest.mark.parametrize("objective", ["pseudolikelihood", "likelihood", "trw"])
def test_ising_from_samples(objective):
    edges = grid_edges(3, 3)
    rng = np.random.default_rng(0)
    true = FactorGraph.pairwise(
        0.3 * rng.normal(size=9), edges, 0.5 * rng.normal(size=len(edges)), feature="equal"
    )
    x = sample(true, 3000, seed=1)
    model = IsingModel(edges, objective).fit(x[:2000])
    best = float((true.log_score(np.asarray(x[2000:])) - Exact()(true).log_z).mean())
    assert model.score(x[2000:]) == pytest.approx(best, abs=0.05)
    assert model.couplings_.shape == (len(edges),)
    assert model.sample(5).shape == (5, 9)
    if objective == "likelihood":
        mean = Exact()(model.graph_).probs[1::2]
        np.testing.assert_allclose(mean, np.asarray(x[:2000]).mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("pairs", ["equal", "table"])
def test_potts_from_samples(pairs):
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    true = FactorGraph.empty([3, 3, 3]).add_potts(edges, [1.0, -0.5, 0.3])
    x = np.asarray(sample(true, 4000, seed=0))
    model = PottsModel(edges, pairs=pairs).fit(x[:3000])
    best = float((true.log_score(x[3000:]) - Exact()(true).log_z).mean())
    assert model.score(x[3000:]) == pytest.approx(best, abs=0.03)
    if pairs == "equal":
        np.testing.assert_allclose(model.couplings_, [1.0, -0.5, 0.3], atol=0.2)


@pytest.mark.filterwarnings("error")
def test_samples_that_are_no_states(tmp_path):
    x = np.random.default_rng(0).integers(0, 2, (50, 3))
    model = IsingModel().fit(x)
    hidden = x.copy()
    hidden[0, 0] = -1
    all_refused(
        (lambda: IsingModel().fit([[0.5, 1.0]]), ModelError, "whole numbers"),
        (lambda: IsingModel().fit([[0, 2]]), ModelError, "state 2"),
        (lambda: IsingModel([[0, 5]]).fit([[0, 1], [1, 0]]), ModelError, "outside"),
        (lambda: IsingModel([[0, 0]]).fit(x), ModelError, ""),
        (lambda: PottsModel(n_states=2).fit(x + 1), ModelError, "state"),
        (lambda: IsingModel(objective="likelihood").fit(2 * x - 1), ModelError, r"X \+ 1\) // 2"),
        (lambda: model.score_samples(hidden), ModelError, "row 0, column 0"),
        (lambda: model.pseudo_score(hidden), ModelError, "row 0, column 0"),
        *((lambda n=n: PottsModel(n_states=n).fit(x), SettingsError, "n_states")
          for n in (0, 1, "3", 2.5)),
    )  # fmt: skip
    model.save(tmp_path / "ising.minfer")
    again = Exact()(read(tmp_path / "ising.minfer")).probs
    assert np.array_equal(again, Exact()(model.graph_).probs)


@pytest.mark.parametrize("edges", [None, []])
@pytest.mark.parametrize(
    ("model", "shape"),
    [(IsingModel, (0,)), (PottsModel, (0,)), (PottsModel(pairs="table"), (0, 4))],
)
def test_samples_without_a_pair(model, shape, edges):
    model = (model() if isinstance(model, type) else model).set_params(edges=edges, l2=0.0)
    x = np.array([[0], [1], [1], [1]])
    model.fit(x)
    assert model.couplings_.shape == shape
    assert model.edges_.shape == (0, 2)
    np.testing.assert_allclose(np.exp(model.score_samples(x)), [0.25, 0.75, 0.75, 0.75], atol=1e-3)


def test_growth_finds_the_pairs_and_says_when():
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [5, 6], [0, 7]])
    weights = np.array([1.5, -1.2, 1.4, 1.3, -1.5, 1.2])
    true = FactorGraph.pairwise(0.2 * rng.normal(size=8), edges, weights, feature="equal")
    x = np.asarray(sample(true, 3000, seed=0))
    wanted = {tuple(e) for e in edges.tolist()}
    every = np.stack(np.triu_indices(8, 1), axis=1)
    for source in (None, every, lambda: (every[:10], every[10:])):
        grown = grow(x, source, MinJoint(0.004), a_round=3)
        assert {tuple(e) for e in grown.edges.tolist()} == wanted
        assert (grown.status, grown.rounds[0].scored) == ("done", 28)
        assert all((np.diff(r.gains) <= 0).all() for r in grown.rounds)
    order = [weights[edges.tolist().index(e)] for e in grown.edges.tolist()]
    np.testing.assert_allclose(grown.couplings, order, atol=0.25)
    assert len(grow(x, None, MinDivergence(3), a_round=2).edges) == 3


def test_gains_of_the_empty_model_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    x = (rng.random((500, 3)) < [0.3, 0.6, 0.5]).astype(int)
    x[:, 2] = np.where(rng.random(500) < 0.7, x[:, 0], x[:, 2])
    grown = grow(x, None, MinDivergence(1), max_rounds=1, l2=0.0, tol=1e-9)
    p = x.mean(axis=0)
    gains = []
    for u, v in ((0, 1), (0, 2), (1, 2)):
        q, m = (x[:, u] == x[:, v]).mean(), p[u] * p[v] + (1 - p[u]) * (1 - p[v])
        gains.append(q * np.log(q / m) + (1 - q) * np.log((1 - q) / (1 - m)))
    assert grown.rounds[0].best == pytest.approx(max(gains), abs=1e-8)


def test_shards_are_the_instances_they_were(tmp_path):
    pytest.importorskip("pyarrow")
    _, data = chain_data(6)
    write_instances(data[:1], tmp_path / "a[1].parquet")
    write_instances(data[1:2], tmp_path / "a1.parquet")
    (portion,) = shards(str(tmp_path / "a[1].parquet"))  # the name of a file is no pattern
    assert Path(portion.path).name == "a[1].parquet"
    assert len(shards(str(tmp_path / "a*.parquet"))) == 2
    for k, suffix in enumerate(("parquet", "parquet", "arrow")):
        write_instances(data[2 * k : 2 * k + 2], tmp_path / f"part-{k}.{suffix}")
    again = read_instances(tmp_path / "part-2.arrow")
    np.testing.assert_array_equal(again[0].labels, data[4].labels)
    np.testing.assert_array_equal(again[0].features.toarray(), data[4].features.toarray())
    portions = shards(str(tmp_path / "part-*"))
    alone = fit(portions, "trw", l2=1e-2, workers=1)
    whole = fit(data, "trw", l2=1e-2)
    np.testing.assert_allclose(alone.weights, whole.weights, atol=1e-4)
    with pytest.raises(ModelError, match="no file"):
        shards(str(tmp_path / "none-*"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"bad\.parquet"):
        fit(shards([tmp_path / "bad.parquet"]), "trw")


def test_shards_of_samples(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from scipy.sparse import eye_array

    true = FactorGraph.pairwise([0.2, 0.0, -0.3], [[0, 1], [1, 2]], [1.0, -0.5], feature="equal")
    x = np.asarray(sample(true, 900, seed=0))
    for k in range(3):
        columns = {f"x{v}": x[300 * k : 300 * k + 300, v] for v in range(3)}
        pq.write_table(pa.table(columns), tmp_path / f"{k}.parquet")
    graph = true.with_weights(np.zeros(5))
    like = Instance(graph, eye_array(5, format="csr"), np.full(3, -1))
    fitted = fit(sample_shards(str(tmp_path / "*.parquet"), like), "likelihood", l2=1e-3)
    whole = fit([Instance(graph, eye_array(5, format="csr"), x)], "likelihood", l2=1e-3)
    np.testing.assert_allclose(fitted.weights, whole.weights, atol=1e-4)


@pytest.mark.slow
def test_ray_gives_the_same_weights(tmp_path):
    """Of instances in memory, and of files that its actors load themselves."""
    pytest.importorskip("ray")
    pytest.importorskip("pyarrow")
    _, data = chain_data(4)
    for k in range(2):
        write_instances(data[2 * k : 2 * k + 2], tmp_path / f"part-{k}.parquet")
    given = [GivenShards(tuple(data[:2])), GivenShards(tuple(data[2:]))]
    for portions in (given, shards(str(tmp_path / "part-*"))):
        one = fit(portions, "trw", l2=1e-2)
        two = fit(portions, "trw", l2=1e-2, workers=2, engine="ray")
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-10)


def test_growth_checks_its_candidates(tmp_path):
    pytest.importorskip("pyarrow")
    x = np.random.default_rng(0).integers(0, 2, (60, 4))
    x[:, 1] = x[:, 0]
    joint = MinJoint(0.01)
    all_refused(
        (lambda: grow(x, [[0, 9]], joint), ModelError, r"outside 0\.\.3"),
        (lambda: grow(x, iter([[[0, 1]]]), joint), ModelError, "function"),
        (lambda: grow([[0, 2]], None, joint), ModelError, "0 and 1"),
        (lambda: grow(x, None, "MinJoint"), SettingsError, "is not an objective"),
        (lambda: grow(x, None, 0.01), SettingsError, r"MinJoint\(0.01\)"),
        (lambda: read_instances(tmp_path / "nowhere.parquet"), FormatError, "no such file"),
        (lambda: write_instances([1], tmp_path / "a.parquet"), SettingsError, "list of Instance"),
        (lambda: write_instances([], tmp_path / "a.csv"), SettingsError, r"\.parquet or \.arrow"),
    )
    assert not list(tmp_path.iterdir())
    assert not len(grow(x, [], joint).edges)
    twice = grow(x, [[0, 1], [1, 0], [0, 1]], joint)
    assert np.sort(twice.edges).tolist() == [[0, 1]]
    portions = grow(x, [[[0, 1]], [[1, 2], [2, 3]]], MinJoint(0.05))
    assert np.sort(portions.edges).tolist() == [[0, 1]]


def test_the_example_is_one_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "learned.png"
    command = ["denoising", "-o", str(out), "--epochs", "2", "--side", "12", "--train", "2"]
    monkeypatch.setattr("sys.argv", command)
    denoising.main()
    assert out.read_bytes()[:4] == b"\x89PNG"
    assert "pixels wrong" in capsys.readouterr().out


@pytest.mark.parametrize("edges", ["bias", "contrast", "own"])
def test_a_grid_is_saved_and_loaded(tmp_path, edges):
    rng = np.random.default_rng(0)
    y = (rng.random((3, 5, 6)) < 0.5).astype(int)
    x = y[..., None] + rng.normal(size=(3, 5, 6, 2))
    own = (lambda i, j, above: np.stack([np.ones(len(i)), above], 1)) if edges == "own" else None
    crf = GridCRF("pseudolikelihood", edges=own or edges, pairs="corner").fit(x, y)
    crf.save(tmp_path / "crf.npz")
    back = GridCRF.load(tmp_path / "crf.npz", edges=own)
    assert np.array_equal(back.predict_proba(x), crf.predict_proba(x))
    assert back.coef_ == crf.coef_
    assert (back.status_, back.pairs) == (crf.status_, "corner")
    with pytest.raises(SettingsError, match="edges was"):
        GridCRF.load(tmp_path / "crf.npz", edges=None if own else lambda i, j, above: i)
    fitted = crf.fitted_
    fitted.save(tmp_path / "other.npz")
    with pytest.raises(FormatError, match="a GridCRF of version"):
        GridCRF.load(tmp_path / "other.npz")
    with pytest.raises(FormatError, match="No such file"):
        GridCRF.load(tmp_path / "nowhere.npz")
