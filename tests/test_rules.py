"""Rules over tables: agreement with enumeration, semantics, tables of all kinds, bad input."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("duckdb")

import sqlite3

import mutating
from draws import blocks, draws, few, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    EvidenceError,
    Exact,
    FormatError,
    MinferError,
    MinJoint,
    ModelError,
    RefusedError,
    Rules,
    SettingsError,
    Status,
)
from minfer.batch.rules import gathered, infer_rules
from minfer.reduction.recipes import Compensated
from minfer.rules import tables
from minfer.rules.answer import _pushes
from minfer.rules.model import block_weights, weight_of
from minfer.rules.parse import parse_rule
from minfer.rules.tables import Query
from oracle import grounding as oracle
from oracle import lists
from refused import refused
from test_cli import call


def compare(seed: int, **settings) -> str:
    case = oracle.draw_case(seed)
    expected = oracle.enumerate_worlds(case)
    program = oracle.program_of(case, **settings)
    try:
        answer = program.infer(solver=Exact())
    except ContradictionError:
        assert expected is None, (seed, case.rules)
        return "impossible"
    assert expected is not None, (seed, case.rules)
    found = dict(zip(program.store.atom_texts(np.arange(program.store.n_atoms)),
                     answer.probabilities))  # fmt: skip
    for atom, p in expected.items():
        text = f"{atom[0]}({', '.join(map(str, atom[1:]))})"
        assert abs(found[text] - p) < 1e-9, (seed, case.rules, text, found[text], p)
    return "answered"


@pytest.mark.drawn
@pytest.mark.parametrize("block", [
    *range(4),
    *(pytest.param(k, marks=pytest.mark.slow)
      for k in range(4, blocks(12))),
])  # fmt: skip
def test_drawn_programs_agree_with_enumeration(block):
    outcomes = [
        compare(50 * block + k, unbound="domain") for k in few(range(50), 5 if block < 4 else 50)
    ]
    assert outcomes.count("answered") > (20 if thorough() else 1)


def test_long_clauses_have_one_factor_for_each_row():
    program = Rules(unbound="domain").open("adviser", types=("person", "person"))
    program.closed("person", ["Anna", "Bob", "Carl", "Dora"], types=("person",))
    program.rule("EXIST y adviser(x, y).")
    graph = program.to_graph()
    assert [(g.kind, g.arity, len(g)) for g in graph.groups] == [("clause", 4, 4)]
    assert graph.names[1] == "adviser(Anna, Bob)"


def test_conditions_queries_and_reasons():
    program = Rules().closed("friends", [("Anna", "Bob"), ("Bob", "Carl")])
    program.open("smokes", ["Anna", "Bob", "Carl"], probability=0.3)
    program.rule("1.5: friends(x, y) ^ smokes(x) => smokes(y)")
    before, after = program.infer(), program.condition("smokes(Anna)").infer()
    assert after.probability("smokes(Bob)") > before.probability("smokes(Bob)")
    assert before.probability("!smokes(Bob)") == 1 - before.probability("smokes(Bob)")
    assert after.query("smokes(x)")[0] == ("smokes(Anna)", 1.0)
    why = after.explain("smokes(Bob)")
    assert why.reasons[0].text == "friends(Anna, Bob) ^ smokes(Anna) => smokes(Bob)"
    assert why.reasons[0].push == pytest.approx(1.5)
    assert "evidence says it is true" in str(after.explain("smokes(Anna)"))


@pytest.mark.parametrize("rule", ["a(x) ^ b(x)", "!(a(x) v !b(x))", "FORALL y (a(y) ^ b(x))"])
@pytest.mark.parametrize("weight", [2.0, -1.5, -800.0, 800.0])
def test_reasons_have_the_weight_of_their_rule(rule, weight):
    program = Rules(unbound="domain").open("a", ["T"], types=("o",))
    program.open("b", ["T"], types=("o",)).rule(rule, weight=weight)
    answer = program.infer()
    (reason,) = answer.explain("b(T)").reasons
    assert reason.weight == weight
    p = answer.probability("a(T)") if rule[0] != "!" else answer.probability("!a(T)")
    with np.errstate(divide="ignore"):
        expected = np.logaddexp(np.log1p(-p), np.log(p) + weight)
    assert reason.push == pytest.approx(expected)
    program = Rules(split=True).open("f", [("A", "B"), ("A", "C")]).open("s", ["A"])
    program.rule("2: (EXIST y f(x, y)) ^ s(x)")  # of every clause
    assert [r.rule for r in program.infer().explain("f(A, B)").reasons] == [program.rules[0].text]


def test_a_quantifier_whose_variable_is_not_used_says_nothing():
    for rule in ("b(x) => EXIST z a(x)", "(FORALL z a(x)) v !b(x)", "EXIST z (a(x) v !b(x))"):
        program = Rules().open("a", ["A"], types=("t",)).open("b", ["A"], types=("t",))
        answer = program.rule("1: " + rule).infer()
        assert answer.probability("a(A)") == pytest.approx(2 * math.e / (3 * math.e + 1))


def test_quantifiers_over_too_many_values_are_refused(monkeypatch):
    """A variable with more values than are written out was taken to have none."""
    monkeypatch.setattr("minfer.rules.ground.MAX_WRITTEN_OUT", 2)
    for rule in ("EXIST y (a(y) <=> b(y))", "a(x) ^ (EXIST y (a(y) <=> b(x)))"):
        program = Rules().open("a", list("ABC"), types=("t",)).open("b", list("ABC"), types=("t",))
        with pytest.raises(RefusedError, match=r"written out .* 3 times; at most 2"):
            program.rule("1: " + rule).infer()


def test_weights_by_a_value_of_a_symmetric_atom_add_up():
    """y = A, x = B and y = B, x = A are one atom, with two weights."""
    weights = {"A": 3.0, "B": -1.0}
    base = {"candidates": [("A", "B")], "types": ("t", "t"), "symmetric": True}
    program = Rules().open("same", **base).rule("same(+y, x)", weights=weights)
    assert program.infer().probability("same(A, B)") == pytest.approx(1 / (1 + math.exp(-2)))
    program = Rules().open("same", **base).open("o", ["A", "B"], types=("t",))
    program.rule("o(x) ^ same(+y, x)", weights=weights)
    true = sum(math.exp(3 * b - a) for a in (0, 1) for b in (0, 1))
    for grounding in ("full", "lazy"):
        answer = program.infer(solver=Exact(), grounding=grounding, **(
            {"threshold": 1e-9} if grounding == "lazy" else {}
        ))  # fmt: skip
        assert answer.probability("same(A, B)") == pytest.approx(true / (true + 4))


def test_names_that_are_given_can_be_asked_for():
    values = ["O'Neil", "Smith, John", 'say "hi"', "5%", "(x)", "", "bob", "-1.5", "a b"]
    answer = Rules().open("name", {"x": values}).rule("1: name(x)").infer()
    for atom, p in answer.query("name(x)"):
        assert answer.probability(atom) == p
        assert answer.explain(atom).atom == atom
    with pytest.raises(ModelError, match="without !"):
        answer.query("!name(x)")


@pytest.mark.parametrize("rule", ["a(x).", "a(x) v a(x).", "a(x) v b(x).", "c(x) v a(x)."])
@pytest.mark.parametrize("setting", [{}, {"grounding": "lazy", "threshold": 1e-3}])
def test_a_hard_rule_without_negations_that_evidence_breaks(rule, setting):
    program = Rules().open("a", ["A", "B"], types=("t",)).open("b", ["A", "B"], types=("t",))
    program.closed("c", ["B"], types=("t",)).evidence("b", {"t": ["A"], "y": [0]}, truth="y")
    program.rule(rule)
    assert program.infer(**setting).probability("a(A)") == 1.0
    with pytest.raises(ContradictionError, match="breaks this hard rule at x = A"):
        program.condition("!a(A)").infer(**setting)


def test_objectives_leave_groundings_out():
    rng = np.random.default_rng(0)
    pairs = [(x, y) for x in range(12) for y in range(12) if x < y]
    program = Rules().open("same", {"x": [p[0] for p in pairs], "y": [p[1] for p in pairs],
                                    "f": rng.normal(-2, 2, len(pairs))},
                           log_odds="f", symmetric=True)  # fmt: skip
    program.rule("0.3: same(x, y) ^ same(y, z) => same(x, z)")
    full = program.infer(solver=BeliefPropagation())
    part = program.infer(MinJoint(0.001), BeliefPropagation(), recipe=Compensated())
    assert part.kept < full.kept == part.factors
    assert np.abs(part.probabilities - full.probabilities).max() < 0.02
    assert part.converged or np.isnan(part.mean_error_estimate)
    assert part.result.error_estimates.mean() < 0.01
    once = program.infer(MinJoint(0.001), BeliefPropagation(), recipe=Compensated(refreshes=0))
    assert once.mean_error_estimate < 0.01


def test_plans_count_without_grounding():
    program = Rules().closed("friends", [(x, x + 1) for x in range(99)])
    program.open("smokes", list(range(100)))
    program.rule("1: friends(x, y) ^ smokes(x) => smokes(y)").rule("1: smokes(x) ^ smokes(y)")
    plan = program.plan()
    assert [(r.groundings, r.exact) for r in plan.rules] == [(99, True), (10_000, True)]
    told = plan.to_dict()
    counts = [told["groundings"], told["known"], *(r["groundings"] for r in told["rules"])]
    assert counts == [10_099, 0, 99, 10_000]
    assert all(type(n) is int for n in counts)
    assert "10,099 groundings" in str(plan)
    program = Rules().open("a", list(range(10_000)))
    program.rule("1: a(x) ^ a(y) ^ a(z)")
    with pytest.raises(RefusedError, match="1,000,000,000,000 groundings"):
        program.infer()


def tables_of_all_kinds(tmp_path):
    import duckdb
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"a": ["007", "o'k", "z"], "b": ["o'k", "z", "007"]}
    frame = pd.DataFrame(columns)
    yield "pandas", frame
    if find_spec("polars"):
        yield "polars", import_module("polars").DataFrame(columns)
    yield "arrow", pa.table(columns)
    yield "columns", columns
    yield "columns", list(zip(*columns.values()))
    yield "columns", [dict(zip(columns, row)) for row in zip(*columns.values())]
    frame.to_csv(tmp_path / "t.csv", index=False)
    yield "columns", tmp_path / "t.csv"
    yield "columns", str(tmp_path / "t.csv")
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    yield "columns", tmp_path / "t.parquet"
    for name, module in (("t.duckdb", duckdb), ("t.sqlite", sqlite3)):
        con = module.connect(str(tmp_path / name))
        con.execute("create table t (a varchar, b varchar)")
        con.executemany("insert into t values (?, ?)", list(zip(*columns.values())))
        con.commit()
        con.close()
        yield "columns", (tmp_path / name, "t")
        yield "columns", Query(tmp_path / name, sql="select a, b from t;")


def test_tables_of_all_kinds(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    expected = None
    for kind, table in tables_of_all_kinds(tmp_path):
        first = ("c0",) if isinstance(table, list) and isinstance(table[0], tuple) else ("a",)
        program = Rules().closed("next", table).open("good", table, columns=first)
        program.rule("2: next(x, y) ^ good(x) => good(y)").rule('1: good("007")')
        answer = program.infer()
        found = answer["good"]
        names = {"pandas": "DataFrame", "polars": "DataFrame", "arrow": "Table"}
        assert type(found).__name__ == names.get(kind, "dict")
        listed = {"polars": "to_list", "arrow": "to_pylist"}.get(kind, "tolist")
        column = found[0] if kind == "arrow" else found["c0" if "c0" in found else "a"]
        assert getattr(column, listed)() == ["007", "o'k", "z"]
        expected = answer.probabilities if expected is None else expected
        assert np.allclose(answer.probabilities, expected)


def test_programs_in_one_process_are_apart(tmp_path):
    """They share a database, not tables: side by side, in threads, and once some are gone."""
    import duckdb

    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("create table t as select range as a, range + 1 as b from range(9)")

    def program(n: int) -> Rules:
        out = Rules().closed("next", Query(path, sql=f"select * from t where a < {n}"))
        out.open("s", list(range(n + 1)), probability=0.1 * n).evidence("s(0)")
        return out.rule("1: next(x, y) ^ s(x) => s(y)")

    def answer(n: int) -> list[float]:
        return program(n).infer().probabilities.tolist()

    programs = [program(n) for n in range(2, 6)]
    assert len({p.store.predicates["s"].atoms for p in programs}) == 1
    alone = [p.infer().probabilities.tolist() for p in programs]
    own = Rules(memory_limit="1GB").open("s", [1, 2]).rule("1: s(x)")
    assert own.store.predicates["s"].n == 2
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, range(2, 6))) == alone
    last = programs.pop()
    programs.clear()
    assert [last.store.n_atoms, last.infer().probabilities.tolist()] == [6, alone[-1]]
    last.store.set_probabilities(alone[-1])
    found = last.store.con.rows(f"select p from {last.store.predicates['s'].table}")
    assert [p for (p,) in found] == alone[-1]


def test_tables_of_files_may_be_called_as_those_here(tmp_path):
    import duckdb

    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as con:
        for name in ("raw_1", "closed_3", "dict_0"):
            con.execute(f"create table {name} as select 'C' as a")
    query = Query(path, sql="select a from raw_1")
    for table in ((path, "raw_1"), query, (path, "closed_3"), (path, "dict_0")):
        program = Rules().closed("p", ["A", "B"], types=("t",)).open("o", types=("t",))
        program.closed("q", table, types=("t",)).rule("1: q(x) ^ o(x)")
        assert program.infer().query("o(x)")[0][0] == "o(C)"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_an_interrupt_within_a_query_is_one():
    con = Rules().open("s", ["A"]).store.con
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            con.one("select sum(a.range) from range(100_000_000) a, range(100) b")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert con.one("select 1") == (1,)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_ends_as_any_process_does():
    """It closes no database of its parent, whose threads it does not have, and has its own."""
    text = """
import os, sys
from minfer import Rules
def asked():
    return Rules().open("s", ["A"], probability=0.5).infer().probability("s(A)")
assert asked() == 0.5
for ask in (False, True):
    child = os.fork()
    if not child:
        sys.exit(ask and asked() != 0.5)
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60, stderr=subprocess.DEVNULL)


def test_whether_an_atom_is_known_from_the_start():
    def known(table, *evidence, **prior) -> bool:
        program = Rules().open("s", table, columns=("a",), **prior).evidence(*evidence)
        return program.store.predicates["s"].has_known

    table = {"a": ["A", "B"], "f": [0.5, -1.0], "p": [1.0, 0.5]}
    assert not known(table)
    assert not known(table, log_odds="f")
    assert known(table, probability="p")
    assert known(table, probability=1.0)
    assert known(table, log_odds=-math.inf)
    assert known(table, "!s(B)")
    assert not known(table, "!s(C)")
    assert not known({"a": []}, probability=1.0)


def test_numbers_stay_numbers():
    table = {"who": [3, 1, 2], "age": [10.5, 20.0, 30.25]}
    program = Rules().closed("age", table).open("old", [1, 2, 3])
    program.rule("2: age(x, a) ^ a * 2 > 30 => old(x)")
    found = program.infer().table("old")
    assert found["c0"].tolist() == [1, 2, 3]
    assert (found["probability"] > 0.6).tolist() == [True, True, False]
    for values in (["1", "2"], ["1", "b"], [1, 2], [0.5, 2.0], [2**40, 2**40 + 1]):
        program = Rules().closed("d", values, types=("t",)).open("a", types=("t",))
        assert program.infer().table("a")["t"].tolist() == values
    for more in ({}, {"weight": 0.0}):  # weights by value do not need another weight
        program = Rules().open("a", [0.5, 1.0]).rule("a(+x)", weights={1.0: 2.0}, **more)
        for settings in ({}, {"grounding": "lazy"}):
            answer = program.infer(**settings)
            assert answer.probability("a(1)") == pytest.approx(1 / (1 + math.exp(-2)))
            assert answer.probability("a(0.5)") == pytest.approx(0.5)


def test_answers_are_written(tmp_path):
    program = Rules().open("a", ["x", 'y"z'], probability=0.5).open("b", [1])
    answer = program.infer()
    assert answer.write(tmp_path / "a.csv", ["a"]) == 2
    assert (tmp_path / "a.csv").read_text() == 'c0,probability\nx,0.5\n"y""z",0.5\n'
    assert answer.write(tmp_path / "all.csv") == 3
    assert (tmp_path / "all.csv").read_text().splitlines()[-1] == "b(1),0.5"


def base() -> Rules:
    return (
        Rules()
        .closed("person", ["Anna", "Bob", "Carl"], types=("person",))
        .closed("friends", [("Anna", "Bob")], types=("person", "person"))
        .closed("age", [("Anna", 3)], types=("person", "year"))
        .open("smokes", ["Anna", "Bob"], types=("person",))
    )


def two_of() -> Rules:
    return Rules().open("a", ["A", "B"], types=("t",)).open("b", ["A", "B"], types=("t",))


BAD = [
    ("unknown predicate", lambda: base().rule("1: smoks(x)"), ModelError, "did you mean smokes"),
    ("arity", lambda: base().rule("1: smokes(x, y)"), ModelError, "has 2 arguments"),
    ("two types", lambda: base().rule("1: age(x, y) ^ smokes(y)"), ModelError,
     "the variable y has two types, year and person"),
    ("unbound head", lambda: base().rule("1: friends(x, y) => smokes(z) v !smokes(x)"), ModelError,
     "nothing binds the variable z"),
    ("only compared", lambda: base().rule("1: smokes(x) ^ y < 3"), ModelError, "comparisons only"),
    ("contradictory evidence", lambda: base().evidence("smokes(Anna)", "!smokes(Anna)"),
     ContradictionError, "smokes(Anna)"),
    ("evidence on closed", lambda: base().evidence("friends(Anna, Bob)"), EvidenceError, "closed"),
    ("evidence elsewhere", lambda: base().evidence("smokes(Zed)"), EvidenceError, "candidate of"),
    ("NaN weight", lambda: base().rule("smokes(x)", math.nan), ModelError, "the weight is nan"),
    ("huge weight", lambda: base().rule("1e400: smokes(x) ^ !smokes(x)."), FormatError, "weight"),
    ("no weight", lambda: base().rule("smokes(x)"), ModelError, "no weight"),
    ("two weights", lambda: base().rule("1: smokes(x)", 2.0), ModelError, "given twice"),
    ("weight and stop", lambda: base().rule("1: smokes(x)."), FormatError, "not both"),
    ("duplicate key", lambda: base().open("b", ["A", "A"]), ModelError, "b(A) is given twice"),
    ("missing column", lambda: base().open("b", {"x": ["A"]}, log_odds="prio"), ModelError,
     "no column 'prio'"),
    ("missing argument", lambda: base().closed("b", {"x": ["A", None]}), ModelError,
     "column 'x' has 1 missing value"),
    ("probability", lambda: base().open("b", {"x": ["A"], "p": [1.5]}, probability="p"), ModelError,
     "column 'p' has 1.5"),
    ("prior None", lambda: base().open("b", {"x": ["A"], "p": [None]}, columns="x", log_odds="p"),
     ModelError, "column 'p' has a missing value (None or NaN)"),
    ("no table for closed", lambda: base().closed("d", None), ModelError,
     "closed predicate d: it has no table"),
    ("hard for one value", lambda: two_of().rule("a(+x) ^ b(x)", weights={"A": math.inf}),
     ModelError, "hard for all values or for none"),
    *((f"{bad} for a value", lambda bad=bad: two_of().rule("a(+x) ^ b(x)", weights={"A": 1.0})
       .with_weights({"a(+x) ^ b(x)": {"A": bad}}), ModelError, words)
      for bad, words in ((math.nan, "weight"), (math.inf, "hard for all"), ("much", "weight"))),
    ("hard rules clash", lambda: two_of().rule("a(x) => b(x).").rule("a(x).").rule("!b(x)."),
     ContradictionError, "rule `a(x) => b(x).`"),
    ("hard rules clash together", lambda: two_of().rule("a(x) v b(x).").rule("a(x) v !b(x).")
     .rule("!a(x) v b(x).").rule("!a(x) v !b(x)."), ContradictionError, "hard rules: `a(x) v b(x)"),
    *((f"not a candidate: {rule}", lambda rule=rule: base().rule(rule), ContradictionError,
       "the evidence breaks this hard rule")
      for rule in ('smokes("Carl").', 'smokes("Carl") v smokes("Carl").', "FORALL x smokes(x).")),
    *((f"two of a key: {sign}", lambda sign=sign: Rules().open(
        "job", {"p": ["a", "a"], "j": ["cook", "smith"]}, exactly_one="j"
    ).evidence(f"{sign}job(a, cook)", f"{sign}job(a, smith)"), ContradictionError,
       "job(a, cook), job(a, smith)") for sign in ("", "!")),
    ("nested equivalences", lambda: base().open("a", [f"K{i}" for i in range(40)])
     .rule("1: " + " <=> ".join(f"a(K{i})" for i in range(40))), RefusedError, "<=> written out"),
    ("stated twice", lambda: base().closed("friends", [("A", "B")]), ModelError, "stated twice"),
    ("types", lambda: base().open("b", [("A", "B")], types=("person",)), ModelError, "1 type for"),
    ("constant", lambda: base().rule("1: smokes(Bobb)"), ModelError, "did you mean Bob"),
    ("no candidates", lambda: base().open("b"), ModelError, "types="),
    ("symmetric", lambda: base().open("b", ["A"], symmetric=True), ModelError, "two arguments"),
    ("key", lambda: base().open("b", {"x": ["A"]}, exactly_one="x"), ModelError, "key"),
    ("texts in sums", lambda: base().rule("1: friends(x, y) ^ x + 1 > 2 => smokes(x)"), ModelError,
     "not numbers"),
    ("broken hard rule", lambda: base().rule("friends(x, y) => friends(y, x)."),
     ContradictionError, "x = Anna, y = Bob"),
    ("no such file", lambda: base().closed("b", "nowhere.csv"), FormatError, "no such file"),
    ("no table", lambda: base().closed("b", 3), ModelError, "a table must be"),
    ("two keys", lambda: base().open("job", {"p": ["a"], "j": ["cook"]}, exactly_one="j",
                                     at_most_one="j"), ModelError, "exactly_one= or at_most_one="),
    ("text and number", lambda: base().closed("n", {"x": ["Anna", "Bob"], "k": ["10", "u"]},
                                              types=("person", None))
     .rule("1: n(x, k) ^ k > 9 ^ smokes(x)"), ModelError, "not numbers, such as 'u'"),
    ("ragged", lambda: base().closed("b", [("A", "B"), ("C",)]), ModelError, "row 1 has 1"),
    ("memory", lambda: Rules(memory_limit="much").open("a", ["T"]), SettingsError,
     "memory_limit must be a number with a unit (KB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "
     "'2GB', not 'much'"),
    ("memory in numbers", lambda: Rules(memory_limit=2).open("a", ["T"]), SettingsError,  # type: ignore[arg-type]
     "memory_limit must be a string with a unit, such as '2GB', not 2"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), [x[1:] for x in BAD], ids=[x[0] for x in BAD])
def test_bad_input_is_named(make, error, text):
    with pytest.raises(error) as caught:
        make().infer()
    assert text in str(caught.value), str(caught.value)


def test_reasons_of_equivalences_name_the_values():
    program = Rules().closed("f", [("Anna", "Bob"), ("Carl", "Bob")], types=("t", "t"))
    program.open("s", ["Anna", "Bob", "Carl", "Dora"], types=("t",))
    program.rule("0.7: f(x, y) => (s(x) <=> s(y))").evidence("s(Anna)")
    why = program.infer().explain("s(Bob)")
    found = {reason.text: reason.push for reason in why.reasons}
    assert found == {
        "f(Anna, Bob) => (s(Anna) <=> s(Bob))": pytest.approx(0.7),
        "f(Carl, Bob) => (s(Carl) <=> s(Bob))": found["f(Carl, Bob) => (s(Carl) <=> s(Bob))"],
    }
    assert why.n == 2
    assert program.infer().explain("s(Dora)").n == 0
    either = Rules().closed("e", [("Anna", "P"), ("Bob", "Q")], types=("t", "k"))
    either.open("s", ["Anna", "Bob"], types=("t",)).open("l", ["Anna", "Bob"], types=("t",))
    either.rule("e(x, +k) => (s(x) <=> l(x))", weights={"P": 2.0, "Q": 1.0}).evidence("l(Bob)")
    (reason,) = either.infer().explain("s(Bob)").reasons
    assert reason.text == "e(Bob, Q) => (s(Bob) <=> l(Bob))"
    assert (reason.push, reason.weight) == (pytest.approx(1.0), 1.0)


@pytest.mark.slow
def test_reasons_are_those_of_the_factors():
    """What is listed by values of variables pushes as far as the factors that were built."""
    n = 0
    for seed in range(40):
        program = oracle.program_of(oracle.draw_case(seed), unbound="domain")
        try:
            answer = program.infer(solver=Exact())
        except ContradictionError:
            continue
        grounding = answer.grounding
        for ident in range(min(program.store.n_atoms, 6)):
            (atom,) = program.store.atom_texts([ident])
            found: dict = {}
            why = answer.explain(atom, 10_000)
            for reason in why.reasons:
                found[reason.rule] = found.get(reason.rule, 0.0) + reason.push
            for k, rule in enumerate(program.rules):
                blocks = [b for b in grounding.blocks if b.rule == k and b.truth is not None]
                if (
                    why.known is not None
                    or not blocks
                    or rule.text in [other.text for j, other in enumerate(program.rules) if j != k]
                ):
                    continue
                expected = 0.0
                for b in blocks:
                    w = block_weights(b, weight_of(rule, grounding.keys.get(k)))
                    count = np.ones(len(b)) if b.count is None else b.count
                    for row in np.flatnonzero((b.scope == ident).any(axis=1)).tolist():
                        one = w[[row]] / count[row]
                        (push,) = _pushes(b.rows([row]), ident, one, answer.probabilities)
                        expected += count[row] * push
                assert found.get(rule.text, 0.0) == pytest.approx(expected, abs=1e-9), (seed, atom)
                n += 1
    assert n > 10


@pytest.mark.drawn
def test_counts_of_a_plan_are_those_of_grounding_or_at_most():
    exact = 0
    for seed in few(range(60), 8):
        program = oracle.program_of(oracle.draw_case(seed), unbound="domain")
        try:
            bindings = program.ground().bindings
        except ContradictionError:
            continue
        for planned, n in zip(program.plan().rules, bindings):
            assert planned.groundings >= n, (seed, planned, n)
            assert not planned.exact or planned.groundings == n, (seed, planned, n)
            exact += planned.exact
    assert exact > (50 if thorough() else 3)
    program = Rules(unbound="domain").open("s", list("ABC"), types=("t",))
    program.closed("c", list("AB"), types=("t",)).evidence("s(A)")
    program.open("f", [("A", "B"), ("B", "C")], types=("t", "t")).evidence("f(A, B)")
    for text in ("s(+x)", "c(x)", "c(x) ^ s(x)", "c(x) v s(x)", "EXIST y f(x, y)", "s(x) <=> c(x)",
                 "f(x, y) => (s(x) <=> s(y))", "c(x) ^ c(y) => x = y"):  # fmt: skip
        program.rule(text, weight=1.0)
    for planned, n in zip(program.plan().rules, program.ground().bindings):
        assert planned.groundings >= n, planned
        assert not planned.exact or planned.groundings == n, (planned, n)


CSV = [
    ("long row at the end", "a,b\n1,2\n3,4\n5,6,7\n", "line 4: 3 values, but the header has 2"),
    ("short row", "a,b\n1,2\n3\n4,5\n", "line 3: 1 value, but the header has 2"),
    ("title above", "people\na,b\n1,2\n", "line 2: 2 values, but the header has 1"),
    ("open quote", 'a,b\n1,2\n"3,4\n5,6\n', "line 3: a quote"),
    ("text after a quote", 'a,b\n1,2\n"x"y,3\n', "line 3: a quote"),
    ("empty", "", "line 1: there is no header"),
    ("numbers for a header", "1,2\n3,4\n", "line 1: there is no header"),
    ("a column without a name", "a,,c\n1,2,3\n", "line 1: column 2 has no name"),
    ("one name twice", "a,a\n1,2\n", "two columns are called 'a'"),
    ("other letters", b"a,b\n1,\xe9\n", "line 2: this is not UTF-8"),
    ("binary", b"a\0b\n1\0,2\n", "zero bytes"),
]


@pytest.mark.parametrize(("text", "words"), [x[1:] for x in CSV], ids=[x[0] for x in CSV])
def test_malformed_csv_is_an_error_that_names_file_and_line(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError, match=r"t\.csv") as caught:
        Rules().open("a", path).infer()
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    with gzip.open(tmp_path / "z.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    with pytest.raises(FormatError, match=r"z\.csv\.gz"):
        Rules().open("a", tmp_path / "z.csv.gz").infer()


def test_csv_is_read_as_it_is_written(tmp_path):
    def read(text, name="t.csv", **settings):
        (tmp_path / name).write_bytes(text.encode())
        table = Rules().open("a", tmp_path / name, **settings).infer()["a"]
        return {k: sorted(map(str, v)) for k, v in table.items() if k != "probability"}

    wanted = {"a": ["1", "3"], "b": ["2", "4"]}
    for text in ("a,b\n1,2\n3,4\n", "a;b\r\n1;2\r\n3;4\r\n", "\ufeffa|b\n1|2\n3|4",
                 "a\tb\n1\t2\n\n3\t4\n", 'a,"b"\n1,2\n"3",4\n', " a , b\n1,2\n3,4\n"):  # fmt: skip
        assert read(text) == wanted, text
    assert read("a\tb\n1\t2\n3\t4\n", "t.tsv") == wanted
    assert read("name,note\nanna,x;y\nbob,u;v\n")["note"] == ["u;v", "x;y"]
    assert read("a\n#1\nx\n") == {"a": ["#1", "x"]}
    assert read('a,b\n"1\n2","x""y"\n') == {"a": ["1\n2"], "b": ['x"y']}
    with pytest.raises(ModelError, match="no column"):
        read("anna,bob\nbob,carl\n", columns=("a", "b"))
    (tmp_path / "lake").mkdir()
    for name, text in (("0.csv", "a,b\n1,2\n"), ("1.csv", "a,b\n3,4\n")):
        (tmp_path / "lake" / name).write_text(text)
    lake = tmp_path / "lake"
    assert sorted(Rules().open("a", sorted(lake.glob("*.csv"))).infer()["a"]["a"]) == ["1", "3"]
    (tmp_path / "lake" / "2.csv").write_text("b,a\n5,6\n")
    with pytest.raises(FormatError, match=r"2\.csv: line 1: its columns are b, a"):
        Rules().open("a", sorted(lake.glob("*.csv"))).infer()
    with pytest.raises(FormatError, match="no such file; a name is no pattern"):
        Rules().open("a", lake / "*.csv").infer()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1: smokes(x", "column 12"), ("1: smokes()", "column 11"), ("1: ", "column 3"),
        ("1: smokes(x) ^", "column 15"), ("1: smokes(x) smokes(y)", "column 14"),
        ("1: (smokes(x)", "column 14"), ("1: EXIST X smokes(X)", "column 10"),
        ("1: smokes(x) = 3", "column 14"), ("1: x < ", "column 7"),
        ("1: smokes(+Anna)", "column 12"),
        ("1: " + "(" * 200 + "smokes(x)", "deep"), ("1: " + "!" * 200 + "smokes(x)", "deep"),
        ("1: smokes(x) § 3", "column 14"), ("-inf: smokes(x)", "column 2"),
        ("1: smokes(x) ^ x < 1e400", "column 20 .*1e400 is infinite"),
        ("1e400: smokes(x)", "column 1 .*the weight is 1e400"),
        ("1: smokes(x) ^ (EXIST x x < 3)", "column 23 .*x is quantified here, but also stands"),
        ("1: smokes(+x) v (EXIST x f(x, x))", "column 24"),
        ("1: EXIST x (smokes(x) ^ (EXIST x f(x, x)))", "column 32 .*x is bound twice"),
        *((f"1: s(x) {sign} f(x, y)", rf"column \d+.*{hint}$") for sign, hint in (
            ("->", "implication is =>"), (">>", "implication is =>"), ("and", r"conjunction is \^"),
            ("&&", r"conjunction is \^"), ("or", "disjunction is v"), ("||", "disjunction is v"),
        )),
        ("1: f(x, y) ^ x == y => s(x)", r"column \d+.*equality is =$"),
        *((f"1: {text}", r"column \d+.*negation is !$")
          for text in ("~s(x)", "not s(x)", "s(x) ^ not s(y)")),
    ],
)  # fmt: skip
def test_slips_in_rules_have_a_place(text, place):
    with pytest.raises(FormatError, match=place):
        Rules().rule(text)


def test_quantifiers_may_share_names_and_values_may_look_infinite():
    said = [
        Rules().open("s", ["A", "B"]).rule(f"1: (EXIST x s(x)) ^ (EXIST {y} !s({y}))").infer()
        for y in ("x", "y")
    ]
    assert np.allclose(said[0].probabilities, said[1].probabilities)
    texts = Rules().open("s", ["1e400", "Nan", "Infinity"]).rule('1: s("1e400")')
    texts.rule("1: s(x) ^ x = Nan").rule("2: s(Infinity)")
    found = dict(texts.evidence("!s(Nan)").infer().query("s(x)"))
    assert np.allclose(sorted(found.values()), [0, 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-2))])
    numbers = Rules().open("s", {"a": [0.5, np.inf, 1.0]}).rule("1: s(x) ^ x > 0.7")
    answer = numbers.infer()
    assert answer.probability("s(inf)") == answer.probability("s(1)") == pytest.approx(0.7310586)
    assert numbers.condition("s(inf)").infer().probability("s(inf)") == 1.0
    for ask in ("s(1e400)", "s(-1e400)"):
        with pytest.raises(ModelError, match=f"constant {ask[2:-1]} is in no table"):
            numbers.infer().probability(ask)
    for text in ('"1e400"', "Infinity", "NaN", "-Infinity"):
        program = Rules().open("s", {"a": [1.5, 2.5]}).rule(f"1: s(x) ^ x < {text}")
        with pytest.raises(ModelError, match=r"rule `.*no finite one"):
            program.infer()
    with pytest.raises(ModelError, match="no finite one"):
        Rules().open("s", [2**40, 2**41]).rule("1: s(x) ^ x < Infinity").infer()


SMOKERS = """// Evidence
*Friends(person, person)
Smokes(person)   /* some are
known */
Cancer(person)

0.5  !Smokes(a1) v Cancer(a1)
0.4  Friends(x, y) =>
     (Smokes(x) <=> Smokes(y))
-1.5 Smokes(x) ^ EXIST y Friends(x, y)
!Smokes("Old Tom").
"""
FACTS = """Friends(Anna, Bob)
Friends(Anna, "Old Tom") // a comment
!Friends(Gary, Frank)

Smokes(Anna)
"""


@pytest.fixture
def smokers(tmp_path):
    (tmp_path / "prog.mln").write_text(SMOKERS)
    (tmp_path / "evidence.db").write_text(FACTS)
    (tmp_path / "query.db").write_text("Cancer(x)\n//Smokes\n")
    return tmp_path


def test_programs_are_read(smokers):
    program = Rules.read(smokers / "prog.mln", smokers / "evidence.db", smokers / "query.db")
    assert program.queried == ["Cancer"]
    assert program.split
    assert program.unbound == "domain"
    answer = program.infer()
    assert answer.probability('Smokes("Old Tom")') == 0.0
    assert answer.probability("Cancer(Anna)") == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert sorted(answer["Cancer"]["person"]) == ["Anna", "Bob", "Frank", "Gary", "Old Tom"]


@pytest.mark.parametrize(
    ("mln", "db", "text"),
    [
        ("smokes(person)\n1 smoks(x)", "", "prog.mln: line 2, column 3: the predicate smoks"),
        ("smokes(person)\n1 smokes(x, y)", "", "line 2, column 3: smokes has 2 arguments"),
        ("smokes(person)\n/* open", "", "prog.mln: line 2, column 1: this comment"),
        ("*a(t)\n*a(t)", "", "prog.mln: line 2, column 1: the predicate a is declared twice"),
        ("a(t!)", "", "prog.mln: line 1, column 1: a has one argument"),
        ("a(t)", "a(A)\nb(B)", "evidence.db: line 2, column 1: the predicate b"),
        ("a(t)\n1 a(x) v\n  b(x)", "", "prog.mln: line 3, column 3: the predicate b"),
        ("a(t, t)\n1 a(x, y)", " a(A, )", "evidence.db: line 1, column 6: an argument of a is"),
        ("a(t)", "a(A)\na(B", "evidence.db: line 2, column 4"),
        ("a(t)", "a(A, B)", "evidence.db: line 1, column 1: a has 2"),
        ("*a(t)\nb(t)", "a(A)\n!a(A)", "both that a(A) is true"),
        ("a(t)\nnan a(x)", "a(A)", "prog.mln: line 2, column 1"),
        ("a(t)\n1 a(x)", "a({A)", "evidence.db: line 1, column 3"),
        ("t = {A. B, C}\na(t)\n1 a(x)", "", "prog.mln: line 1, column 6"),
        ("t = {1, ..., x}\na(t)\n1 a(x)", "", "line 1, column 6: a range of constants"),
        ("S(t)\n\n1 S(x) v (EXIST x\n  S(x))\n", "S(A)\n", "prog.mln: line 3, column 17: "),
        ("a(t)\n// é".encode() + b"\xff", "", "prog.mln: line 2, column 5: this is not UTF-8"),
    ],
)
def test_slips_in_files_have_a_place(tmp_path, mln, db, text):
    (tmp_path / "prog.mln").write_bytes(mln if isinstance(mln, bytes) else mln.encode())
    (tmp_path / "evidence.db").write_text(db)
    with pytest.raises(MinferError) as caught:
        Rules.read(tmp_path / "prog.mln", tmp_path / "evidence.db").infer()
    assert text in str(caught.value), str(caught.value)


def test_a_full_stop_after_a_number_makes_a_rule_hard():
    assert parse_rule("p(x, n) => n > 5.").hard
    assert parse_rule("p(x, n) => n > 5. \n").hard
    assert not parse_rule("1: p(x, n) ^ n > 5.0").hard
    assert not parse_rule("1: n > 5. ^ p(x, n)").hard
    with pytest.raises(FormatError, match="not both"):
        parse_rule("1: p(x, n) => n > 5.")


def test_truth_of_written_evidence():
    rules = Rules().open("a", ["X", "Y", "Z"], types=["t"])
    answer = rules.evidence("a(X)", "!a(Y)", truth=False).infer()
    assert [answer.probability(f"a({x})") for x in "XYZ"] == [0.0, 1.0, 0.5]
    with pytest.raises(SettingsError, match="a column of truths is for a predicate and its table"):
        rules.evidence("a(X)", truth="label")
    for truth in (None, 1, 0.0):
        with pytest.raises(SettingsError, match="truth= must be True, False or the name"):
            rules.evidence("a", ["X"], truth=truth)


def test_truth_values_of_lists_and_of_data_frames_are_the_same():
    pd = pytest.importorskip("pandas")
    facts = {"who": ["A", "B"], "flag": [True, False]}
    for closed in (facts, pd.DataFrame(facts), list(zip(*facts.values()))):
        for flags in ([True, False], np.array([True, False]), pd.DataFrame({"f": [True, False]})):
            program = Rules().closed("is", closed, types=["who", "flag"])
            program.open("good", flags, types=["flag"])
            answer = program.rule("is(x, +f) ^ good(f)", weights={True: 1.0, False: -2.0}).infer()
            found = answer.probability('good("true")'), answer.probability('good("false")')
            assert found == pytest.approx((1 / (1 + math.exp(-1)), 1 / (1 + math.exp(2))))


@pytest.mark.parametrize("written", ["b(100)", "b(100.0)", "b(1e2)"])
def test_written_evidence_leaves_numbers_in_their_order(written):
    values = [9.5, 10.0, 100.0, -1.0]  # as texts, 100.0 would come before 9.5

    def program() -> Rules:
        rules = Rules().open("b", values, types=["t"]).closed("c", values, types=["t"])
        return rules.rule("1: c(x) ^ c(y) ^ x < y ^ b(x) => b(y)").rule("0.5: b(x)")

    table = program().evidence("b", [100.0]).infer(solver=Exact())
    answer = program().evidence(written).infer(solver=Exact())
    assert answer.query("b(x)") == table.query("b(x)")
    assert answer.probability("b(10)") == pytest.approx(0.8175744761936437)
    with pytest.raises(EvidenceError, match="not a candidate"):
        program().evidence("b(foo)").infer()


@pytest.mark.parametrize("values", [["2020-01-01", "2021-06-05"], ["09:00:00", "10:30:00"]])
def test_columns_of_other_types_are_texts(values):
    pd = pytest.importorskip("pandas")
    convert = pd.to_datetime if "-" in values[0] else pd.to_timedelta
    frame = pd.DataFrame({"at": convert(pd.Series(values))})
    rules = Rules().closed("a", frame, types=["t"]).open("b", frame, types=["t"])
    answer = rules.rule("1: a(x) ^ a(y) ^ x < y => b(x)").infer()
    assert [p for _, p in answer.query("b(x)")] == pytest.approx([0.7310586, 0.5])
    assert list(answer["b"]["at"]) == list(frame["at"])


@pytest.mark.parametrize("kind", ["exactly_one", "at_most_one"])
@pytest.mark.parametrize(
    ("known", "push"),
    [(["c(A, X)"], -math.inf), (["!c(A, X)", "!c(A, Y)"], None), (["!c(A, X)"], None)],
)
def test_what_a_key_says_of_an_atom_when_others_are_known(kind, known, push):
    rows = [("A", "X"), ("A", "Y"), ("A", "Z")]
    rules = Rules().open("c", rows, types=["p", "k"], **{kind: "c1"}).evidence(*known)
    answer = rules.infer(solver=Exact())
    (reason,) = answer.explain("c(A, Z)").reasons
    q = answer.probability("c(A, Y)")  # of the others, the only one that may be true
    if push is None:
        push = math.log1p(-q) - (math.log(q) if q else -math.inf)
        push = push if kind == "exactly_one" else math.log1p(-q)
    assert reason.push == pytest.approx(push)


def test_weights_of_values_that_no_table_has():
    rules = Rules().open("a", ["Anna", "Bob"], types=["t"])
    rules.rule("a(+x)", weights={"Anna": 1.0, "bob": 2.0})
    with pytest.warns(UserWarning, match="weight for bob, which is in no table of.*mean Bob"):
        answer = rules.infer()
    assert answer.probability("a(Bob)") == 0.5
    other = Rules().open("a", ["Anna"], types=["t"]).rule("a(+x)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # weights from elsewhere may have more values
        other.with_weights({"a(+x)": {"Anna": 1.0, "Bob": 2.0}}).infer()


@pytest.mark.parametrize("lazily", [False, True])
def test_a_hard_rule_that_no_candidate_can_meet(lazily):
    setting = {"grounding": "lazy", "threshold": 1e-3} if lazily else {"grounding": "full"}
    rows = [("A", "B"), ("B", "C")]
    rules = Rules().closed("p", ["A", "B", "C"], types=["t"]).open("s", rows, types=["t", "t"])
    rules.rule("1: s(x, y) => s(y, x)")
    with pytest.raises(ContradictionError, match="breaks this hard rule at y = A"):
        rules.condition().rule("s(C, y).").infer(**setting)
    assert rules.rule("s(A, y).").infer(**setting).probability("s(A, B)") == 1.0


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(4))
def test_broken_files_give_typed_errors(block, tmp_path):
    for number in range(2500 * block, 2500 * block + draws(2500)):
        broken = mutating.case(2, number, ("mln", "db"))
        path = tmp_path / broken.name
        path.write_bytes(broken.data)
        with suppress(MinferError):
            rules = mutating.KINDS[broken.kind].read(path)
            if number % 125 == 0:  # the whole way, now and then
                rules.infer(solver=BeliefPropagation(max_iters=5))


def test_the_command_line(smokers, monkeypatch):
    monkeypatch.chdir(smokers)

    def told(*words: str) -> str:
        got = call("rules", words[0], "prog.mln", "evidence.db", *words[1:])
        assert got.exit_code == 0, got.stderr
        return got.stdout + ("" if "--json" in words else got.stderr)

    found = json.loads(told("run", "-q", "Cancer", "--json"))
    assert found["answer"][0]["person"] == "Anna"
    assert found["written"] == len(found["answer"])
    assert isinstance(found["groundings"], int)
    told("run", "-q", "Cancer", "-o", "out.csv")
    assert (smokers / "out.csv").read_text().startswith("person,probability\nAnna,0.62245")
    assert "groundings" in told("plan")
    assert "!Smokes(Anna) v Cancer(Anna)" in told("explain", "-a", "Cancer(Anna)")
    assert "P(Cancer(Anna))" in told("explain", "-a", "Cancer(Anna)", "--threshold", "1e-6")
    lazily = json.loads(
        told("run", "-o", "o.csv", "--json", "--tolerance", "0.01", "--threshold", "0.1",
             "--rounds", "1", "--sums", "0", "--threads", "1", "--memory-limit", "1GB")
    )  # fmt: skip
    assert lazily["lazily"]["thresholds"][0] == 0.1
    assert lazily["lazily"]["agreed"] is True
    assert lazily["mean_error_estimate"] <= 0.01
    lazy = told("run", "--grounding", "lazy", "--factor-cost", "0.001", "-o", "o.csv")
    assert "threshold 0.001" in lazy
    full = told("run", "--grounding", "full", "--max-factors", "2", "-o", "o.csv", "--json")
    assert "lazily" not in json.loads(full)


@pytest.mark.parametrize(("words", "code", "text"), [
    ("-o o.json", 2, "-o: o.json: answers end in .csv"),
    ("-q Cancr", 3, "Cancr"),
    ("--memory-limit foo", 2, "--memory-limit must be a number with a unit"),
    ("--memory-limit 1KB", 4, "raise --memory-limit 1KB, or make fewer groundings"),
    ("--grounding some", 2, "auto, full or lazy"),
    ("--grounding full --threshold 0.1", 2, "--grounding lazy"),
    ("--grounding lazy --max-factors 3", 2, "needs the gains of all"),
    ("-o nowhere/out.csv", 2, "there is no folder nowhere"),
    ("-o facts.csv", 2, "facts.csv is also an input and would be overwritten"),
    ("-q q.csv -o q.csv", 2, "q.csv is also an input and would be overwritten"),
])  # fmt: skip
def test_what_the_command_line_refuses(smokers, monkeypatch, words, code, text):
    monkeypatch.chdir(smokers)
    (smokers / "facts.csv").write_text(FACTS)  # evidence in a file of any name
    (smokers / "q.csv").write_text("Cancer(x)\n")
    if " -o " in f" {words}":  # outputs are checked first
        monkeypatch.setattr(Rules, "infer", None)
    got = call("rules", "run", "prog.mln", "facts.csv", *words.split())
    assert got.exit_code == code, got.stderr
    assert text in got.stderr
    assert (smokers / "facts.csv").read_text() == FACTS
    assert (smokers / "q.csv").read_text() == "Cancer(x)\n"


@pytest.mark.parametrize("how", ["all", "numpy", "one", "make", "lazy", "full"])
def test_a_database_without_memory_is_refused_with_the_remedy(how):
    def ground():
        people = [f"a person called {k}" for k in range(40_000)]
        friends = list(itertools.pairwise(people))
        program = Rules(memory_limit="1MB").open("s", people).closed("f", friends)
        program.rule("1: f(x, y) ^ s(x) => s(y)").infer(grounding=how)

    big = "select list(hash(i)) from range(3000000) t(i)"
    work = {
        "all": lambda con: con.rows(big),
        "numpy": lambda con: con.columns(big),
        "one": lambda con: con.one(big),
        "make": lambda con: con.make("t", big),
    }
    run = partial(work[how], tables.connect("10MB")) if how in work else ground
    with pytest.raises(RefusedError, match=r"ran out of memory .*: raise memory_limit=1") as found:
        run()
    assert found.value.exit_code == 4
    assert "fewer groundings" in str(found.value)
    assert "SET" not in str(found.value)


@pytest.mark.parametrize(
    "rule",
    [
        "0.7: f(x, y) ^ s(x) => s(y)",
        "-1.2: f(x, y) ^ s(x) ^ !s(y)",
        "f(x, y) ^ s(x) => s(y).",
        "0.7: f(x, y) => s(x) v s(y)",
    ],
)
def test_a_clause_and_its_reverse_are_one_factor(rule):
    """As if the two were of two rules, which are factors of their own."""
    one, other = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "D")], [("B", "A"), ("D", "C")]
    merged, apart = Rules(), Rules().closed("g", other, types=("p", "p"))
    for program, pairs in ((merged, one + other), (apart, one)):
        program.closed("f", pairs, types=("p", "p")).rule(rule)
        program.open("s", list("ABCD"), types=("p",), log_odds=0.3)
    apart.rule(rule.replace("f(", "g("))
    factors = [program.model.graph.n_factors for program in (merged, apart)]
    assert factors == [3, 5]  # A-B, C-D, and B to C alone
    a, b = (Exact()(program.to_graph()) for program in (merged, apart))
    assert np.allclose(a.probs, b.probs, rtol=0, atol=1e-12)
    assert a.log_z == pytest.approx(b.log_z, abs=1e-12)


def test_weights_by_key_and_count_are_merged_with_their_like():
    rows = [("A", "B", "U"), ("B", "A", "U"), ("A", "C", "U"), ("C", "A", "V"), ("A", "B", "V")]
    program = Rules().closed("f", rows, types=("p", "p", "k")).open("s", list("ABC"), types=("p",))
    program.rule("f(x, y, +k) ^ s(x) => s(y)", weights={"U": 0.5, "V": 2.0})
    assert program.model.graph.n_factors == 4  # A-B by U; A to C, C to A, A to B by V
    w = {"U": 0.5, "V": 2.0}
    total = np.zeros((2, 2, 2))
    for a, b, c in itertools.product((0, 1), repeat=3):
        s = {"A": a, "B": b, "C": c}
        total[a, b, c] = math.exp(sum(w[k] * (s[y] >= s[x]) for x, y, k in rows))
    expected = total[1].sum() / total.sum()
    assert program.infer().probability("s(A)") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["int", "text", "real"])
def test_a_symmetric_table_has_every_pair_once_in_both_orders(kind):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, 60))
    as_kind = {"int": int, "text": lambda x: f"n{x}", "real": lambda x: x + 0.5}[kind]
    rows = [(as_kind(int(x)), as_kind(int(y))) for x, y in zip(a, b)]
    program = Rules().closed("f", rows, types=("p", "p"), symmetric=True)
    program.open("s", sorted({x for row in rows for x in row}), types=("p",))
    program.rule("1: f(x, y) ^ s(x) => s(y)")
    table = program.store.predicates["f"].table
    codes = program.store.con.rows(f"select a0, a1 from {table}")
    number = program.store.predicates["f"].classes[0]
    found = [tuple(program.store.texts(np.array(row), number)) for row in codes]
    expected = {(str(x), str(y)) for x, y in rows} | {(str(y), str(x)) for x, y in rows}
    assert len(found) == len(set(found))
    assert set(found) == expected
    loops = sum(x == y for x, y in expected)
    assert program.model.graph.n_factors == (len(expected) - loops) // 2


def test_large_whole_numbers_are_compared_as_numbers():
    """Not as texts, where 9 comes after 10, nor as real numbers, where the last digits are lost."""
    close = 1_700_000_000_000_000_000
    program = (
        Rules()
        .closed("at", {"x": list("ABC"), "t": [9_000_000_000, close, close + 1]})
        .open("a", list("ABC"))
    )

    def moved(rule: str) -> str:
        answer = program.condition().rule(rule).infer()
        return "".join(x for x in "ABC" if answer.probability(f"a({x})") != pytest.approx(0.5))

    assert moved("1: at(x, s) ^ at(y, t) ^ s < t ^ a(x)") == "AB"
    assert moved(f"1: at(x, s) ^ s > {close} ^ a(x)") == "C"
    assert moved(f"1: at(x, s) ^ {close} >= s ^ a(x)") == "AB"
    assert moved("1: at(x, s) ^ s < 9000000000.5 ^ a(x)") == "A"
    assert moved(f"1: at(x, s) ^ at(y, s) ^ s > {close - 1} ^ x != y ^ a(x)") == ""
    with pytest.raises(ModelError, match="beyond 2\\^53"):
        moved("1: at(x, s) ^ s - 1 > 0 ^ a(x)")
    with pytest.raises(ModelError, match="constant Late is compared with numbers"):
        moved("1: at(x, s) ^ s > Late ^ a(x)")
    both = Rules().closed("at", [close], types=("t",)).open("a", [0.5, 1.5], types=("t",))
    with pytest.raises(ModelError, match="beyond 2\\^53"):
        both.infer()
    table = Rules().open("a", [2**63 + 1, 2**63 + 2]).infer().table("a")
    assert sorted(map(int, table["c0"])) == [2**63 + 1, 2**63 + 2]


TUFFY = lists.UAI.parent / "relational" / "tuffy"
tuffy = pytest.mark.skipif(
    not TUFFY.is_dir(), reason=f"no programs of Tuffy in {TUFFY}; set MINFER_DATA"
)


def of_tuffy(name: str, **settings) -> Rules:
    where = TUFFY / name
    return Rules.read(
        where / "prog.mln.gz", where / "evidence.db.gz", where / "query.db.gz", **settings
    )


@tuffy
@pytest.mark.parametrize(("name", "query"), [("smoke", "Cancer"), ("cse", "advisedBy")])
def test_small_programs_are_read_and_answered(name, query):
    rules = of_tuffy(name)
    assert rules.queried == [query]
    answer = rules.infer(solver=BeliefPropagation(damping=0.5, max_iters=500))
    p = np.asarray(answer.table(query, kind="columns")["probability"])
    assert len(p) > 3
    assert np.isfinite(answer.probabilities).all()
    assert answer.probabilities.min() >= 0
    assert answer.probabilities.max() <= 1
    assert answer.converged  # cse needs the damping


BP = BeliefPropagation(tol=1e-9, max_iters=2000, damping=0.3)


def towns(n: int = 12, size: int = 7) -> Rules:
    """People of some towns who are friends within them, and some who have no friends at all."""
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    pairs = {
        (f"p{t}_{i}", f"p{t}_{j}")
        for t in range(n)
        for i, j in rng.integers(0, 2 + size * t // n, (2 * size, 2)).tolist()
        if i != j
    }
    people = sorted({x for pair in pairs for x in pair} | {"alone", "too"})
    prior = rng.normal(0, 1, len(people))
    program = Rules().closed("f", sorted(pairs), types=("p", "p"), symmetric=True)
    program.open("s", {"x": people, "w": prior}, columns=("x",), types=("p",), log_odds="w")
    program.open("t", people, types=("p",), log_odds=-1)
    program.rule("0.8: f(x, y) ^ s(x) => s(y)").rule("1: f(x, y) ^ s(x) ^ t(x) => s(y) v t(y)")
    return program.rule("0.7: s(x) <=> t(x)")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_parts_give_the_answer_of_the_whole(workers):
    program = towns()
    whole = program.infer(solver=BP, grounding="full")
    answer = infer_rules(program, solver=BP, workers=workers)
    assert np.abs(answer.probabilities - whole.probabilities).max() < 1e-7
    assert answer.status == whole.status
    assert answer.converged
    assert answer.marginals.log_z == pytest.approx(whole.marginals.log_z, abs=1e-6)
    assert answer.kept == whole.kept
    assert answer.query("s(x)")[0][0] == whole.query("s(x)")[0][0]
    assert answer.explain('s("alone")').probability == answer.probability('s("alone")')


def test_components_are_put_together_by_size():
    graph = towns().model.graph
    component = graph.component_labels()
    for most in (1, 3, 1000):
        part = gathered(graph, most)
        assert part.max() < min(most, component.max() + 1)
        for c in range(component.max() + 1):
            assert len(set(part[component == c].tolist())) == 1
    sizes = np.bincount(gathered(graph, 3))
    assert sizes.max() < 2 * sizes.min()


def test_a_folder_is_kept_and_gone_on_with(tmp_path):
    program = towns(4)
    first = infer_rules(program, solver=BP, workers=1, parts=3, folder=tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert len(list((tmp_path / "models").iterdir())) == 3
    second = infer_rules(program, solver=BP, workers=1, parts=3, folder=tmp_path)
    assert np.array_equal(first.probabilities, second.probabilities)
    kept = [path for path in files if path.suffix in (".minfer", ".parquet")]
    assert all(path.stat().st_mtime_ns == files[path] for path in kept)
    with pytest.raises(RefusedError):
        infer_rules(program.condition("s(alone)"), solver=BP, workers=1, parts=3, folder=tmp_path)


def test_settings_and_contradictions_are_told():
    refused(SettingsError, "workers", infer_rules, towns(2), workers=0)
    refused(SettingsError, "engine", infer_rules, towns(2), engine="abacus")
    program = Rules().open("a", [1, 2, 3]).open("b", [1, 2, 3])
    for rule in ("a(x) v b(x).", "a(x) => b(x).", "b(x) => a(x).", "!a(x) v !b(x)."):
        program.rule(rule)
    refused(ContradictionError, "no world is possible", infer_rules, program, workers=1)


def test_the_command_line_has_workers(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "p.mln").write_text("*F(p, p)\nS(p)\n1 F(x, y) ^ S(x) => S(y)\n0.5 S(x)\n")
    (tmp_path / "e.db").write_text("F(A, B)\nF(B, C)\nF(D, E)\nS(A)\n")
    arguments = ["rules", "run", str(tmp_path / "p.mln"), str(tmp_path / "e.db")]
    alone = call(*arguments)
    apart = call(*arguments, "--workers", "1")
    assert alone.exit_code == apart.exit_code == 0, apart.stderr
    head, *rows = alone.stdout.splitlines()  # one of them in one part, the other part by part
    also, *others = apart.stdout.splitlines()
    assert head == also
    for row, other in zip(rows, others, strict=True):
        (a, p), (b, q) = row.split(","), other.split(",")
        assert a == b
        assert float(p) == pytest.approx(float(q), rel=1e-12)
    wrong = call(*arguments, "--workers", "1", "--grounding", "lazy")
    assert wrong.exit_code == 2


@pytest.mark.slow
def test_ray_gives_the_same(tmp_path, cluster):
    program = towns(4)
    whole = program.infer(solver=BP, grounding="full")
    answer = infer_rules(program, solver=BP, engine="ray", workers=2, folder=tmp_path)
    assert np.abs(answer.probabilities - whole.probabilities).max() < 1e-7


def test_hard_rules_reach_circuits():
    """Eight queens as a rule program: its clique tree does not fit, and 92 boards are counted."""
    lines = [
        (r, c, s, d)
        for r, c, s, d in itertools.product(range(8), repeat=4)
        if r < s and (c == d or abs(c - d) == s - r)
    ]
    squares = list(itertools.product(range(8), repeat=2))
    program = (
        Rules()
        .closed("attacks", lines, types=("row", "column", "row", "column"))
        .open("queen", squares, types=("row", "column"), exactly_one="c1")
        .rule("attacks(r, c, s, d) ^ queen(r, c) => !queen(s, d).")
    )
    answer = program.infer()
    assert answer.marginals.status is Status.EXACT
    assert "circuit" in answer.marginals.note
    table = answer["queen"]["probability"].reshape(8, 8)
    np.testing.assert_allclose(table[0] * 92, [4, 8, 16, 18, 18, 16, 8, 4], atol=1e-8)
    np.testing.assert_allclose(table, table[::-1, ::-1], atol=1e-10)
