"""Calls of the public functions with arguments that are right, of which each is then replaced.

The older half of them stands in ``test_refusals``; here are queries, logical factors, prepared
solvers, predictions, rules and learners.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fuzzing
import minfer
from minfer import BeliefPropagation, Exact, FactorGraph
from minfer.model.joint import Joint

Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


def add(calls: Calls, function: Callable[..., Any], /, *name: str, **given: Any) -> None:
    """Note a call, by the name of its function or another one."""
    calls[name[0] if name else function.__name__] = (function, given)


def queries() -> Calls:
    """Exact questions about a network, each with evidence."""
    net, seen = fuzzing.network(), {"b": "p"}
    asked = minfer.Query(net, ["a"], ["b"])
    joint = minfer.query(net, ["a", "d 4"], seen)
    assert isinstance(joint, Joint)
    calls: Calls = {}
    add_ = partial(add, calls)
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
    add_ = partial(add, calls)
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
    add_ = partial(add, calls)
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
    from minfer.learn import ChainCRF

    words, labels = [[["a"], ["b"]]], [["x", "y"]]
    crf = ChainCRF().fit(words, labels)
    return {
        "ChainCRF.predict": (crf.predict, {"X": words}),
        "ChainCRF.predict_proba": (crf.predict_proba, {"X": words}),
        "ChainCRF.score": (crf.score, {"X": words, "y": labels}),
    }


#: Beside the junk of ``test_refusals``: arrays without a dimension, containers of everything.
MORE_JUNK: list[Any] = [
    np.array(1), np.array(1.5), np.array("a"), np.array(None, dtype=object), 0, 1, 2.0,
    np.float64(0.5), np.int64(3), [0], [[0]], {"x": 1}, {0: 0}, {"a": None}, {"a": []},
    {"a": {"yes": None}}, "a", "", set(), range(2), [True], [b"x"], [[]], np.zeros(0),
    np.zeros((0, 3)), 2**63, -(2**63), np.array([2**63], dtype=np.uint64), "\ud800", "\0",
    [object()], ("a",), frozenset(["a"]), np.datetime64("2020"),
]  # fmt: skip

GROUPS = [queries, factors, runs, rules, learners]
