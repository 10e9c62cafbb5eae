"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

from minfer.cli import reduce
from minfer.cli.certainty import certified, find, told
from minfer.cli.failures import demand
from minfer.cli.files import OUT, write_report, written
from minfer.cli.generate import Words, command, option, output
from minfer.cli.options import CSV, JSON, STRICT, Input, Solving, interval_option, rows_option
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError
from minfer.limits import load_compiler
from minfer.typed import parse_query, variable


@command
def run(
    source: Input,
    query: Words = option("-q x5,x9  Show only these variables; may be repeated."),
    intervals: float | None = interval_option(
        "Search for this long (default 5 seconds) for intervals that are guaranteed to contain "
        "the true probabilities, and say which numbers they refute."
    ),
    out: str | None = output(
        "F.MAR  Write all marginals in UAI MAR format; - is standard output.", file=OUT
    ),
    pr: str | None = output(
        "F.PR  Write log10 Z in UAI PR format; - is standard output. Reduced: an estimate of the "
        "full model's, refused if there is none.",
        file=OUT,
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
    from minfer.certified import telling
    from minfer.cli import render
    from minfer.io.text import write_csv
    from minfer.queries.conflicts import locating
    from minfer.reduction.telling import full_log_z
    from minfer.solvers.telling import answered, summary

    request = reduce.make_request(reduction, solving.time_limit)
    save = reduction.save_reduced
    solver = reduce.solver_for(request, solving)
    located = partial(locating, source.bare, source.seen)
    with located():
        graph = source.graph
    chosen = parse_query(query, graph, "--query")
    reduced = None
    if request is None:
        with located():
            answer = wait_for(f"running {solving.name}", lambda: answered(solver, graph))
        sure = None if intervals is None else find(graph, intervals, variables=chosen)
        full, converged = answer, answer.converged
    else:
        whole = {"model"} - graph._index.keys()
        names = [(x, None if x in whole else variable(x, graph)) for x in reduction.explain or ()]
        if request.values is None:  # lists are for belief propagation
            solver = reduce.say_if_exact_is_cheap(solver, solving, graph, source.words)
        with located():
            load_compiler()  # no part of the answer's time
            result = wait_for("reduced inference", lambda: request(graph, solver))
            result = certified(result, intervals)
            more = {"comparing": reduction.compare is not None, "explaining": names}
            reduced = reduce.account(request, result, solver, **more)
        result = reduced.result
        answer, full, sure = result.marginals, reduced.full, result.intervals
        converged = result.converged
        written(save, partial(minfer.write, answer.graph))
        about = {"title": Path(source.model).name, "certify": intervals}
        about |= request.around(result, solver)
        write_report(reduction.report, "report", graph, **about)
    written(out, partial(minfer.write_mar, full))
    if pr is not None and reduced is not None and not math.isfinite(full.log_z):
        known = full_log_z(reduced.result).removesuffix("; of the full model")
        raise RefusedError(
            f"--pr {pr}: log Z of the full model is {known}; keep more factors "
            "(--factor-cost), or leave --reduce out"
        )
    written(pr, partial(minfer.write_pr, full))
    written(csv_file, lambda path: write_csv(path, telling.rows(graph, chosen, answer, sure)))
    if json:
        content = answer.to_dict(chosen) if reduced is None else reduced.to_dict(chosen)
        if sure is not None:
            content["intervals"] = telling.to_dict(sure, chosen, answer)
        render.write_json(source.content(graph, content))
    else:
        console = render.console(stderr="-" in (out, pr, save, csv_file))
        render.probabilities(console, answer, chosen, rows, sure)
        lines = summary(answer) if reduced is None else reduced.summary()
        lines = source.summary(graph, lines)
        if sure is not None:
            lines |= told(sure, answer, chosen)
        render.show(console, render.facts(lines, converged))
        if reduced is not None:
            reduce.show_more(console, reduced)
    demand(strict, converged)
