"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from minfer.cli import reduce
from minfer.cli.certainty import find, live, told
from minfer.cli.failures import demand
from minfer.cli.files import (
    check_model_name,
    check_outputs,
    given_words,
    load,
    write_csv,
    wrote,
)
from minfer.cli.generate import Words, command, option, output
from minfer.cli.options import (
    CSV,
    JSON,
    STRICT,
    Input,
    Solving,
    check_interval_seconds,
    interval_option,
    rows_option,
)
from minfer.cli.progress import wait_for
from minfer.limits import load_compiler
from minfer.typed import parse_query

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver


@command
def run(
    source: Input,
    query: Words = option("-q x5,x9  Show only these variables; may be repeated."),
    intervals: float | None = interval_option(
        "Search for this long (default 5 seconds) for intervals that are guaranteed to contain "
        "the true probabilities, and say which numbers they refute."
    ),
    out: str | None = output("F.MAR  Write all marginals in UAI MAR format; - is standard output."),
    pr: str | None = output(
        "F.PR  Write log10 Z in UAI PR format; - is standard output. Reduced: an estimate of the "
        "full model's, refused if there is none."
    ),
    csv_file: str | None = CSV,
    json: bool = JSON,
    rows: int = rows_option("the most uncertain"),
    strict: bool = STRICT,
    *,
    reduction: reduce.Reduction,
    solving: Solving,
) -> None:
    """Marginals and log Z of a model.

    Prints a table for people, the most uncertain variables first. For programs
    there are --json, --csv and --out.

    With --intervals every probability has two numbers in brackets. The true
    probability is guaranteed to lie between them, and estimates that are provably
    off by more than 0.01 are called refuted. See also `minfer intervals`.

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
    import minfer
    from minfer.certified import telling as certified
    from minfer.cli import render
    from minfer.queries.conflicts import locating
    from minfer.solvers.telling import summary

    check_interval_seconds(intervals)
    request = reduce.make_request(reduction, solving.time_limit)
    save = reduction.save_reduced
    texts = {"--out": out, "--pr": pr, "--save-reduced": save, "--csv": csv_file}
    check_outputs(texts | {"--report": reduction.report}, source.files, json)
    if save not in (None, "-"):
        check_model_name(str(save))
    if request is None:
        solver = solving.make()
    else:  # which keeps the time itself
        solver = solving.or_else(reduce.DEFAULT_SOLVER, time_limit=None).make()
    given = load(source)
    located = partial(locating, given.bare, given.seen)
    with located():
        graph = given.graph
    chosen = parse_query(query, graph)
    reduced = None
    if request is None:
        with located():
            answer = full = wait_for(f"running {solving.name}", lambda: solve(solver, graph))
        sure, converged = _certified(graph, intervals, chosen), answer.converged
    else:
        reduce.to_explain(reduction, graph)  # fails before the work, not after it
        if request.values is None:  # lists are for belief propagation
            solver = reduce.say_if_exact_is_cheap(solver, solving, graph, given_words(source))
        with located():
            reduced = reduce.run(request, reduction, solver, graph, intervals)
        answer, full, sure = reduced.result.marginals, reduced.full, reduced.result.intervals
        converged = reduced.result.converged
        if save is not None:
            minfer.write(answer.graph, save)
            wrote(save)
        if reduction.report is not None:
            about = {"title": Path(source.model).name, "certify": intervals, "solver": solver}
            request.write_report(reduction.report, reduced.result, "report", graph, **about)
    if out is not None:
        minfer.write_mar(full, out)
        wrote(out)
    if pr is not None:
        if reduced is not None:
            reduced.check_log_z(pr)
        minfer.write_pr(full, pr)
        wrote(pr)
    if csv_file is not None:
        write_csv(csv_file, certified.rows(graph, chosen, answer, sure))
    if json:
        content = answer.to_dict(chosen) if reduced is None else reduced.to_dict(chosen)
        if sure is not None:
            content["intervals"] = certified.to_dict(sure, chosen, answer)
        given.show_json(graph, content)
    else:
        console = render.console(stderr="-" in texts.values())
        render.probabilities(console, answer, chosen, rows, sure)
        lines = summary(answer) if reduced is None else reduced.summary()
        lines = render.summary(given, graph, lines)
        if sure is not None:
            lines |= told(sure, answer, chosen)
        render.show(console, render.facts(lines, converged))
        if reduced is not None:
            reduced.show_more(console)
    demand(strict, converged)


def _certified(
    graph: FactorGraph, seconds: float | None, chosen: list[int] | None
) -> Intervals | None:
    if seconds is None:
        return None
    with live(graph.n_variables if chosen is None else len(chosen)) as watch:
        return find(graph, seconds, variables=chosen, watch=watch)


def solve(solver: Solver, graph: FactorGraph) -> Marginals:
    """log Z is computed when first asked for: here, while Ctrl-C and the spinner work."""
    load_compiler()
    answer = solver(graph)
    _ = answer.log_z
    return answer
