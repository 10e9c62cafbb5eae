"""GridCRF, IsingModel, PottsModel, growth and shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from draws import thorough
from minfer import Exact, FactorGraph, MinDivergence, MinJoint, read, sample
from minfer.errors import FormatError, ModelError, SettingsError
from minfer.graph import grid_edges
from minfer.learn import (
    GridCRF,
    Instance,
    IsingModel,
    LogLinear,
    PottsModel,
    Template,
    fit,
    grow,
    read_instances,
    sample_shards,
    shards,
    write_instances,
)
from minfer_experiments import learned_denoising as denoising
from refused import all_refused
from test_learn import chain_data


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


def test_grid_crf_refuses():
    x, y = squares(3)
    crf = GridCRF("pseudolikelihood", max_iters=3).fit(x, y)
    cut = np.where(x == x[0, 0, 0], np.nan, x)
    all_refused(
        (lambda: GridCRF().fit(x, y[:1]), ModelError, "labellings"),
        (lambda: GridCRF().fit(cut, y), ModelError, "NaN"),
        (lambda: GridCRF().fit(x, np.zeros_like(y)), ModelError, "1 class"),
        (lambda: GridCRF().fit(x, y + 0.25), ModelError, r"continuous, it has 0\.25"),
        (lambda: crf.fit(x, 2 * y - 1), ModelError, "-1"),
        (lambda: crf.fit(x, y, dev=x), ModelError, "dev"),
        (lambda: crf.fit(x, y, dev=(x, y[:2])), ModelError, "3 pictures but 2"),
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
        (lambda: IsingModel().fit(x * 1e300 + 0.0), ModelError, "whole"),
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


def test_models_say_how_fit_ended():
    x, y = squares(2)
    for model in (
        GridCRF("pseudolikelihood", max_iters=1).fit(x, y),
        IsingModel(max_iters=1).fit([[0, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 1]]),
    ):
        assert model.status_ == model.fitted_.status != "converged"
        assert not model.converged_
        assert model.advice_
    done = PottsModel(l2=0.01).fit([[0, 1], [1, 1], [0, 0]])
    assert (done.status_, done.converged_) == ("converged", True)


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


# ---------------------------------------------------------------------- shards

pa = pytest.importorskip("pyarrow")


@pytest.mark.drawn
def test_shards_are_the_instances_they_were(tmp_path):
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
    if thorough():
        together = fit(portions, "trw", l2=1e-2, workers=3)
        np.testing.assert_allclose(alone.weights, together.weights, atol=1e-10)
    whole = fit(data, "trw", l2=1e-2)
    np.testing.assert_allclose(alone.weights, whole.weights, atol=1e-4)
    with pytest.raises(ModelError, match="no file"):
        shards(str(tmp_path / "none-*"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"bad\.parquet"):
        fit(shards([tmp_path / "bad.parquet"]), "trw")


def test_shards_of_samples(tmp_path):
    import pyarrow.parquet as pq
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
    from minfer.learn.workers import GivenShards

    _, data = chain_data(4)
    for k in range(2):
        write_instances(data[2 * k : 2 * k + 2], tmp_path / f"part-{k}.parquet")
    given = [GivenShards(tuple(data[:2])), GivenShards(tuple(data[2:]))]
    for portions in (given, shards(str(tmp_path / "part-*"))):
        one = fit(portions, "trw", l2=1e-2)
        two = fit(portions, "trw", l2=1e-2, workers=2, engine="ray")
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-10)


def test_growth_checks_its_candidates(tmp_path):
    x = np.random.default_rng(0).integers(0, 2, (60, 4))
    x[:, 1] = x[:, 0]
    joint = MinJoint(0.01)
    all_refused(
        (lambda: grow(x, [[0, 9]], joint), ModelError, r"outside 0\.\.3"),
        (lambda: grow(x, [[-1, 2]], joint), ModelError, r"outside 0\.\.3"),
        (lambda: grow(x, iter([[[0, 1]]]), joint), ModelError, "function"),
        (lambda: grow([[0, 2]], None, joint), ModelError, "0 and 1"),
        (lambda: grow(x, None, "MinJoint"), SettingsError, "is not an objective"),
        (lambda: grow(x, None, MinJoint), SettingsError, "is not an objective"),
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


# ------------------------------------------------------------------ files and first mistakes


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


def test_the_best_weights_on_dev_data_are_not_called_stalled():
    rng = np.random.default_rng(1)
    model = LogLinear([Template("s", (2,), ["bias", "x"])])

    def instance(n=60):
        x = rng.normal(size=n)
        y = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
        features = np.stack([np.ones(n), x], 1)
        return model.instance(np.full(n, 2), {"s": (np.arange(n)[:, None], features)}, labels=y)

    train, dev = [instance()], [instance()]
    assert fit(train, "likelihood", l2=1e-2).status == "converged"
    found = fit(train, "likelihood", l2=1e-2, dev=dev)
    assert found.gradient > 1e-5
    assert (found.status, found.converged, found.advice) == ("early stopping", False, "")
