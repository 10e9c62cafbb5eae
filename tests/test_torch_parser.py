"""The neural parser: gradients of its second order, and the whole example on a tiny treebank."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from draws import thorough  # noqa: E402
from minfer import ModelError  # noqa: E402
from minfer.parsing import Inference, Recipe, write_conllu  # noqa: E402
from minfer.parsing.tiny import tiny_treebank  # noqa: E402
from minfer.torch import tree_log_partition, tree_marginals  # noqa: E402
from minfer_experiments import neural_parser as example  # noqa: E402

SMALL = Recipe(bits=14, tag_bits=12, epochs=1)


def drawn(batch=2, n=7, seed=0):
    rng = np.random.default_rng(seed)
    arcs = torch.tensor(2 * rng.normal(size=(batch, n, n)), requires_grad=True)
    found = example.Found.of(tree_marginals(arcs.detach(), projective=True).numpy())
    theta = torch.tensor(rng.normal(size=len(found.nodes)) / 2, requires_grad=True)
    return arcs, theta, found


@pytest.mark.drawn
def test_beliefs_are_the_gradient_of_log_z(monkeypatch):
    """Every entry of the Jacobian where the profile is thorough, else a projection of it."""
    fine = Inference(least=example.LEAST, arc_least=0.0, tol=1e-13, max_iters=5000)
    monkeypatch.setattr(example, "BELIEFS", fine)
    arcs, theta, found = drawn()
    assert 0 < found.n_gp < len(found.nodes)
    share = torch.tensor([1.0, -2.0], dtype=torch.float64)

    def value(a, t):
        return (example.PairLogPartition.apply(a, t, found)[0] * share).sum()

    within = {"eps": 1e-5, "atol": 1e-7, "rtol": 1e-6, "fast_mode": not thorough()}
    assert torch.autograd.gradcheck(value, (arcs, theta), **within)
    _, kept = example.PairLogPartition.apply(arcs, theta, found)
    (by_theta,) = torch.autograd.grad(value(arcs, theta), theta)
    assert kept.any()
    assert not kept.all()
    assert (by_theta[~kept] == 0).all()


def test_pairs_that_say_nothing_change_nothing():
    arcs, theta, found = drawn()
    log_z, _ = example.PairLogPartition.apply(arcs, 0 * theta, found)
    assert torch.allclose(log_z, tree_log_partition(arcs, projective=True), atol=1e-9)


@pytest.mark.slow
def test_it_learns_sentences_by_heart():
    trees = tiny_treebank()[:8] * 3
    [first, second] = example.neural_parsers(trees, epochs=20, width=32)
    for one in (first, second):
        judged = example.judge(one, trees[:8], trees[:8])
        assert judged.uas > 90, one.name
        assert judged.las > 80, one.name
        for p in one.answer(trees[:8]).probs:
            assert np.allclose(p[:, 1:].sum(axis=0), 1)


@pytest.mark.slow
def test_the_whole_example_is_one_command(tmp_path, monkeypatch, capsys):
    trees = tiny_treebank()
    for part, sentences in {"train": trees, "dev": trees[::3], "test": trees[::4]}.items():
        write_conllu(sentences, tmp_path / f"tiny-{part}.conllu")
    linear = example.linear_parsers
    monkeypatch.setattr(example, "linear_parsers", lambda t, seed: linear(t, seed, SMALL))
    pytest.importorskip("matplotlib")
    picture = tmp_path / "made.png"
    example.main([str(tmp_path), "--epochs", "2", "--every", "2", "-o", str(picture)])
    rows = [row for row in capsys.readouterr().out.splitlines() if " order |" in row]
    names = [row.split("|")[1].strip() for row in rows]
    assert names == [
        f"{kind}, {n} order" for kind in ("linear", "neural") for n in ("first", "second")
    ]
    assert picture.stat().st_size > 1000


def test_a_treebank_that_is_none(tmp_path):
    with pytest.raises(ModelError, match=r"expected one file \*train\*.conllu, but there are 0"):
        example.read(str(tmp_path))
    with pytest.raises(ModelError, match="no sentence to learn from"):
        example.NeuralParser([])
