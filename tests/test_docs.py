"""What the documentation shows is run: blocks of code, doctests, examples of the help texts.

A page is a script. Its blocks run in order, in one folder and one namespace:

* ``python`` is executed;
* ``sh``: ``minfer`` commands are called, other commands must name things that exist;
* ``text`` right after one of these is what it prints, ``...`` standing for anything;
* ``json`` and ``toml`` are read.

A page that begins with ``<!-- needs networkx, pgmpy -->`` is left out where these are missing. A
comment before a block says what else is to be known: ``<!-- exits with 3 -->``,
``<!-- saved as model.uai -->``, or ``<!-- not run: why -->`` for one that is only checked:
compiled, or read by the parser of the real command line.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import gzip
import importlib
import importlib.util
import inspect
import io
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import minfer
import minfer_experiments
from draws import thorough
from minfer import FactorGraph
from minfer.cli import app
from test_cli import COMMANDS, ok

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Pages that take several seconds.
LONG = {
    "entity-resolution.md", "neural-parser.md", "from-pgmpy.md", "map.md", "rules.md", "plots.md",
    "when-bp-is-wrong.md", "denoising.md", "intervals.md", "learning.md", "parsing.md", "torch.md",
    "circuits.md", "puzzles.md", "classes.md", "how-far-off.md", "paper.md", "pictures.md",
}  # fmt: skip
#: Pages whose blocks are only checked, and commands that are never called from here.
NOT_RUN_PAGES = {"commands.md": "the examples of the help texts, about files of the reader's"}
NOT_RUN = {"paper": "minutes", "warmup": "compiles all kernels", "doctor": "may find faults here"}
if importlib.util.find_spec("pyarrow") is None:
    NOT_RUN["batch"] = "pyarrow is not installed"
PACKAGES = [Path(package.__file__).parent for package in (minfer, minfer_experiments)]
EXAMPLE = re.compile(r"^ *>>> ", flags=re.M)
#: Every module that shows an example; found by their text, so that no extra need be installed.
MODULES = [
    path
    for package in PACKAGES
    for path in sorted(package.rglob("*.py"))
    if EXAMPLE.search(path.read_text("utf-8"))
]


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    note: str  # the comment on the line before it
    follows: bool  # nothing stands between it and the block before


def blocks(page: Path) -> list[Block]:
    found, last = [], -1
    fence = r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```\n?"
    content = page.read_text(encoding="utf-8")
    for m in re.finditer(fence, content, flags=re.M | re.S):
        follows = not content[max(last, 0) : m.start()].strip() and last >= 0
        found.append(Block(m["language"], m["text"], m["note"] or "", follows))
        last = m.end()
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            p,
            marks=[pytest.mark.slow] * (p.name in LONG)
            + [pytest.mark.drawn] * (p.name == "start.md"),
        )
        for p in PAGES
    ],
    ids=name_of,
)
def test_a_page_is_a_script(page, tmp_path, monkeypatch):
    needs = re.match(r"<!-- needs (.*) -->", page.read_text(encoding="utf-8"))
    for module in needs[1].split(", ") if needs else ():
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    if page.name != "start.md" or not thorough():  # which has 1 GB of checkpoints then
        monkeypatch.setattr("minfer.parsing.learn._Checkpoint.save", lambda *_: None)
    found = blocks(page)
    if any(block.language in ("python", "sh") for block in found):
        stage()
    namespace: dict[str, Any] = {}
    printed = None
    for block in found:
        run_it = not block.note.startswith("not run: ") and page.name not in NOT_RUN_PAGES
        if block.language == "python":
            printed = run_python(block.text, namespace, run_it)
        elif block.language == "sh":
            code = int(block.note.removeprefix("exits with ")) if "exits" in block.note else 0
            printed = run_shell(block.text, code, run_it)
        elif block.language == "text":
            if block.note.startswith("saved as "):
                Path(block.note.removeprefix("saved as ")).write_text(block.text)
            elif block.follows and printed is not None:
                assert_prints(block.text, printed)
            printed = None
        elif block.language in READERS:
            READERS[block.language](block.text)
        else:  # a directive of Sphinx: the build looks after it
            assert re.fullmatch(r"{[a-z-]+}.*", block.language), f"say what this is: {block}"


READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads}


def stage() -> None:
    """Files that a reader of the README and of the pages on pictures has."""
    from minfer.parsing.conllu import write_conllu
    from minfer.parsing.tiny import tiny_treebank

    rng = np.random.default_rng(0)
    model = FactorGraph.grid(2 * rng.normal(size=(5, 8)), rng.normal(size=67))
    minfer.write(model, "model.uai")
    Path("model.uai.evid").write_text("2 3 1 7 0\n")
    Path("corpus").mkdir()
    for name in ("train.conllu", "in.conllu", "corpus/part.conllu"):
        write_conllu(tiny_treebank(), name)
    with contextlib.suppress(ImportError):
        pillow = importlib.import_module("PIL.Image")
        for name in ("noisy.png", "scan.png", "photo.png"):
            pillow.fromarray((255 * rng.random((16, 16))).astype(np.uint8)).save(name)


def run_python(text: str, namespace: dict[str, Any], run_it: bool) -> str | None:
    code = compile(text, "block", "exec")
    if not run_it:
        return None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)
    return out.getvalue()


def run_shell(text: str, exit_code: int, run_it: bool) -> str | None:
    """Call or check each line; what the last one printed, if it was called."""
    printed = None
    for line in text.replace("\\\n", " ").splitlines():
        for words in commands_of(line):
            if words[0] != "minfer":
                check_command(words)
            elif not run_it or words[1:2] == [] or words[1] in NOT_RUN or "|" in line:
                check_call(words[1:])
                printed = None
            else:
                result = CliRunner().invoke(app, words[1:])
                assert result.exit_code == exit_code, f"{line}\n{result.output}"
                printed = result.stdout or result.stderr
    return printed


def commands_of(line: str) -> Iterator[list[str]]:
    """The commands that a line of shell joins by pipes or &&, as words; no comments, no > file."""
    lexer = shlex.shlex(re.sub(r" >+ *\S+", "", line), posix=True, punctuation_chars="|&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if word in ("|", "&&"):
            if words:
                yield words
            words = []
        else:
            words.append(word)


@functools.cache
def command_line() -> Any:
    return typer.main.get_command(app)


def check_call(words: list[str]) -> None:
    """The real parser takes a command's words; it is not called."""
    name, command = "minfer", command_line()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{name} has no command {words[0]}"
        name, command, words = words[0], command.commands[words[0]], words[1:]
    command.make_context(name, list(words), resilient_parsing=hasattr(command, "commands"))


def check_command(words: list[str]) -> None:
    """A command that is not ours: what it names in this repository exists."""
    for word in words:
        if word.endswith(".py") or word.startswith((".ci/", "benchmarks/")):
            assert (ROOT / word).exists(), f"there is no {word}"
    if "pip" in words[0] or words[1:3] == ["-m", "pip"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        for found in re.findall(r"^(?:\.|minfer)\[(.*)\]$", "\n".join(words), flags=re.M):
            for extra in found.split(","):
                assert extra in extras, f"there is no extra {extra}"


def assert_prints(expected: str, printed: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(expected, printed, flags)
    assert same, f"expected\n{expected}\nprinted\n{printed}"


def module_name(path: Path) -> str:
    [root] = {package.parent for package in PACKAGES if path.is_relative_to(package)}
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_doctests(path, tmp_path, monkeypatch):
    """Every example runs: none is skipped, and none stands where doctest does not look."""
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(module_name(path))
        ran = run_doctests(module)
    except minfer.RefusedError as error:
        if "not installed" not in str(error):  # as the package says where an extra is absent
            raise
        pytest.skip(str(error))
    assert ran == len(EXAMPLE.findall(path.read_text("utf-8"))), "examples that nobody runs"


def run_doctests(module: ModuleType) -> int:
    """How many examples there were; the first that fails is raised."""
    runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module):
        try:
            runner.run(test)
        except doctest.DocTestFailure as failure:
            checker = doctest.OutputChecker()
            shown = checker.output_difference(failure.example, failure.got, doctest.ELLIPSIS)
            pytest.fail(f"{test.name}:\n{failure.example.source}{shown}", pytrace=False)
        except doctest.UnexpectedException as failure:
            raise failure.exc_info[1] from None
    return runner.summarize(verbose=False).attempted


def test_public_api_has_docstrings_and_types():
    for name in minfer.__all__:
        thing = getattr(minfer, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            members = [m for k, m in vars(thing).items() if not k.startswith("_")]
            functions = [m for m in members if inspect.isfunction(m)]
        else:
            functions = [thing] if inspect.isfunction(thing) else []
        for function in functions:
            assert inspect.getdoc(function), f"{name}.{function.__name__}"
            assert "return" in function.__annotations__, f"{name}.{function.__name__}"


def test_the_reference_has_every_public_name():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")  # for minfer.batch
    pages = "\n".join(p.read_text() for p in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^\.\. auto[a-z]+:: (\S+)$", pages, flags=re.M))
    for part in ("", ".batch", ".interop", ".parsing", ".report"):
        module = importlib.import_module(f"minfer{part}")
        for name in module.__all__:
            assert f"{module.__name__}.{name}" in shown, name
    for path in shown:  # and no name that is gone
        where, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(where), name), path


def test_the_tables_of_the_reference_are_up_to_date():
    for module in ("pyarrow", "torch", "duckdb"):
        pytest.importorskip(module)
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    make_api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_api)
    for path in (ROOT / "docs" / "api").glob("*.md"):
        text = path.read_text("utf-8")
        assert text == make_api.page(text), "run `python docs/make_api.py`"
        assert path.name == "index.md" or "| `" in text, f"{path.name} shows no name"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_is_there(page):
    """Files of the repository and commands of ours that the text mentions."""
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"(?<![\w/])(?:benchmarks|docs|tests|src)/[\w/]+\.[a-z]+\b", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`minfer ([a-z]+)", text):
        assert name in command_line().commands, name


#: Examples of the help texts that are not run, and why.
LEFT_OUT = {
    "minfer paper": "takes minutes; test_beside.py has its folder",
    "minfer warmup": "compiles everything",
    "--engine ray": "starts a cluster",
    "zcat ": "a pipe of other programs",
}


def examples() -> list[str]:
    """All lines of all helps that begin with a command."""
    found: dict[str, None] = {}
    helps = []
    for command in COMMANDS.values():
        helps += [command.help, *(one.help for one in getattr(command, "commands", {}).values())]
    for text in helps:
        below = text.partition("Example")[2]
        found |= dict.fromkeys(line.strip() for line in below.splitlines() if "minfer " in line)
    assert len(found) > 60
    return [line for line in found if not any(words in line for words in LEFT_OUT)]


def network(names: list[str], states: list[str]) -> FactorGraph:
    """A chain of variables, each like the one before."""
    k = len(states)
    like = 0.4 * np.eye(k) + 0.6 / k
    tables: dict[str, Any] = {names[0]: np.full(k, 1 / k)}
    tables |= {name: ([before], like) for before, name in pairwise(names)}
    return FactorGraph.network(dict.fromkeys(names, states), tables)


def grids(folder: Path) -> None:
    rng = np.random.default_rng(0)
    grid = FactorGraph.grid(rng.normal(size=(4, 4)), rng.normal(size=24))
    for name in ("grid.uai", "grid.uai.gz", "grid.fg", "large.uai"):
        minfer.write(grid, folder / name)
    minfer.write_mar(minfer.Exact()(grid), folder / "grid.uai.MAR")
    (folder / "grid.uai.evid").write_text("1 3 1\n")


def networks(folder: Path) -> None:
    alarm = network(["CVP", "PCWP", "HR", "PAP"], ["LOW", "NORMAL", "HIGH"])
    asia = network(["asia", "smoke", "lung", "bronc"], ["no", "yes"])
    files = {"alarm.bif": alarm, "alarm.minfer": alarm, "asia.minfer": asia}
    files["net.minfer"] = network(["SMOKE", "LUNG", "BRONC"], ["no", "yes"])
    files["large.bif"] = network(["A", "B", "C", "D"], ["no", "yes"])
    files["health.bif"] = network(["age", "ill"], ["no", "yes"])
    files["sprinkler.minfer"] = minfer.examples.sprinkler()
    for name, graph in files.items():
        minfer.write(graph, folder / name)


def circuits(folder: Path) -> None:
    for name in ("alarm.minfer", "sprinkler.minfer"):
        minfer.compile(minfer.read(folder / name)).save(folder / f"{name[:-7]}.circuit")
    (folder / "model.cnf").write_text("p cnf 4 3\n1 2 -3 0\n-1 4 0\n3 4 0\n")


def tables(folder: Path, columns: dict[str, list[str]]) -> None:
    """cases.csv, cases.parquet and a folder of such files."""
    from pyarrow import csv, parquet, table

    (folder / "cases").mkdir()
    for name in ("cases", "cases/one"):
        csv.write_csv(table(columns), folder / f"{name}.csv")
        parquet.write_table(table(columns), folder / f"{name}.parquet")


def pictures(folder: Path) -> None:
    (folder / "scans").mkdir()
    rng = np.random.default_rng(0)
    clean = np.zeros((16, 16))
    clean[4:12, 5:13] = 1.0
    noisy = np.clip(clean + 0.3 * rng.normal(size=clean.shape), 0, 1)
    for name in ("scan.png", "photo.png", "scans/a.png", "scans/b.png"):
        minfer.pictures.write_picture(folder / name, noisy)


@functools.cache
def trained(folder: Path) -> Path:
    """A treebank and a parser of it."""
    ok("example", "treebank", "-o", folder / "tiny.conllu")
    words = ["parse", "train", folder / "tiny.conllu", "-o", folder / "tiny.model"]
    ok(*words, "--bits", 12, "--tag-bits", 10)
    return folder


def sentences(folder: Path) -> None:
    made = trained(folder.parent)
    for name in ("en.model", "tiny.model"):
        shutil.copy(made / "tiny.model", folder / name)
    (folder / "corpus").mkdir()
    text = (made / "tiny.conllu").read_bytes()
    same = "tiny train dev test in out other corpus/a corpus/b"
    for name in same.split():
        (folder / f"{name}.conllu").write_bytes(text)
    for name in ("train", "wiki"):
        (folder / f"{name}.conllu.gz").write_bytes(gzip.compress(text))
    (folder / "story.txt").write_text("The dog sleeps .\n")


def programs(folder: Path) -> None:
    (folder / "prog.mln").write_text(
        "refers(paper, paper)\ncategory(paper, topic)\nsmokes(person)\n"
        "friends(person, person)\n1 friends(x, y) ^ smokes(y) => smokes(x)\n"
        "1.5 category(a, t) ^ refers(a, b) => category(b, t)\n0.5 category(a, t)\n"
    )
    (folder / "evidence.db").write_text(
        "refers(P1, P2)\nrefers(P2, P3)\ncategory(P3, Networking)\ncategory(P4, Theory)\n"
        "friends(Anna, Bob)\nsmokes(Bob)\n"
    )


def jobs(folder: Path) -> None:
    """What batch commands read."""
    from pyarrow import parquet, table

    (folder / "models").mkdir()
    shutil.copy(folder / "grid.uai", folder / "models" / "a.uai")
    (folder / "models.jsonl").write_text(json.dumps({"model": "grid.uai"}) + "\n")
    rows = {"evidence": [json.dumps({"wet_grass": 1}), None]}
    parquet.write_table(table(rows), folder / "rows.parquet")


def slices(folder: Path) -> None:
    """A network through time, and a table of its rows."""
    hot, broken = ("hot", [[0.9, 0.1], [0.2, 0.8]]), [[0.98, 0.02], [0.0, 1.0]]
    minfer.Dynamic(
        {"hot": [0.5, 0.5], "broken": [0.99, 0.01], "alarm": hot},
        {"hot": ("hot@-1", [[0.9, 0.1], [0.1, 0.9]]), "broken": ("broken@-1", broken)},
        {name: ["no", "yes"] for name in ("hot", "broken", "alarm")},
    ).save(folder / "sensor.minfer")
    rows = "case,time,alarm\na,0,no\na,1,yes\na,2,\na,5,yes\nb,0,no\n"
    (folder / "readings.csv").write_text(rows)


def made(line: str, folder: Path) -> None:
    """The files that an example reads."""
    words = line.split()
    for name, make in {"parse": sentences, "rules": programs, "denoise": pictures}.items():
        if name in words[1:3]:
            pytest.importorskip({"rules": "duckdb", "parse": "safetensors"}.get(name, "numpy"))
            make(folder)
    grids(folder)
    networks(folder)
    if words[1] == "compile" or ".circuit" in line or ".cnf" in line:
        circuits(folder)
    if words[1:2] == ["time"]:
        slices(folder)
    elif {"learn", "predict", "evaluate", "batch"} & {*words}:
        pytest.importorskip("pyarrow")
        columns = {"lung": ["no", "yes"], "smoke": ["yes", ""], "id": ["1", "2"]}
        if "learn" in words:
            columns = {v: ["LOW", "HIGH", "NORMAL"] for v in ("CVP", "PCWP", "HR", "PAP")}
            rows = "".join(f"{18.5 + k},{('no', 'yes')[k > 20]}\n" for k in range(40))
            (folder / "health.csv").write_text(f"age,ill\n{rows}")
        elif "batch" in words:
            columns = {"SMOKE": ["no", "yes"]}
        tables(folder, columns)
        jobs(folder)
    if line.startswith("minfer batch status"):
        ok(*["batch", "run", "models/", "-o", "parsed"])


@pytest.mark.slow
@pytest.mark.parametrize("line", examples())
def test_examples_run_as_they_are_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(line, tmp_path)
    ok(*shlex.split(line)[1:])
