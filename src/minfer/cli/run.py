"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.options import (
    OUTPUT_PANEL,
    Csv,
    Evidence,
    Json,
    Model,
    Soft,
    Strict,
    check_interval_seconds,
    evidence_beside,
    evidence_of,
    interval_option,
    is_pairs,
    make_solver,
    parse_query,
    rows_option,
    solver_name,
    solver_options,
)
from minfer.cli.progress import wait_for
from minfer.cli.reduce import (
    DEFAULT_SOLVER,
    Report,
    full_log_z,
    make_request,
    reduction_options,
    run_reduced,
    say_if_exact_is_cheap,
    write_report,
)
from minfer.cli.reduce import show as show_reduction
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver

NOT_CONVERGED = 5


@solver_options
@reduction_options
def run(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    query: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--query", "-q", metavar="x5,x9", help="Show these variables only; may be repeated."
        ),
    ] = None,
    intervals: Annotated[
        Optional[float],  # noqa: UP045
        interval_option(
            "Look so long (5 seconds if none are given) for intervals that hold the true "
            "probabilities for certain, and say which numbers they refute."
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
            help="Write log10 Z in UAI PR format; - is standard output. Reduced: an estimate of "
            "the full model's, refused where nothing supports one.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    csv_file: Csv = None,
    json: Json = False,
    rows: Annotated[int, rows_option("the most uncertain")] = 20,
    strict: Strict = False,
    **settings: Any,
) -> None:
    """Marginals and log Z of a model.

    Prints a table for people, the most uncertain variables first. Programs ask
    for --json, --csv or --out.

    With --intervals every probability has two numbers in brackets: the true one
    lies between the two for certain, and estimates that are provably off by more than
    0.01 are called refuted. `minfer intervals` has more to say about them.

    With --reduce, or any other option of that panel, factors that matter little
    are ignored, and the report says what that may have cost: what is rigorous,
    and what is an estimate.

    \b
    Examples:
      minfer run grid.uai
      minfer run grid.uai --evidence x3=1,x7=0 --query x5,x9
      minfer run grid.uai --solver bp --damping 0.3 --out grid.MAR
      minfer run grid.uai --solver bp --intervals 10
      minfer run grid.uai --reduce --compare full
      minfer run grid.uai --max-factors 1000 --time-limit 5 --explain x5
      minfer run grid.uai --report grid.html
    """
    from minfer.queries.conflicts import locating
    from minfer.queries.evidence import with_any_evidence

    check_interval_seconds(intervals)
    request = make_request({**settings, "certify": intervals})
    save = request.save if request else None
    inputs = [model, *(evidence or ())]
    check_outputs(out, pr, json, inputs, save, csv_file)
    if request is not None and request.report is not None:
        check_report(request.report, [out, pr, save, csv_file], inputs)
    check_inputs(model, evidence)
    if request is None:
        solver = make_solver(settings)
    else:
        solver = make_solver({**settings, "time_limit": None}, DEFAULT_SOLVER)
    bare, seen, seconds = load_apart(model, evidence, soft)
    with locating(bare, seen):
        graph = with_any_evidence(bare, seen)
    chosen = parse_query(query, graph)
    report: Report | None = None
    if request is None:
        text = f"running {solver_name(settings)}"
        with locating(bare, seen):
            answer = answer_out = wait_for(text, lambda: _solve(solver, graph))
        sure = None if intervals is None else _certify(graph, intervals, chosen)
    else:
        request.check_names(graph)
        if request.values is None:  # lists are for belief propagation
            words = given_words(model, evidence, soft)
            solver = say_if_exact_is_cheap(solver, settings, graph, words)
        with locating(bare, seen):
            report = run_reduced(request, solver, graph)
        answer, answer_out = report.result.marginals, _of_full_model(report)
        sure = report.result.intervals
        if save is not None:
            _save(answer.graph, save)
        if request.report is not None:
            from minfer.report import report as page

            write_report(request, solver, graph, Path(model).name, partial(page, graph))
    write_files(answer_out, out, None)
    if report is not None and pr is not None:
        check_log_z(report, pr)
    write_files(answer_out, None, pr)
    if csv_file is not None:
        from minfer.cli.intervals import write_csv

        write_csv(csv_file, graph, chosen, answer, sure)
    if json:
        content = answer.to_dict(chosen) if report is None else report.to_dict(chosen)
        if sure is not None:
            from minfer.cli.intervals import to_dict

            content["intervals"] = to_dict(sure, chosen, answer)
        show_json(model, graph, content, seconds)
    else:
        from minfer.cli import render

        console = render.console(stderr="-" in (out, pr, save, csv_file))
        if report is None:
            render.answer(console, model, answer, chosen, rows, seconds, sure)
        else:
            render.probabilities(console, answer, chosen, rows, sure)
            show_reduction(console, model, report, seconds, chosen)
    if strict and not (answer if report is None else report.result).converged:
        raise typer.Exit(NOT_CONVERGED)


def _solve(solver: Solver, graph: FactorGraph) -> Marginals:
    """log Z is computed when first asked for: here, while Ctrl-C and the spinner work."""
    import minfer.kernels._jit  # noqa: F401 (loads numba, which is no part of the solver's time)

    answer = solver(graph)
    _ = answer.log_z
    return answer


def _certify(graph: FactorGraph, seconds: float, chosen: list[int] | None) -> Intervals:
    from minfer.cli.intervals import find, live

    with live(graph.n_variables if chosen is None else len(chosen)) as watch:
        return find(graph, seconds, variables=chosen, watch=watch)


def _of_full_model(report: Report) -> Marginals:
    """A reduced answer as one about the full model: its probabilities, and log Z of F."""
    from minfer.solvers.base import Marginals

    result = report.result
    m = result.marginals
    return Marginals.from_probs(result.model, m.probs, m.solver, result.log_z_estimate)


def check_log_z(report: Report, pr: str) -> None:
    """A file of one number cannot say that the number is worth nothing."""
    if not math.isfinite(report.result.log_z_estimate):
        raise RefusedError(
            f"--pr {pr}: log Z is {full_log_z(report.result)}; keep more factors (--factor-cost), "
            "or leave --reduce out"
        )


def _save(graph: FactorGraph, path: str) -> None:
    import minfer

    minfer.write(graph, path)
    if path != "-":
        note(f"wrote {path}")


def load(
    model: str, evidence: list[str] | None, soft: list[str] | None = None
) -> tuple[FactorGraph, float]:
    """The model with its evidence, and the seconds that reading took."""
    from minfer.queries.evidence import with_any_evidence

    graph, seen, seconds = load_apart(model, evidence, soft)
    return with_any_evidence(graph, seen), seconds


def load_apart(
    model: str, evidence: list[str] | None, soft: list[str] | None
) -> tuple[FactorGraph, dict[int, Any], float]:
    """The model, the evidence beside it, and the seconds that reading took."""
    began = time.perf_counter()
    graph = read_model(model)
    seen = evidence_of(graph, evidence, soft)
    if not evidence and (beside := evidence_beside(model)):
        note(f"{beside} was not read; add --evidence {beside} to use it")
    return graph, seen, time.perf_counter() - began


def read_model(model: str) -> FactorGraph:
    """The model in a file; what is odd about it becomes notes."""
    import minfer

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        graph = wait_for(f"reading {model}", lambda: minfer.read(model))
    for warning in said:
        note(str(warning.message))
    return graph


def given_words(model: str, evidence: list[str] | None, soft: list[str] | None) -> list[str]:
    """The plain command for a model and its evidence."""
    pairs = [("--evidence", e) for e in evidence or ()] + [("--soft", e) for e in soft or ()]
    return ["minfer", "run", model, *(word for pair in pairs for word in pair)]


def check_inputs(model: str, evidence: list[str] | None) -> None:
    """Fail before the work, not after it."""
    files = [model, *(text for text in evidence or () if not is_pairs(text))]
    if files.count("-") > 1:
        raise UsageError("only one of model and evidence can be standard input (-)")


def check_outputs(
    out: str | None,
    pr: str | None,
    json: bool,
    inputs: list[str],
    save: str | None = None,
    csv_file: str | None = None,
) -> None:
    """Every output can be written, and none overwrites another or an input."""
    if [out, pr, save, csv_file, "-" if json else None].count("-") > 1:
        raise UsageError(
            "only one of --out -, --pr -, --save-reduced -, --csv - and --json can go to standard "
            "output"
        )
    if out is not None and out == pr != "-":
        raise UsageError(f"--out and --pr are the same file, {out}")
    if csv_file not in (None, "-") and csv_file in (out, pr, save):
        raise UsageError(f"--csv and another output are the same file, {csv_file}")
    if save is not None and save != "-":
        if save in (out, pr):
            raise UsageError(f"--save-reduced and another output are the same file, {save}")
        check_model_name(save)
    for path in (out, pr, save, csv_file):
        if path is None or path == "-":
            continue
        check_writable(path, inputs)


def check_report(path: str, others: list[str | None], inputs: list[str]) -> None:
    """A report goes to a file of its own."""
    if path in others:
        raise UsageError(f"--report and another output are the same file, {path}")
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--report {path}: end the name in .html")
    check_writable(path, inputs)


def check_model_name(path: str) -> None:
    """The suffix tells a format that models can be written in."""
    from minfer.io.text import writing_complaint

    if complaint := writing_complaint(path):
        raise UsageError(complaint)


def check_writable(path: str, inputs: list[str]) -> None:
    """A file in an existing folder that is none of the inputs."""
    from minfer.io.text import check_path

    check_path(path, "write")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if Path(path).exists() and any(_same(path, source) for source in inputs):
        raise UsageError(f"{path} is also an input and would be overwritten")


def _same(path: str, source: str) -> bool:
    return os.path.exists(source) and Path(path).samefile(source)  # any text: it may be no file


def write_files(answer: Marginals, out: str | None, pr: str | None) -> None:
    import minfer

    for path, write in ((out, minfer.write_mar), (pr, minfer.write_pr)):
        if path is None:
            continue
        write(answer, path)
        if path != "-":
            note(f"wrote {path}")


def show_json(model: str, graph: FactorGraph, content: dict[str, Any], seconds: float) -> None:
    """One JSON object: the answer, and what it is the answer to."""
    from minfer.cli import render

    content = {
        "minfer": render.version(),
        "model": {"file": model, **render.model_info(graph)},
        **content,
        "read_seconds": seconds,
    }
    sys.stdout.write(render.to_json(content) + "\n")
