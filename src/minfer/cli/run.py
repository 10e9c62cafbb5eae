"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import note
from minfer.cli.files import (
    check_inputs,
    check_outputs,
    check_report,
    given_words,
    load_apart,
    show_json,
    write_csv,
    write_files,
)
from minfer.cli.generate import takes
from minfer.cli.options import (
    OUTPUT_PANEL,
    Csv,
    Evidence,
    Json,
    Model,
    Soft,
    Strict,
    check_interval_seconds,
    interval_option,
    make_solver,
    rows_option,
    solver_name,
    solver_options,
)
from minfer.cli.progress import wait_for
from minfer.cli.reduce import (
    DEFAULT_SOLVER,
    PANEL,
    Reduction,
    Report,
    make_request,
    run_reduced,
    say_if_exact_is_cheap,
    write_report,
)
from minfer.cli.reduce import show as show_reduction
from minfer.errors import RefusedError
from minfer.typed import parse_query

if TYPE_CHECKING:
    from rich.console import Console

    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver

NOT_CONVERGED = 5


@solver_options
@takes(PANEL, reduction=Reduction)
def run(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    query: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--query", "-q", metavar="x5,x9", help="Show only these variables; may be repeated."
        ),
    ] = None,
    intervals: Annotated[
        Optional[float],  # noqa: UP045
        interval_option(
            "Search for this long (default 5 seconds) for intervals that are guaranteed to contain "
            "the true probabilities, and say which numbers they refute."
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
            "the full model's, refused if there is none.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    csv_file: Csv = None,
    json: Json = False,
    rows: Annotated[int, rows_option("the most uncertain")] = 20,
    strict: Strict = False,
    *,
    reduction: Reduction,
    **settings: Any,
) -> None:
    """Marginals and log Z of a model.

    Prints a table for people, the most uncertain variables first. For programs
    there are --json, --csv and --out.

    With --intervals every probability has two numbers in brackets. The true
    probability is guaranteed to lie between them, and estimates that are provably off
    by more than 0.01 are called refuted. See also `minfer intervals`.

    With --reduce, or any other option of that panel, factors that matter little
    are ignored. The report says what that may have cost, and which of its
    statements are rigorous and which are estimates.

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
    request = make_request(reduction, settings.get("time_limit"), intervals)
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

            write_report(request, solver, report.result, Path(model).name, partial(page, graph))
    write_files(answer_out, out, None)
    if report is not None and pr is not None:
        check_log_z(report, pr)
    write_files(answer_out, None, pr)
    if csv_file is not None:
        from minfer.certified.telling import rows as rows_of

        write_csv(csv_file, rows_of(graph, chosen, answer, sure))
    if json:
        content = answer.to_dict(chosen) if report is None else report.to_dict(chosen)
        if sure is not None:
            from minfer.certified.telling import to_dict

            content["intervals"] = to_dict(sure, chosen, answer)
        show_json(model, graph, content, seconds)
    else:
        from minfer.cli import render

        console = render.console(stderr="-" in (out, pr, save, csv_file))
        if report is None:
            _show(console, model, answer, chosen, rows, seconds, sure)
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


def _show(
    to: Console,
    name: str,
    marginals: Marginals,
    chosen: list[int] | None,
    rows: int,
    read: float,
    intervals: Intervals | None = None,
) -> None:
    """The whole answer of a plain ``minfer run``."""
    from minfer.cli import render
    from minfer.cli.certainty import told

    render.probabilities(to, marginals, chosen, rows, intervals)
    more = {} if intervals is None else told(intervals, marginals, chosen)
    render.show(to, render.facts({**render.summary(name, marginals, read), **more}))


def _certify(graph: FactorGraph, seconds: float, chosen: list[int] | None) -> Intervals:
    from minfer.cli.certainty import find, live

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
    from minfer.reduction.telling import full_log_z

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
