"""Every kernel used once, on small graphs: calls that ``record_answers.py`` takes note of.

What is recorded of them is what ``minfer warmup`` compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import minfer
from minfer.certified.search import all_methods, intervals
from minfer.engine.buckets.search import BoundedSearch
from minfer.engine.circuits import clauses
from minfer.engine.circuits.driver import build
from minfer.engine.conditioning import condition
from minfer.engine.contraction import Contraction, Planner
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import clique_tree
from minfer.engine.layout import flatten
from minfer.errors import ContradictionError, RefusedError, SettingsError
from minfer.examples import sprinkler
from minfer.graph import FactorGraph
from minfer.kernels.arithmetic.softmax import softmax
from minfer.kernels.compiling.plain import OFF
from minfer.kernels.messages.adjoint import joint_slopes
from minfer.kernels.scores.select import SIZE, choose
from minfer.learn import BayesianNetwork, ChainCRF
from minfer.model.causes import NoisyMax
from minfer.parsing import exact, trees
from minfer.parsing.conllu import Sentence
from minfer.parsing.inference import marginals
from minfer.parsing.kernels.seeds import unary_seed
from minfer.parsing.learn import Recipe
from minfer.parsing.parser import Parser
from minfer.parsing.trees import NonProjectiveTree, all_arcs
from minfer.prediction import predict
from minfer.queries import query
from minfer.reduction import seeds
from minfer.reduction.gains import SCORES
from minfer.reduction.infer import infer
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize
from minfer.reduction.recipes import Compensated, Paper
from minfer.reduction.sources import Join, JoinTemplates
from minfer.solvers.base import Solver
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.differentiable_batch import record
from minfer.solvers.exact import Exact
from minfer.solvers.gradients import pull_back
from minfer.solvers.row_plans import RowPlan
from minfer.through_time import Dynamic, passes

#: Every solver with the settings that lead to kernels of their own.
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("MeanField", {}),
    ("StructuredMeanField", {}),
    ("Gibbs", {"n_sweeps": 20, "burn_in": 5}),
    ("Tempering", {"n_sweeps": 4, "burn_in": 2, "n_replicas": 3, "n_chains": 2}),
    ("JoinGraph", {"max_cells": 64}),
    ("JoinGraph", {}),
    ("MiniBuckets", {"i_bound": 3}),
    ("Exact", {"method": "clique-tree"}),
    ("TreeReweighted", {"weights": "spanning-tree"}),
    ("TreeReweighted", {"weights": "spanning-tree", "max_iters": 2}),
    ("TreeReweighted", {"weights": "forests"}),
    ("BeliefPropagation", {}),
    ("BeliefPropagation", {"max_iters": 2}),  # a run that ends early completes its messages
    ("BeliefPropagation", {"schedule": "flooding"}),
    ("BeliefPropagation", {"schedule": "residual"}),
    ("BeliefPropagation", {"schedule": "coloured"}),
    ("TreeReweighted", {"weights": "forests", "schedule": "coloured"}),
    ("Windows", {"max_cells": 64}),
    ("Clamped", {"k": 1}),
    ("Clamped", {"k": 1, "restarts": 2}),
    ("Auto", {}),
)


class Unit(NamedTuple):
    """What is run by itself, and its name."""

    title: str
    work: Callable[[], None]


def units() -> list[Unit]:
    """Everything that is run."""
    found = [
        Unit("gradients", _use_gradients),
        Unit("parser", _use_parser),
        Unit("intervals", _use_intervals),
        Unit("trees", _use_trees),
        Unit("method", _use_method),
        Unit("exact for rows", _use_rows),
        Unit("circuits", _use_circuits),
        Unit("buckets", _use_buckets),
        Unit("contraction", _use_contraction),
        Unit("circuits of clauses", _use_clauses),
        Unit("search for the best", _use_search),
        Unit("bp lanes", _use_lanes),
        Unit("edge weights on what hangs off a cycle", _use_hanging),
        Unit("estimators", _use_estimators),
        Unit("through time", _use_time),
    ]
    for name, settings in CASES:
        title = " ".join([name, *(v for v in settings.values() if isinstance(v, str))])
        found.append(Unit(title, partial(_use, name, settings)))
    return [*found, Unit("rules", _use_rules)]


def _use_hanging() -> None:
    """Binary pairs on a cycle with a tail: the walk along the tail has edge weights, too."""
    edges = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]]
    graph = FactorGraph.pairwise([0.3, -0.2, 0.5, 0.1, -0.4], edges, 0.7)
    _ = minfer.TreeReweighted()(graph).log_z


def _use_estimators() -> None:
    """Chains and tables from a few cases."""
    sentences, tags = [[["a"], ["b"]]], [["x", "y"]]
    crf = ChainCRF(max_iterations=1).fit(sentences, tags)
    crf.predict(sentences)
    crf.log_likelihood(sentences, tags)
    BayesianNetwork([("a", "b")]).fit({"a": [0, 1, None], "b": [0, 1, 1]})
    levels = NoisyMax({"a": [[1, 0, 0], [0.2, 0.3, 0.5]], "b": np.full((2, 3), 1 / 3)})
    gate = FactorGraph.network(
        {"a": 2, "b": 2, "y": 3}, {"a": [0.5, 0.5], "b": [0.5, 0.5], "y": levels}
    )
    BayesianNetwork(gate).fit({"a": [0, 1, 1, 0], "b": [0, 1, 0, 1], "y": [0, 2, 1, 1]})


def _use_time() -> None:
    """Sequences in blocks: linear numbers, logarithms, maxima, samples, counts."""
    fair, far = [[0.5, 0.5], [0.3, 0.7]], [[1e-250, 1.0 - 1e-250], [0.6, 0.4]]
    leaf = [[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]]
    rows = [
        [{"x": 0}, {}, {"x": [0.2, 0.3, 0.5]}, {"a": 1, "b": [0.2, 0.8]}, {}],
        [{"b": 1}, {"x": 1}],
    ]
    for table in (fair, far):
        model = Dynamic(
            {"a": [0.5, 0.5], "b": ("a", table), "c": ("a", table), "x": ("c", leaf)},
            {"a": (["a@-1", "b@-1"], [table, table])},
            {"a": 2, "b": 2, "c": 2, "x": 3},
        )
        targets = ["x", "a"]
        with patch.object(passes, "_KEPT", 1):
            model.filter(rows, targets), model.smooth(rows, targets), model.best(rows)
            model.sample(2, evidence=rows[0]), model.filter([{}, {"x": 1}])
            model.log_likelihood([{"c": 1, "x": 2}])  # which cannot be
            model._passes.counts(model._passes.read("", rows, {})[0])
        stream = model.stream()
        stream.observe({"x": 0}), stream.observe({"b": [0.5, 0.2]})


def _use_rules() -> None:
    """Transitivity over a few records, grounded lazily; nothing without the extra ``rules``."""
    if find_spec("duckdb") is None:
        return
    from minfer.rules import Rules

    first, second = np.triu_indices(6, 1)
    pairs = {"a": first, "b": second, "p": np.where(first // 3 == second // 3, 0.8, 0.3)}
    program = Rules().open(
        "same", pairs, columns=("a", "b"), types=("r", "r"), symmetric=True, probability="p"
    )
    program.rule("1.0: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
    program.infer(grounding="lazy", threshold=1e-2, rounds=1, sums=1)


def _use_search() -> None:
    """The best assignment of each small graph, without its clique tree."""
    arcs = all_arcs(5)  # a tree too large for a table
    whole = FactorGraph.pairwise(np.linspace(-1, 1, len(arcs[0])), [[0, 1], [2, 5]], 0.5)
    whole = whole.add_global(np.arange(len(arcs[0])), NonProjectiveTree(*arcs, 5))
    for graph in [*small_graphs(), whole]:
        minfer.mpe(graph, time_limit=600.0, max_gib=1e-12)  # proven at once; compiling takes long


def _use_lanes() -> None:
    """Many instances of one structure, with cycles and without, in both precisions."""
    rng = np.random.default_rng(4)
    for shape in ((3, 3), (1, 3)):
        graph = FactorGraph.grid(rng.normal(size=shape), 0.5)
        run = BeliefPropagation().prepare(graph)
        for dtype in ("float64", "float32"):
            run.batch(weights=np.tile(graph.weights, (2, 1)), dtype=dtype, statistics=True)
    parities = FactorGraph.empty([2] * 4).add_parity([[0, 1, 2], [1, 2, 3], [0, 2, 3]])
    flooded = BeliefPropagation(schedule="flooding", tol=1e-2, max_iters=12).prepare(parities)
    for size, log_z in ((1.0, True), (30.0, False), (1.0, False)):
        flooded.batch(field=size * rng.normal(size=(3, 8)), log_z=log_z)
    flooded.batch(field=np.tile([90.0, 0.0], (2, 4)))  # messages sink to their floor


def _use_gradients() -> None:
    """Adjoints of binary pairs, damped and not, of tables, and of a clique tree."""
    rng = np.random.default_rng(5)
    labels = FactorGraph.empty([3] * 3).add_potts([[0, 1], [1, 2], [0, 2]], 0.5)
    labels = labels.tilt(rng.normal(size=9))
    tables = [rng.normal(size=(2, 2, 2)), np.eye(2), np.eye(2)]
    triple = FactorGraph.from_tables([2] * 4, [[0, 1, 2], [2, 3], [3, 0]], tables)
    plain = FactorGraph.from_tables([3] * 3, [[0, 1], [1, 2], [0, 2]], rng.normal(size=(3, 3, 3)))
    ends = np.arange(300)
    many = FactorGraph.empty([4] * 300).add_potts(np.stack([ends, (ends + 1) % 300], 1), 0.5)
    for graph in (FactorGraph.grid(rng.normal(size=(4, 4)), 0.5), labels, many, triple, plain):
        for damping in (0.0, 0.3):
            answer = BeliefPropagation(damping=damping)(graph)
            pull_back(answer, np.arange(len(answer.probs)))
    for graph in (plain, triple):
        answer = Exact(method="clique-tree")(graph)
        pull_back(answer, np.arange(len(answer.probs)))
    grid = FactorGraph.grid(rng.normal(size=(3, 3)), 0.5)
    run = BeliefPropagation().prepare(grid)
    rows = record(run, None, np.tile(grid.weights, (2, 1)), None)
    ask = rng.normal(size=rows.batch.probs.shape)
    rows.pull_back(ask, tol=1e-6, max_iters=9, weights=True)
    joint = np.array([[0.1, 0.2, 0.3, 0.4]])
    joint_slopes(np.array([[0, 1]], np.int32), joint, *np.empty((2, 2)))  # for rows that are slow


def _use(name: str, settings: dict[str, Any]) -> None:
    """Run a solver on each small graph that it accepts and read all it can tell."""
    solver = getattr(minfer, name)(**settings)
    for graph in small_graphs():
        with suppress(RefusedError, SettingsError):
            answer = solver(graph)
            _ = answer.log_z
            for factor in range(graph.n_factors):
                answer.factor(factor)
            answer.statistics()
            solver(graph, start=answer)
            if prepare := getattr(solver, "prepare", None):
                prepare(graph)(weights=graph.weights, start=answer)
            for group in graph.groups:
                if group.arity:
                    ask = np.zeros((len(group), sum(group.shape)))
                    group.messages(np.arange(len(group)), ask, np.empty_like(ask))


def _use_circuits() -> None:
    """Small graphs compiled, the most by search, and all questions asked."""
    graphs = small_graphs(3)
    counted = (
        FactorGraph.empty([2] * 11)
        .tilt(np.linspace(-1, 1, 22))
        .add_cardinality([range(11)], at_most=2)
    )  # no table
    chosen = [graphs[k] for k in (1, 2, 3, 4, 6, 8)]  # others have numbers too small
    for graph in [*chosen, counted]:
        model = condition(graph)
        for small in (1, 16):
            build(model, max_gib=1.0, small=small)
        circuit = minfer.compile(graph)
        answer = circuit()
        circuit.joint(0, 1)
        circuit.batch([{0: 1}, {1: 0}, {}])
        circuit.sample(3, seed=1)
        circuit.best()
        circuit.k_best(3)
        pull_back(answer, np.linspace(-1.0, 1.0, len(answer.probs)))
        with TemporaryDirectory() as folder:
            circuit.save(Path(folder) / "a.circuit")
            minfer.Circuit.load(Path(folder) / "a.circuit")


def _use_buckets() -> None:
    """Split buckets with and without zeros, numbers far apart, and variables to maximise."""
    rng = np.random.default_rng(5)
    for zeros, scale in ((0.0, 1.0), (0.2, 1.0), (0.0, 400.0)):
        graph = FactorGraph.empty([2, 3, 2, 3, 2])
        for scope in ((0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2), (1, 3)):
            shape = [int(graph.n_states[v]) for v in scope]
            table = rng.normal(size=shape) * scale
            table[rng.random(shape) < zeros] = -np.inf
            graph = graph.add_tables([scope], table[None])
        for most in ((), (1, 3)):
            with suppress(ContradictionError):
                search = BoundedSearch(condition(graph), maximise=most, i_bound=2)
                search.run(work=20)
                if not most:
                    search.intervals(time_limit=None)
    graph = FactorGraph.empty([2] * 8)
    for pair in combinations(range(8), 2):
        graph = graph.add_tables([pair], rng.normal(size=(1, 2, 2)))
    BoundedSearch(condition(graph), i_bound=2, memory_limit=12_000, marginals=True).run(work=60)


def _use_contraction() -> None:
    """Trees of contraction and their passes, of variables with two and with three states."""
    pairs = list(combinations(range(6), 2))
    for card in ([2] * 6, [2, 3, 2, 3, 2, 3]):
        planner = Planner(pairs, card, list(range(6)))
        planner.improve(_size(3000, 300))
        tree = planner.tree(2.0**30, 1, 0)
        assert tree is not None
        tables = [np.ones((card[a], card[b])) for a, b in pairs]
        for kind in (np.float64, np.float32):
            Contraction(tree, tables, [0.0] * len(pairs), kind).slice({}, True, lambda: True)


def _use_clauses() -> None:
    """In slices of few steps, with clauses forgotten between them."""
    rng = np.random.default_rng(2)
    n = _size(20, 12)
    with patch.multiple(clauses, SLICE=60, FORGET=0):
        for length, many in ((3, 4 * n), (2, n // 2), (4, 3 * n)):
            scopes = [rng.choice(n, length, replace=False).tolist() for _ in range(many)]
            signs = rng.choice([-1, 1], (many, length)).tolist()
            graph = FactorGraph.empty([2] * n).add_clauses(scopes, signs=signs)
            with suppress(ContradictionError):
                minfer.compile(graph.tilt(rng.normal(size=2 * n)), free=[])


def _use_rows() -> None:
    """Rows of evidence and of tables on each small graph."""
    for graph in small_graphs():
        model = only_tables(condition(graph))
        flat = flatten(model)
        plan = RowPlan.make(flat, clique_tree(model))
        plan.load(flat.log_psi, flat.field, model.constant)
        plan.run(log_psi=flat.log_psi[None, :], joints=True)
        plan.run(evidence=np.full((1, len(model.fixed)), -1, dtype=np.int32))
    _use_cases()


def _use_cases() -> None:
    """Tables of cases, one target and all, so many that the observed set is planned for."""
    rows = [[0.9, 0.1], [0.2, 0.8]]
    names = ("a", "b", "c", "d")
    chain = FactorGraph.network(
        dict.fromkeys(names, 2),
        {"a": [0.6, 0.4], "b": ("a", rows), "c": ("b", rows), "d": ("c", rows)},
    )
    case = np.arange(_size(5_000, 500))
    cases = {"a": case % 2, "c": case // 2 % 2}
    for targets in (["d"], ["b", "d"], None):
        predict(chain, cases, targets)
    query(chain, "d", {"b": 1})
    links = [f"v{k}" for k in range(20)]  # too many for a joint table
    tables: dict[str, Any] = {name: (before, rows) for before, name in pairwise(links)}
    long = FactorGraph.network(dict.fromkeys(links, 2), {"v0": [0.6, 0.4], **tables})
    query(long, "v9", {"v0": 1, "v19": 1})


def _use_method() -> None:
    """Reduce each small graph in every way: scores, objectives, compensation, candidates."""
    solver = BeliefPropagation()
    triple = FactorGraph.empty([2, 2, 2]).add_features([[0, 1, 2]], [1.0], [[[0, 1]] * 2] * 2)
    for graph in [*small_graphs(), triple]:
        for score in SCORES:
            result = infer(graph, MinDivergence(1), solver, recipe=Paper(score=score))
            _ = result.divergence, result.error_estimates, result.bound, result.log_z_full
        infer(graph, MinDivergence(1), solver, recipe=Compensated())
        infer(graph, MinJoint(0.1), solver, seed=seeds.spanning_forest)
    _use_source(solver)
    softmax(np.array([0.5, 1.0, -9.0, 2.0, 0.0]), np.array([0, 3, 5]), np.empty(5))  # large seeds
    many = np.linspace(0.0, 1.0, 1 << 17)  # enough to be selected from rather than sorted
    MinSize(1.0)(many)
    MinDivergence(5)(many)


def _use_source(solver: Solver) -> None:
    """Candidates of a join of four variables, built only where they can matter."""
    side = np.zeros(4, dtype=np.int64)
    seed = FactorGraph.pairwise([0.0, 0.5, 1.0, -3.0], [], [])
    for symmetric in (False, True):
        join = Join(side, side, 0.5, 0.5, symmetric)
        source = JoinTemplates([join], lambda _, scope: np.full(len(scope), 0.5))
        for recipe in (Paper(), Compensated()):
            infer(seed, MinJoint(1e-3), solver, recipe=recipe, source=source)


def _use_intervals() -> None:
    """Every method by itself on each small graph, and on grids of both signs."""
    rng = np.random.default_rng(3)
    field = rng.normal(size=(6, 6))
    grids = [FactorGraph.grid(field, w) for w in (0.5, rng.normal(size=60))]
    for graph in [*small_graphs(), *grids]:
        for method in [None, *([name] for name in all_methods())]:
            with suppress(RefusedError):
                intervals(graph, None, tol=0.0, work=_size(100_000, 5_000), methods=method)
        intervals(graph, None, work=_size(100_000, 5_000), kept=np.arange(graph.n_factors) % 3 > 0)


def _use_trees() -> None:
    """Tree factors, their marginals and decoders, dense and pruned, in linear numbers and logs."""
    rng = np.random.default_rng(2)
    for scale in (1.0, 1e3):
        scores = scale * rng.normal(size=(6, 6))
        trees.tree_marginals(scores)
        trees.tree_marginals(scores, projective=False)
        exact.exact_grandparent(scores, scale * rng.normal(size=(6, 6, 6)))
        trees.eisner(scores)
        trees.chu_liu_edmonds(scores)
        heads, modifiers = trees.all_arcs(8)
        for chosen in (slice(None), (heads == 0) | (heads == modifiers - 1)):
            arcs = heads[chosen], modifiers[chosen]
            model = FactorGraph.pairwise(scale * rng.normal(size=len(arcs[0])), [], [])
            for tree in (trees.ProjectiveTree, trees.NonProjectiveTree):
                whole = model.add_global(np.arange(len(arcs[0])), tree(*arcs, 8))
                BeliefPropagation(max_iters=2)(whole)
        many = scale * rng.normal(size=(8, 9, 9))
        trees.tree_marginals(many, projective=False)
        trees.tree_marginals(many.astype(np.float32), projective=False)


def _use_parser() -> None:
    """Train and use a parser of one sentence, projective and not; marginals of given scores."""
    words, tags = ["the", "dog", "saw", "a", "cat"], ["DET", "NOUN", "VERB", "DET", "NOUN"]
    relations = ["det", "nsubj", "root", "det", "obj"]
    sentence = Sentence.from_forms(words, tags, tags).with_parse([2, 3, 0, 5, 3], relations)
    recipe = Recipe(epochs=1, tag_epochs=1, label_epochs=1, bits=8, tag_bits=8, folds=2)
    rng = np.random.default_rng(6)
    for projective in (True, False):
        parser = Parser.train([sentence] * 4, projective=projective, recipe=recipe)
        list(parser.parse([sentence], marginals=True))
        parser.scores(sentence)
        arcs, sib, gp = (rng.normal(size=(6,) * k) for k in (2, 3, 3))
        marginals(arcs, sib=sib, gp=gp, projective=projective)
    unary_seed(True, arcs, np.empty((6, 6)))  # for reports
    choose(SIZE, 1.0, True, np.ones(3), np.ones(3, dtype=bool))  # by sorting: for Table 1 alone


def _size(usual: int, plain: int) -> int:
    """How large to make something: smaller where kernels run as plain Python, a test."""
    return plain if OFF else usual


def small_graphs(n_labels: int | None = None) -> list[FactorGraph]:
    """One graph per kind of kernel: binary features, pairs, larger tables, zeros, evidence."""
    rng = np.random.default_rng(1)
    binary = FactorGraph.grid(rng.normal(size=(3, 3)), 0.5)
    scopes = [[0, 1], [1, 2], [2, 0], [2, 3], [0, 1, 3]]
    states = [2, 3, 2, 4]
    tables = [rng.normal(size=[states[v] for v in scope]) for scope in scopes]
    mixed = FactorGraph.from_tables(states, scopes, tables)
    pairs = FactorGraph.from_tables(states, scopes[:4], tables[:4])
    hard = mixed.add_tables([[1, 3]], [np.where(np.eye(3, 4) > 0, -np.inf, 0.0)])
    observed = sprinkler().with_evidence({"wet_grass": 1})
    ruled = binary.add_clauses([[0, 1, 2]], 1.0).add_cardinality([[3, 4, 5, 6]], [0.0, 1.0, 0.5])
    forced = ruled.add_exactly_one([[0, 4, 5, 6, 7, 8]]).add_parity([[1, 2, 3]], 800.0)
    sparse = binary.add_at_most_one([[0, 1, 2, 3]])  # hard, but Gibbs can show that it is safe
    K = n_labels or _size(30, 9)
    labels = FactorGraph.empty([K] * 4).add_tables(np.arange(4)[:, None], rng.normal(size=(4, K)))
    around = [[0, 1], [1, 2], [2, 3], [3, 0]]
    near = labels.add_potts(around[:2], 1.0).add_truncated_linear(around[2:], 0.3, 26.0)
    near = near.add_truncated_quadratic([[0, 2]], 0.3, 3.0)
    lean = labels.add_tables(around, rng.normal(size=(4, K, K)))
    return [
        binary, pairs, mixed, hard, observed, _extreme_star(), ruled, forced, sparse, near,
        near.add_truncated_linear([[1, 3]], 1.0, 2.0, hard=True), lean,
    ]  # fmt: skip


def _extreme_star() -> FactorGraph:
    """Tables that fit into linear space one by one, but not their product: solvers turn to logs."""
    leaves = range(1, 5)
    scopes = [[0, leaf] for leaf in leaves] + [[leaf] for leaf in leaves]
    tables = [-300.0 * (1 - np.eye(3))] * 4 + [np.array([0.0, -300.0, -300.0])] * 4
    return FactorGraph.from_tables([3] * 5, scopes, tables)
