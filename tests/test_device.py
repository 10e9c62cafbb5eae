"""The CUDA sources and what runs them: as C++ on this processor, and (-m device) on a card.

The oracle is the engine of the processor, sweep by sweep where both do the same.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from host_device import Host
from minfer import BeliefPropagation, Exact, FactorGraph, MeanField, Status, TreeReweighted
from minfer.device.odds import Run
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.errors import DeviceError, RefusedError, SettingsError
from minfer.graph import grid_edges
from minfer.solvers import on_device
from oracle import promises

RNG = np.random.default_rng(11)
GRID = FactorGraph.grid(RNG.normal(size=(6, 7)), 0.6)
PAIRS = grid_edges(6, 7)
WHEEL = FactorGraph.pairwise(  # a hub, and a tree that hangs on it
    RNG.normal(size=45),
    [[0, v] for v in range(1, 41)] + [[v, v + 1] for v in range(1, 40)] + [[3, 41], [41, 42]]
    + [[40, 43], [43, 44]],
    RNG.normal(size=83),
)  # fmt: skip
WIDE = FactorGraph.grid(60.0 * RNG.normal(size=(5, 5)), 20.0 * RNG.normal(size=40))
SETTINGS = [{}, {"schedule": "flooding"}, {"damping": 0.3},
            {"schedule": "flooding", "damping": 0.4}]  # fmt: skip


def alike(solver: dict, graph: FactorGraph, dtype: str, atol: float) -> None:
    """The same answer as on the processor, in about as many sweeps."""
    settings = {"schedule": "coloured", **solver}
    here = BeliefPropagation(**settings)(graph)
    found = BeliefPropagation(**settings, device="cuda", dtype=dtype)(graph)
    assert found.status is here.status, (found, here)
    np.testing.assert_allclose(found.probs, here.probs, atol=atol)
    assert found.log_z == pytest.approx(here.log_z, abs=100 * atol)
    if dtype == "float64":
        assert found.iterations == here.iterations
        np.testing.assert_allclose(found.residuals, here.residuals, rtol=1e-6, atol=1e-11)
    assert found.note.startswith("on ")
    assert dtype in found.note


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_the_sweeps_are_those_of_the_processor(there, settings, dtype):
    exact = dtype == "float64"
    for graph in (GRID, WHEEL, WIDE):
        alike({**settings, "tol": 1e-8 if exact else 1e-5}, graph, dtype, 1e-9 if exact else 5e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_tree_reweighted_sweeps_too(there, dtype, damping):
    """The same sweeps; and a bound on log Z at any messages."""
    exact = dtype == "float64"
    settings = {"damping": damping, "tol": 1e-8 if exact else 1e-5}
    for graph in (GRID, WHEEL):
        here = TreeReweighted(schedule="coloured", **settings)(graph)
        found = TreeReweighted(device="cuda", dtype=dtype, **settings)(graph)
        assert found.status is here.status is Status.CONVERGED
        np.testing.assert_allclose(found.probs, here.probs, atol=1e-9 if exact else 5e-5)
        if exact:
            assert found.iterations == here.iterations
        truth = Exact()(graph).log_z
        assert truth <= found.log_z <= here.log_z + 1e-2
        early = TreeReweighted(device="cuda", dtype=dtype, max_iters=2, damping=damping)(graph)
        assert early.status is Status.MAX_ITERS
        assert truth <= early.log_z


def test_tree_reweighted_starts_evidence_and_weights_that_are_lent(there):
    solver = TreeReweighted(device="cuda", dtype="float64", tol=1e-10)
    plain = TreeReweighted(tol=1e-10)
    first = solver(GRID)
    assert solver(GRID, first).iterations < first.iterations / 3
    run = solver.prepare(GRID)
    known = GRID.with_evidence({3: 1, 20: 0})
    np.testing.assert_allclose(run(evidence={3: 1, 20: 0}).probs, plain(known).probs, atol=1e-8)
    np.testing.assert_allclose(run().probs, first.probs, atol=1e-8)
    rho = plain.appearance(WHEEL)
    part = WHEEL.keep(np.arange(1, 83))  # a tree more
    found, here = (s.lending(WHEEL, rho)(part) for s in (solver, plain))
    np.testing.assert_allclose(found.probs, here.probs, atol=1e-8)
    assert found.log_z == pytest.approx(here.log_z, abs=1e-7)
    with pytest.raises(RefusedError, match="both"):  # some of its weights over rho are beyond odds
        solver(WIDE)
    assert "on the processor" in TreeReweighted(device="auto")(WIDE).note


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mean_field_climbs_to_the_same_place(there, dtype):
    exact = dtype == "float64"
    tol, atol = (1e-11, 1e-9) if exact else (1e-6, 5e-5)
    for graph in (GRID, WHEEL, GRID.with_evidence({3: 1, 20: 0})):
        here = MeanField(tol=1e-11)(graph)
        found = MeanField(tol=tol, device="cuda", dtype=dtype)(graph)
        assert found.status is here.status is Status.CONVERGED
        np.testing.assert_allclose(found.probs, here.probs, atol=atol)
        assert found.log_z == pytest.approx(here.log_z, abs=1e-8)
        assert found.log_z <= here.log_z + 1e-12 * abs(here.log_z)
        early = MeanField(device="cuda", dtype=dtype, max_iters=2)(graph)
        assert early.status is Status.MAX_ITERS
        assert early.log_z <= found.log_z <= Exact()(graph).log_z
        again = MeanField(tol=tol, device="cuda", dtype=dtype)(graph, found)
        assert again.iterations <= 6
        assert "coloured" in found.note
    fine = MeanField(device="cuda", tol=1e-12, dtype="float32", max_iters=300)(GRID)
    assert fine.status is Status.MAX_ITERS


def test_mean_field_refuses_what_has_no_form(there):
    triple = GRID.add_tables([[0, 8, 16]], RNG.normal(size=(1, 2, 2, 2)))
    for graph in (triple, FactorGraph.empty([3, 3]).add_potts([[0, 1]], 1.0)):
        with pytest.raises(RefusedError, match=r"binary pairs without zeros.*device='cpu'"):
            MeanField(device="cuda")(graph)
        found = MeanField(device="auto")(graph)
        assert "on the processor" in found.note
        np.testing.assert_array_equal(found.probs, MeanField()(graph).probs)
    assert "too few" in MeanField(device="auto")(GRID).note


@pytest.mark.drawn
def test_mean_field_of_drawn_models_promises_no_more_than_here(there):
    """From there, sweeps and updates made here move no more than was promised."""
    for number in range(60):
        rng = np.random.default_rng(number)
        n, scale = int(rng.integers(3, 9)), float(rng.choice([0.3, 1.0, 4.0, 20.0]))
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.6] or [[0, 1]]
        graph = FactorGraph.pairwise(rng.normal(size=n) * scale, edges,
                                     rng.normal(size=len(edges)) * scale)  # fmt: skip
        tol, dtype = float(10.0 ** -rng.integers(2, 9)), str(rng.choice(["float32", "float64"]))
        found = MeanField(device="cuda", dtype=dtype, tol=tol)(graph)
        if found.status is not Status.CONVERGED:
            continue
        again = MeanField(tol=tol, max_iters=1)(graph, found)
        room = tol + (1e-6 if dtype == "float32" else 1e-12)
        assert again.residuals[0] <= room * (1 + 4 * scale * n), (number, found)
        assert found.log_z <= again.log_z + 1e-9 * (1 + abs(again.log_z))


def test_what_ends_early_is_told(there):
    solver = BeliefPropagation(device="cuda", max_iters=3, dtype="float64")
    found, here = solver(GRID), BeliefPropagation(max_iters=3, schedule="coloured")(GRID)
    assert found.status is here.status is Status.MAX_ITERS
    np.testing.assert_allclose(found.probs, here.probs, atol=1e-9)
    assert BeliefPropagation(device="cuda", time_limit=1e-9)(GRID).status is not Status.CONVERGED
    fine = BeliefPropagation(device="cuda", tol=1e-12, dtype="float32", max_iters=300)(GRID)
    assert fine.status is Status.MAX_ITERS  # float32 cannot confirm that
    assert fine.residuals[-1] > 1e-12


def test_trees_are_solved_by_the_processor(there):
    tree = FactorGraph.pairwise([0.3, -0.2, 0.5], [[0, 1], [1, 2]], [1.0, -0.7])
    found = BeliefPropagation(device="cuda")(tree)
    np.testing.assert_allclose(found.probs, Exact()(tree).probs, atol=1e-12)


def test_starts_evidence_and_prepared_calls(there):
    solver = BeliefPropagation(device="cuda", dtype="float64", tol=1e-10)
    plain = BeliefPropagation(tol=1e-10)
    first = solver(GRID)
    again = solver(GRID, first)
    assert again.iterations < first.iterations / 3
    known = GRID.with_evidence({3: 1, 20: 0})
    np.testing.assert_allclose(solver(known).probs, plain(known).probs, atol=1e-8)
    run = solver.prepare(GRID)
    run()
    before = getattr(there, "moved", 0)
    np.testing.assert_allclose(run(evidence={3: 1, 20: 0}).probs, plain(known).probs, atol=1e-8)
    field = np.linspace(-1, 1, 84)
    once = getattr(there, "moved", 0)
    np.testing.assert_allclose(run(field=field).probs, plain(GRID.tilt(field)).probs, atol=1e-8)
    layout = next(v for k, v in run.mesh.found.items() if k[0] is there)
    if before:
        assert getattr(there, "moved", 0) - once < once - before + 8 * layout.n_slots


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(3))
def test_drawn_models_promise_no_more_than_here(there, block):
    """Statuses are never more optimistic than an update made by hand, in doubles, allows."""
    for number in range(40 * block, 40 * block + 40):
        rng = np.random.default_rng(number)
        n = int(rng.integers(3, 9))
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.6] or [[0, 1]]
        scale = float(rng.choice([0.3, 1.0, 4.0, 30.0]))
        graph = FactorGraph.pairwise(rng.normal(size=n) * scale, edges,
                                     rng.normal(size=len(edges)) * scale)  # fmt: skip
        tol = float(10.0 ** -rng.integers(2, 9))
        dtype = str(rng.choice(["float32", "float64"]))
        schedule = str(rng.choice(["coloured", "flooding"]))
        damping = float(rng.choice([0.0, 0.0, 0.4]))
        found = BeliefPropagation(
            device="cuda", dtype=dtype, tol=tol, schedule=schedule, damping=damping, max_iters=200
        )(graph)
        if found.status is not Status.CONVERGED:
            assert found.residuals[-1] > tol
            continue
        again = BeliefPropagation(tol=max(tol, 1e-12), schedule="flooding", max_iters=2)(
            graph, found
        )  # a sweep and an update, here, from there: they may move it by as much again, no more
        room = 10 * tol + (1e-5 if dtype == "float32" else 1e-9)
        assert np.abs(again.probs - found.probs).max() <= room, (number, found)


@pytest.mark.parametrize("real", ["float", "double"])
def test_threads_may_run_in_any_order(real):
    dtype = {"float": "float32", "double": "float64"}[real]
    answers = []
    for backwards in (False, True):
        host = Host(backwards)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(on_device, "device", lambda host=host: host)
            answers += [BeliefPropagation(device="cuda", dtype=dtype, schedule=s)(WHEEL)
                        for s in ("coloured", "flooding")]  # fmt: skip
    for a, b in ((0, 2), (1, 3)):
        np.testing.assert_array_equal(answers[a].probs, answers[b].probs)


def planted(monkeypatch, right: str, wrong: str) -> list:
    """Answers of a source with a fault, in both orders of threads."""
    answers = []
    for backwards in (False, True):
        host = Host(backwards, right, wrong)
        monkeypatch.setattr(on_device, "device", lambda host=host: host)
        answers.append(BeliefPropagation(device="cuda", schedule="flooding", damping=0.5)(GRID))
    return answers


def test_an_index_out_of_range_is_found(monkeypatch):
    with pytest.raises(AssertionError, match="out of range"):
        planted(monkeypatch, "SLICE * (k < n ? k : 0)", "SLICE * 40 * k")


def test_threads_that_read_what_others_write_are_found(monkeypatch):
    first, second = planted(monkeypatch, "(now.side == 0) == other ? odd", "now.side != 0 ? odd")
    assert first.iterations != second.iterations or (first.residuals != second.residuals).any()


def test_where_many_colours_are_needed_all_are_swept_at_once(there):
    pairs = [[a, b] for a in range(14) for b in range(a)]
    graph = FactorGraph.pairwise(RNG.normal(size=14), pairs, 0.1 * RNG.normal(size=91))
    solver = BeliefPropagation(device="cuda", dtype="float64", tol=1e-9)
    assert "flooding" in solver(graph).note
    assert "coloured" in solver(GRID).note
    np.testing.assert_allclose(solver(graph).probs, BeliefPropagation()(graph).probs, atol=1e-6)


def test_refusals_name_a_way_out(there):
    either = GRID.add_clauses([[0, 8, 16], [3, 9, 22]])
    with pytest.raises(RefusedError, match=r"models of pairs.*device='cpu'"):
        BeliefPropagation(device="cuda")(either)
    with pytest.raises(RefusedError, match="residual"):
        BeliefPropagation(device="cuda", schedule="residual")(GRID)
    with pytest.raises(SettingsError, match="float32"):
        BeliefPropagation(dtype="float32")
    found = BeliefPropagation(device="auto")(either)
    assert found.note.startswith("on the processor: devices have")
    np.testing.assert_array_equal(found.probs, BeliefPropagation()(either).probs)
    assert "too few" in BeliefPropagation(device="auto")(GRID).note


def test_without_cupy_the_error_says_what_to_install(monkeypatch):
    from minfer.device import cuda

    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.cuda.cache_clear()
    monkeypatch.setattr(on_device, "BREAK_EVEN", 0)
    with pytest.raises(DeviceError, match=r"minfer\[cuda\].*device='cpu'"):
        BeliefPropagation(device="cuda")(GRID)
    found = BeliefPropagation(device="auto")(GRID)
    assert "minfer[cuda]" in found.note
    assert found.converged
    assert promises.Plain.of(GRID, found).repeat(found) <= 1e-6


@pytest.mark.parametrize("failing", ["empty", "launch"])
def test_a_device_that_fails_is_an_error_or_the_processor(monkeypatch, failing):
    """Out of memory, say: asked for, an error with advice; under "auto" the answer, with a note."""
    host = Host()

    def fail(*given):
        raise DeviceError("the card is out of memory; or use device='cpu'")

    monkeypatch.setattr(host, failing, fail)
    monkeypatch.setattr(on_device, "device", lambda: host)
    monkeypatch.setattr(on_device, "BREAK_EVEN", 0)
    labels = FactorGraph.empty([3] * 3).add_potts([[0, 1], [1, 2], [2, 0]], 0.7)
    field = {"field": RNG.normal(size=(3, 84))}
    every, alone = (BeliefPropagation, TreeReweighted, MeanField), (BeliefPropagation,)
    for graph, kinds in ((GRID, every), (WHEEL, alone), (labels, alone)):
        for kind in kinds:
            with pytest.raises(DeviceError, match="out of memory"):
                kind(device="cuda")(graph)
            found = kind(device="auto")(graph)
            assert found.note.startswith("on the processor: the card is out of memory")
            np.testing.assert_allclose(found.probs, kind()(graph).probs, atol=1e-9)
    run = BeliefPropagation(device="auto").prepare(GRID)
    here = BeliefPropagation().prepare(GRID)
    for more in ({}, {"statistics": True}):
        np.testing.assert_array_equal(run.batch(**field, **more).probs, here.batch(**field).probs)
    with pytest.raises(DeviceError, match="out of memory"):
        BeliefPropagation(device="cuda").prepare(GRID).batch(**field)
    rows = {"field": RNG.normal(size=(3, 9))}
    run, here = (BeliefPropagation(device=d).prepare(labels) for d in ("auto", "cpu"))
    np.testing.assert_array_equal(run.batch(**rows).probs, here.batch(**rows).probs)


def test_workers_take_cards_in_turn(monkeypatch):
    """Of two cards; by a stand-in for CuPy, which is all that is asked."""
    from minfer.device import cuda

    used: list[int] = []

    class Card:
        def __init__(self, number: int = 0) -> None:
            self.id = number

        def use(self) -> None:
            used.append(self.id)

    class Failure(Exception):
        pass

    names = {"name": b"a card", "totalGlobalMem": 2**30}
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 2, getDeviceProperties=lambda k: names, CUDARuntimeError=Failure
    )
    cupy = SimpleNamespace(zeros=lambda n: SimpleNamespace(get=lambda: None), cuda=SimpleNamespace(
        runtime=runtime, Device=Card, memory=SimpleNamespace(OutOfMemoryError=Failure),
        driver=SimpleNamespace(CUDADriverError=Failure),
        compiler=SimpleNamespace(CompileException=Failure)))  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for number in range(4):
        cuda.cuda.cache_clear()
        cuda.take_turn(number)
        assert cuda.cuda().name == "a card"
    cuda.cuda.cache_clear()
    cuda.take_turn(0)
    assert used == [1, 1]


def test_commands_have_the_device(tmp_path):
    """run, denoise and batch; of small models the processor's answer, with a note."""
    pytest.importorskip("pyarrow")
    image = pytest.importorskip("PIL.Image")
    from typer.testing import CliRunner

    from minfer import write
    from minfer.cli import app

    def said(*words: str) -> str:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == 0, found.output
        return found.output

    model, picture = str(tmp_path / "grid.uai"), str(tmp_path / "noisy.png")
    write(GRID, model)
    image.fromarray((255 * RNG.random((9, 9))).astype(np.uint8)).save(picture)
    assert "too few for a card" in said("run", model, "--solver", "bp", "--device", "auto")
    assert "too few for a card" in said("run", model, "--solver", "trw", "--device", "auto")
    assert "a card pays from" in said("plan", model)
    clean = str(tmp_path / "clean.png")
    said("denoise", picture, "-o", clean, "--solver", "bp", "--device", "auto")
    out = ["-o", str(tmp_path / "out"), "--solver", "bp", "--device", "auto", "--workers", "1"]
    assert "done" in said("batch", "run", model, *out)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batches_answer_what_single_calls_do(there, dtype):
    """Fields, evidence and weights by row; trees among what is swept; log Z."""
    exact = dtype == "float64"
    atol, settings = (1e-8, {"tol": 1e-10}) if exact else (5e-5, {"tol": 1e-5})
    rng = np.random.default_rng(3)
    for graph in (GRID, WHEEL):
        n = graph.n_variables
        rows = {
            "field": rng.normal(size=(5, 2 * n)),
            "evidence": np.where(rng.random((5, n)) < 0.2, rng.integers(0, 2, (5, n)), -1),
        }
        wild = rng.normal(size=(5, graph.weight_offsets[-1])) * 0.5
        for given in (rows, {"field": rows["field"]}, {"weights": wild, **rows}):
            here = BeliefPropagation(**settings).prepare(graph).batch(**given)
            solver = BeliefPropagation(**settings, device="cuda", dtype=dtype)
            found = solver.prepare(graph).batch(**given)
            assert found.converged.all()
            np.testing.assert_allclose(found.probs, here.probs, atol=atol)
            np.testing.assert_allclose(found.log_z, here.log_z, atol=10 * atol, rtol=1e-6)
    short = (
        BeliefPropagation(device="cuda", max_iters=2)
        .prepare(GRID)
        .batch(field=rows["field"][:, :84])
    )
    assert not short.converged.any()
    assert (short.iterations == 2).all()


#: Variables of 29 neighbours each, which threads share.
CROWD = FactorGraph.pairwise(
    RNG.normal(size=30), [[a, b] for a in range(30) for b in range(a)], 0.2 * RNG.normal(size=435)
)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_may_share_a_variable(there, settings, dtype):
    layout = on_device.laid_out(there, *_coloured(CROWD))
    assert Run(there, layout, 1, False, True, np.float32).program.parts == 8
    exact = dtype == "float64"
    tol = 1e-8 if exact else 1e-5
    alike({**settings, "tol": tol}, CROWD, dtype, 1e-9 if exact else 5e-5)
    here, found = (TreeReweighted(schedule="coloured", tol=tol, device=d)(CROWD)
                   for d in ("cpu", "cuda"))  # fmt: skip
    np.testing.assert_allclose(found.probs, here.probs, atol=1e-4)


def _coloured(graph: FactorGraph) -> tuple:
    mesh = wire(condition(graph))
    return mesh, *mesh.by_colour(whole=True)


def alone(there, graph: FactorGraph, fields: np.ndarray, dtype: str, **settings) -> Run:
    """A run whose rows are blocks', and so begun."""
    mesh, *colours = _coloured(graph)
    layout = on_device.laid_out(there, mesh, *colours)
    run = Run(there, layout, len(fields), False, False, np.dtype(dtype))
    w = on_device.weights(there, mesh, layout, np.dtype(dtype))
    given = {"tol": 1e-5, "damping": 0.0, "max_iters": 1000, **settings}
    run.start(on_device.log_prior(mesh) + fields, w, None, *given.values())
    return run


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_block_has_a_row_to_itself(there, dtype, damping):
    """And does what launches do, sweep by sweep, however often it is sent off."""
    fields = 2.0 * RNG.normal(size=(4, 42))
    fields[1, :6] = [1e30, -1e30, 60.0, -60.0, 35.0, -300.0]
    differ = FactorGraph.pairwise(np.zeros(42), PAIRS, RNG.normal(size=71))
    tol = 1e-9 if dtype == "float64" else 1e-5
    for graph in (GRID, differ):
        runs = []
        for whole, step in ((True, 1000), (True, 2), (False, 1000)):
            run = alone(there, graph, fields, dtype, tol=tol, damping=damping)
            assert run.alone
            run.alone = whole
            while not run.ended:
                run.sweeps(step, np.zeros(step))
            runs.append(run)
        assert all(run.passed.all() for run in runs)
        first, steps, launched = runs
        exact = dtype == "float64"
        for other in (steps, launched):
            assert not exact or (first.made == other.made).all()
            np.testing.assert_allclose(
                first.beliefs()[0], other.beliefs()[0], atol=1e-12 if exact else 2 * tol
            )
            np.testing.assert_allclose(first.log_z(), other.log_z(), atol=1e-9 if exact else 1e-3)
        short = alone(there, graph, fields, dtype, tol=tol, damping=damping, max_iters=3)
        assert short.sweeps(10, np.zeros(10)) == 3
        assert (short.made == 3).all()
        assert not short.passed.any()


def test_what_does_not_fit_a_block_is_launched(there):
    fields = RNG.normal(size=(2, 42))
    strong = FactorGraph.pairwise(np.zeros(42), PAIRS, np.full(71, 6.0))
    assert not alone(there, strong, fields, "float32").alone  # products may leave the range
    assert not alone(there, GRID, fields, "float32", tol=1e-7).alone  # logs hide as much
    assert alone(there, GRID, fields, "float64", tol=1e-7).alone
    size = 200
    side = FactorGraph.grid(np.zeros((size, size)), 0.5)
    assert not alone(there, side, np.zeros((1, size * size)), "float32").alone


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("first[k], first[k + 1]", "first[0], first[1]"),  # a colour is never swept
        ("odds = odds_of<double>(field)", "odds = 1e-3 * odds_of<double>(field)"),
    ],
)
def test_faults_in_a_block_are_seen(right, wrong):
    host = Host(False, right, wrong)
    run = alone(host, GRID, RNG.normal(size=(2, 42)), "float32")
    run.sweeps(200, np.zeros(200))
    assert not run.passed.any()


@pytest.mark.parametrize(
    "around",
    [
        ("", "\n      }\n      raise_to(seen, CHANGE"),  # between colours
        ("}\n    ", "\n    if (threadIdx.x == 0) judge"),  # before all have told
        ("seen, part(trace, row));\n    ", ""),  # before the judge has spoken
    ],
)
def test_a_missing_barrier_in_a_block_is_found(around):
    fields, told = RNG.normal(size=(2, 42)), []
    right, wrong = "BARRIER();".join(around), "".join(around)
    for backwards, planted in ((False, ("", "")), (False, (right, wrong)), (True, (right, wrong))):
        run = alone(Host(backwards, *planted), GRID, fields, "float64", max_iters=40)
        try:
            run.sweeps(40, np.zeros(40))
        except AssertionError as error:
            assert "wait where others have ended" in str(error)  # noqa: PT017 - or this
        told.append((run.made.tolist(), run.even.tolist(), run.last.tolist()))
    assert told[0] != told[1] or told[0] != told[2]


def test_blocks_may_run_in_any_order():
    fields = RNG.normal(size=(3, 42))
    runs = [alone(Host(backwards), GRID, fields, "float32") for backwards in (False, True)]
    for run in runs:
        run.sweeps(100, np.zeros(100))
    np.testing.assert_array_equal(runs[0].beliefs()[0], runs[1].beliefs()[0])


def test_streams_of_torch_are_followed():
    """By the protocol where both have it; else by address."""
    from minfer.device.cuda import followed

    new = SimpleNamespace(from_external=lambda stream: ("from", stream))
    cuda = SimpleNamespace(Stream=new, ExternalStream=lambda where, device: (where, device))
    old = SimpleNamespace(cuda_stream=7)
    stream = SimpleNamespace(cuda_stream=7, __cuda_stream__=lambda: (0, 7))
    assert followed(SimpleNamespace(cuda=cuda), stream, 1) == ("from", stream)
    assert followed(SimpleNamespace(cuda=cuda), old, 1) == (7, 1)
    cuda.Stream = SimpleNamespace()
    assert followed(SimpleNamespace(cuda=cuda), stream, 1) == (7, 1)
