"""What is refused, and how: names that act on a terminal, silent misreadings, wrong types.

Every wrong argument of the public API ends in a typed error or in an answer, never in an error from
somewhere deep inside; every settings object refuses a wrong field when it is made.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuzzing
import minfer
from draws import few
from minfer import (
    Auto,
    BeliefPropagation,
    Budget,
    Components,
    EvidenceError,
    Exact,
    FactorGraph,
    Gibbs,
    Join,
    JoinTemplates,
    Marginals,
    MeanField,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    ModelError,
    SettingsError,
    TreeReweighted,
    infer,
    interop,
    parsing,
    pictures,
    plots,
    report,
)
from minfer.cli.parse import _tell_tree
from minfer.cli.render import line
from minfer.errors import visible
from minfer.learn import ChainCRF
from minfer.model.joint import Joint
from minfer.parsing.drawing import Drawn, svg
from minfer.reduction import bound, seeds
from minfer.reduction.recipes import Compensated, Iterated, Paper
from minfer.solvers import planning
from minfer_experiments import proposition1
from refused import all_refused
from test_cli import call

NAMES = ["rain", "wet", "street", "sky"]
MODEL = FactorGraph.pairwise(
    [0.5, -1.0, 0.2, 0.1], [[0, 1], [1, 2], [2, 3], [3, 0]], [1.0, 0.5, -0.3, 0.2], names=NAMES
)
TABLE = np.zeros((2, 2))
ARCS, CUBE = np.zeros((3, 3)), np.zeros((3, 3, 3))
NAN, INF = float("nan"), float("inf")


TREE = parsing.ProjectiveTree([0, 1], [1, 2], 2)


def evidence(**seen: Any) -> FactorGraph:
    return MODEL.with_evidence(seen)


def answer() -> Marginals:
    return Marginals.from_probs(MODEL, np.full(8, 0.5), "by hand")


def test_is_refused_with_the_place_and_the_remedy() -> None:
    all_refused(
        (lambda: MODEL.add_tables((0, 1), TABLE), ModelError, r"\[\[0, 1\]\]"),
        (lambda: MODEL.add_tables(np.arange(2), TABLE), ModelError, "sequence"),
        (lambda: MODEL.add_features([0, 1], 1), ModelError, r"\[\[0, 1\]\]"),
        (lambda: MODEL.add_tables([[0.9, 1.9]], [TABLE]), ModelError, "integers"),
        (lambda: MODEL.add_tables([[False, True]], [TABLE]), ModelError, "integers"),
        (lambda: MODEL.add_global([0.5, 1.5], TREE), ModelError, "integers"),
        (lambda: MODEL.add_flat_tables(np.array([1]), np.array([0.5]), np.zeros(2)),
         ModelError, "integers"),
        (lambda: MODEL.add_flat_tables(np.array([3]), np.array([0]), np.zeros(2)),
         ModelError, "arities of 3"),
        (lambda: MODEL.keep([0.7, 1.2]), ModelError, "integers"),
        (lambda: MODEL.keep([[0, 1], [2, 3]]), ModelError, "one axis"),
        (lambda: MODEL.split([-1, -1, -1, -1]), ModelError, "from 0"),
        (lambda: MODEL.log_score([0.5, 0, 0, 1]), ModelError, "integers"),
        (lambda: FactorGraph.empty([2, 2], "ab"), ModelError, "list of strings"),
        (lambda: MODEL.index(True), ModelError, "True"),
        (lambda: MODEL.add_tables([["rain", "wet"]], [TABLE]), ModelError, "FactorGraph.named"),
        (lambda: MODEL.add_features([["rain", "wet"]], 1.0), ModelError, "FactorGraph.named"),
        (lambda: evidence(wet="yes"), EvidenceError, "wet has states 0 to 1"),
        (lambda: evidence(wet=1.0), EvidenceError, "integers"),
        (lambda: MODEL.with_soft_evidence({"wet": "ab"}), EvidenceError, "wet"),
        (lambda: MODEL.with_soft_evidence([1, 2]), EvidenceError, "mapping"),
        (lambda: answer().factor("rain"), ModelError, "number"),
        (lambda: MODEL.scope("rain"), ModelError, "number"),
        (lambda: answer().factors([4.5]), ModelError, "integers"),
        (lambda: answer().factors([4, 99]), ModelError, "no factor 99"),
        (lambda: minfer.explain(answer(), "rain"), SettingsError, r"minfer\.infer"),
        (lambda: minfer.explain_model(MODEL), SettingsError, r"minfer\.infer"),
        (lambda: infer(MODEL, MinJoint(1.0), Exact), SettingsError, "not a solver"),
        (lambda: infer(MODEL, MinJoint), SettingsError, "not an objective"),
        (lambda: infer("grid.uai", MinJoint(1.0)), ModelError, "FactorGraph"),
        (lambda: minfer.denoise(np.eye(4), labels=2.7), SettingsError, "whole number"),
        (lambda: minfer.read(None), SettingsError, "string or a Path"),
        (lambda: parsing.ProjectiveTree([0], [1], 1.5), ModelError, "one word"),
    )  # fmt: skip


def test_marginals_are_a_mapping_by_name() -> None:
    m = Marginals.from_probs(MODEL, [0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6], "by hand")
    assert {name: p.tolist() for name, p in dict(m).items()} == {
        "rain": [0.1, 0.9], "wet": [0.2, 0.8], "street": [0.3, 0.7], "sky": [0.4, 0.6],
    }  # fmt: skip
    assert [name for name, _ in m.items()] == m.keys() == NAMES
    assert [key in m for key in ("rain", 3, "snow", 4, None)] == [True, True, False, False, False]
    assert [p.tolist() for p in m] == [m[v].tolist() for v in range(4)]
    np.testing.assert_array_equal(m.product(["rain", "sky"]), m.product([0, 3]))
    unnamed = Marginals.from_probs(FactorGraph.empty([2, 3]), [0.5] * 2 + [1 / 3] * 3, "by hand")
    assert list(dict(unnamed)) == ["x0", "x1"]


def test_scopes_that_are_lists_arrays_or_empty_are_read_as_before() -> None:
    for scopes in ([[0, 1]], [(0, 1)], [np.array([0, 1])], np.array([[0, 1]], dtype=np.uint8)):
        assert MODEL.add_tables(scopes, [TABLE]).scope(8).tolist() == [0, 1]
    assert MODEL.add_tables([[]], [1.5]).arity[-1] == 0
    assert MODEL.add_tables([], []).n_factors == MODEL.n_factors
    assert MODEL.keep([]).n_factors == 0


COUNT = (None, "3", NAN, 2.5, 3.0, -1, True, [3], MODEL, Exact)  # no value of a count
NUMBER = (None, "0.1", NAN, -0.5, True, [0.5], 1j, MODEL, Exact)  # none of a number >= 0
LIMIT = ("1", NAN, -1.0, 0.0, True, MODEL)  # none of a time limit
WORD = (None, 1, "no such word", True, MODEL)
FLAG = (None, "yes", 1, 0.0, MODEL)
DAMPING, SCORE = (*NUMBER, 1.0), ("no such word", 3)
#: Values that a field of any class refuses.
ALWAYS = {
    "max_iters": (*COUNT, 0), "tol": NUMBER, "time_limit": LIMIT, "damping": DAMPING,
    "score": SCORE, "rng": COUNT, "factor_cost": NUMBER, "max_divergence": NUMBER,
}  # fmt: skip
SETTINGS: dict[type, dict[str, tuple[Any, ...]]] = {
    Exact: {"max_gib": NUMBER, "method": WORD},
    Paper: {},
    Compensated: {"refreshes": COUNT},
    Iterated: {
        "compensate": FLAG, "rounds": (*COUNT, 0), "max_error": NUMBER, "max_bound": NUMBER[1:],
    },
    BeliefPropagation: {"schedule": WORD, "device": WORD, "dtype": WORD},
    TreeReweighted: {
        "schedule": WORD, "weights": (None, "no such word", ["a"], MODEL), "device": WORD,
        "dtype": WORD,
    },
    MeanField: {"device": WORD, "dtype": WORD},
    Gibbs: {"n_sweeps": (*COUNT, 0), "burn_in": COUNT, "n_chains": (*COUNT, 0)},
    Auto: {"exact_cells": COUNT[1:]},
    Components: {"solver": (None, "bp", 3, Exact), "workers": (*COUNT, 0), "size": COUNT},
    MinSize: {},
    MinDivergence: {"max_factors": (*COUNT, INF)},
    MinJoint: {},
    Budget: {
        "max_divergence": NUMBER[1:], "max_factors": COUNT[1:], "factor_cost": NUMBER[1:],
    },
    parsing.Inference: {
        "least": (*NUMBER, INF), "arc_least": (*NUMBER, INF), "tol": (*NUMBER, INF),
        "objective": (0.1, "joint", MinJoint), "seed": WORD, "paper_order": FLAG,
    },
    parsing.Recipe: {
        "first_epochs": COUNT, "epochs": COUNT, "tag_epochs": COUNT, "label_epochs": COUNT,
        "rate": NUMBER, "pair_rate": NUMBER, "class_rate": NUMBER, "dropout": DAMPING,
        "inference": (None, "full", 3), "bits": (*COUNT, 3, 27), "tag_bits": (*COUNT, 3, 27),
        "folds": (*COUNT, 1),
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_settings_check_every_field(kind: type) -> None:
    given: dict[str, Any] = {"max_factors": 3} if kind is Budget else {}
    public = {f.name for f in dataclasses.fields(kind) if not f.name.startswith("_")}
    assert set(SETTINGS[kind]) <= public <= {*ALWAYS, *SETTINGS[kind]}, "all are in the tables"
    for field in public:
        for value in (ALWAYS | SETTINGS[kind])[field]:
            with pytest.raises(SettingsError, match=field):
                kind(**{**given, field: value})


def test_a_model_in_place_of_settings_gets_advice() -> None:
    for kind in (Exact, BeliefPropagation, TreeReweighted, MeanField, Gibbs, Auto):
        with pytest.raises(SettingsError, match=r"settings come first .* Exact\(\)\(model\)"):
            kind(MODEL)


def test_numpy_numbers_are_numbers() -> None:
    assert BeliefPropagation(max_iters=np.int64(7), tol=np.float32(0.1)).max_iters == 7
    assert MinDivergence(np.int32(3))([0.1, 0.2, 0.3, 0.4]).sum() == 3
    assert MinJoint(np.float64(0.15))([0.1, 0.2]).tolist() == [False, True]
    assert MinJoint(INF)([0.1, 0.2]).tolist() == [False, False]


FUNCTION_SETTINGS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "infer": (
        infer,
        {"model": MODEL, "objective": MinJoint(0.01), "solver": Exact()},
        {
            "recipe": ("paper", Compensated, None), "costs": ("a", ["a"] * 8),
        },
    ),
    "relax": (
        minfer.relax,
        {"model": MODEL, "objective": MinJoint(0.01), "solver": Exact()},
        {"recipe": (Compensated(), None)},
    ),
    "calibrate": (
        minfer.calibrate,
        {"objective": MinJoint, "graphs": [MODEL], "kept": 0.5, "solver": Exact()},
        {"kept": (*NUMBER[1:], 1.5), "graphs": (MODEL, 3)},
    ),
    "tradeoff": (
        minfer.tradeoff,
        {"model": MODEL},
        {"objective": WORD, "repeats": (*COUNT, 0), "values": ([2.0], ["a"], [NAN], [-1.0])},
    ),
    "denoise": (
        minfer.denoise,
        {"image": np.eye(4)},
        {
            "alpha": ("5", NAN, -1.0, True), "coupling": ("5", NAN, -1.0, True),
            "level": ("a", NAN, 7.0, True), "labels": ("2", 2.5, 1, True),
            "means": (["a", "b"], [NAN, 1.0]),
        },
    ),
    "train": (
        parsing.Parser.train,
        {"train": []},
        {
            "projective": FLAG, "single_root": FLAG, "gp": FLAG, "sib": FLAG, "tags": WORD,
            "rng": COUNT, "recipe": ("quick", 3),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTION_SETTINGS)
def test_functions_check_their_settings_before_they_compute(name: str) -> None:
    function, given, fields = FUNCTION_SETTINGS[name]
    for field, wrong in fields.items():
        for value in wrong:
            with pytest.raises(SettingsError):
                function(**{**given, field: value})


class Thing:
    pass


LARGE = 10**30
COUNTED = {"refreshes", "rounds", "steps", "bins", "side", "n", "k", "threads", "workers",
           "chunk_rows", "work"}  # fmt: skip


JUNK: list[Any] = [
    None, "x", b"x", NAN, INF, -1, -1.5, 1.5, True, 1j, LARGE, [], {}, (), Thing(), ["x"], [None],
    [NAN], [0.5, 1.5], [[1, 2], [3]], np.zeros((2, 2, 2)), np.array(["a"]), MODEL, Exact,
    np.ma.masked_array([1.0, 2.0], [True, False]),
]  # fmt: skip


#: Arrays without a dimension, containers of everything.
MORE_JUNK: list[Any] = [
    *JUNK,
    np.array(1), np.array(1.5), np.array("a"), np.array(None, dtype=object), 0, 1, 2.0,
    np.float64(0.5), np.int64(3), [0], [[0]], {"x": 1}, {0: 0}, {"a": None}, {"a": []},
    {"a": {"yes": None}}, "a", "", set(), range(2), [True], [b"x"], [[]], np.zeros(0),
    np.zeros((0, 3)), 2**63, -(2**63), np.array([2**63], dtype=np.uint64), "\ud800", "\0",
    [object()], ("a",), frozenset(["a"]), np.datetime64("2020"),
]  # fmt: skip


def _source(**join: Any) -> JoinTemplates:
    return JoinTemplates([Join(**join)], lambda template, scope: np.ones(len(scope)))


Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


def _add(calls: Calls, function: Callable[..., Any], /, *name: str, **given: Any) -> None:
    """Note a call, by the name of its function or another one."""
    calls[name[0] if name else function.__name__] = (function, given)


def _calls(folder: Path) -> Calls:
    """Public functions with arguments that are right; each of them is then replaced by junk."""
    m, ok = answer(), np.ones(8, dtype=bool)
    result = infer(MODEL, MinJoint(0.01), Exact())
    seed = seeds.unary(MODEL)
    calls: Calls = {}
    add = partial(_add, calls)
    add(FactorGraph.empty, n_states=[2, 2], names=["a", "b"])
    add(FactorGraph.pairwise, log_odds=[0.0, 1.0], edges=[[0, 1]], weights=[1.0], feature="and",
        names=["a", "b"])  # fmt: skip
    add(FactorGraph.grid, log_odds=TABLE, coupling=1.0, feature="equal")
    add(FactorGraph.from_tables, n_states=[2, 2], scopes=[[0, 1]], log_tables=[TABLE],
        names=["a", "b"])  # fmt: skip
    add(FactorGraph.named, n_states={"a": 2}, log_tables={("a",): [0, 1]})
    add(MODEL.add_features, scope=[[0, 1]], theta=1.0, feature="and")
    add(MODEL.add_tables, scopes=[[0, 1]], log_tables=[TABLE])
    add(MODEL.add_tables, "batch", scopes=np.array([[0, 1]]), log_tables=[TABLE])
    add(MODEL.add_flat_tables, arity=np.array([1]), scopes=np.array([0]), log_psi=np.zeros(2))
    add(MODEL.add_global, scope=[0, 1], factor=TREE)
    add(MODEL.scope, factor=0)
    add(MODEL.log_table, factor=0)
    add(MODEL.index, variable=0)
    add(MODEL.name, variable=0)
    add(MODEL.log_score, assignments=[0, 0, 0, 0])
    add(MODEL.with_evidence, evidence={"wet": 1})
    add(MODEL.with_soft_evidence, likelihoods={"wet": [1, 2]})
    add(lambda x: MODEL.with_soft_evidence({"wet": x}), "soft values", x=[1, 2])
    add(lambda x: MODEL.with_evidence({"wet": x}), "states", x=1)
    add(MODEL.tilt, delta=np.zeros(8))
    add(MODEL.keep, which=[0])
    add(MODEL.split, labels=[0, 0, 0, 0])
    add(Marginals.from_probs, graph=MODEL, probs=np.full(8, 0.5), solver="s", log_z=0.0)
    add(m.__getitem__, "getitem", variable=0)
    add(m.factor, factor=0)
    add(m.factors, factors=[4, 5])
    add(m.product, scope=[0, 1])
    add(m.to_dict, variables=[0])
    add(infer, model=MODEL, objective=MinJoint(0.01), solver=Exact(), seed=seed,
        recipe=Compensated(refreshes=1, damping=0.1, score="gain"), costs=np.ones(8),
        source=None)  # fmt: skip
    add(minfer.relax, model=MODEL, objective=MinJoint(0.01), solver=Exact(), seed=seed,
        recipe=Iterated(rounds=1), on_step=None)  # fmt: skip
    add(minfer.calibrate, objective=MinJoint, graphs=[MODEL], error=0.1, solver=Exact(),
        seed=seeds.unary)  # fmt: skip
    add(minfer.factor_gains, model=MODEL, marginals=m, seed=seed)
    add(minfer.explain, result=result, variable="wet", top=3)
    add(minfer.explain_model, result=result, top=3)
    add(seeds.unary, graph=MODEL)
    add(seeds.unary_and_globals, graph=MODEL)
    add(seeds.spanning_forest, graph=MODEL, scores=np.ones(8))
    add(bound.certificate, part=MODEL, dropped=[], max_cells=100.0)
    add(bound.feature_bound, mu=[0.5], theta=[1.0], loose=False)
    add(bound.quantile_bound, joints=[np.full(4, 0.25)], log_tables=[np.zeros(4)])
    add(proposition1.split, "proposition1", model=MODEL, seed=seed, keep=ok)
    add(planning.plan, graph=MODEL)
    add(_source, "join", left=[0, 1], right=[1, 0], theta_low=-1.0, theta_high=1.0, symmetric=False)
    add(JoinTemplates, "joins", joins=[], weights=lambda template, scope: None)
    source = _source(left=[0, 1, 2, 3], right=[1, 0, 2, 3], theta_low=0, theta_high=1)
    add(minfer.ground, base=MODEL, source=source)
    add(minfer.denoise, "picture", image=np.eye(4), objective=None, solver=Exact())
    add(pictures.base_pictures, side=16)
    add(pictures.gaussian, clean=np.eye(3) > 0, sigma=0.3, rng=np.random.default_rng(0))
    add(pictures.bimodal, clean=np.eye(3) > 0, rng=np.random.default_rng(0))
    add(parsing.ProjectiveTree, "tree", heads=[0, 1], modifiers=[1, 2], n_words=2, single_root=True)
    add(parsing.Sentence.from_forms, forms=["a", "b"], upos=["A", "B"], xpos=["A", "B"])
    add(parsing.Sentence.from_text, text="a b")
    add(lambda **given: list(parsing.read_conllu(**given)), "read_conllu",
        source=folder / "none.conllu", on_error="skip")  # fmt: skip
    add(parsing.write_conllu, sentences=[parsing.Sentence.from_text("a b")],
        target=folder / "x.conllu")  # fmt: skip
    add(parsing.evaluate, gold=[], predicted=[])
    add(parsing.marginals, arc_scores=ARCS, sib=CUBE, gp=CUBE, inference=parsing.Inference())
    add(parsing.to_graph, arc_scores=ARCS, sib=CUBE, gp=CUBE)
    add(parsing.tree_marginals, scores=ARCS[None], lengths=[2])
    add(parsing.exact_grandparent, "grandparent", arc_scores=ARCS, gp_scores=CUBE)
    add(parsing.tree_marginals, "tree_marginals of one", scores=ARCS)
    add(parsing.eisner, scores=ARCS)
    add(parsing.chu_liu_edmonds, scores=ARCS)
    add(minfer.read, path=folder / "none.uai", evidence=None)
    add(minfer.read_evidence, path=folder / "none.evid", graph=MODEL)
    add(minfer.write, graph=MODEL, path=folder / "x.uai")
    add(minfer.write_uai, graph=MODEL, path=folder / "x.uai")
    add(minfer.write_fg, graph=MODEL, path=folder / "x.fg")
    add(minfer.write_native, graph=MODEL, path=folder / "x.minfer")
    add(minfer.write_mar, marginals=m, path=folder / "x.MAR")
    add(minfer.write_pr, marginals=Exact()(MODEL), path=folder / "x.PR")
    add(interop.to_arrays, graph=MODEL)
    add(interop.from_arrays, num_states=[2, 2], evidence=None, pairwise=(), enumerated=())
    add(plots.reliability, probs=[0.5], truth=[True], bins=3)
    add(report.report, model=MODEL, objective=MinJoint(0.1), steps=2)
    add(report.denoise_report, image=np.eye(4), steps=2)
    add(report.scores_report, words=["a", "b"], arc_scores=ARCS, gold=[0, 1], steps=2)
    add(report.write_report, path=folder / "x.html", text="x")
    for solver in (
        Exact(), Exact(method="clique-tree"), Exact(method="enumerate"), BeliefPropagation(),
        TreeReweighted(), MeanField(), Gibbs(n_sweeps=3, burn_in=1), Auto(), Components(),
    ):  # fmt: skip
        calls[repr(solver)] = (solver, {"graph": MODEL, "start": m})
    for objective in (
        MinSize(0.1),
        MinDivergence(1),
        MinJoint(0.1),
        Budget(max_divergence=0.1, max_factors=1, factor_cost=0.1),
    ):
        gains = {"gains": np.ones(3), "costs": np.array([1.0, 2.0, 3.0])}
        calls[repr(objective)] = (objective, gains)
        calls[f"gap of {objective!r}"] = (objective.gap, {**gains, "keep": np.ones(3, dtype=bool)})
    return calls


def queries() -> Calls:
    """Exact questions about a network, each with evidence."""
    net, seen = fuzzing.network(), {"b": "p"}
    asked = minfer.Query(net, ["a"], ["b"])
    joint = minfer.query(net, ["a", "d 4"], seen)
    assert isinstance(joint, Joint)
    calls: Calls = {}
    add_ = partial(_add, calls)
    add_(minfer.query, model=net, targets="a", evidence=seen, check=True)
    add_(minfer.Query, model=net, targets=["a"], observed=["b"], soft=())
    add_(asked, "Query()", evidence=seen)
    add_(minfer.mpe, model=net, evidence=seen, k=2, variables=["a"], time_limit=1.0, gap=0.0,
         max_gib=1.0)  # fmt: skip
    add_(minfer.sample, model=net, n=2, evidence=seen, seed=0, max_gib=1.0)
    add_(minfer.sensitivity, model=net, target="a", state="yes", evidence=seen, max_gib=1.0)
    add_(minfer.information, model=net, target="a", evidence=seen, variables=["d 4"])
    add_(minfer.influence, model=net, target="a", evidence=seen, state="yes")
    add_(minfer.intervals, model=net, time_limit=0.01, tol=0.5, variables=["a"], work=10,
         undecided=False, methods=None, kept=None, workers=1, watch=None)  # fmt: skip
    add_(minfer.explore, model=net, evidence=seen, targets=["a"], fix=False, title="x")
    add_(joint.conditional, "joint.conditional")
    add_(joint.axis, "joint.axis", variable="a")
    add_(joint.state, "joint.state", variable="a", state="yes")
    add_(lambda v: joint.marginal(v), "joint.marginal", v="a")
    add_(lambda v: joint.conditional(v), "joint.given", v="a")
    add_(joint.mutual_information, "joint.mutual_information", one=0, other=1)
    add_(lambda key: joint[key], "joint[]", key={"a": "yes", "d 4": 0})
    add_(FactorGraph.network, states={"a": 2}, tables={"a": [0.5, 0.5]})
    add_(lambda t: FactorGraph.network({"a": 2}, {"a": t}), "network table", t=[0.5, 0.5])
    add_(lambda s: FactorGraph.network({"a": s}, {"a": [0.5, 0.5]}), "network states", s=2)
    add_(net.with_state_names, names={"a": ["x", "y"]})
    add_(net.state, variable="a", state="yes")
    add_(net.states, variable="a")
    add_(net.child, factor=0)
    add_(net.parents, variable="b")
    add_(net.conditional, variable="b")
    add_(net.factor_index, factor=0)
    add_(net.structured, tolerance=1e-9)
    return calls


def factors() -> Calls:
    """Logical factors and label distances."""
    six, grid = FactorGraph.empty([2] * 6), FactorGraph.empty([4, 4])
    base = {"scopes": [[0, 1, 2]], "signs": [[1, -1, 1]], "states": 1}
    calls: Calls = {}
    add_ = partial(_add, calls)
    add_(six.add_clauses, **base, weights=1.0)
    add_(six.add_parity, **base, weights=1.0, odd=True)
    add_(six.add_exactly_one, **base)
    add_(six.add_at_most_one, **base)
    add_(six.add_cardinality, **base, log_weights=[0.0, 1.0])
    add_(six.add_cardinality, "add_cardinality at most", **base, at_most=1)
    add_(six.add_or, inputs=[[0, 1]], output=[2], weights=1.0)
    add_(six.add_and, inputs=[[0, 1]], output=[2], weights=1.0)
    add_(grid.add_potts, scope=[[0, 1]], weights=1.0)
    add_(grid.add_truncated_linear, scope=[[0, 1]], weights=1.0, truncation=2, hard=False)
    add_(grid.add_truncated_quadratic, scope=[[0, 1]], weights=1.0, truncation=2)
    add_(grid.add_label_distances, scope=[[0, 1]], log_weights=[0.0, -1.0], weights=1.0)
    return calls


def runs() -> Calls:
    """Prepared solvers, batches, predictions."""
    net = fuzzing.network()
    calls: Calls = {}
    for solver in (Exact(), BeliefPropagation()):
        ready = solver.prepare(net)
        calls[f"prepared {solver!r}"] = (ready, {"evidence": {"a": 1}})
        calls[f"batch {solver!r}"] = (
            ready.batch,
            {"evidence": np.array([[-1, 0, 0, -1]]), "weights": None, "field": None,
             "dtype": "float64", "workers": 1, "log_z": True, "statistics": False},
        )  # fmt: skip
    rows = [{"b": "p"}]
    calls["predict"] = (
        minfer.predict,
        {"model": net, "rows": rows, "targets": ["a"], "evidence": ["b"], "keep": [],
         "on_unknown": "mark", "probabilities": True, "missing": [""], "columns": None,
         "workers": 1, "chunk_rows": 10, "report": None, "check": True},
    )  # fmt: skip
    calls["predict cell"] = (lambda x: minfer.predict(net, [{"b": x}], ["a"]), {"x": "p"})
    calls["predict column"] = (lambda x: minfer.predict(net, {"b": x}, ["a"]), {"x": ["p"]})
    answer = Exact()(net)
    calls["joint"] = (lambda v: answer.joint(v), {"v": "a"})
    calls["intervals of"] = (minfer.intervals(net, 0.01).refuted, {"marginals": answer, "by": 0.1})
    return calls


def rules() -> Calls:
    """Programs of rules."""

    def program() -> minfer.Rules:
        table = [("A", "B"), ("B", "C")]
        return minfer.Rules().closed("f", table).open("s", ["A", "B", "C"]).rule("s(x)", 1.0)

    calls: Calls = {}
    add_ = partial(_add, calls)
    add_(minfer.Rules, split=False, unbound="error", memory_limit=None, threads=1,
         max_groundings=100)  # fmt: skip
    add_(lambda **given: minfer.Rules().closed(**given).store, "closed", name="f",
         table=[("A", "B")], columns=None, types=None, symmetric=False)  # fmt: skip
    add_(lambda **given: minfer.Rules().open(**given).store, "open", name="f",
         candidates=[("A", "B")], columns=None, types=None, log_odds=None, probability=0.5,
         symmetric=False, exactly_one=None, at_most_one=None)  # fmt: skip
    add_(lambda **given: program().rule(**given), "rule", text="s(x)", weight=1.0)
    add_(lambda **given: program().rule(**given), "rule weights", text="s(+x)", weights={"A": 1.0})
    add_(lambda a, truth: program().evidence(a, truth=truth).store, "evidence", a="s(A)",
         truth=True)  # fmt: skip
    add_(lambda a: program().condition(a), "condition", a="s(A)")
    add_(lambda **given: program().infer(**given), "infer", objective=None, solver=None,
         grounding="auto", threshold=None, tolerance=None)  # fmt: skip
    add_(lambda **given: program().explain(**given), "explain", atom="s(A)", n=3)
    add_(lambda w: program().with_weights(w), "rules.with_weights", w={"s(x)": 2.0})
    add_(lambda names: program().to_graph(names=names), "rules.to_graph", names=True)
    return calls


def learners() -> Calls:
    """Estimators."""
    words, labels = [[["a"], ["b"]]], [["x", "y"]]
    crf = ChainCRF().fit(words, labels)
    return {
        "ChainCRF.predict": (crf.predict, {"X": words}),
        "ChainCRF.predict_proba": (crf.predict_proba, {"X": words}),
        "ChainCRF.score": (crf.score, {"X": words, "y": labels}),
    }


def untyped(calls: Calls, junk: list[Any]) -> list[str]:
    """Calls with one argument replaced by junk that end in an error of no type of ours."""
    found = []
    for name, (function, given) in calls.items():
        for argument, value in itertools.product(given, junk):
            if isinstance(value, int) and abs(value) > 1000 and argument in COUNTED:
                continue  # as good as any other, but it takes a while
            try:
                function(**{**given, argument: value})
            except (MinferError, OSError):
                pass
            except Exception as error:
                if not (name == "joint[]" and isinstance(error, IndexError)):  # an end of loops
                    found.append(f"{name}({argument}={value!r}): {error!r}")
    return found


@pytest.mark.filterwarnings("ignore")
def test_no_argument_ends_in_an_untyped_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a fine name for a file
    assert not untyped(_calls(tmp_path), JUNK)


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", [queries, factors, runs, rules, learners])
def test_no_odd_argument_ends_in_an_untyped_error(
    group: Callable[[], Calls], tmp_path: Path, monkeypatch: Any
) -> None:
    if group is rules:
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for function, given in group().values():
        function(**given)
    assert not untyped(group(), few(MORE_JUNK, 8))


HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "two\nlines",
    "bell\x07\x9b2J\x7f",
    "\u202eevil\u2066",
    "[red]x[/red]",
]
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def test_visible_escapes_what_acts_and_leaves_what_is_read() -> None:
    assert visible("\x1b[31m\r\n\t\x00") == r"\x1b[31m\r\n\t\x00"
    assert (
        visible("\x85\x9b\x7f\u2028\u202e\ufeff\ud800") == r"\x85\x9b\x7f\u2028\u202e\ufeff\ud800"
    )
    plain = (
        "naïve Übermaß 東京 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d🔬 C:\\new [b]"
    )
    assert visible(plain) == plain
    for name in HOSTILE:
        assert visible(visible(name)) == visible(name)
        assert not ACTING.search(visible(name))
        assert "\n" not in visible(name)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model whose variables have hostile names, in a file with one."""
    tables = {(name,): [0.0, 0.3 * k] for k, name in enumerate(HOSTILE)}
    tables |= {(a, b): [[1.0, 0.0], [0.0, 1.0]] for a, b in itertools.pairwise(HOSTILE)}
    graph = FactorGraph.named(dict.fromkeys(HOSTILE, 2), tables)
    path = tmp_path / "[bold]\x1b[2J\nmodel.minfer"
    minfer.write(graph, path)
    assert minfer.read(path).names == tuple(HOSTILE), "files keep the true names"
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--evidence", f"{HOSTILE[0]}=1"),
        ("run", "--json"),
        ("run", "--evidence", f"{HOSTILE[0]}=7"),
        ("run", "--query", "\x1b[31mnobody"),
        ("run", "--reduce", "--explain", HOSTILE[0], "--explain", "model", "--compare", "full"),
        ("run", "--solver", "\x1b[31m"),
        ("run", "--out", "\x1b[31m/x"),
        ("plan",),
        ("tradeoff", "--values", "0.1", "--repeats", "1"),
        ("convert", "/nowhere\x1b[2J/x.uai"),
        ("parse", "run"),
    ],
)
def test_no_name_acts_on_the_terminal(hostile: Path, words: tuple[str, ...]) -> None:
    n = 2 if words[0] == "parse" else 1
    found = call(*words[:n], hostile, *words[n:])
    for text in (found.stdout, found.stderr):
        assert not ACTING.search(text), text
        assert "two\nlines" not in text
        assert "\nmodel.minfer" not in text
    if words == ("run",):
        for name in HOSTILE:
            assert visible(name) in found.stdout
    if words == ("run", "--json"):
        assert list(json.loads(found.stdout)["marginals"]) == HOSTILE  # the true names


def test_errors_explanations_and_notebooks_show_names_escaped() -> None:
    graph = FactorGraph.named(dict.fromkeys(HOSTILE, 2), {(n,): [0.0, 1.0] for n in HOSTILE})
    for wrong in (
        lambda: graph.with_evidence({HOSTILE[0]: 7}),
        lambda: graph.add_features([[0]], [1.0], [0, 1]).add_tables([[1]], [np.zeros(3)]),
        lambda: graph.index("\x1b[31mred"),
        lambda: Exact()(graph.add_tables([[0], [0]], [[-np.inf, 0.0], [0.0, -np.inf]])),
    ):
        with pytest.raises(MinferError) as caught:
            wrong()
        assert not ACTING.search(str(caught.value))
        assert "\n" not in str(caught.value)
    result = infer(graph.add_features([[0, 1]], [1.0], "and"), MinJoint(0.0), Exact())
    for text in (str(minfer.explain(result, 0)), str(minfer.explain_model(result))):
        assert not ACTING.search(text)
        assert "two\nlines" not in text
    assert not ACTING.search(result.marginals._repr_html_())


def test_words_of_a_sentence_are_shown_escaped(capsys: Any) -> None:
    words = ["\x1b[31mred", "\u202eevil", "[b]x[/b]"]
    drawn = Drawn(words, words, words, [2, 0, 2], [0.9] * 3, [-1] * 3, [0.0] * 3, 0.5)
    assert drawn.visible().forms == [visible(word) for word in words]
    picture = svg(drawn)
    assert not ACTING.search(picture)
    assert visible(words[0]) in "".join(ET.fromstring(picture).itertext())
    _tell_tree(drawn)
    text = capsys.readouterr().out
    assert not ACTING.search(text)
    for word in words:
        assert visible(word) in text


def test_a_spinner_reads_no_markup_in_a_file_name() -> None:
    assert line("reading [red]\x1b[2J.uai 3 s").plain == r"reading [red]\x1b[2J.uai 3 s"
