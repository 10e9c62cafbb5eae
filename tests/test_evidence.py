"""Every door reads evidence by one set of rules (recipes/evidence.md, minfer.model.evidence)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minfer
from minfer import EvidenceError, Exact, FactorGraph, SettingsError
from minfer.io.evidence import numbered_evidence, parse_json_evidence
from minfer.io.typed import evidence_of
from minfer.learn import BayesianNetwork
from refused import refused

STATES = {
    "names": ["no", "yes"],
    "numbers": 2,
    "numerals": ["1", "2"],
    "truth": ["false", "True"],
    "bins": ["< 2", ">= 2"],
}
P = {0: 0.1, 1: 0.7, None: 0.4}  # of m = 1, by the state of n; None: not known
NAT, MASKED = np.datetime64("NaT"), np.ma.masked


def model(states: str) -> FactorGraph:
    return FactorGraph.network(
        {"n": STATES[states], "m": 2}, {"n": [0.5, 0.5], "m": ("n", [[0.9, 0.1], [0.3, 0.7]])}
    )


def frame(library: str, value: Any) -> Any:
    module = pytest.importorskip({"categories": "pandas"}.get(library, library))
    try:
        made = (module.table if library == "pyarrow" else module.DataFrame)({"n": [value]})
        return made.astype("category") if library == "categories" else made
    except Exception:  # not a value that such a frame can have
        pytest.skip(f"{library} has no {value!r}")


def json_evidence(g: FactorGraph, value: Any) -> float:
    try:
        text = json.dumps({"n": value}, allow_nan=False)
    except (TypeError, ValueError):
        pytest.skip("JSON has no such value")
    return minfer.query(g, "m", numbered_evidence(g, parse_json_evidence(text)))[1]


def typed(g: FactorGraph, value: Any) -> float:
    if not isinstance(value, str) or not value:
        pytest.skip("texts only")
    return minfer.query(g, "m", evidence_of(g, [f"n='{value}'"]))[1]


def batch(g: FactorGraph, rows: Any) -> float:
    return Exact().prepare(g).batch(rows)["m", 1][0]


def predicted(g: FactorGraph, rows: Any, **more: Any) -> float:
    found = minfer.predict(g, rows, "m", **more)
    column = [row["P(m=1)"] for row in found] if isinstance(found, list) else found["P(m=1)"]
    return float(np.asarray(column)[0])


def fitted(g: FactorGraph, value: Any) -> float:
    """By what was counted of n, all of it in one state unless it is not known."""
    counts = BayesianNetwork(g, prior="none").fit({"n": [value], "m": [1]}).counts_["n"]
    return float(counts @ [P[0], P[1]] if (counts > 0.99).any() else P[None])


ONE: dict[str, Callable[[FactorGraph, Any], float]] = {
    "with_evidence": lambda g, x: Exact()(g.with_evidence({"n": x}))["m"][1],
    "query": lambda g, x: minfer.query(g, "m", {"n": x})[1],
    "prepared question": lambda g, x: minfer.queries.prepare(g, "m", ["n"])({"n": x})[1],
    "prepared solver": lambda g, x: Exact().prepare(g)({"n": x})["m"][1],
    "mpe": lambda g, x: P[g.state("n", minfer.mpe(g, {"n": x})["n"])],
    "json": json_evidence,
    "typed": typed,
}
ROWS: dict[str, Callable[[FactorGraph, Any], float]] = {
    "prepared states": lambda g, x: Exact().prepare(g)(np.array([x, None], object))["m"][1],
    "batch of mappings": lambda g, x: batch(g, [{"n": x}]),
    "batch of columns": lambda g, x: batch(g, {"n": [x]}),
    "batch of states": lambda g, x: batch(g, [[x, None]]),
    "batch of an array": lambda g, x: batch(g, np.array([[x, None]], object)),
    "batch of pandas": lambda g, x: batch(g, frame("pandas", x)),
    "batch of categories": lambda g, x: batch(g, frame("categories", x)),
    "batch of polars": lambda g, x: batch(g, frame("polars", x)),
    "batch of arrow": lambda g, x: batch(g, frame("pyarrow", x)),
}
CELLS: dict[str, Callable[[FactorGraph, Any], float]] = {
    "predict columns": lambda g, x: predicted(g, {"n": [x]}),
    "predict records": lambda g, x: predicted(g, [{"n": x}]),
    "predict an array": lambda g, x: predicted(g, np.array([[x]], object), columns=["n"]),
    "predict pandas": lambda g, x: predicted(g, frame("pandas", x)),
    "predict categories": lambda g, x: predicted(g, frame("categories", x)),
    "predict polars": lambda g, x: predicted(g, frame("polars", x)),
    "predict arrow": lambda g, x: predicted(g, frame("pyarrow", x)),
    "fit": fitted,
}
DOORS = {**ONE, **ROWS, **CELLS}
NO = "refused"
#: States, what is said of n, and what that is: as one evidence, in rows of a program, in a table.
RULES: list[tuple[str, Any, Any, Any, Any]] = [
    ("names", "yes", 1, 1, 1),
    ("names", 1, 1, 1, 1),
    ("names", np.int8(1), 1, 1, 1),
    ("names", np.str_("yes"), 1, 1, 1),
    ("names", b"yes", NO, NO, 1),
    ("names", 1.0, NO, 1, 1),
    ("names", 0.5, NO, NO, NO),
    ("names", " yes ", NO, NO, 1),
    ("names", "1", NO, NO, 1),
    ("names", "yess", NO, NO, NO),
    ("names", "?", NO, NO, NO),
    ("names", 2, NO, NO, NO),
    ("names", -2, NO, NO, NO),
    ("names", -1, NO, None, None),
    ("names", None, NO, None, None),
    ("names", math.nan, NO, None, None),
    ("names", np.float32("nan"), NO, None, None),
    ("names", NAT, NO, None, None),
    ("names", MASKED, NO, None, None),
    ("names", "", NO, NO, None),
    ("names", True, NO, NO, NO),
    ("numbers", 1, 1, 1, 1),
    ("numbers", "1", 1, 1, 1),
    ("numbers", "1.0", NO, NO, 1),
    ("numbers", True, NO, NO, 1),
    ("numerals", "2", 1, 1, 1),
    ("numerals", 2, NO, NO, 1),  # a name, or the number of no state
    ("numerals", 1, NO, NO, 0),
    ("numerals", 0, NO, NO, NO),
    ("numerals", True, NO, NO, NO),
    ("names", "True", NO, NO, NO),
    ("truth", "TRUE", NO, NO, 1),
    ("truth", True, 1, 1, 1),
    ("truth", np.False_, 0, 0, 0),
    ("bins", ">= 2", 1, 1, 1),
    ("bins", 1, 0, 0, 0),  # values, not numbers of states
    ("bins", 2, 1, 1, 1),
    ("bins", -1, 0, 0, 0),
    ("bins", 2.0, 1, 1, 1),
    ("bins", 1.999, 0, 0, 0),
    ("bins", np.float32(5.123), 1, 1, 1),
    ("bins", np.int8(7), 1, 1, 1),
    ("bins", "5.123", 1, 1, 1),
    ("bins", "-1e9", 0, 0, 0),
    ("bins", b"7", NO, NO, 1),
    ("bins", math.inf, NO, NO, NO),
    ("bins", "inf", NO, NO, NO),
    ("bins", 10**400, NO, NO, NO),
    ("bins", "old", NO, NO, NO),
    ("bins", np.True_, NO, NO, NO),
    ("bins", math.nan, NO, None, None),
    ("bins", MASKED, NO, None, None),
    ("bins", "", NO, NO, None),
]
BY_NUMBER = ("prepared states", "batch of states", "batch of an array")
#: Where a door takes a value in a way of its own.
EXCEPT: dict[tuple[str, str, Any], Any] = {
    ("json", "names", None): None,  # null says nothing
    # a variable without a name leaves no doubt that a number is a state's
    **{(door, "numerals", x): x if x < 2 else NO for x in (0, 1, 2)
       for door in BY_NUMBER},
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r[0]} {r[1]!r}")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_door_obeys_the_rules(door, rule):
    states, value, *wanted = rule
    want = wanted[0 if door in ONE else 1 if door in ROWS else 2]
    for (other, kind, x), found in EXCEPT.items():
        if (other, kind) == (door, states) and x is value:
            want = found
    if states == "bins" and door in BY_NUMBER and isinstance(value, int | float | np.number):
        want = {0: 0, 1: 1, -1: None}.get(value, NO) if value == value else None
    graph = model(states)
    if want == NO:
        refused(EvidenceError, r"\bn\b", DOORS[door], graph, value)
    else:
        assert DOORS[door](graph, value) == pytest.approx(P[want], abs=1e-9)


def test_the_missing_values_of_pandas():
    pd = pytest.importorskip("pandas")
    for value in (pd.NA, pd.NaT):
        assert predicted(model("names"), [{"n": value}]) == pytest.approx(0.4)
        assert batch(model("names"), [{"n": value}]) == pytest.approx(0.4)
    hidden = np.ma.masked_array([[1, 0], [1, 0]], [[False, True], [True, True]])
    found = Exact().prepare(model("names")).batch(hidden)["m", 1]
    assert found == pytest.approx([0.7, 0.4])


def test_what_is_no_column_and_no_table():
    """Keys of likelihoods were read as the states of rows, by ``predict`` and batches."""
    g = model("names")
    for values in ({"yes": 0.5}, {"no": 0.2, "yes": 0.8}, {}, {"yes"}, "yes", b"yes", 1, None):
        refused(EvidenceError, "column n must be a list", batch, g, {"n": values})
        refused(SettingsError, "column n must be a list", predicted, g, {"n": values})
    assert batch(g, [{"n": np.array(1)}]) == pytest.approx(0.7)
    pa = pytest.importorskip("pyarrow")
    stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.string())]), [])
    refused(EvidenceError, "an Arrow table", batch, g, stream)


def test_a_variable_is_given_once():
    g = model("names")
    for ask in (
        lambda e: g.with_evidence(e),
        lambda e: minfer.query(g, "m", e),
        lambda e: Exact().prepare(g)(e),
        lambda e: g.with_soft_evidence({k: [0.5, 0.5] for k in e}),
        lambda e: minfer.mpe(g, e),
    ):
        for evidence in ({"n": 1, 0: 1}, {"n": 1, 0: 0}):
            refused(EvidenceError, "n is given twice", ask, evidence)
    refused(EvidenceError, "row 1: n is given two states", batch, g, [{"n": 1}, {"n": 1, 0: 0}])
    assert batch(g, [{"n": 1, 0: 1}]) == pytest.approx(0.7)
    with pytest.raises(EvidenceError, match="a state is given twice"):
        g.with_soft_evidence({"n": {"yes": 0.5, 1: 0.5}})
