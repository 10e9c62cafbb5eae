"""The command line: what goes where, which exit code, and that every command is documented."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import minfer
from draws import thorough
from minfer.cli import app
from minfer.cli.failures import exit_code, split_debug
from minfer.cli.options import CALLED, Solving
from minfer.examples import EXAMPLES
from minfer.solvers.joint_table import JointTable
from minfer.solvers.named import NOT_PLAIN, SOLVERS, plain_settings
from minfer.upkeep import health

ROOT = Path(__file__).resolve().parents[1]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]

# Three binary variables in a chain; x1 = 1 forbids x2 = 0.
CHAIN = """MARKOV
3
2 2 2
3
1 0
2 0 1
2 1 2

2
1.0 3.0
4
2.0 1.0 1.0 2.0
4
1.0 1.0 0.0 1.0
"""


def _runner() -> CliRunner:
    try:
        return CliRunner(mix_stderr=False)  # older versions mix the two unless told not to
    except TypeError:
        return CliRunner()


RUNNER = _runner()


class Answer(NamedTuple):
    stdout: str
    stderr: str
    exit_code: int


def call(*words: object, stdin: str | bytes | None = None) -> Answer:
    """Run a command in this process."""
    result = RUNNER.invoke(app, [str(word) for word in words], input=stdin)
    assert "Traceback" not in result.stderr
    return Answer(result.stdout, without_notice(result.stderr), result.exit_code)


def ok(*words: object, stdin: str | bytes | None = None) -> Answer:
    """The same, and it went well."""
    result = call(*words, stdin=stdin)
    assert result.exit_code == 0, result
    return result


def told(*words: object) -> dict[str, Any]:
    """The JSON of a command."""
    return json.loads(ok(*words, "--json").stdout)


def without_notice(text: str) -> str:
    """What is said on stderr, whether or not this was the first use of a kernel."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("minfer: compiling"))


def start(*words: object, code: str = "", **options: Any) -> subprocess.Popen[str]:
    """Run a command in a process of its own, by code of its own if need be."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}
    command = [sys.executable, *(["-c", code] if code else ["-m", "minfer"]), *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        **options,
    )  # fmt: skip


def fails(result: Answer, code: int, *parts: str) -> None:
    """One line on stderr that says so, nothing on stdout, and this exit code."""
    assert result.exit_code == code, result
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("minfer: error: ")
    for part in parts:
        assert part in lines[0]


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.uai"
    path.write_text(CHAIN)
    return path


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The noisy picture: 4,096 variables, too wide for exact inference."""
    path = tmp_path_factory.mktemp("models") / "picture.uai"
    minfer.write(minfer.examples.example("picture"), path)
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = COMMANDS[name]
    assert name in call().stdout, "alone it prints help"
    assert "Example" in command.help
    assert f"  minfer {name}" in command.help
    for parameter in command.params:
        assert parameter.help, f"{name} {parameter.name} has no help"
    result = ok(name, "--help")
    assert f"minfer {name}" in result.stdout
    assert "<str>" not in result.stdout


def test_the_reference_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("commands", ROOT / "docs" / "make_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == page
    for name in COMMANDS:
        assert f"\n## minfer {name}\n" in page


def test_every_option_is_a_field_and_is_named_as_its_parameter() -> None:
    options = {p.name for p in Solving.parameters()}
    for name, class_name in SOLVERS.items():
        all_fields = {f.name for f in dataclasses.fields(getattr(minfer, class_name))}
        fields = {f for f in all_fields if not f.startswith("_")}
        fields -= NOT_PLAIN.get(name, set())
        settings = {key for key, (_, solvers) in plain_settings().items() if name in solvers}
        assert settings == fields, name
        assert {CALLED.get(f, f) for f in fields} <= options, name
    # Whatever version of typer: one took the name of an option from its metavar.
    from typer.main import get_command

    def walk(command, path):
        for parameter in command.params:
            for flag in parameter.opts:
                assert flag == flag.lower() or len(flag) == 2, (path, flag)
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*path, name))

    walk(get_command(app), ())


@pytest.mark.slow
def test_without_docstrings_there_is_no_help_but_all_commands(tmp_path):
    """``python -OO`` removes them, and texts of options are in them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    code = (
        "from minfer.cli import HOMES, app; from typer.main import get_command\n"
        "[get_command(app).commands[name] for name in HOMES]; app(['convert', '--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code], capture_output=True, text=True, env=environment,
        cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "convert" in done.stdout


def test_version_and_help_need_no_numba() -> None:
    code = (
        "import sys, runpy\n"
        "for word in ('--version', '--help'):\n"
        "    sys.argv = ['minfer', word]\n"
        "    try: runpy.run_module('minfer', run_name='__main__')\n"
        "    except SystemExit: pass\n"
        "    print(word, [m for m in ('numba', 'scipy') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.startswith("minfer ")
    assert "\n--version []\n" in done.stdout
    assert done.stdout.endswith("\n--help []\n")


def test_run_json_agrees_with_python(chain: Path) -> None:
    assert call("--version").stdout == f"minfer {minfer.__version__}\n"
    answer = minfer.Exact()(minfer.read(str(chain)))
    for file, given in ((str(chain), None), ("-", CHAIN)):
        content = json.loads(call("run", file, "--solver", "exact", "--json", stdin=given).stdout)
        assert content["minfer"] == minfer.__version__
        assert (content["model"]["variables"], content["model"]["file"]) == (3, file)
        assert content["log_z_kind"] == "exact"
        assert content["log_z"] == pytest.approx(answer.log_z)
        assert content["log_z"] == pytest.approx(np.log(17.0))
        for v in range(3):
            assert content["marginals"][f"x{v}"] == pytest.approx(answer[v].tolist())


def test_evidence_and_queries(chain: Path, tmp_path: Path) -> None:
    file = tmp_path / "seen.evid"
    file.write_text("1 1 1\n")
    by_pairs = json.loads(call("run", chain, "--json", "--evidence", "x1=1").stdout)
    by_file = json.loads(call("run", chain, "--json", "--evidence", file).stdout)
    assert by_pairs["marginals"] == by_file["marginals"]
    assert by_pairs["marginals"]["x1"] == [0.0, 1.0]
    assert by_pairs["marginals"]["x2"] == pytest.approx([0.0, 1.0])
    assert by_pairs["model"]["observed"] == 1
    assert list(json.loads(call("run", chain, "--json", "-q", "x2,0").stdout)["marginals"]) == [
        "x2",
        "x0",
    ]
    table = call("run", chain, "--query", "x2").stdout
    assert "x2" in table
    assert "x1" not in table
    result = ok("run", chain)
    for part in ("x0", "x1", "x2", "p(0)", "log Z", "log10 Z", "exact", "solver", "time", "3 vari"):
        assert part in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_answers(chain: Path, solver: str) -> None:
    content = told("run", chain, "--solver", solver)
    assert content["converged"]
    assert content["marginals"]["x0"] == pytest.approx([5 / 17, 12 / 17], abs=0.2)
    wrong = call("run", chain, "--solver", solver, "--evidence", "x1=1,x2=0,x0=1")
    fails(wrong, 3, "x1=1 and x2=0")


def test_the_table_has_twenty_rows_and_counts_the_rest(grid: Path) -> None:
    result = ok("run", grid, "--solver", "bp")
    rows = [line for line in result.stdout.splitlines() if line.startswith(("x", " x"))]
    assert len(rows) == 20
    assert "4,076 more" in result.stdout
    least = [max(float(p) for p in row.split()[1:]) for row in rows]
    assert least == sorted(least)
    assert call("run", grid, "--solver", "bp", "--rows", 3).stdout.count("\nx") <= 3
    fails(call("run", grid, "--solver", "exact", "--max-gib", 0.001), 4, "GiB")


def test_settings_reach_the_solver_and_strict_is_an_exit_code_only(grid: Path) -> None:
    words = ["--solver", "bp", "--max-iters", 7, "--damping", 0.25, "--schedule", "flooding"]
    content = json.loads(call("run", grid, "--json", "--query", "x0", *words).stdout)
    for part in ("max_iters=7", "damping=0.25", "flooding"):
        assert part in content["solver"]
    assert content["iterations"] == 7
    assert not content["converged"]
    words = ["run", grid, "--solver", "bp", "--max-iters", 2]
    plain, strict = call(*words), call(*words, "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 5)
    assert "not converged" in plain.stdout
    assert "--max-iters" in plain.stdout
    assert "--damping 0.3" in " ".join(strict.stdout.split())


def test_out_and_pr(chain: Path, tmp_path: Path) -> None:
    mar, pr = tmp_path / "a.MAR", tmp_path / "a.PR"
    result = ok("run", chain, "--solver", "exact", "--out", mar, "--pr", pr)
    assert "wrote" in result.stderr
    assert mar.read_text().split()[:3] == ["MAR", "3", "2"]
    assert float(pr.read_text().split()[1]) == pytest.approx(np.log10(17.0))
    result = call("run", chain, "--out", "-")
    assert result.stdout.startswith("MAR\n3 2 ")
    assert len(result.stdout.splitlines()) == 2
    assert "log Z" in result.stderr


@pytest.mark.parametrize("name", ["chain.uai.evid", "chain.evid", "chain.uai.evid.gz"])
def test_evidence_beside_the_model_is_mentioned_not_read(
    chain: Path, tmp_path: Path, name: str
) -> None:
    data = b"1 1 1\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    result = call("run", chain, "--json")
    assert name in result.stderr
    assert "was not read" in result.stderr
    assert json.loads(result.stdout)["model"]["observed"] == 0
    assert call("run", chain, "--json", "--evidence", tmp_path / name).stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ("run MODEL --solver magic", 2, ["magic", "mean-field"]),
        ("run MODEL --no-such-thing", 2, ["--no-such-thing", "minfer run --help"]),
        ("run MODEL --solver exact --damping 0.5", 2, ["exact", "--damping", "bp"]),
        ("run MODEL --solver bp --n-chains 3", 2, ["--n-chains", "gibbs"]),
        ("run MODEL --solver bp --max-iters -3", 2, ["--max-iters must be"]),
        ("run MODEL --solver bp --schedule random", 2, ["schedule", "sequential"]),
        ("run MODEL --solver exact --exact-method magic", 2, ["--exact-method must be auto"]),
        ("run MODEL --time-limit -2", 2, ["--time-limit must be positive seconds, not -2"]),
        ("run MODEL --rows few", 2, ["'--rows': "]),
        ("run MODEL --evidence x1=", 2, ["variable=state"]),
        ("run MODEL --query ,", 2, ["--query: name at least one variable"]),
        ("explore MODEL -o a.html --targets ,", 2, ["--targets: name at least one variable"]),
        ("intervals MODEL --tol -1", 2, ["--tol"]),
        ("intervals MODEL --time-limit 0", 2, ["--time-limit"]),
        ("intervals MODEL --work -1", 2, ["--work"]),
        ("intervals MODEL --methods guess", 2, ["--methods", "monotone"]),
        ("intervals MODEL --picture a.gif", 2, [".png"]),
        ("run MODEL --method magic", 2, ["--method", "compensated", "magic"]),
        ("run MODEL --method enumerate", 2, ["--exact-method enumerate"]),
        ("run MODEL --solver bp --exact-method enumerate", 2, ["--exact-method"]),
        ("run MODEL --seed-graph tree", 2, ["--seed-graph", "forest"]),
        ("run MODEL --score loss", 2, ["--score", "reverse"]),
        ("run MODEL --compare nothing", 2, ["--compare", "full"]),
        ("run MODEL --max-factors -1", 2, ["--max-factors"]),
        ("run MODEL --max-divergence -1", 2, ["--max-divergence"]),
        ("run MODEL --factor-cost nan", 2, ["--factor-cost"]),
        ("run MODEL --save-reduced small.png", 2, [".uai", ".minfer"]),
        ("run MODEL --save-reduced no/folder/a.uai", 2, ["no/folder"]),
        ("run MODEL --save-reduced - --json", 2, ["standard output"]),
        ("run MODEL --save-reduced MODEL", 2, ["overwritten"]),
        ("run MODEL --out MODEL", 2, ["overwritten"]),
        ("convert MODEL MODEL", 2, ["overwritten"]),
        ("convert MODEL model.png", 2, ["model.png"]),
        ("tradeoff MODEL --objective best", 2, ["--objective", "min-joint"]),
        ("tradeoff MODEL --values a,b", 2, ["--values", "a,b"]),
        ("tradeoff MODEL --values 0,2", 2, ["--values", "0 to 1"]),
        ("tradeoff MODEL --csv no/folder/a.csv", 2, ["no/folder"]),
        ("run MODEL --out - --json", 2, ["standard output"]),
        ("run - --evidence -", 2, ["standard input"]),
        ("run MODEL --hepl", 2, ["no such option: --hepl", "--help", "see `minfer run"]),
        ("query MODEL -e", 2, ["'-e' requires an argument; see `minfer query --help`"]),
        ("rum", 2, ["Did you mean 'run'? See `minfer --help`"]),
        ("example nope -o a.uai", 2, ["nope", "sprinkler"]),
        ("example sprinkler", 2, ["-o sprinkler.minfer"]),
        ("example -o a.uai", 2, ["which", "sprinkler"]),
        ("run MODEL --evidence x9=1", 3, ["x9"]),
        ("run MODEL --evidence x1=5", 3, ["x1", "0 to 1"]),
        ("run MODEL --evidence x1=-1", 3, ["x1", "-1"]),
        ("run MODEL -e x0=0,x1=1,x2=0", 3, ["x1=1 and x2=0 together have probability zero"]),
        ("mpe MODEL -e x0=0,x1=1,x2=0", 3, ["x1=1 and x2=0 together have probability zero"]),
        ("intervals MODEL -e x0=0,x1=1,x2=0", 3, ["x1=1 and x2=0 together have probability zero"]),
        ("run MODEL --evidence missing.evid", 3, ["missing.evid", "no such file"]),
        ("run MODEL --query x1,rain", 3, ["rain"]),
        ("run none.uai", 3, ["none.uai"]),
        ("run .", 3, ["minfer: error: "]),
    ],
)
def test_errors(chain: Path, words: str, code: int, parts: list[str]) -> None:
    given = [chain if word == "MODEL" else word for word in words.split()]
    fails(call(*given, stdin=CHAIN), code, *parts)
    assert not Path("a.uai").exists()
    assert chain.read_text() == CHAIN


def test_help_is_broken_at_the_width_of_the_terminal_only() -> None:
    shown = call("query", "--help").stdout
    assert "states. What cannot matter to them is removed first." in shown
    assert "\n   minfer query alarm.minfer CVP PCWP -e HR=LOW " in shown
    for words, usage in (
        (["query"], "query [OPTIONS] MODEL [TARGETS]..."),
        (["rules", "run"], "rules run [OPTIONS] PROGRAM [EVIDENCE]..."),
    ):
        shown = call(*words, "--help").stdout
        (line,) = [line for line in shown.splitlines() if "Usage: " in line]
        assert line.rstrip().endswith(usage)


@pytest.mark.parametrize(
    "words",
    ["run a\0b.uai", "run MODEL --out a\0b", "run MODEL --pr a\0b", "run MODEL -e a\0b",
     "run MODEL --reduce --report a\0b.html", "plan a\0b.uai", "tradeoff MODEL --csv a\0b.csv",
     "convert a\0b.uai x.uai", "convert MODEL a\0b.uai", "example sprinkler -o a\0b.minfer",
     "example treebank -o a\0b.conllu", "parse run a\0b MODEL", "denoise a\0b.png -o x.png"],
)  # fmt: skip
def test_a_nul_in_a_name(chain: Path, words: str) -> None:
    if words.startswith("denoise"):
        pytest.importorskip("PIL", reason="Pillow is not installed")
    result = call(*(chain if word == "MODEL" else word for word in words.split(" ")))
    fails(result, 3)


def test_unexpected_errors_are_short_and_debug_may_stand_anywhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("gone")

    assert exit_code(broken) == 1
    text = capsys.readouterr().err
    assert "KeyError" in text
    assert "report" in text
    assert "Traceback" not in text
    assert exit_code(broken, debug=True) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.delenv("MINFER_DEBUG", raising=False)
    assert split_debug(["run", "--debug", "a"]) == (["run", "a"], True)
    assert split_debug(["run", "--", "--debug"]) == (["run", "--", "--debug"], False)
    monkeypatch.setenv("MINFER_DEBUG", "1")
    assert split_debug(["run"]) == (["run"], True)


def test_plan_and_convert(chain: Path, grid: Path, tmp_path: Path) -> None:
    for model in (chain, grid):
        text = ok("plan", model)
        assert "exact" in text.stdout.lower()
        content = told("plan", model)
        assert content["model"]["variables"] == content["plan"]["n_variables"]
    seen = json.loads(call("plan", chain, "--json", "--evidence", "x0=1").stdout)
    assert seen["model"]["observed"] == 1
    for name in ("a.fg", "b.minfer", "c.uai.gz"):
        result = ok("convert", chain, tmp_path / name)
        assert result.stdout == ""
        content = told("run", tmp_path / name)
        assert content["log_z"] == pytest.approx(np.log(17.0))
    ok("convert", chain, tmp_path / "seen.uai", "-e", "x1=1")
    content = told("run", tmp_path / "seen.uai")
    assert content["marginals"]["x2"] == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        # a long text, which takes seconds
        pytest.param(
            *case, marks=[pytest.mark.slow] * (case in (("stereo", "uai"), ("stereo", "fg")))
        )
        for case in product(EXAMPLES, ("uai", "fg", "minfer"))
    ],
)
def test_example_then_run(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"{name}.{suffix}"
    ok("example", name, "-o", path)
    ok("run", path)


def test_the_example_picture_as_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    from minfer.examples import drawing
    from minfer.pictures import read_picture

    noisy, clean = tmp_path / "noisy.png", tmp_path / "clean.png"
    ok("example", "picture", "-o", noisy)
    ok("denoise", noisy, "-o", clean)
    before, after = (np.mean((read_picture(p).values > 0.5) != drawing()) for p in (noisy, clean))
    assert after < before / 3


def test_names_survive_in_the_native_format(tmp_path: Path) -> None:
    assert all(name in call("example").stdout for name in EXAMPLES)
    path = tmp_path / "sprinkler.minfer"
    assert call("example", "sprinkler", "-o", path).stderr.count("\n") == 1
    content = json.loads(call("run", path, "--json", "-e", "wet_grass=1", "-q", "rain").stdout)
    assert list(content["marginals"]) == ["rain"]
    fails(call("run", path, "--query", "rian"), 3, "rain")
    lossy = call("example", "sprinkler", "-o", tmp_path / "sprinkler.uai")
    assert "names" in lossy.stderr


def test_demo() -> None:
    result = ok("demo")
    for part in ("sprinkler", "log Z", "exact", "estimate", "denoised", "% right", "Next"):
        assert part in result.stdout
    assert "pixels are decided" in " ".join(result.stdout.split("Next")[0].split())
    assert "provably off by more than 0.01" in " ".join(result.stdout.split())
    noisy, denoised = (float(w[:-1]) for w in result.stdout.split() if w[-1] == "%" and "." in w)
    assert noisy < 87
    assert denoised > 95


@pytest.mark.drawn
def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    if thorough():  # loading all kernels that there are; of a few, see test_kernel_cache.py
        ok("doctor")
    monkeypatch.setattr("minfer.kernels.compiling.cache.load_all", lambda *_: [])
    result = ok("doctor")
    for part in ("numba", "llvmlite", "cache", "cores", "none is compiled yet, so none was asked",
                 "Everything that was checked is in order"):  # fmt: skip
        assert part in result.stdout
    assert told("doctor")["ok"]


def test_doctor_counts_kernels_without_a_question_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were part of a line that said "ok"."""
    made, silence = SimpleNamespace(entry_point=None), SimpleNamespace(asked=0, wrong="")
    versions = [
        SimpleNamespace(
            kernel=SimpleNamespace(__name__=name), signature=(), made=made, origin="the cache"
        )
        for name in [*(f"name{k}" for k in range(7)), "name0", "name6"]
    ]
    monkeypatch.setattr("minfer.kernels.compiling.cache.load_all", lambda *_: versions)
    monkeypatch.setattr("minfer.kernels.compiling.answers.ask", lambda *_: silence)
    result = ok("doctor")
    assert re.search("kernels +0 compiled kernels asked", result.stdout)
    told = (
        r"not asked +9 compiled kernels without a question.*\(of 7 functions: name0, .*name4 and 2"
    )
    assert re.search(told, result.stdout)
    assert "Everything that was checked is in order." in result.stdout


def test_doctor_notices_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: object, graph: Any, start: Any = None) -> Any:
        return minfer.Marginals.from_probs(graph, np.full(6, 0.5), "wrong")

    monkeypatch.setattr(minfer.BeliefPropagation, "__call__", wrong)
    monkeypatch.setattr("minfer.kernels.compiling.cache.load_all", lambda *_: [])
    result = call("doctor")
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout


def test_doctor_checks_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the joint table, by which so small a model is solved otherwise."""
    monkeypatch.setattr(JointTable, "of", lambda *_: pytest.fail("a joint table was made"))
    assert health.CHECKS["exact"]().ok
    assert health.CHECKS["bp"]().ok


@pytest.mark.parametrize("columns", [None, 60])
def test_lines_are_broken_only_at_a_width_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    path = tmp_path / "sprinkler.minfer"
    minfer.write(minfer.examples.sprinkler(), path)
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    lines = call("plan", path).stdout.splitlines()
    whole = any("refuses: a factor joins 3 unobserved variables, and it" in line for line in lines)
    assert whole == (columns is None)
    assert max(map(len, lines)) <= (columns or 1000)


SAYS_WHEN_IT_SAMPLES = """
import sys
from minfer import Gibbs
from minfer.cli import main

def call(self, *given, real=Gibbs.__call__):
    print("sampling", file=sys.stderr, flush=True)
    return real(self, *given)

Gibbs.__call__ = call
main()
"""


def test_ctrl_c_leaves_nothing_behind(grid: Path, tmp_path: Path) -> None:
    words = ["--solver", "gibbs", "--n-sweeps", 1_000_000_000, "--out", tmp_path / "a.MAR"]
    process = start("run", grid, *words, code=SAYS_WHEN_IT_SAMPLES)
    assert process.stderr is not None
    assert "sampling\n" in iter(process.stderr.readline, "")  # its end, if it ends before that
    time.sleep(0.2)  # in the midst of it, then
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert "interrupted" in err
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_no_error(grid: Path) -> None:
    process = start("run", grid, "--solver", "bp", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait(timeout=60) == 141


#: Runs all that `minfer warmup` covers, and names what it used that is not recorded, or not kept.
USED = """
import numba
from exercise import units
from minfer.kernels.compiling import answers, cache, jit
for unit in units():
    unit.work()
assert not cache.UNSAVED, cache.UNSAVED
held = {k: {tuple(map(numba.typeof, q.arguments())) for q in known}
        for k, known in answers.kept().items()}
used = {(answers._name(k), tuple(types)) for k in jit._KERNELS for types in k.overloads}
print(len(used), *[name for name, types in used if types not in held.get(name, ())])
"""


@pytest.mark.slow
def test_after_a_warmup_nothing_is_compiled() -> None:
    """It compiles what is recorded, and all that it covers uses nothing else."""
    assert "Ready after" in ok("warmup").stdout
    places = os.pathsep.join(str(ROOT / name) for name in ("src", "packaging"))
    environment = {**os.environ, "PYTHONPATH": places}
    call = [sys.executable, "-c", USED]
    done = subprocess.run(call, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    used, *lacking = done.stdout.split()
    assert int(used) > 100
    assert lacking == []


def test_warmup() -> None:
    assert "cache" in ok("warmup", "time").stdout
