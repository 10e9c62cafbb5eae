"""minfer.torch against torch's own checks and oracles; the neural parser on a tiny treebank."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from draws import few, thorough  # noqa: E402
from minfer import (  # noqa: E402
    BeliefPropagation,
    ContradictionError,
    EvidenceError,
    Exact,
    FactorGraph,
    MeanField,
    ModelError,
    RefusedError,
    SettingsError,
    TreeReweighted,
)
from minfer.parsing import Inference, Recipe, write_conllu  # noqa: E402
from minfer.parsing.tiny import tiny_treebank  # noqa: E402
from minfer.torch import (  # noqa: E402
    BPLayer,
    CRFLoss,
    GradientWarning,
    log_partition,
    marginals,
    tree_log_partition,
    tree_marginals,
)
from minfer_experiments import neural_parser as example  # noqa: E402
from oracle import lists  # noqa: E402
from refused import all_refused  # noqa: E402
from test_gradients import TIGHT as SOLVERS  # noqa: E402

RNG = np.random.default_rng(0)
GRID = FactorGraph.grid(RNG.normal(size=(3, 3)), RNG.normal(size=12))
MODELS = {
    "grid": GRID,
    "labels": lists.graphs()["labels"],
    "triples": lists.higher_order()["triples"],
    "clauses": lists.every_kind()["clauses"],
}
CASES = [
    (s, m)
    for s in SOLVERS
    for m in MODELS
    if not (s == "trw" and m in ("triples", "clauses")) and not (s == "mean-field" and m != "grid")
]


def numbers(*shape, grad=True, seed=1, dtype=torch.float64):
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.tensor(values, dtype=dtype, requires_grad=grad)


def check(function, *inputs):
    """Every entry of the Jacobian where the profile is thorough, else a projection of it."""
    return torch.autograd.gradcheck(
        function, inputs, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=not thorough()
    )


@pytest.mark.drawn
@pytest.mark.parametrize(("solver", "model"), few(CASES, 13))
def test_gradcheck(solver, model):
    graph = MODELS[model]
    run = SOLVERS[solver].prepare(graph)
    size, n = int(graph.offsets[-1]), len(graph.weights)
    unary = numbers(size)
    weights = torch.tensor(np.array(graph.weights), requires_grad=True)
    assert check(lambda u, w: marginals(run, u, w), unary, weights)
    assert check(lambda u, w: log_partition(run, u, w), unary, weights)
    rows, shared = numbers(2, size, seed=2), numbers(2, n, seed=3)
    assert check(lambda u, w: marginals(run, u, w), rows, weights)
    assert check(lambda u, w: marginals(run, u, w), unary, shared)
    assert check(lambda u, w: log_partition(run, u, w), rows, shared)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["bp", "exact"])
def test_evidence(name):
    run = SOLVERS[name].prepare(GRID)
    rows, one = numbers(3, 18), {4: 1}
    assert check(lambda u: marginals(run, u, evidence=one), rows)
    each = [{4: 1}, {0: 0}, {}]
    assert check(lambda u: marginals(run, u, evidence=each), rows)
    assert check(lambda u: log_partition(run, u, evidence=each), rows)


def test_values_and_shapes():
    run = Exact().prepare(GRID)
    unary = numbers(9, 2)
    p = marginals(run, unary)
    assert p.shape == (9, 2)
    expected = Exact()(GRID.tilt(unary.detach().numpy().ravel()))
    np.testing.assert_allclose(p.detach().numpy().ravel(), expected.probs, atol=1e-12)
    assert marginals(run, numbers(5, 9, 2)).shape == (5, 9, 2)
    assert marginals(run, numbers(1, 18)).shape == (1, 18)
    assert marginals(run, numbers(18), numbers(4, len(GRID.weights))).shape == (4, 18)
    assert marginals(run, weights=numbers(4, len(GRID.weights))).shape == (4, 18)
    for n in (0, 1):
        u = torch.zeros(n, 9, 2, dtype=torch.float64, requires_grad=True)
        p = marginals(BeliefPropagation().prepare(GRID), u)
        assert p.shape == (n, 9, 2)
        p.sum().backward()
        assert u.grad.shape == u.shape
    assert log_partition(run, numbers(1, 18)).shape == (1,)
    assert log_partition(run, unary).item() == pytest.approx(expected.log_z, abs=1e-12)


def test_threads_change_nothing():
    run = SOLVERS["bp"].prepare(GRID)
    found = []
    for workers in (1, 3):
        unary = numbers(6, 18)
        p = marginals(run, unary, workers=workers)
        (p**2).sum().backward()
        found.append((p.detach().clone(), unary.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


PAIRS = {
    "grid": GRID,
    "chain": FactorGraph.pairwise(
        np.zeros(5), [[i, i + 1] for i in range(4)], 0.7, feature="equal"
    ),
    "core and trees": FactorGraph.pairwise(
        RNG.normal(size=7), [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [5, 6]], 1.0
    ).add_tables([[]], [0.5]),  # and a constant
    "dense": FactorGraph.pairwise(
        np.zeros(6), [[a, b] for a in range(6) for b in range(a)], 0.4, feature="equal"
    ),
}


BATCHED = [
    BeliefPropagation(),
    BeliefPropagation(damping=0.3, max_iters=3000),
    Exact(),
    MeanField(),
    TreeReweighted(),
]


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("solver", "model", "known"),
    few(product(BATCHED, PAIRS, [False, True]), 10),
    ids=lambda value: type(value).__name__ if value in BATCHED else str(value),
)
def test_a_batch_has_the_gradients_of_its_rows(solver, model, known):
    """In one call, or one by one: the same to rounding, also with weights beyond the lanes."""
    graph, rng, n = PAIRS[model], np.random.default_rng(1), 11
    run, size = solver.prepare(graph), int(graph._offsets[-1])
    u, c = rng.normal(size=(n, size)), torch.from_numpy(rng.normal(size=(n, size)))
    w = 0.7 * rng.normal(size=(n, len(graph.weights)))
    if not isinstance(solver, MeanField):
        w[4, graph.n_variables :] *= 300.0  # which odds do not hold
    evidence = [{i % graph.n_variables: i % 2} if i % 3 else {} for i in range(n)]
    given = evidence if known else None

    def step(unary, weights, evidence, c):
        a, b = (torch.tensor(x, requires_grad=True) for x in (unary, weights))
        p = marginals(run, a, b, evidence=evidence)
        (p**2 * c).sum().backward()
        return p.detach().numpy(), a.grad.numpy(), b.grad.numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        rows = [step(u[i], w[i], evidence[i] if known else None, c[i]) for i in range(n)]
        alone = [step(u[i], w[0], evidence[i] if known else None, c[i]) for i in range(n)]
        for weights in (w, w[0]):
            wanted = [np.array(x) for x in zip(*(rows if weights.ndim == 2 else alone))]
            if weights.ndim == 1:
                wanted[2] = wanted[2].sum(axis=0)
            for got, want in zip(step(u, weights, given, c), wanted):
                np.testing.assert_allclose(got, want, atol=1e-11 if solver == Exact() else 1e-12)


def test_a_batch_is_one_call(monkeypatch):
    """No row is set up in Python."""
    from minfer.solvers.prepared import Prepared

    def refused(*args, **more):
        raise AssertionError("a single call")

    monkeypatch.setattr(Prepared, "__call__", refused)
    for solver in (BeliefPropagation(), Exact()):
        u = torch.zeros(7, 18, dtype=torch.float64, requires_grad=True)
        w = torch.tensor(GRID.weights, requires_grad=True)
        (marginals(solver.prepare(GRID), u, w) ** 2).sum().backward()
        assert u.grad.abs().max() > 0
        assert w.grad.abs().max() > 0


@pytest.mark.filterwarnings("ignore::minfer.torch.GradientWarning")
def test_rows_whose_sweeps_do_not_get_on_are_solved_by_gmres():
    rng = np.random.default_rng(0)
    edges = np.array([[a, b] for a in range(40) for b in range(a)])
    weights = -np.abs(rng.normal(size=len(edges))) * 0.6
    graph = FactorGraph.pairwise(rng.normal(size=40) / 2, edges, weights, feature="equal")
    run = BeliefPropagation(damping=0.8, max_iters=5000, tol=1e-8).prepare(graph)
    found = []
    for rows in (1, 3):
        u = torch.zeros(rows, 80, dtype=torch.float64)
        u[-1] += 0.1
        u.requires_grad_()
        (marginals(run, u, tol=1e-9) ** 2).sum().backward()
        found.append(u.grad[-1].numpy())
    alone = torch.full((80,), 0.1, dtype=torch.float64, requires_grad=True)
    (marginals(run, alone, tol=1e-9) ** 2).sum().backward()
    np.testing.assert_allclose(found[1], alone.grad.numpy(), atol=1e-8)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes_are_computed_in_float64(dtype):
    run = SOLVERS["bp"].prepare(GRID)
    low = numbers(18, grad=False).to(dtype).requires_grad_()
    high = low.detach().double().requires_grad_()
    for u in (low, high):
        (marginals(run, u)[1::2] * torch.arange(9, dtype=u.dtype)).sum().backward()
    assert low.grad.dtype == dtype
    assert marginals(run, low).dtype == dtype
    torch.testing.assert_close(low.grad, high.grad.to(dtype))


def test_input_is_shared_and_answers_are_the_callers():
    from minfer.torch.functions import to_array

    unary = numbers(18)
    assert np.shares_memory(to_array(unary), unary.detach().numpy())
    run = SOLVERS["bp"].prepare(GRID)
    p = marginals(run, unary)
    wanted = torch.autograd.grad(marginals(run, unary)[3], unary)[0]
    with torch.no_grad():
        p.zero_()  # must not reach what backward reads
    assert torch.equal(torch.autograd.grad(p[3], unary)[0], wanted)


def test_double_backward_is_refused_by_name():
    run, unary = SOLVERS["bp"].prepare(GRID), numbers(18)
    for function, name in ((marginals, "marginals"), (log_partition, "log_partition")):
        out = function(run, unary).sum() if name == "log_partition" else function(run, unary)[3]
        (first,) = torch.autograd.grad(out, unary, create_graph=True)
        with pytest.raises(RefusedError, match=f"double backward through minfer.torch.{name}"):
            first.sum().backward()
    scores = numbers(4, 4)
    (first,) = torch.autograd.grad(tree_marginals(scores)[0, 1], scores, create_graph=True)
    with pytest.raises(RefusedError, match="tree_marginals"):
        first.sum().backward()


def test_what_has_not_converged_warns():
    run = BeliefPropagation(max_iters=1).prepare(GRID)
    with pytest.warns(GradientWarning, match="not converged"):
        marginals(run, numbers(18))
    run = BeliefPropagation(tol=1e-9).prepare(GRID)
    p = marginals(run, numbers(18), max_iters=1)
    with pytest.warns(GradientWarning, match="adjoints"):
        p[3].backward()


@pytest.mark.drawn
@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
def test_trees(projective, single_root):
    kind = {"projective": projective, "single_root": single_root}
    scores = numbers(3, 6, 6)
    lengths = torch.tensor([5, 3, 1])
    assert check(lambda s: tree_marginals(s, lengths, **kind), scores)
    assert check(lambda s: tree_log_partition(s, lengths, **kind), scores)
    assert check(lambda s: tree_marginals(s, **kind), numbers(5, 5))
    assert tree_log_partition(numbers(5, 5), **kind).shape == ()
    mu = tree_marginals(scores, lengths, **kind)
    torch.testing.assert_close(mu[0, :, 1:].sum(0), torch.ones(5, dtype=torch.float64))
    assert tree_marginals(scores.float(), lengths, **kind).dtype == torch.float32
    scores = numbers(5, 5, grad=False)
    scores[0, 2] = scores[3, 1] = -torch.inf  # arcs that cannot be
    scores.requires_grad_()
    (grad,) = torch.autograd.grad((tree_marginals(scores, **kind) ** 2).sum(), scores)
    assert torch.isfinite(grad).all()
    assert grad[0, 2] == 0.0


@pytest.mark.parametrize("projective", [True, False])
def test_trees_of_improbable_arcs(projective):
    """-log P of an arc has a cotangent of 1 / P; its gradient is a difference of two marginals."""
    rng = np.random.default_rng(3)
    scores = torch.tensor(20.0 * rng.normal(size=(2, 5, 5)), requires_grad=True)
    lengths = [4, 3]
    arcs = tree_marginals(scores, lengths, projective=projective)
    chain = [(b, m - 1, m) for b in range(2) for m in range(1, lengths[b] + 1)]
    assert min(float(arcs[a].detach()) for a in chain) < 1e-13
    (-sum(torch.log(arcs[a]) for a in chain)).backward()
    wanted = np.zeros((2, 5, 5))
    for b, h, m in chain:
        given = scores.detach().clone()
        given[b, :, m] = -torch.inf
        given[b, h, m] = scores.detach()[b, h, m]
        inside = tree_marginals(given, lengths, projective=projective)
        wanted[b] -= (inside - arcs.detach())[b].numpy()
    np.testing.assert_allclose(scores.grad.numpy(), wanted, rtol=0, atol=1e-8)


@pytest.mark.parametrize("rows", [0, 3])
def test_improbable_labels(rows):
    """-log P through Exact, whose gradient is by perturbation, alone and in a batch."""
    graph = FactorGraph.pairwise([0.0] * 3, [[0, 1], [1, 2]], [1.0, -0.5], "equal")
    run = Exact().prepare(graph)
    field = torch.tensor([[0.0, -45.0], [0.3, 0.0], [0.0, 0.2]], dtype=torch.float64)
    field = (torch.stack([field * k for k in (1.0, 0.1, 0.6)]) if rows else field).requires_grad_()
    weights = torch.tensor(graph.weights, requires_grad=True)
    p = marginals(run, field, weights)
    (-torch.log(p[..., 1])).sum().backward()
    other = field.detach().clone().requires_grad_()
    same = weights.detach().clone().requires_grad_()
    labels = [{0: 1}, {1: 1}, {2: 1}]
    loss = sum(
        (
            log_partition(run, other, same)
            - log_partition(run, other, same, evidence=[known] * rows if rows else known)
        ).sum()
        for known in labels
    )
    loss.backward()
    np.testing.assert_allclose(field.grad.numpy(), other.grad.numpy(), rtol=0, atol=1e-8)
    np.testing.assert_allclose(weights.grad.numpy(), same.grad.numpy(), rtol=0, atol=1e-8)


@pytest.mark.drawn
def test_crf_loss():
    run = Exact().prepare(GRID)
    loss = CRFLoss(run)
    unary = numbers(2, 9, 2)
    labels = torch.tensor([[0, 1, 0, 1, 0, 1, 0, 1, 0], [1] * 9])
    found = loss(unary, labels=labels)
    true = []
    for u, y in zip(unary.detach().numpy(), labels.numpy()):
        graph = GRID.tilt(u.ravel())
        true.append(Exact()(graph).log_z - float(graph.log_score(y[None])[0]))
    assert found.item() == pytest.approx(np.mean(true), abs=1e-9)
    found.backward()
    assert torch.isfinite(unary.grad).all()
    assert check(lambda u: loss(u, labels=labels), unary)
    hidden = labels.clone()
    hidden[0, 3:] = -1
    assert check(lambda u: CRFLoss(run, reduction="sum")(u, labels=hidden), unary)
    each = CRFLoss(run, reduction="none")(unary, labels=hidden)
    assert each.shape == (2,)
    assert (each >= 0).all()


def test_a_layer_learns():
    torch.manual_seed(0)
    graph = FactorGraph.grid(np.zeros((4, 4)), 0.0)
    layer = BPLayer(BeliefPropagation(tol=1e-9).prepare(graph), learn_weights=True)
    unary = numbers(20, 16, 2, grad=False)
    goal = BPLayer(layer.run)(unary, torch.full((len(graph.weights),), 0.7, dtype=torch.float64))
    before = ((layer(unary) - goal) ** 2).mean()
    before.backward()
    torch.optim.Adam(layer.parameters(), lr=0.1).step()
    assert ((layer(unary) - goal) ** 2).mean() < before
    assert "BeliefPropagation" in repr(layer)
    assert {k: v.shape for k, v in layer.state_dict().items()} == {"weights": graph.weights.shape}


def test_bad_input_is_refused(tmp_path):
    run = SOLVERS["bp"].prepare(GRID)
    logical = FactorGraph.pairwise([0.0] * 3, [], []).add_clauses([[0, 1, 2]])
    rows, weights, whole = numbers(3, 18), numbers(2, len(GRID.weights)), numbers(18)
    integers, nan = torch.zeros(18, dtype=torch.long), torch.full((18,), torch.nan)
    exact = Exact().prepare(GRID)
    loss = CRFLoss(exact)
    labels = torch.tensor([0, 0, 0, 0, 2, 0, 0, 0, 0])
    table = [[[0.0, -np.inf], [0.0, 0.0]]]
    hard = CRFLoss(Exact().prepare(FactorGraph.from_tables([2, 2], [[0, 1]], table)))
    all_refused(
        (lambda: marginals(GRID, whole), ModelError, "run must be solver"),
        (lambda: marginals(run, numbers(17)), ModelError, "18 states"),
        (lambda: marginals(run, whole, numbers(3)), ModelError, "weights have shape"),
        (lambda: marginals(run, rows, weights), ModelError, "2 rows of weights, 3 of unary"),
        (lambda: marginals(run, rows, evidence=[{}, {}]), ModelError, "2 rows of evidence"),
        (lambda: marginals(run, integers), ModelError, "floating"),
        (lambda: marginals(run, np.zeros(18)), ModelError, "must be a tensor"),
        (lambda: marginals(run), ModelError, "give unary, weights or both"),
        (lambda: marginals(run, nan), ModelError, ""),
        (lambda: marginals(run, whole, tol=2.0), SettingsError, "tol"),
        (lambda: tree_marginals(numbers(3)), ModelError, r"\(B, N, N\)"),
        (lambda: BPLayer(BeliefPropagation().prepare(logical), learn_weights=True), ModelError,
         "infinite"),
        (lambda: loss(whole, labels=labels), EvidenceError, "label 2 of x4, which has 2 states"),
        (lambda: loss(whole, labels=torch.zeros(9)), EvidenceError, "whole numbers"),
        (lambda: loss(whole, labels=labels[:7]), EvidenceError, "7 labels for 9 variables"),
        (lambda: CRFLoss(exact, reduction="median"), SettingsError, "reduction"),
        (lambda: example.read(str(tmp_path)), ModelError, r"\*train\*.conllu, but there are 0"),
        (lambda: example.NeuralParser([]), ModelError, "no sentence to learn from"),
        (lambda: hard(numbers(4), labels=torch.tensor([0, 1])), ContradictionError, ""),
    )  # fmt: skip


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors_of_a_gpu_come_and_go_by_copy(dtype):
    """Every function and module: values and gradients are on the GPU, and those of the CPU."""
    run = SOLVERS["bp"].prepare(GRID)
    pair = numbers(2, 18)
    layer = BPLayer(run, learn_weights=True)
    labels = torch.zeros(2, 9, dtype=torch.long)
    calls = {
        "marginals": (lambda x: marginals(run, x), pair),
        "of one": (lambda x: marginals(run, x), numbers(18)),
        "log_partition": (lambda x: log_partition(run, x), pair),
        "tree_marginals": (tree_marginals, numbers(2, 4, 4)),
        "tree_log_partition": (tree_log_partition, numbers(2, 4, 4)),
        "layer": (lambda x: layer.to(x)(x), pair),
        "loss": (lambda x: CRFLoss(run)(x, labels=labels.to(x.device)), pair),
    }
    for name, (call, given) in calls.items():
        found = {}
        for device in ("cpu", "cuda"):
            x = given.detach().to(device, dtype).requires_grad_()
            y = call(x)
            assert y.device.type == device, name
            assert y.dtype == dtype, name
            (y**2).sum().backward()
            assert x.grad.device.type == device, name
            found[device] = (y.detach().cpu(), x.grad.cpu())
        torch.testing.assert_close(found["cuda"], found["cpu"], msg=lambda m, n=name: f"{n}: {m}")


SMALL = Recipe(bits=14, tag_bits=12, epochs=1)


def drawn_pairs(batch=2, n=7, seed=0):
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
    arcs, theta, found = drawn_pairs()
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
    log_z, _ = example.PairLogPartition.apply(arcs, 0 * theta, found)  # they say nothing
    assert torch.allclose(log_z, tree_log_partition(arcs, projective=True), atol=1e-9)


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
