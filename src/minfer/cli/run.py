"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.options import (
    OUTPUT_PANEL,
    Evidence,
    Model,
    evidence_beside,
    is_pairs,
    make_solver,
    observe,
    parse_query,
    solver_options,
)
from minfer.cli.progress import wait_for

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver

NOT_CONVERGED = 5


@solver_options
def run(
    model: Model,
    evidence: Evidence = None,
    query: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--query", "-q", metavar="x5,x9", help="Show these variables only; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="F.MAR",
            help="Write all marginals in UAI MAR format; - is standard output.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    pr: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="F.PR",
            help="Write log10 Z in UAI PR format; - is standard output.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object on standard output instead of the table.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    rows: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Rows of the table, the most uncertain first.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = 20,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with code 5 if the answer has not converged.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Marginals and log Z of a model.

    Prints a table for people, the most uncertain variables first. Programs ask for --json or --out.

    \b
    Examples:
      minfer run grid.uai
      minfer run grid.uai --evidence x3=1,x7=0 --query x5,x9
      minfer run grid.uai --solver bp --damping 0.3 --out grid.MAR
    """
    check_outputs(out, pr, json, inputs=[model, *(evidence or ())])
    check_inputs(model, evidence)
    solver = make_solver(settings)
    graph, seconds = load(model, evidence)
    chosen = parse_query(query, graph)
    answer = wait_for(f"running {settings['solver']}", lambda: _solve(solver, graph))
    write_files(answer, out, pr)
    if json:
        show_json(model, answer, chosen, seconds)
    else:
        from minfer.cli import render

        console = render.console(stderr="-" in (out, pr))
        render.answer(console, model, answer, chosen, rows, seconds)
    if strict and not answer.converged:
        raise typer.Exit(NOT_CONVERGED)


def _solve(solver: Solver, graph: FactorGraph) -> Marginals:
    """log Z is computed when first asked for: here, while Ctrl-C and the spinner work."""
    import minfer.kernels._jit  # noqa: F401 (loads numba, which is no part of the solver's time)

    answer = solver(graph)
    _ = answer.log_z
    return answer


def load(model: str, evidence: list[str] | None) -> tuple[FactorGraph, float]:
    """The model with its evidence, and the seconds that reading took."""
    import minfer

    began = time.perf_counter()
    graph = wait_for(f"reading {model}", lambda: observe(minfer.read(model), evidence))
    if not evidence and (beside := evidence_beside(model)):
        note(f"{beside} was not read; add --evidence {beside} to use it")
    return graph, time.perf_counter() - began


def check_inputs(model: str, evidence: list[str] | None) -> None:
    """Fail before the work, not after it."""
    files = [model, *(text for text in evidence or () if not is_pairs(text))]
    if files.count("-") > 1:
        raise UsageError("only one of model and evidence can be standard input (-)")


def check_outputs(out: str | None, pr: str | None, json: bool, inputs: list[str]) -> None:
    """Every output can be written, and none overwrites another or an input."""
    if [out, pr, "-" if json else None].count("-") > 1:
        raise UsageError("only one of --out -, --pr - and --json can go to standard output")
    if out is not None and out == pr != "-":
        raise UsageError(f"--out and --pr are the same file, {out}")
    for path in (out, pr):
        if path is None or path == "-":
            continue
        check_writable(path, inputs)


def check_writable(path: str, inputs: list[str]) -> None:
    """A file in an existing folder that is none of the inputs."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if Path(path).exists() and any(_same(path, source) for source in inputs):
        raise UsageError(f"{path} is also an input and would be overwritten")


def _same(path: str, source: str) -> bool:
    return Path(source).exists() and Path(path).samefile(source)


def write_files(answer: Marginals, out: str | None, pr: str | None) -> None:
    import minfer

    for path, write in ((out, minfer.write_mar), (pr, minfer.write_pr)):
        if path is None:
            continue
        write(answer, path)
        if path != "-":
            note(f"wrote {path}")


def show_json(model: str, answer: Marginals, chosen: list[int] | None, seconds: float) -> None:
    """One JSON object: the answer, and what it is the answer to."""
    from minfer.cli import render

    content = {
        "minfer": render.version(),
        "model": {"file": model, **render.model_info(answer.graph)},
        **answer.to_dict(chosen),
        "read_seconds": seconds,
    }
    sys.stdout.write(render.to_json(content) + "\n")
