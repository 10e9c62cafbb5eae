"""Names that say what they are, and answers that show it: in a terminal and in a notebook."""

from __future__ import annotations

import numpy as np
import pytest

import minfer
from minfer import (
    Auto,
    BeliefPropagation,
    Budget,
    Components,
    Exact,
    FactorGraph,
    Gibbs,
    Marginals,
    MinDivergence,
    RefusedError,
    SettingsError,
    infer,
    parsing,
    plan,
    tradeoff,
)
from refused import refused

MODEL = FactorGraph.pairwise(
    [1.0, 0.2, -1.0, 0.3], [[0, 1], [1, 2], [2, 3]], [2.0, 0.1, 0.5], names=["<a>", "b", "c", "d"]
)
RESULT = infer(MODEL, MinDivergence(1), Exact())


def test_old_names_say_the_new_ones_and_settings_are_given_by_name():
    for old, new in (
        ("gains", "scores"),
        ("score", "score_kind"),
        ("error_estimate", "mean_error_estimate"),
    ):
        refused(AttributeError, f"{old}.*: it is called {new}", getattr, RESULT, old)
    with pytest.raises(AttributeError, match=r"'nothing'$"):
        _ = RESULT.nothing
    with pytest.raises(AttributeError, match="score_kind"):
        _ = minfer.explain(RESULT, "b").score
    for old in ("batch_marginals", "projective_marginals", "nonprojective_marginals"):
        refused(AttributeError, "tree_marginals", getattr, parsing, old)
    for kind in (Auto, BeliefPropagation, Exact, Gibbs, Budget, parsing.Inference):
        refused(SettingsError, r"by name, as in \w+\(\w+=\.\.\.\), not 10", kind, 10)
    refused(TypeError, "", Components, Exact(), 2)


def test_answers_have_their_solver():
    for solver in (Exact(), BeliefPropagation(damping=0.2), Auto(), Components(Exact())):
        m = solver(MODEL)
        assert m.solver == solver
        assert m.to_dict()["solver"] == repr(solver)
    given = Marginals.from_probs(MODEL, Exact()(MODEL).probs, "another library")
    assert repr(given.solver) == "another library"
    refused(RefusedError, "another library is a name", given.solver, MODEL)
    assert Marginals.from_probs(MODEL, given.probs, Exact()).solver == Exact()
    refused(SettingsError, "is not a solver", Marginals.from_probs, MODEL, given.probs, 3)
    batch = BeliefPropagation().prepare(MODEL).batch({"b": [0, 1]})
    assert batch.solver == BeliefPropagation()


FACED = {
    "plan": lambda: plan(MODEL),
    "explanation": lambda: minfer.explain(RESULT, "b"),
    "model explanation": lambda: minfer.explain_model(RESULT),
    "tradeoff": lambda: tradeoff(MODEL, values=[0.0, 0.5], repeats=1),
    "certificate": lambda: RESULT.certificate,
    "plan of rules": lambda: smokers().plan(),
    "explanation of an atom": lambda: smokers().infer().explain('smokes("<a>")'),
}


def smokers() -> minfer.Rules:
    pytest.importorskip("duckdb")
    rules = minfer.Rules().open("smokes", ["<a>", "Bob"]).closed("friends", [("<a>", "Bob")])
    return rules.rule("0.7: friends(x, y) => (smokes(x) <=> smokes(y))").rule("-1: smokes(x)")


@pytest.mark.parametrize("made", FACED.values(), ids=FACED)
def test_faces(made):
    found = made()
    assert len(repr(found)) < 400
    assert "\n" not in repr(found)
    assert repr(found).startswith(type(found).__name__ + "(")
    assert "\n" in str(found), "all of it"
    page = found._repr_html_()
    assert page.startswith("<div><b>")
    assert page.count("<tr>") >= 2
    assert "<a>" not in page, "names are escaped"


def test_conclusions_come_first():
    found = tradeoff(MODEL, values=[0.0, 0.5], repeats=1)
    assert str(found).startswith(found.verdict)
    assert found.verdict in repr(found)
    assert str(plan(MODEL)).startswith("use exact: ")
    sure = RESULT.certificate
    assert str(sure).startswith("D(p_H || p_F) is at most")
    lines = str(plan(MODEL)).splitlines()
    assert lines[2].split() == ["solver", "time,", "about", "memory", "remark"]
    assert len({line.find("MiB") for line in lines if "MiB" in line}) == 1, "columns are aligned"
    hard = FactorGraph.grid(np.random.default_rng(0).normal(size=(4, 4)), 1.0)
    m = Gibbs(n_sweeps=2000, burn_in=100)(hard)
    assert m.to_dict()["error_estimate"] == m.error_estimate > 0
    reduced = RESULT.to_dict()["reduction"]
    assert "error_estimate" not in reduced
    assert reduced["mean_error_estimate"] == pytest.approx(RESULT.error_estimates.mean())
