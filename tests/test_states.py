"""Names of states, and tables that know their child: in the model, answers and native files."""

import numpy as np
import pytest

import minfer
from minfer import EvidenceError, Exact, FactorGraph, ModelError
from minfer.io.evidence import numbered_evidence, parse_json_evidence
from minfer.io.native import format_native, parse_native
from refused import all_refused, refused


def sprinkler() -> FactorGraph:
    return FactorGraph.network(
        {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["no", "yes"], "count": 3},
        {
            "rain": [0.8, 0.2],
            "sprinkler": (["rain"], [[0.6, 0.4], [0.99, 0.01]]),
            "wet": (
                ["sprinkler", "rain"],
                [[[1.0, 0.0], [0.2, 0.8]], [[0.1, 0.9], [0.01, 0.99]]],
            ),
            "count": ("wet", [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]),
        },
    )


def test_names_and_numbers_say_the_same():
    g = sprinkler()
    by_name = Exact()(g.with_evidence({"wet": "yes", "count": "2"}))
    by_number = Exact()(g.with_evidence({2: 1, 3: 2}))
    assert np.array_equal(by_name.probs, by_number.probs)
    assert by_name["rain"]["yes"] == by_name["rain"][1] == by_name.probs[1]
    assert by_name["rain"].to_dict().keys() == {"no", "yes"}
    # by hand: P(rain | wet, count=2); count depends on wet only
    wet = np.array([[[1.0, 0.0], [0.2, 0.8]], [[0.1, 0.9], [0.01, 0.99]]])
    p = [
        pr * sum(ps[s] * wet[s, r, 1] for s in range(2))
        for r, (pr, ps) in enumerate(zip([0.8, 0.2], [[0.6, 0.4], [0.99, 0.01]]))
    ]
    assert by_name["rain"]["yes"] == pytest.approx(p[1] / sum(p), abs=1e-12)
    a = Exact()(g.with_soft_evidence({"wet": {"yes": 0.7, "no": 0.2}}))
    b = Exact()(g.with_soft_evidence({"wet": [0.2, 0.7]}))
    assert np.array_equal(a.probs, b.probs)


def test_intervals_batches_and_probabilities_by_state():
    g = sprinkler()
    found = minfer.intervals(g, work=100_000)
    assert np.array_equal(found["rain"]["yes"], found["rain"][1])
    assert found["rain"].to_dict().keys() == {"no", "yes"}
    assert found.to_dict()["intervals"]["wet"]["states"] == ["no", "yes"]
    assert "states" not in found.to_dict()["intervals"]["count"]
    assert "yes: [" in found._repr_html_()
    batch = Exact().prepare(g).batch({"wet": ["yes", None]})
    assert np.array_equal(batch["rain", "yes"], batch["rain"][:, 1])
    p = Exact()(sprinkler())["rain"]
    assert type(p.max()) is type(p.sum()) is np.float64
    assert type(p["yes"]) is np.float64
    assert type(p[None] * np.ones((3, 1))) is np.ndarray
    assert (2 * p)["yes"] == 2 * p[1]
    some = Exact()(sprinkler())["count"]  # of which some states have no names
    assert type(some[1:]) is np.ndarray
    assert type(some[::-1]) is np.ndarray


def test_a_wrong_name_lists_the_right_ones_and_the_nearest():
    g = sprinkler()
    medical = FactorGraph.empty([2, 2, 2, 2], ["HISTORY", "LVFAILURE", "CVP", "HR"])
    batch, found = Exact().prepare(g).batch({"wet": ["yes", None]}), minfer.intervals(g, work=1000)
    near = "the states no, yes, not 'yess'.*did you mean yes"
    all_refused(
        (lambda: g.with_evidence({"wet": "yess"}), EvidenceError, f"wet has {near}"),
        (lambda: g.with_evidence({"wet": 2}), EvidenceError, "states 0 to 1, not 2"),
        (lambda: g.with_evidence({"count": "three"}), EvidenceError, "0 to 2, not 'three'"),
        (lambda: g.with_soft_evidence({"wet": {"yess": 0.7}}), EvidenceError,
         "soft evidence: wet has the states no, yes.*mean yes"),
        (lambda: Exact()(g)["rain"]["maybe"], ModelError, "the states no, yes"),
        (lambda: found["rain"]["yess"], ModelError, near),
        (lambda: batch["rain", "yess"], ModelError, "did you mean yes"),
        (lambda: medical.index("lvfailure"), ModelError, r"did you mean LVFAILURE\?"),
        (lambda: medical.index("LvFailur"), ModelError, r"did you mean LVFAILURE\?"),
        (lambda: medical.index("cpv"), ModelError, r"did you mean CVP\?"),
    )  # fmt: skip


def test_everything_made_from_a_network_keeps_names_and_children():
    g = sprinkler()
    assert g.directed
    assert [g.child(i) for i in range(4)] == [0, 1, 2, 3]
    assert [g.states(v) for v in ("count", "wet")] == [("0", "1", "2"), ("no", "yes")]
    read = parse_native("x", format_native(g))
    for h in (read, g.with_evidence({0: 1}), g.keep(np.ones(4, dtype=bool))):
        assert h._states == g._states
        assert h.directed
    kept = g.keep(np.array([False, True, True, False]))
    assert [kept.child(i) for i in range(2)] == [1, 2]
    assert not kept.directed
    more = g.add_features([[0, 1]], [0.3])
    assert more.child(4) is None
    assert more.child(3) == 3
    assert not more.directed
    assert more.states("rain") == ("no", "yes")
    assert not g.with_weights(g.weights * 2).directed  # no longer distributions
    g = FactorGraph.network(
        {"a": ["x", "y"], "b": 2, "c": ["p", "q", "r"]},
        {"a": [0.5, 0.5], "b": ("c", np.full((3, 2), 0.5)), "c": [0.2, 0.3, 0.5]},
    )
    parts = {c.graph.names: c.graph for c in g.components()}
    assert parts[("a",)].states(0) == ("x", "y")
    two = parts[("b", "c")]
    assert two.directed
    assert two.states("c") == ("p", "q", "r")
    assert {two.name(two.child(i)) for i in range(2)} == {"b", "c"}


@pytest.mark.parametrize(
    ("states", "tables", "message"),
    [
        ({"a": 2}, {"a": [0.5, 0.4]}, "probabilities of a sum to 0.9"),
        ({"a": 2}, {"a": [1.5, -0.5]}, "negative"),
        ({"a": 2}, {"a": [np.nan, 1.0]}, "table of a"),
        ({"a": 2}, {"a": [0.2, 0.3, 0.5]}, "3 numbers"),
        ({"a": 2, "b": 2}, {"a": [0.5, 0.5]}, "no table for b"),
        ({"a": 2}, {"a": ("b", [[0.5, 0.5]])}, "no variable 'b'"),
        ({"a": 2, "b": 2}, {"a": ("b", np.full((2, 2), 0.5)), "b": ("a", np.full((2, 2), 0.5))},
         "cycle: a <- b <- a"),
        ({"a": 2}, {"a": ("a", np.full((2, 2), 0.5))}, "own parent"),
        ({"a": ["x", "x"]}, {"a": [0.5, 0.5]}, "two states of the name"),
        ({"a": "xy"}, {"a": [0.5, 0.5]}, "list of names"),
        ({"a": 2, "b": ["u", "v"]}, {"b": ("a", [[0.5, 0.5], [0.5, 0.4]]), "a": [0.5, 0.5]},
         "of b given a=1 sum to 0.9"),
        ({"a": 2, "b": 3}, {"a": [0.5, 0.5], "b": ("a", [[0.2, 0.3], [0.5, 0.1], [0.3, 0.6]])},
         r"table of b has shape \(3, 2\), not \(2, 3\).*columns.*table.T"),
        ({"a": 2, "c": 3, "b": 2},
         {"a": [0.5, 0.5], "c": np.full(3, 1 / 3), "b": (["a", "c"], np.full((3, 2, 2), 0.5))},
         r"table of b has shape \(3, 2, 2\), not \(2, 3, 2\)"),
        ({"a": ["x", "y"], "b": 2}, {"a": [0.5, 0.5], "b": ("a", [[0.2, 0.1], [0.8, 0.9]])},
         "given a=x sum to 0.3, not 1; its columns do.*table.T"),
    ],
)  # fmt: skip
def test_bad_networks_are_refused_with_the_place(states, tables, message):
    refused(ModelError, message, FactorGraph.network, states, tables)


def test_tables_of_rows_and_flat_ones_are_taken():
    rows = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.5, 0.5], [1.0, 0.0]])
    states = {"a": 2, "c": 3, "b": 2}
    for table in (rows, rows.reshape(2, 3, 2), rows.ravel(), rows.tolist()):
        g = FactorGraph.network(
            states, {"a": [[0.5, 0.5]], "c": [0.2, 0.3, 0.5], "b": (["a", "c"], table)}
        )
        assert np.allclose(g.conditional("b").table, rows.reshape(2, 3, 2))


def test_the_table_of_a_variable_by_names():
    """P(variable | parents) as it was given, its parents in their order; refused where none is."""
    g = FactorGraph.network(
        {"a": ["no", "yes"], "b": 3, "c": ["low", "high"]},
        {
            "c": (["b", "a"], [[[0.1, 0.9], [0.2, 0.8]]] * 2 + [[[0.5, 0.5], [1, 0]]]),
            "a": [0.25, 0.75],
            "b": [0.5, 0.25, 0.25],
        },
    )
    assert g.parents("c") == ("b", "a")
    assert g.parents(0) == ()
    c = g.conditional("c")
    assert c.variables == ("b", "a", "c")
    assert c.given == ("b", "a")
    assert c["2", "no", "high"] == pytest.approx(0.5, abs=1e-15)
    assert c["2", "yes", "high"] == 0.0
    np.testing.assert_allclose(c.table.sum(axis=-1), 1.0, rtol=1e-15)
    assert g.conditional("a").given == ()
    seen = g.with_evidence({"a": "yes"})  # evidence is not part of the table
    np.testing.assert_array_equal(seen.conditional("c").table, c.table)
    with pytest.raises(ModelError, match="did you mean"):
        FactorGraph.network({"wet": 2}, {"wet": [0.5, 0.5]}).conditional("wett")
    plain = FactorGraph.named({"rain": 2}, {("rain",): [0.0, -1.4]})
    for ask in (plain.parents, plain.conditional):
        refused(ModelError, r"rain has no conditional distribution", ask, "rain")


def test_named_tables_in_probabilities_know_their_children():
    g = FactorGraph.named(
        {"rain": ["no", "yes"], "wet": ["no", "yes"]},
        {("rain",): [0.8, 0.2], ("rain", "wet"): [[1.0, 0.0], [0.2, 0.8]]},
        probabilities=True,
    )
    assert g.directed
    assert [g.child(0), g.child(1)] == [0, 1]
    assert g.states("wet") == ("no", "yes")
    assert Exact()(g)["wet"]["yes"] == pytest.approx(0.16, abs=1e-15)
    assert Exact()(g).log_z == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("tables", "children"),
    [
        ([(("a",), [3.0, 1.0]), (("a", "b"), [[5.0, 1.0], [1.0, 5.0]])], [None, None]),
        ([(("a",), [0.5, 0.5]), (("a", "b"), [[5.0, 1.0], [1.0, 5.0]])], [0, None]),
        # two tables for b, or a cycle: no conditional distributions of one network
        ([("b", [0.5, 0.5]), (("a", "b"), [[0.9, 0.1], [0.2, 0.8]])], [None, None]),
        ([(("b", "a"), np.full((2, 2), 0.5)), (("a", "b"), np.full((2, 2), 0.5))], [None, None]),
        # flat, with the last variable fastest, and rounded
        ([(("a",), [1.0, 0.0]), (("a", "b"), [0.33333, 0.66666, 0.2, 0.8])], [0, 1]),
    ],
)
def test_named_tables_in_probabilities_that_are_plain_factors(tables, children):
    g = FactorGraph.named({"a": 2, "b": 2}, tables, probabilities=True)
    assert [g.child(i) for i in range(len(tables))] == children
    with np.errstate(divide="ignore"):
        logs = [(scope, np.log(np.asarray(table, dtype=float))) for scope, table in tables]
    want = Exact()(FactorGraph.named({"a": 2, "b": 2}, logs))
    assert np.allclose(Exact()(g).probs, want.probs, atol=1e-5)


def test_bad_named_probabilities():
    for table, message in (
        ([0.5, -0.5], r"table of \(a\) has -0.5"),
        ([0.5, np.nan], r"table of \(a\) has nan"),
        ([0.0, 0.0], r"table of \(a\) is zero everywhere"),
        ([0.2, 0.3, 0.5], r"shape \(3,\)"),
    ):
        tables = {("a",): table}
        refused(ModelError, message, FactorGraph.named, {"a": 2}, tables, probabilities=True)


CPT = [[0.9, 0.1], [0.2, 0.8]]


@pytest.mark.parametrize(
    "build",
    [
        lambda: FactorGraph.named({"a": 2, "b": 2}, {("a",): [0.7, 0.3], ("a", "b"): CPT}),
        lambda: FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0.7, 0.3], CPT]),
        # a child's states along the first axis
        lambda: FactorGraph.from_tables([2, 2], [[0], [1, 0]], [[1.0, 0.0], np.transpose(CPT)]),
        lambda: FactorGraph.empty([2, 2]).add_tables(np.array([[0, 1]]), [CPT]),
    ],
)
def test_log_tables_that_look_like_probabilities_are_noted(build):
    with pytest.warns(UserWarning, match="look like probabilities") as said:
        build()
    assert len(said) == 1
    assert said[0].filename == __file__
    assert "probabilities=True" in str(said[0].message)


@pytest.mark.parametrize(
    "tables",
    [
        [np.eye(2)],  # an Ising coupling of 1
        [np.zeros((2, 2))],
        [np.log(CPT)],
        [[[0.5, 0.0], [0.0, 0.5]]],
    ],
)
@pytest.mark.filterwarnings("error")
def test_log_tables_that_do_not_are_not(tables):
    FactorGraph.from_tables([2, 2], [[0, 1]] * len(tables), tables)
    FactorGraph.named({"a": 2, "b": 2}, {("a", "b"): CPT}, probabilities=True)
    FactorGraph.network({"a": 2}, {"a": [0.3, 0.7]})


def counted_states() -> FactorGraph:
    """States whose names are numerals that are not their numbers."""
    return FactorGraph.network(
        {"n": ["1", "2", "3"], "m": ["no", "yes"]},
        {"n": [0.2, 0.3, 0.5], "m": ("n", [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])},
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda g: minfer.query(g, "m", {"n": {1: 0.5, 2: 0.5}}),
        lambda g: minfer.sample(g, 3, {"n": 1}),
        lambda g: minfer.sensitivity(g, "n", 1),
        lambda g: minfer.influence(g, "n", {"m": "yes"}, state=1),
        lambda g: g.with_soft_evidence({"n": {1: 0.5}}),
        lambda g: g.state("n", 1),
        lambda g: Exact().prepare(g).batch({"n": ["1"]})["n", 1],
        lambda g: minfer.query(g, ["n", "m"])[{"n": 1}],
    ],
)
def test_a_number_that_may_be_a_name_is_refused(ask):
    """Of a variable called by its name, where the state of that name has another number.

    Evidence has these rules in ``test_evidence``.
    """
    with pytest.raises((EvidenceError, ModelError), match=r"""1, 2, 3.*say ['"]"""):
        ask(counted_states())


def parse_and_number(graph: FactorGraph, text: str) -> object:
    return numbered_evidence(graph, parse_json_evidence(text))


def test_by_numbers_alone_and_by_names_alone():
    g = counted_states()
    wanted = minfer.query(g, "m", {"n": "2"})
    assert wanted["yes"] == 0.5
    assert np.array_equal(minfer.query(g, 1, {0: 1}), wanted)  # all by number
    assert g.state(0, 1) == g.state("n", "2") == 1
    rows = Exact().prepare(g).batch(np.array([[1, -1]]))
    assert np.allclose(rows["m"][0], wanted)
    assert parse_and_number(g, '{"n": "2"}') == parse_and_number(g, '{"0": 1}') == {0: 1}
    # a table's cells are names first, of any type
    for cell in (2, "2", 2.0, " 2"):
        assert minfer.predict(g, [{"n": cell}], "m")[0]["P(m=yes)"] == pytest.approx(0.5)
    same = FactorGraph.network({"n": ["0", "1", "many"]}, {"n": [0.2, 0.3, 0.5]})
    assert [same.state("n", k) for k in range(3)] == [0, 1, 2]  # nothing to be mistaken
    assert counted_states().state("m", 1) == 1
    # naming the states of one variable leaves the others alone
    g = FactorGraph.empty([2, 2], ["a", "b"]).with_state_names({"a": ["n", "y"]})
    g = g.with_state_names({"b": ["off", "on"]})
    assert (g.states("a"), g.states("b")) == (("n", "y"), ("off", "on"))
    assert g.with_state_names({"a": ["0", "1"]}).states("b") == ("off", "on")
