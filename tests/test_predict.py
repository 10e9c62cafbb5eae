"""Posteriors of rows against enumeration, of every kind of table; what is wrong has a place."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import minfer
from draws import draws
from minfer import EvidenceError, FactorGraph, FormatError, Predictor, SettingsError, predict
from minfer.batch import PredictRows, run
from minfer.prediction import files
from minfer.prediction.files import IMPOSSIBLE
from minfer.solvers import row_plans as engine
from minfer.solvers.plans import Network, plan_for
from oracle import models
from oracle import truth as naive
from refused import all_refused, refused
from test_cli import call

QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class Case(NamedTuple):
    graph: FactorGraph
    evidence: NDArray[np.int32]
    targets: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    graph = models.network(rng, n, draw(st.sampled_from([0.0, 0.3, 0.7])), exactly=True)
    if draw(st.booleans()):  # a model of its own with evidence, or with a table without direction
        v = int(rng.integers(n))
        graph = graph.with_soft_evidence({v: rng.random(int(graph.n_states[v])) + 0.1})
    if draw(st.booleans()):
        scope = rng.permutation(n)[: min(2, n)]
        graph = graph.add_tables([scope], [rng.normal(size=graph.n_states[scope])])
    rows = draw(st.integers(1, 20))
    sets = rng.random((draw(st.integers(1, rows)), n)) < draw(st.sampled_from([0.2, 0.5, 0.9]))
    seen = sets[rng.integers(len(sets), size=rows)]
    evidence = np.where(seen, rng.integers(0, graph.n_states, (rows, n)), -1).astype(np.int32)
    k = draw(st.sampled_from([0, 1, 1, 2, n]))
    return Case(graph, evidence, rng.permutation(n)[: min(k, n)].tolist())


def enumerated(graph: FactorGraph, evidence: NDArray) -> tuple[NDArray, NDArray]:
    """log P(e) of rows, and the posteriors of all variables, over all assignments."""
    whole = naive.weights(graph).sum()
    log_pe, probs = (
        np.full(len(evidence), -np.inf),
        np.full((len(evidence), len(graph.field)), np.nan),
    )
    for r, row in enumerate(evidence):
        w = naive.weights(graph, {v: int(s) for v, s in enumerate(row) if s >= 0})
        if w.sum() > 0:
            log_pe[r] = math.log(w.sum() / whole)
            probs[r] = np.concatenate([naive.table(w, [v]) for v in range(w.ndim)])
    return log_pe, probs


def check(case: Case, workers: int = 1) -> None:
    found = Network(case.graph).ask(case.evidence, case.targets, workers)
    log_pe, probs = enumerated(case.graph, case.evidence)
    np.testing.assert_allclose(found.log_pe, log_pe, atol=1e-10)
    wanted = [probs[:, case.graph.offsets[v] : case.graph.offsets[v + 1]] for v in case.targets]
    wanted = np.concatenate(wanted, axis=1) if wanted else np.empty((len(probs), 0))
    np.testing.assert_allclose(found.probs, wanted, atol=1e-11)


@settings(max_examples=draws(300), **QUICK)
@given(cases())
def test_rows_agree_with_enumeration(case: Case) -> None:
    check(case)


@settings(max_examples=draws(150), **QUICK)
@given(cases())
def test_a_plan_for_each_set_a_shared_one_and_single_rows_agree(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "NS_PER_VARIABLE", 0.0)  # a plan for every set
        check(case)
        patch.setattr(engine, "NS_PER_VARIABLE", 1e12)  # one for all
        check(case, workers=2)
        patch.setattr(engine, "MAX_CELLS", 0.0)  # none at all
        check(case)


@settings(max_examples=draws(150), **QUICK)
@given(cases())
def test_unchecked_rows_have_the_same_posteriors_where_they_are_possible(case: Case) -> None:
    network = Network(case.graph)
    wanted = network.ask(case.evidence, case.targets)
    found = network.ask(case.evidence, case.targets, check=False)
    fine = ~wanted.impossible
    np.testing.assert_allclose(found.probs[fine], wanted.probs[fine], atol=1e-11)
    assert np.isnan(found.log_pe[fine]).all()
    assert (np.isnan(found.log_pe) | wanted.impossible).all()


def test_without_check_what_evidence_cuts_off_is_left_out() -> None:
    rows = [[0.9, 0.1], [0.0, 1.0]]
    graph = FactorGraph.network(
        dict.fromkeys("abcd", 2),
        {"a": [0.5, 0.5], "b": ("a", rows), "c": ("b", rows), "d": ("c", rows)},
    )
    case = [{"a": 1, "b": 0, "c": 0}]  # impossible, but not for what c tells of d
    assert predict(graph, case, "d")[0]["problem"] is not None
    found = predict(graph, case, "d", check=False)[0]
    assert found["P(d=0)"] == pytest.approx(0.9)
    assert found["problem"] is None
    assert "log P(e)" not in found


def test_logical_factors_are_answered_too() -> None:
    graph = FactorGraph.pairwise([0.5, -1.0, 0.0, 0.3, 0.2, 0.0], [[0, 3]], [1.0])
    graph = graph.add_or([[1, 2]], [0]).add_exactly_one([[2, 3, 4, 5]])
    evidence = np.array([[1, -1, -1, 0, -1, -1], [-1] * 6, [0, 1, -1, -1, -1, -1]], np.int32)
    for targets in ([2], [0, 4], [5]):
        check(Case(graph, evidence, targets))


def test_underflow_is_no_contradiction() -> None:
    """600 leaves of naive Bayes: linear numbers alone would call the row impossible."""
    leaves = {f"x{k}": ("c", [[1e-3, 1 - 1e-3], [2e-3, 1 - 2e-3]]) for k in range(600)}
    graph = FactorGraph.network({"c": 2, **dict.fromkeys(leaves, 2)}, {"c": [0.5, 0.5], **leaves})
    found = predict(graph, [{f"x{k}": 0 for k in range(600)}], "c")
    assert found[0]["P(c)"] == pytest.approx(1.0)
    assert found[0]["log P(e)"] == pytest.approx(600 * math.log(2e-3) + math.log(0.5))


def test_barren_and_separated_parts_are_left_out() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph.network(
        dict.fromkeys("abcdef", 2),
        {
            "a": [0.5, 0.5],
            **{y: (x, rng.dirichlet([1, 1], 2)) for x, y in itertools.pairwise("abcdef")},
        },
    )
    plan = plan_for(graph, (2,), (0,), whole=True)
    assert plan.part.variables.tolist() == [0, 1, 2]
    assert plan.cells == 4


def test_contradictions_away_from_the_target_are_found() -> None:
    graph = FactorGraph.network(
        {"a": 2, "b": 2, "far": 2, "child": 2},
        {"a": [0.5, 0.5], "b": ("a", [[0.9, 0.1], [0.2, 0.8]]), "far": [0.5, 0.5],
         "child": ("far", [[1.0, 0.0], [0.0, 1.0]])},
    )  # fmt: skip
    found = predict(graph, {"far": [0, 0], "child": [1, 0], "b": [1, 1]}, "a")
    assert found["problem"].tolist() == [IMPOSSIBLE, None]
    assert found["log P(e)"][0] == -math.inf
    assert found["a"].tolist() == [-1, 1]


@pytest.fixture
def sprinkler() -> FactorGraph:
    return FactorGraph.network(
        {"rain": ["no", "yes"], "wet": ["dry", "damp", "wet"], "mood": ["1", "2"]},
        {
            "rain": [0.8, 0.2],
            "wet": ("rain", [[0.9, 0.1, 0.0], [0.1, 0.3, 0.6]]),
            "mood": ("wet", [[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]]),
        },
    )


COLUMNS: dict[str, list[Any]] = {
    "wet": ["wet", None, "damp", "dry"],
    "mood": [1.0, math.nan, 2.0, 2.0],
    "case": [7, 8, 9, 10],
}


def made(kind: str) -> Any:
    if kind == "columns":
        return COLUMNS
    if kind == "records":
        return [dict(zip(COLUMNS, x)) for x in zip(*COLUMNS.values())]
    if kind == "structured":
        return np.array(
            list(zip(*COLUMNS.values())), dtype=[("wet", object), ("mood", float), ("case", int)]
        )
    if kind.startswith("pandas"):
        frame = pytest.importorskip("pandas").DataFrame(COLUMNS, index=["p", "q", "q", "s"])
        return frame.astype({"wet": "category"}) if kind == "pandas category" else frame
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(COLUMNS)
    return pytest.importorskip("pyarrow").table(COLUMNS)


def listed(table: Any, name: str) -> list[Any]:
    if isinstance(table, list):
        return [row[name] for row in table]
    column = table[name]
    for way in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, way):
            return getattr(column, way)()
    raise AssertionError(type(column))


KINDS = ["columns", "records", "structured", "pandas", "pandas category", "polars", "arrow"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_comes_back_as_itself(kind: str, sprinkler: FactorGraph) -> None:
    rows = made(kind)
    found = predict(sprinkler, rows, keep=["case"])
    assert type(found) is type(rows)
    assert listed(found, "case") == COLUMNS["case"]
    assert listed(found, "rain") == ["yes", "no", "no", "no"]
    evidence = np.array([[-1, 2, 0], [-1, -1, -1], [-1, 1, 1], [-1, 0, 1]])
    log_pe, probs = enumerated(sprinkler, evidence)
    np.testing.assert_allclose(listed(found, "P(rain=yes)"), probs[:, 1], atol=1e-12)
    np.testing.assert_allclose(listed(found, "P(rain)"), probs[:, :2].max(axis=1), atol=1e-12)
    np.testing.assert_allclose(listed(found, "log P(e)"), log_pe, atol=1e-12)
    assert not any(x == x and x is not None for x in listed(found, "problem"))


@pytest.mark.parametrize("kind", ["columns", "pandas"])
def test_rows_without_an_answer_are_marked_or_left_out(kind: str, sprinkler: FactorGraph) -> None:
    wrong = {**COLUMNS, "wet": ["wet", "wett", "damp", "dry"]}
    rows = wrong if kind == "columns" else type(made(kind))(wrong, index=["p", "q", "q", "s"])
    marked = predict(sprinkler, rows, "rain", keep=["case"], on_unknown="mark")
    assert "unknown state" in listed(marked, "problem")[1]
    assert "did you mean wet?" in listed(marked, "problem")[1]
    assert listed(marked, "problem")[0] is None
    assert np.isnan(listed(marked, "P(rain)")).tolist() == [False, True, False, False]
    skipped = predict(sprinkler, rows, "rain", keep=["case"], on_unknown="skip")
    assert listed(skipped, "case") == [7, 9, 10]
    if kind != "columns":
        assert list(skipped.index) == ["p", "q", "s"]


def test_a_targets_own_column_is_evidence_only_if_named(sprinkler: FactorGraph) -> None:
    rows = {"rain": ["yes", None], "wet": ["dry", "dry"]}
    blind = predict(sprinkler, rows, "rain")
    assert blind["rain"].tolist() == ["no", "no"]
    filled = predict(sprinkler, rows, ["rain", "mood"], evidence=["rain", "wet"])
    assert filled["rain"].tolist() == ["yes", "no"]
    assert filled["P(rain)"][0] == 1.0
    one = predict(sprinkler, rows, "rain", evidence=["rain", "wet"])
    np.testing.assert_allclose(one["P(rain=yes)"], filled["P(rain=yes)"], atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "more", "error"),
    [
        ({"colour": ["wet"]}, {}, "no column is a variable"),
        ({"id": [1], "raim": ["no"]}, {"targets": "mood"}, "column 'raim'.*did you mean rain"),
        ({"wet": ["wet"], "rainn": ["no"]}, {"targets": "mood"}, "'rainn'.*mean rain.*evidence="),
        ({"wet": ["NA"]}, {}, r'not .NA.; where NA stands for nothing known: missing=\["", "NA"\]'),
        ({"wet": ["wet"], "rain": ["no"], "mood": [1]}, {}, "name the targets"),
        ({"wet": ["wet"]}, {"targets": "snow"}, "targets: .*snow"),
        ({"wet": ["wet"]}, {"targets": ["rain", 0]}, "twice"),
        ({"wet": ["wet"]}, {"evidence": ["mood"]}, "no column 'mood'"),
        ({"wet": ["wet"]}, {"keep": ["id"]}, "no column 'id'"),
        ({"wet": ["wet"], "rain": [1]}, {"targets": "rain", "keep": ["rain"]}, "would be called"),
        ({"wet": ["wet", "dry"], "mood": [1]}, {}, "the same length"),
        ({"wet": "wet"}, {}, "for one row give"),
        ({"wet": [["wet"]]}, {}, "row 0: a cell"),
        (7, {}, "not int"),
        (np.zeros((2, 2)), {}, "columns="),
        ({"wet": ["wet"]}, {"on_unknown": "guess"}, "on_unknown"),
        ({"wet": ["wet"]}, {"out": "x.csv"}, "out= is for a file"),
        ("cases.xls", {}, r"\.parquet"),
        ({"wet": ["wet", "dry", "weet"]}, {}, "row 2, column wet: .*dry, damp, wet.*did you mean"),
        ({"mood": [1, 0]}, {}, "row 1, column mood"),  # names that are numbers: 0 is none of them
        ({"wet": ["wet"]}, {"check": "no"}, "check"),
    ],
)
def test_what_cannot_be_is_a_typed_error(
    rows: Any, more: dict[str, Any], error: str, sprinkler: FactorGraph
) -> None:
    with pytest.raises((EvidenceError, SettingsError), match=error or None):
        predict(sprinkler, rows, **more)


def test_columns_that_are_no_slips_are_not_read(sprinkler: FactorGraph) -> None:
    rows = {"wet": ["wet"], "rain2": ["x"], "case": [7], "rains_a_lot": [1], "rainn": [2]}
    assert predict(sprinkler, rows, "mood", keep=["rainn"])["rainn"] == [2]
    del rows["rainn"]
    assert len(predict(sprinkler, rows, "mood")["mood"]) == 1
    assert len(predict(sprinkler, rows | {"moodd": [0]}, "mood")["mood"]) == 1  # no evidence anyway
    assert predict(sprinkler, [], "rain") == []
    assert len(predict(sprinkler, {"wet": []}, "rain")["rain"]) == 0
    assert predict(sprinkler, [{}], "rain")[0]["P(rain)"] == 0.8


def test_answers_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(1)
    graph = models.network(rng, 9, 0.3, exactly=True)
    evidence = np.where(rng.random((700, 9)) < 0.4, rng.integers(0, graph.n_states, (700, 9)), -1)
    names = [graph.name(v) for v in range(9)]
    ask = Predictor(graph, names[3], evidence=names, workers=1)
    whole = ask(evidence, columns=names)
    threads = predict(graph, evidence, names[3], evidence=names, columns=names, workers=3)
    for name in whole.dtype.names:
        np.testing.assert_array_equal(whole[name], threads[name])


def write_cases(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{k},{rng.choice(['wet', 'damp', 'dry', ''])},{rng.choice(['1', '2', ''])}\n"
             for k in range(n)]  # fmt: skip
    path.write_text("case,wet,mood\n" + "".join(lines))


@pytest.fixture(params=[True, False])
def with_arrow(request: Any, monkeypatch: Any) -> bool:
    """Files by pyarrow, and by the standard library alone."""
    if request.param:
        pytest.importorskip("pyarrow")
    else:
        monkeypatch.setattr(files, "arrow", lambda: None)
    return request.param


@pytest.mark.parametrize("end", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_files_are_answered_in_chunks(
    end: str, with_arrow: bool, sprinkler: FactorGraph, tmp_path: Path
) -> None:
    write_cases(tmp_path / "cases.csv", 1000)
    if not with_arrow and end == ".parquet":
        with pytest.raises(minfer.RefusedError, match="pip install"):
            predict(sprinkler, tmp_path / "cases.csv", "rain", out=tmp_path / "x.parquet")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["cases.csv"]
        return
    seen: list[int] = []
    summary = predict(
        sprinkler, tmp_path / "cases.csv", "rain", out=tmp_path / f"out{end}", keep=["case"],
        chunk_rows=300, report=seen.append,
    )  # fmt: skip
    assert seen == [300, 600, 900, 1000]
    assert (summary.rows, summary.unknown) == (1000, 0)
    assert summary.impossible > 0
    assert (summary.columns_read, summary.columns_unread) == (("wet", "mood"), ("case",))
    whole = predict(sprinkler, tmp_path / "cases.csv", "rain", keep=["case"])
    again = read_back(tmp_path / f"out{end}")
    assert [str(x) for x in listed(again, "case")] == [str(k) for k in range(1000)]
    np.testing.assert_allclose(
        np.array(
            [x or "nan" if isinstance(x, str) else x for x in listed(again, "P(rain=yes)")], float
        ),
        np.array(listed(whole, "P(rain=yes)"), float),
    )


def read_back(path: Path) -> Any:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path)
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    separator = "\t" if path.suffix == ".tsv" else ","
    return list(csv.DictReader(text.splitlines(), delimiter=separator))


def test_faults_of_files_have_a_place(sprinkler: FactorGraph, tmp_path: Path) -> None:
    cases, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    for data, error, words in (
        (b"wet,mood\nwet,1\ndry,3\n", EvidenceError, r"cases\.csv: row 2, column mood"),
        (b"wet,mood\nwet,1\ndry\n", FormatError, r"cases\.csv: .*2"),
        (b"", FormatError, "header"),
        (b"wet\0,mood\n", FormatError, "not text"),
        (b"wet,wet\nwet,wet\n", FormatError, "two columns"),
    ):
        cases.write_bytes(data)
        refused(error, words, predict, sprinkler, cases, "rain", out=out)
    all_refused(
        (lambda: predict(sprinkler, tmp_path / "no.csv", "rain", out=out), FormatError, "cannot"),
        (lambda: predict(sprinkler, cases, "rain", out=cases), SettingsError, "overwritten"),
        (lambda: predict(sprinkler, cases, "rain", out=tmp_path / "a" / "b.csv"), SettingsError,
         "no folder"),
    )  # fmt: skip
    assert not out.exists()
    cases.write_text("wet,mood\n")
    assert predict(sprinkler, cases, "rain", out=out).rows == 0
    cases.write_text("case,wet,rain\n1,wet,yes\n")
    said = predict(sprinkler, cases, "rain", out=out)
    assert (said.columns_read, said.columns_unread) == (("wet",), ("case", "rain"))
    assert "read wet, not case, rain" in str(said)


@pytest.mark.parametrize("packed", [True, False])
def test_a_row_of_too_few_cells_has_its_line(
    sprinkler: FactorGraph, tmp_path: Path, with_arrow: bool, packed: bool
) -> None:
    cases = tmp_path / ("cases.csv.gz" if packed else "cases.csv")
    data = b'wet,note\nwet,a\n\nwet,"two\nlines"\ndry\nwet,b\n'
    cases.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(FormatError, match=r"cases\.csv.*: line 6: 1 cell, but 2 columns"):
        predict(sprinkler, cases, "rain")
    if with_arrow and not packed:
        cases.write_text("wet,note\nwet,a\nwet," + "a" * 3_000_000 + "\n")
        with pytest.raises(FormatError, match=r"cases\.csv: a row is longer than 1,048,576 bytes"):
            predict(sprinkler, cases, "rain")


def test_the_command_answers_a_file_or_says_what_is_wrong(
    sprinkler: FactorGraph, tmp_path: Path
) -> None:
    minfer.write(sprinkler, tmp_path / "net.minfer")
    write_cases(tmp_path / "cases.csv", 50)
    model, cases, out = tmp_path / "net.minfer", tmp_path / "cases.csv", tmp_path / "out.csv"
    told = call("predict", model, cases, "-o", out, "--targets", "rain", "--json")
    assert told.exit_code == 0, told.stderr
    facts = json.loads(told.stdout)
    assert facts["rows"] == 50
    assert facts["answered"] + facts["impossible"] == 50
    assert len(read_back(out)) == 50
    shown = call("predict", model, cases, "-t", "rain", "--no-probabilities", "--keep", "case")
    assert shown.exit_code == 0, shown.stderr
    first, *rest = shown.stdout.splitlines()[:51]
    assert first.replace('"', "") == "case,rain,P(rain),log P(e),problem"
    assert len(rest) == 50
    cases.write_text("wet\nwet\nweet\n")
    out.unlink()
    wrong = call("predict", model, cases, "-o", out, "-t", "rain")
    assert wrong.exit_code == 3
    assert not out.exists()
    for more in (["--unknown", "guess"], ["-t", "snow"], ["-o", "-", "--json"]):
        assert call("predict", model, cases, "-o", out, "-t", "rain", *more).exit_code == 2
    marked = call("predict", model, cases, "-o", out, "-t", "rain", "--unknown", "mark")
    assert marked.exit_code == 0, marked.stderr
    assert "did you mean" in read_back(out)[1]["problem"]


@pytest.mark.parametrize("end", ["csv", "csv.gz", "parquet", "jsonl"])
def test_a_batch_predicts_shard_by_shard_and_goes_on(
    end: str, sprinkler: FactorGraph, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    minfer.write(sprinkler, tmp_path / "net.minfer")
    plain = tmp_path / "cases.csv"
    write_cases(plain, 400)
    text = plain.read_text().replace("case,", "id,", 1) + "400,weet,1\n"
    rows = [dict(zip(["id", "wet", "mood"], x.split(","))) for x in text.splitlines()[1:]]
    plain.unlink()
    path = tmp_path / f"cases.{end}"
    if end == "parquet":
        table = {name: [row[name] or None for row in rows] for name in rows[0]}
        pq.write_table(pytest.importorskip("pyarrow").table(table), path, row_group_size=90)
    elif end == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_bytes(text.encode() if end == "csv" else gzip.compress(text.encode()))
    job = PredictRows(str(tmp_path / "net.minfer"), ("rain",))
    out = tmp_path / "out"
    state = run(job, [path], out, workers=1, shard_bytes=1500, format="parquet")
    assert (state.rows, state.errors) == (400, 1)
    parts = sorted(out.glob("part-*.parquet"))
    assert len(parts) > 1
    found = [row for part in parts for row in pq.read_table(part).to_pylist()]
    assert [row["id"] for row in found] == [row["id"] for row in rows[:400]]
    wanted = predict(sprinkler, rows[:400], "rain")
    for mine, theirs in zip(found, wanted):
        assert mine["rain"] == theirs["rain"]
        assert (mine["problem"] is None) == (theirs["problem"] is None)
        if theirs["problem"] is None:
            assert mine["P(rain)"] == pytest.approx(theirs["P(rain)"], abs=1e-12)
    errors = "".join(p.read_text() for p in out.glob("*.errors.jsonl"))
    assert "did you mean wet?" in errors
    before = parts[1].read_bytes()
    parts[1].unlink()
    run(job, [path], out, workers=1, shard_bytes=1500, format="parquet")
    assert parts[1].read_bytes() == before


def test_a_batch_of_jsonl_has_no_number_that_is_none(
    sprinkler: FactorGraph, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")

    minfer.write(sprinkler, tmp_path / "net.minfer")
    (tmp_path / "cases.csv").write_text("wet,mood\nwet,2\nwet,1\ntoo,many,cells\n")
    told = call(
        "batch", "predict", tmp_path / "net.minfer", tmp_path / "cases.csv", "-o", tmp_path / "o",
        "-t", "rain", "--format", "jsonl", "--workers", 1, "--json",
    )  # fmt: skip
    assert told.exit_code == 0, told.stderr
    lines = (tmp_path / "o" / "part-000000.jsonl").read_text().splitlines()
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    assert first["problem"] == IMPOSSIBLE
    assert first["P(rain)"] is None
    assert second["P(rain)"] == 1.0
    assert json.loads(told.stdout)["errors"] == 1


LONE = {
    "plain": [(["a", "b"], [[0.0, 1], [2, 3]])],
    "wide": [(["a", "b"], [[0.0, -900], [800, 1500]])],
    "wide and a field": [(["a", "b"], [[0.0, -900], [0, 900]]), (["b"], [0.0, 2000])],
}


@pytest.mark.parametrize("kind", LONE)
@pytest.mark.parametrize("target", ["a", "b", "lone", ["b", "lone"]])
def test_the_probability_of_evidence_with_variables_in_no_factor(kind: str, target: Any) -> None:
    g = FactorGraph.named({"a": 2, "b": 2, "lone": 3}, LONE[kind])
    for rows in ({"a": [0, 1]}, {"lone": [0, 1]}, {"a": [0, 1], "lone": [0, 2]}):
        found = predict(g, rows, target, evidence=list(rows))["log P(e)"]
        asked = [{k: v[i] for k, v in rows.items()} for i in range(2)]
        wanted = [minfer.query(g, ["b"], e).log_evidence for e in asked]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_nothing_known_has_probability_one(sprinkler: FactorGraph) -> None:
    drawn = [
        models.network(np.random.default_rng(seed), 8, 0.3, exactly=True) for seed in range(20)
    ]
    for graph in (sprinkler, *drawn):
        rows = {graph.name(v): [None, 0][: 2 - v % 2] + [None] * (v % 2) for v in range(3)}
        found = predict(graph, rows, graph.name(2), evidence=list(rows), on_unknown="mark")
        assert found["log P(e)"][0] == 0.0
        assert not (found["log P(e)"] > 0.0).any()


def test_csv_without_rows_with_blank_lines_and_plain_where_it_can_be(
    with_arrow: bool, sprinkler: FactorGraph, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("case,wet\n")
    wanted = ["case", "rain", "P(rain)", "P(rain=no)", "P(rain=yes)", "log P(e)", "problem"]
    said = predict(sprinkler, tmp_path / "in.csv", "rain", out=tmp_path / "out.csv", keep=["case"])
    assert said.rows == 0
    assert (tmp_path / "out.csv").read_text().replace('"', "") == ",".join(wanted) + "\n"
    whole = predict(sprinkler, tmp_path / "in.csv", "rain", keep=["case"])
    assert list(whole.column_names if with_arrow else whole) == wanted
    if with_arrow:
        import pyarrow.parquet as pq

        out = tmp_path / "out.parquet"
        predict(sprinkler, tmp_path / "in.csv", "rain", out=out, keep=["case"])
        table = pq.read_table(out)
        assert (table.column_names, table.num_rows) == (wanted, 0)
        assert str(table.schema.field("P(rain)").type) == "double"
    (tmp_path / "one.csv").write_text("wet\nwet\n\ndry\n")
    found = predict(sprinkler, tmp_path / "one.csv", "rain")
    p = found["P(rain=yes)"]
    assert len(p) == 3
    assert float(p[1].as_py() if with_arrow else p[1]) == pytest.approx(0.2)
    (tmp_path / "two.csv").write_text("wet,case\nwet,1\n\n\ndry,2\nwet,3\n")
    out = tmp_path / "out.csv"
    said = predict(sprinkler, tmp_path / "two.csv", "rain", out=out, chunk_rows=1, keep=["case"])
    assert said.rows == 3
    (tmp_path / "in.csv").write_text("case,wet\na,wet\nb,soaked\n")
    out = tmp_path / "out.csv"
    predict(sprinkler, tmp_path / "in.csv", "rain", out=out, keep=["case"], on_unknown="mark",
            missing=["", "?"])  # fmt: skip
    header, first, second = out.read_text().splitlines()
    assert header == "case,rain,P(rain),P(rain=no),P(rain=yes),log P(e),problem"
    assert first.startswith("a,yes,1")
    assert second.startswith("b,,,,,,")  # nothing is known: empty, not nan
    (tmp_path / "in.csv").write_text('case,wet\n"a, ""b""",wet\nplain,dry\n')
    predict(sprinkler, tmp_path / "in.csv", "rain", out=out, keep=["case"], chunk_rows=1)
    assert '\n"a, ""b""",' in out.read_text()
    assert out.read_text().splitlines()[-1].startswith("plain,no,")


def test_truth_and_numbers_side_by_side_are_not_mistaken(sprinkler: FactorGraph) -> None:
    for cells in ([1, True], [True, 1], [1.0, np.True_], [np.array(True)[()], 1]):
        found = predict(sprinkler, {"mood": cells}, "rain", on_unknown="mark")
        assert ["unknown" in (x or "") for x in found["problem"]] == [
            isinstance(x, bool | np.bool_) for x in cells
        ]
