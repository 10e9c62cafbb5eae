"""What the command line asks of the library, asked directly; answers that show what they are."""

from __future__ import annotations

import json
import math
from pathlib import Path

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
    MinJoint,
    RefusedError,
    SettingsError,
    infer,
    parsing,
    plan,
    tradeoff,
)
from minfer.errors import ModelError
from minfer.examples import EXAMPLES, listed_examples, sprinkler, sprinkler_story, write_example
from minfer.io.text import check_writable, json_text, write_records
from minfer.parsing.conllu import read_treebank, sentence_meant, write_conllu
from minfer.parsing.evaluation import assess
from minfer.parsing.tiny import tiny_treebank
from minfer.pictures import side_by_side
from minfer.queries.asked import ask
from minfer.reduction.recipes import Compensated
from minfer.reduction.spoken_request import Request, account
from minfer.solvers.named import SOLVERS, plain_settings, solver_named
from minfer.upkeep.warmup import warmed_up
from refused import all_refused, refused


@pytest.fixture
def model() -> FactorGraph:
    return FactorGraph.grid(3 * np.random.default_rng(0).normal(size=(6, 6)), 1.0)


def test_a_request_is_an_inference(model: FactorGraph) -> None:
    asked = Request(factor_cost=0.05)
    found = asked(model, BeliefPropagation())
    same = infer(model, MinJoint(0.05), recipe=Compensated())
    np.testing.assert_array_equal(found.marginals.probs, same.marginals.probs)
    assert "MinJoint" in asked.describe(found)
    told = account(asked, found, BeliefPropagation(), comparing=True, explaining=[("all", None)])
    content = json.loads(json_text(told.to_dict([0])))
    assert content["reduction"]["method"] == "compensated"
    assert content["compare"]["full"]["status"] == "exact"
    assert list(content["marginals"]) == ["x0"]
    assert told.full.log_z == pytest.approx(Exact()(model).log_z, abs=1.0)
    assert told.summary()["method"] == asked.describe(found)


def test_solvers_by_name() -> None:
    for name, kind in SOLVERS.items():
        assert type(solver_named(name)).__name__ == kind
    assert plain_settings()["schedule"] == (str, ("bp", "trw"))
    all_refused(
        (lambda: solver_named("magic"), SettingsError, ""),
        (lambda: solver_named("bp", max_gib=1.0), SettingsError, ""),
        (lambda: solver_named("bp", damping=2.0), SettingsError, ""),
        (lambda: Request(method="magic"), SettingsError, "method must be"),
        (lambda: Request(seed_graph="tree"), SettingsError, "seed_graph must be"),
        (lambda: Request(time_limit=-1.0), SettingsError, "time_limit must be"),
        (lambda: Request(max_factors=-1), SettingsError, "max_factors"),
        (lambda: next(warmed_up("nothing")), SettingsError, "there is no part 'nothing'"),
    )


def test_files_are_checked_before_the_work(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a\n")
    check_writable("-", [source])
    check_writable(tmp_path / "out.csv", [source, None, "x3=1"])
    for path, said in ((source, "overwritten"), (tmp_path, "folder"), ("no/x", "no folder no")):
        with pytest.raises(SettingsError, match=said):
            check_writable(path, [source])
    write_records(source, [{"a": 1, "b": "x,y"}, {"a": 2, "b": ""}])
    assert source.read_text() == 'a,b\n1,"x,y"\n2,\n'
    assert json_text({"x": [math.nan, np.float64(1), (np.inf,)]}) == '{"x": [null, 1.0, [null]]}'


def test_questions_are_told() -> None:
    graph = sprinkler()
    joint = ask(graph, [1, 2], {3: 1})
    each = ask(graph, [1, 2], {3: 1}, separate=True)
    everything = ask(graph, None, {3: 1})
    assert joint.log_evidence == pytest.approx(each.log_evidence) == everything.log_evidence
    assert set(joint.to_dict()) == {"targets", "evidence", "log_evidence", "joint"}
    assert list(each.to_dict()["marginals"]) == ["rain", "sprinkler"]
    assert len(everything.to_dict()["marginals"]) == 7
    assert [len([*one.faces(20)]) for one in (joint, each, everything)] == [1, 2, 0]
    assert ask(graph, [1], {}).summary() == {}


def test_parses_are_assessed(tmp_path: Path) -> None:
    trees = list(tiny_treebank())
    found = assess(trees, trees, trees)
    assert found.scores.uas == 100.0
    assert found.calibration is None
    assert found.differences["las"].difference == 0.0
    assert set(found.to_dict()) == {"scores", "other", "differences"}
    path = str(tmp_path / "tiny.conllu")
    write_conllu(trees, path)
    assert len(read_treebank(path)) == 40
    assert sentence_meant(path, 2).forms == trees[1].forms
    with pytest.warns(UserWarning, match="is taken as one word"):
        assert sentence_meant("Birds sing.").heads is None
    for text, number in (("nothing.conllu", 1), ("Birds sing", 2), (" ", 1)):
        with pytest.raises(SettingsError):
            sentence_meant(text, number)
    (tmp_path / "empty.conllu").write_text("")
    with pytest.raises(ModelError, match="no sentence in it"):
        read_treebank(str(tmp_path / "empty.conllu"))


def test_examples_are_written(tmp_path: Path) -> None:
    assert set(listed_examples()) == {*EXAMPLES, "treebank"}
    assert "keep no names" in write_example("sprinkler", str(tmp_path / "a.uai"))
    assert "parse train" in write_example("treebank", str(tmp_path / "a.conllu"))
    with pytest.raises(SettingsError):
        write_example("sprinkler", str(tmp_path / "a.txt"))
    rows = {row[0]: row[1:] for row in sprinkler_story().rows}
    assert rows["wet_grass"][1:] == ("observed", "observed")
    before, grass, street = map(float, rows["sprinkler"])
    assert before < grass > street


def test_pictures_side_by_side() -> None:
    pictures = [np.eye(8, dtype=bool)] * 2
    wide = side_by_side(["one", "two"], pictures, 80)
    narrow = side_by_side(["one", "two"], pictures, 4)
    assert "one" in wide[0]
    assert "two" in wide[0]
    assert len(narrow) > len(wide)


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
    "posterior": lambda: minfer.query(NETWORK, "<a>", {"b": "yes"}),
    "marginal": lambda: minfer.query(NETWORK)["<a>"],
    "joint": lambda: minfer.query(NETWORK, ["<a>", "b"]),
    "conditional": lambda: NETWORK.conditional("b"),
    "influence": lambda: minfer.influence(NETWORK, "b", {"<a>": "<no>"}),
    "information": lambda: minfer.information(NETWORK, "<a>"),
    "sensitivity": lambda: minfer.sensitivity(NETWORK, "<a>", "yes"),
    "samples": lambda: minfer.sample(NETWORK, 30),
}
NETWORK = FactorGraph.network(
    {"<a>": ["<no>", "yes"], "b": ["no", "yes"]},
    {"<a>": [0.3, 0.7], "b": (["<a>"], [[0.9, 0.1], [0.2, 0.8]])},
)


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


def test_distributions_say_their_states():
    p = minfer.query(NETWORK, "<a>", {"b": "yes"})
    assert repr(p) == "Posterior(<a>: <no> 0.0508, yes 0.9492)"
    assert str(p).splitlines()[0] == "P(<a> | b=yes)"
    assert str(p).splitlines()[2].split() == ["<a>", "probability"]
    assert str(2 * p).splitlines()[0] == "<a>", "what is computed from one is no distribution"
    for other in (p[:1], p > 0.5, np.outer(p, p), p[None]):
        assert repr(other).startswith(("array", "Probabilities(<a>: <no> 0", "Posterior(<a>:"))
    assert repr(minfer.query(NETWORK, "<a>", {"b": [0.2, 0.8]})).startswith("Posterior(")
    many = FactorGraph.network({"m": 30}, {"m": np.arange(30) / 435})
    lines = str(minfer.query(many, "m")).splitlines()
    assert lines[3].split() == ["29", "0.0667"]
    assert lines[-1] == "  and 10 more, none larger"
    assert repr(minfer.query(many, "m")).endswith("5 0.0115, ...)")


def test_conditional_tables_have_a_row_for_each_state_of_the_parents():
    lines = str(NETWORK.conditional("b")).splitlines()
    assert lines == [
        "P(b | <a>)",
        "",
        "<a>     b=no   b=yes",
        "<no>  0.9000  0.1000",
        "yes   0.2000  0.8000",
    ]
    wide = FactorGraph.network(
        {"a": 2, "m": 9}, {"a": [1, 0], "m": (["a"], np.full((2, 9), 1 / 9))}
    )
    assert len(str(wide.conditional("m")).splitlines()) == 3 + 18
    never = minfer.query(wide, ["a", "m"]).marginal("a", "m").conditional("a").marginal
    with pytest.raises(ModelError, match="before conditioning"):
        never("a")
    by_m = minfer.query(wide, ["m", "a"]).conditional("a")
    assert by_m.given == ("a",)


def test_answers_show_their_estimated_error():
    m = Gibbs(n_sweeps=3000)(NETWORK)
    assert f"estimated error {m.error_estimate:.2g}" in repr(m)
    assert "estimated error" in m._repr_html_()
    assert "estimated error" not in repr(Exact()(NETWORK))


def test_parts_of_samples_are_arrays():
    x = minfer.sample(NETWORK, 30)
    assert repr(x) == "Samples(30 samples of 2 variables)"
    assert str(x).splitlines()[-1] == "  and 20 more"
    assert repr(x[:2]).startswith("array(")
    assert str(x.reshape(-1)).startswith("[")
    assert x.reshape(-1)._repr_html_().startswith("<pre>")
    wide = minfer.sample(FactorGraph.pairwise(np.zeros(12), [[0, 1]], [1.0]), 2)
    assert str(wide).splitlines()[-1] == "  2 variables not shown"


def test_a_question_about_one_atom_answers_that_atom():
    pytest.importorskip("duckdb")
    rules = minfer.Rules().open("smokes", ["anna", "bob"])
    rules = rules.closed("friends", [("anna", "bob")]).rule("1: friends(x, y) => smokes(y)")
    found = rules.infer()
    assert [atom for atom, _ in found.query("smokes(bob)")] == ["smokes(bob)"]
    assert found.query("smokes(bob)")[0][1] == found.probability("smokes(bob)")
    assert len(found.query("smokes(x)")) == 2


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
