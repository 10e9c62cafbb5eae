"""The database of rules opens the files that were named to it, reads tables, and does nothing else.

Files here are hostile: names that are patterns, views and SQL that read or write elsewhere.
"""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import sqlite3
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from minfer import Rules
from minfer.errors import FormatError, MinferError, ModelError

duckdb = pytest.importorskip("duckdb")

from minfer.rules import Query  # noqa: E402

SECRET = "nobody may see this"


@pytest.fixture
def secret(tmp_path) -> Path:
    """A file that no program here names, and which is neither read nor changed."""
    path = tmp_path / "secret.csv"
    path.write_text(f"a\n{SECRET}\n")
    return path


def made(path: Path, *statements: str) -> Path:
    """A DuckDB or SQLite file, by default with a table t of one x."""
    con = (sqlite3 if path.suffix == ".sqlite" else duckdb).connect(str(path))
    for text in statements or ["create table t as select 'x' as a"]:
        con.execute(text)
    con.commit()
    con.close()
    return path


def values(source) -> list[str]:
    """The values of a one-column table, as rules read it."""
    table = Rules().open("p", source, types=("t",)).infer()["p"]
    name = next(c for c in table if c != "probability")
    return sorted(map(str, table[name].tolist()))


NAMES = [
    ("data[1].csv", "data1.csv"), ("d?.csv", "dX.csv"), ("s*.csv", "sab.csv"),
    ("[!a].csv", "b.csv"), ("[a-z].csv", "k.csv"), ("**.csv", "q.csv"), ("[[].csv", "[.csv"),
    ("{a,b}.csv", "a.csv"), ("~.csv", "h.csv"), ("o'k.csv", "ok.csv"), ("b\\[c].csv", "b[c].csv"),
    ("n\nl.csv", "n.csv"), ("f[1]/x.csv", "f1/x.csv"), ("f*/y=3/x.csv", "fa/y=3/x.csv"),
    ("back\\slash.csv", "slash.csv"), ("é[.csv", "e.csv"), ("a[1].csv.gz", "a1.csv.gz"),
    ("a[1].parquet", "a1.parquet"), ("d?.parquet", "dX.parquet"), ("year=3/x.parquet", "x.parquet"),
    ("f[1]/x*.parquet", "f1/xx.parquet"), ("a[1].tsv", "a1.tsv"), (b"\xff[1].csv", "y.csv"),
]  # fmt: skip


def write_column(path: Path, value: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        pa = pytest.importorskip("pyarrow")
        with path.open("wb") as file:
            pq.write_table(pa.table({"a": [value]}), file)
        return
    data = f"a\n{value}\n".encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.skipif(os.name == "nt", reason="such names are not possible there")
@pytest.mark.parametrize(("name", "other"), NAMES)
@pytest.mark.parametrize("relative", [False, True])
def test_a_name_is_that_file(tmp_path, monkeypatch, name, other, relative):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / (os.fsdecode(name) if isinstance(name, bytes) else name)
    try:
        write_column(path, "right")
    except OSError:
        pytest.skip("there can be no such file here")
    write_column(tmp_path / other, "wrong")
    given = os.path.relpath(path) if relative else path
    assert values(given) == ["right"]
    assert values([Path(given)]) == ["right"]
    learned = Rules().open("p", ["right", "wrong"]).rule("p(x)").learn({"p": given})
    assert "2 labels" in str(learned)  # of a file that is named later
    path.unlink()
    with pytest.raises(FormatError, match="there is no such file"):
        values(given)
    assert not list(tmp_path.glob("minfer-*"))


def test_links_to_odd_names_go_with_the_program(tmp_path, monkeypatch):
    path = tmp_path / "a[1].csv"
    write_column(path, "x")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    program = Rules().open("p", path)
    assert program.store.n_atoms == 1
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    del program
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())
    assert path.exists()


def test_a_folder_is_no_file_and_a_pattern_no_name(tmp_path):
    for name in ("x.csv", "y.parquet", "z.duckdb", "z.sqlite"):
        path = tmp_path / name
        path.mkdir()
        with pytest.raises(FormatError, match="it is a folder"):
            values((path, "t") if name[0] == "z" else path)
    write_column(tmp_path / "a1.csv", "1")
    for pattern in ("a*.csv", "a?.csv", "a[1].csv"):
        with pytest.raises(FormatError, match=r"a name is no pattern: .*list of paths"):
            values(tmp_path / pattern)


def test_several_files_have_the_same_columns(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name, columns in (("1", "ab"), ("2", "ab"), ("3", "ba"), ("4", "abc"), ("5", "a")):
        table = pa.table({c: [f"{c}{name}"] for c in columns})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    both = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    table = Rules().open("p", both).infer()["p"]
    assert sorted(zip(table["a"], table["b"])) == [("a1", "b1"), ("a2", "b2")]
    for name in "345":
        with pytest.raises(FormatError, match=rf"{name}\.parquet: its columns are"):
            Rules().open("p", [both[0], tmp_path / f"{name}.parquet"]).infer()
    write_column(tmp_path / "c.csv", "1")
    with pytest.raises(FormatError, match="kind of the others"):
        values([both[0], tmp_path / "c.csv"])


FORBIDDEN = [
    "select * from read_csv('{secret}')", "select * from read_text('{secret}')",
    "select * from read_blob('{secret}')", "select * from '{secret}'",
    "select * from glob('{folder}/*')", "select * from read_csv('{folder}/*.csv')",
    "select * from read_parquet('{secret}')", "select * from read_json('{secret}')",
    "select * from read_csv('http://127.0.0.1:9/x.csv')",
    "copy (select 1 as a) to '{folder}/made.csv'", "attach '{folder}/made.duckdb' as made",
    "attach '{other}' as other (read_only)", "install httpfs", "load httpfs", "load sqlite",
    "load '{folder}/made.duckdb_extension'", "export database '{folder}/made'",
    "set enable_external_access = true", "set allowed_directories = ['/']",
    "set allowed_paths = ['{secret}']", "set autoload_known_extensions = true",
    "set autoinstall_known_extensions = true", "set lock_configuration = false",
    "set temp_directory = '{folder}/made'", "set log_query_path = '{folder}/made'",
    "set threads = 2", "reset enable_external_access", "set extension_directory = '{folder}'",
    "pragma enable_profiling = 'json'", "pragma profiling_output = '{folder}/made'",
    "create persistent secret s (type http)",
]  # fmt: skip


def attempts(tmp_path, secret) -> list[str]:
    other = made(tmp_path / "other.duckdb", f"create or replace table t as select '{SECRET}' as a")
    return [text.format(secret=secret, folder=tmp_path, other=other) for text in FORBIDDEN]


@pytest.mark.parametrize("kind", ["memory", "limit", "csv", "duckdb"])
def test_the_database_of_a_program_opens_nothing(tmp_path, secret, kind):
    source = ["x"]
    if kind == "csv":
        source = tmp_path / "own.csv"
        write_column(source, "x")
    if kind == "duckdb":
        source = (made(tmp_path / "own.duckdb"), "t")
    texts = attempts(tmp_path, secret)
    before = sorted(tmp_path.iterdir())
    con = Rules(memory_limit="1GB" if kind == "limit" else None).open("p", source).store.con
    settings = {
        name: con.one(f"select current_setting('{name}')")[0]
        for name in ("enable_external_access", "autoinstall_known_extensions",
                     "autoload_known_extensions", "allow_community_extensions",
                     "allow_unsigned_extensions", "lock_configuration")
    }  # fmt: skip
    assert settings.pop("lock_configuration") is True
    assert not any(settings.values())
    for text in texts:
        with pytest.raises(duckdb.Error):
            con.execute(text)
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def hostile(tmp_path, secret) -> Path:
    """A DuckDB file with tables, good views and views that go elsewhere."""
    path = tmp_path / "hostile.duckdb"
    other = made(tmp_path / "other.duckdb", f"create table t as select '{SECRET}' as a")
    with duckdb.connect(str(path)) as con:
        con.execute("create table t as select 'x' as a union all select 'y'")
        con.execute("create view good as select a || '!' as a from t")
        con.execute("create view better as select a || '?' as a from good")
        con.execute("create macro one_of(x) as (select max(a) || x from t)")
        con.execute("create view by_macro as select one_of('+') as a")
        con.execute(f"create macro evil_macro() as (select max(a) from read_csv('{secret}'))")
        con.execute("create view evil_by_macro as select evil_macro() as a")
        con.execute("create table evil_generated (b varchar, a varchar generated always as "
                    "(b || '.'))")  # fmt: skip
        con.execute("insert into evil_generated values ('z')")
        con.execute('create table "odd ""name"" '
                    "'; drop table t; --" '" as select 3 as a')  # fmt: skip
        con.execute('create table "select 1 as a" as select 4 as a')
        for k, call in enumerate((
            f"read_csv('{secret}')", f"read_text('{secret}')", f"'{secret}'",
            f"glob('{tmp_path}/*')", f"read_blob('{secret}')", "glob('/etc/*')",
            f"read_csv('{tmp_path}/*.csv')",
        )):  # fmt: skip
            con.execute(f"create view evil_{k} as select * from {call}")
        con.execute(f"attach '{other}' as other (read_only)")
        con.execute("create view evil_attached as select * from other.main.t")
        con.execute("create table minfer_raw_1 as select 'theirs' as a")
    return path


def test_tables_and_views_over_them_are_read(hostile):
    assert values((hostile, "t")) == ["x", "y"]
    assert values((hostile, "T")) == ["x", "y"]
    assert values((str(hostile), "good")) == ["x!", "y!"]
    assert values((hostile, "better")) == ["x!?", "y!?"]
    assert values((hostile, "by_macro")) == ["y+"]
    assert values((hostile, "minfer_raw_1")) == ["theirs"]
    assert values((hostile, 'odd "name" \'; drop table t; --')) == ["3"]
    assert values((hostile, "select 1 as a")) == ["4"]  # a table that is called so
    table = Rules().open("p", (hostile, "evil_generated")).infer()["p"]
    assert [table["b"].tolist(), table["a"].tolist()] == [["z"], ["z."]]


def test_views_see_their_own_file_only(tmp_path, hostile, secret):
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    names = [f"evil_{k}" for k in range(7)] + ["evil_by_macro", "evil_attached"]
    for name in names:
        with pytest.raises(FormatError) as caught:
            values((hostile, name))
        assert SECRET not in str(caught.value)
        # and not the other files of a program either
        program = (
            Rules()
            .closed("s", secret, types=("t",))
            .closed("q", (tmp_path / "other.duckdb", "t"), types=("t",))
        )
        with pytest.raises(FormatError):
            program.open("p", (hostile, name), columns=None).infer()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["evil_raw", "evil_frame", "evil_local"])
def test_views_see_no_table_of_the_program_and_no_variable(tmp_path, name):
    seen = {"evil_raw": "temp.main.minfer_raw_1", "evil_frame": "frame", "evil_local": "columns"}
    path = made(
        tmp_path / "hostile.duckdb", "create temp table minfer_raw_1 as select 'x' as a",
        "create table frame as select 'x' as a", "create table columns as select 'x' as a",
        f"create view {name} as select * from {seen[name]}", "drop table frame",
        "drop table columns",
    )  # fmt: skip
    globals()["frame"] = {"a": [SECRET]}
    program = Rules().closed("s", [SECRET], types=("t",))
    with pytest.raises(FormatError):
        program.open("p", (path, name), types=("t",)).infer()


def test_a_name_that_is_sql_is_no_table(tmp_path, hostile):
    before = sorted(tmp_path.iterdir())
    for text in (
        f"select 1; copy (select 1) to '{tmp_path}/made.csv'", "select a from t",
        "SELECT a from t", "with x as (select 1 as a) select * from x", "from t", "main.t", "",
        'good" union select 1 --', "t; drop table t", "sqlite_master", "duckdb_tables",
        "duckdb_settings", "duckdb_settings()", f"read_csv('{tmp_path}/secret.csv')",
        "hostile.duckdb", f"{tmp_path}/secret.csv",
    ):  # fmt: skip
        with pytest.raises(FormatError, match="there is no table"):
            values((hostile, text))
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(FormatError, match=r"no table 'goood'; did you mean 'good'\?"):
        values((hostile, "goood"))
    with pytest.raises(FormatError, match=r"SQL is given as minfer.rules.Query\(file, sql="):
        values((hostile, "select a from t"))


def test_sql_is_one_statement_that_reads(tmp_path, hostile, secret):
    def asked(sql):
        return values(Query(hostile, sql=sql))

    assert asked("select a from t where a = 'x'") == ["x"]
    assert asked("from good select a || 'g' as a; -- done") == ["x!g", "y!g"]
    assert asked("with w as (select 7 as a) select a from w") == ["7"]
    elsewhere = attempts(tmp_path, secret)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for text in ("", ";", "select 1 as a; select 2 as a",
                 f"select 1 as a; copy t to '{tmp_path}/made.csv'"):  # fmt: skip
        with pytest.raises(FormatError, match=r"must be a single statement, not [02]"):
            asked(text)
    for text in ("drop table t", "insert into t values ('z')", "update t set a = 'z'",
                 "create table made as select 1 as a", "explain select 1", "call pragma_version()",
                 "checkpoint", "detach source_db", "begin"):  # fmt: skip
        with pytest.raises(FormatError, match="must be a statement that reads, a SELECT, not"):
            asked(text)
    for text in (*elsewhere, "select a from nowhere", "selec a from t",
                 "select getenv('HOME') as a", "select nextval('s') as a",
                 "select a from t where ?",
                 "with w as (insert into t values ('z') returning a) select a from w",
                 f"select * from enable_logging(storage_path = '{tmp_path}/made')",
                 f"select * from query('copy t to ''{tmp_path}/made.csv''')",
                 f"select * from query_table('{secret}')",
                 "select * from duckdb_secrets(redact = false)"):  # fmt: skip
        with pytest.raises(FormatError):
            asked(text)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    for bad in (None, 3, b"select 1"):
        with pytest.raises(ModelError, match="sql= must be a text"):
            asked(bad)


@pytest.mark.slow
def test_values_of_sql_are_those_of_the_table(tmp_path):
    """They come over as columns: all kinds of numbers, times, missing ones, texts."""
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(
            "create table t as select range::integer as i, (range + 2**40)::bigint as l, "
            "(range::hugeint + 1180591620717411303424) as h, (range / 10)::double as d, "
            "(range / 10)::decimal(9, 3) as m, date '2020-01-01' + range::integer as day, "
            "range % 2 = 0 as b, 'o''k' || range as s, ['u', 'v'][range % 2 + 1]::enum('u','v') "
            "as e, uuid() as u from range(5)"
        )
    for column in ("i", "l", "h", "d", "m", "day", "b", "s", "e", "u"):
        # truth values and words of an enum occur twice
        sql = f"select distinct {column} from t"
        with duckdb.connect(str(path)) as con:
            con.execute(f"create or replace table one as {sql}")
        lying = Rules().open("p", (path, "one")).infer()["p"][column]
        brought = Rules().open("p", Query(path, sql=sql)).infer()["p"][column]
        assert lying.dtype == brought.dtype
        assert sorted(lying.tolist()) == sorted(brought.tolist())
        if column not in "bes":
            assert len(lying) == 5
    with duckdb.connect(str(path)) as con:
        con.execute("create table holes as select 1 as a union all select null")
    with pytest.raises(ModelError, match="1 missing value"):
        values(Query(path, sql="select a from holes"))


def test_rows_in_the_log_beside_a_file_are_read(tmp_path):
    path, copy = tmp_path / "t.duckdb", tmp_path / "copy.duckdb"
    con = duckdb.connect(str(path))
    con.execute("create table t as select 'x' as a")
    con.execute("checkpoint")
    con.execute("insert into t values ('y')")
    for end in ("", ".wal"):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    con.close()
    assert os.path.getsize(f"{copy}.wal") > 0
    before = copy.read_bytes()
    assert values((copy, "t")) == ["x", "y"]
    assert values(Query(copy, sql="select a || a as a from t")) == ["xx", "yy"]
    assert copy.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="such names are not possible there")
@pytest.mark.parametrize(
    "name", ["a[1]", "s*", "o'k", "~", 'say "hi"', "back\\slash", b"\xff", ":x:"]
)
def test_names_of_databases_are_names(tmp_path, name):
    for kind, module in ((".duckdb", duckdb), (".sqlite", sqlite3)):
        plain, path = tmp_path / f"plain{kind}", tmp_path / (os.fsdecode(name) + kind)
        con = module.connect(str(plain))
        con.execute("create table t as select 'x' as a")
        con.commit()
        for end in ("", ".wal"):
            if os.path.exists(f"{plain}{end}"):
                shutil.copy(f"{plain}{end}", f"{path}{end}")
        con.close()
        plain.unlink()
        assert values((path, "t")) == ["x"]
        assert values(Query(path, sql="select a || a as a from t")) == ["xx"]
    path = tmp_path / "d?.duckdb"  # DuckDB would look for the log under another name
    path.write_bytes(b"x" * 100)
    for source in ((path, "t"), Query(path, sql="select 1 as a")):
        with pytest.raises(FormatError, match="rename the file"):
            values(source)


@pytest.mark.parametrize("name", ["k.db3", "k", "k.gpkg", "K.DB", "k.sqlite"])
@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_file_that_is_a_database_is_one_whatever_its_suffix(tmp_path, monkeypatch, name, kind):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / f"made.{kind}").rename(name)
    assert values((name, "t")) == ["x"]
    assert values((Path(name), "t")) == ["x"]
    with pytest.raises(FormatError, match="there is no table 'u'"):
        values((name, "u"))


def test_two_texts_of_which_the_first_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert values(("Anna", "Bob")) == ["Anna", "Bob"]
    with pytest.raises(FormatError, match=r"cannot read Anna\.db: there is no such file"):
        values(("Anna.db", "Bob"))
    with pytest.raises(FormatError, match="cannot read Anna: there is no such file"):
        values((Path("Anna"), "Bob"))
    for name in ("Anna", "Anna.db"):
        Path(name).write_text("a text that is no database")
        with pytest.raises(FormatError, match=f"{name} is neither a DuckDB nor a SQLite file; two"):
            values((name, "Bob"))
    assert values(["Anna", "Bob"]) == ["Anna", "Bob"]


def test_links_of_ones_own_are_followed(tmp_path):
    (tmp_path / "far").mkdir()
    made(tmp_path / "far" / "t.duckdb")
    write_column(tmp_path / "far" / "t.csv", "x")
    for name in ("t.duckdb", "t.csv"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    assert values((tmp_path / "t.duckdb", "t")) == ["x"]
    assert values(tmp_path / "t.csv") == ["x"]


def test_a_connection_here_is_read_by_its_relations(tmp_path):
    path = made(tmp_path / "t.duckdb")
    with duckdb.connect(str(path)) as con:
        assert values(con.table("t")) == ["x"]
        assert values(con.sql("select a || a as a from t")) == ["xx"]
        with pytest.raises(FormatError, match=r"t\.duckdb: this process .* give con\.table\('t'\)"):
            values((path, "t"))
        with pytest.raises(FormatError, match=r"t\.duckdb: this process .* give con\.sql\("):
            values(Query(path, sql="select a from t"))


@pytest.mark.parametrize(
    "sql", ["selec a", "select b from t", "select * from read_csv('o.csv')", "select a::int from t"]
)
def test_errors_of_sql_name_the_file(tmp_path, sql):
    make = "create table t as select 'x' as a", "create view v as select a::int as i from t"
    path = made(tmp_path / "t.duckdb", *make)
    for source in (Query(path, sql=sql), (path, "v")):
        with pytest.raises(FormatError, match=r"t\.duckdb: (Parser|Binder|Permission|Conversion) "):
            values(source)


@pytest.fixture
def lite(tmp_path, secret) -> Path:
    path = tmp_path / "hostile.sqlite"
    with sqlite3.connect(path) as con:
        con.execute("create table t (a text)")
        con.executemany("insert into t values (?)", [("x",), ("y",)])
        con.execute("create view good as select a || '!' as a from t")
        con.execute("create view evil_load as select load_extension('evil.so') as a")
        con.execute(f"create view evil_read as select readfile('{secret}') as a")
        con.execute('create table "odd ""name"" \'; drop" (a)')
        con.execute('insert into "odd ""name"" \'; drop" values (3)')
        con.execute("create view evil_twins as select a, 'z' as A from t")
    con.close()
    return path


def test_sqlite_tables_and_views(tmp_path, lite):
    assert values((lite, "t")) == ["x", "y"]
    assert values((lite, "good")) == ["x!", "y!"]
    assert values((lite, 'odd "name" \'; drop')) == ["3"]
    assert values(Query(lite, sql="select a from t where a > 'x';")) == ["y"]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("evil_load", "evil_read"):
        with pytest.raises(FormatError):
            values((lite, name))
    with pytest.raises(MinferError, match=r"'a' and '[aA]:1'|two columns|differ only in case"):
        raise_or_names(lite)
    for text in ("select a from t", "nothing", "sqlite_master", "t; drop table t", "", "main.t"):
        with pytest.raises(FormatError, match="there is no table"):
            values((lite, text))
    for text in ("drop table t", "insert into t values ('z')", "pragma journal_mode",
                 f"attach '{tmp_path}/made.sqlite' as m", "select 1 as a; select 2 as a", "",
                 f"vacuum into '{tmp_path}/made.sqlite'", "select load_extension('x') as a",
                 "create temp table made (a)", "begin", "select * from pragma_database_list",
                 "delete from t returning a", "reindex", "analyze"):  # fmt: skip
        with pytest.raises(FormatError):
            values(Query(lite, sql=text))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def raise_or_names(lite) -> None:
    """A view with two columns of one name: an error, or names that SQLite told apart."""
    table = Rules().open("p", (lite, "evil_twins")).infer()["p"]
    raise ModelError(" and ".join(map(repr, list(table)[:2])))


def twins(tmp_path):
    columns = {"a": ["x", "y"], "A": ["u", "v"]}
    yield columns
    yield [{"a": "x", "A": "u"}]
    (tmp_path / "t.csv").write_text("a,A\nx,u\n")
    yield tmp_path / "t.csv"
    for name in ("t.duckdb", "t.sqlite"):
        yield Query(made(tmp_path / name), sql="select 1 as a, 2 as A")
    try:
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    yield pd.DataFrame(columns)
    yield pa.table(columns)
    pq.write_table(pa.table({"s": [{"a": 1, "A": 2}], **{k: v[:1] for k, v in columns.items()}}),
                   tmp_path / "t.parquet")  # fmt: skip
    yield tmp_path / "t.parquet"


def test_columns_that_differ_only_in_case_are_an_error(tmp_path):
    for source in twins(tmp_path):
        with pytest.raises(MinferError, match=r"'a' and 'A' differ only in case.*rename"):
            Rules().open("p", source).infer()


def test_answers_have_the_names_that_were_given():
    program = Rules().closed("t", ["x"], types=("t",)).open("p", types=("t", "t"),
                                                            columns=("a", "A"))  # fmt: skip
    assert list(program.infer()["p"]) == ["a", "A", "probability"]
    program = Rules().open("p", {"Probability": ["x"]})
    assert list(program.infer()["p"]) == ["Probability", "probability"]
    program = Rules().open("p", {"probability": ["x"], "P": [1]}, columns=("probability", "P"))
    assert list(program.infer()["p"]) == ["probability", "P", "P(p)"]
    program = Rules().open("p", {"Id": ["x"]})
    for kind in ("pandas", "arrow", "polars"):
        if find_spec({"arrow": "pyarrow"}.get(kind, kind)):
            table = program.infer().table("p", kind=kind)
            names = table.column_names if kind == "arrow" else list(table.columns)
            assert names == ["Id", "probability"]
