"""``minfer run``: a model in, marginals out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from minfer.basics.limits import load_compiler
from minfer.cli import reduce, render
from minfer.cli.failures import demand
from minfer.cli.files import OUT, write_report, written
from minfer.cli.generate import Words, command, option, output
from minfer.cli.intervals import certified, find, told
from minfer.cli.options import CSV, JSON, STRICT, Input, Solving, interval_option, rows_option
from minfer.cli.progress import wait_for
from minfer.io.typed import parse_query, variable


@command()
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

    With --reduce, or any other option under Reduction, factors that matter little
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
    from minfer.io.text import write_csv
    from minfer.reduction.spoken_request import account
    from minfer.say import tables
    from minfer.say.answers import answered, summary
    from minfer.say.intervals import to_dict
    from minfer.solvers.conflicts import locating

    request = reduce.make_request(reduction, solving.time_limit)
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
        content, lines = answer.to_dict(chosen), summary(answer)
    else:
        whole = {"model"} - graph._index.keys()
        names = [(x, None if x in whole else variable(x, graph)) for x in reduction.explain or ()]
        solver = reduce.say_if_exact_is_cheap(solver, solving, source)
        with located():
            load_compiler()  # no part of the answer's time
            result = wait_for("reduced inference", lambda: request(graph, solver))
            result = certified(result, intervals)
            comparing = reduction.compare is not None
            work = partial(account, request, result, solver, comparing=comparing, explaining=names)
            reduced = wait_for("looking at the answer", work)
        result, full = reduced.result, reduced.full
        answer, sure, converged = result.marginals, result.intervals, result.converged
        content, lines = reduced.to_dict(chosen), reduced.summary()
        written(reduction.save_reduced, partial(minfer.write, answer.graph))
        about = {"title": Path(source.model).name, **request.around(result, solver)}
        write_report(reduction.report, "report", graph, certify=intervals, **about)
    written(out, partial(minfer.write_mar, full))
    if reduced is not None and pr is not None:
        reduced.check_log_z(f"--pr {pr}")
    written(pr, partial(minfer.write_pr, full))
    written(csv_file, lambda path: write_csv(path, tables.rows(graph, chosen, answer, sure)))
    lines = source.summary(graph, lines)
    if sure is not None:
        content["intervals"] = to_dict(sure, chosen, answer)
        lines |= told(sure, answer, chosen)
    table = tables.marginal_table(answer, chosen, rows, sure)
    console = render.console(stderr="-" in (out, pr, reduction.save_reduced, csv_file))
    others = () if reduced is None else reduced.faces()
    about = {"hint": "(--rows, --query, --json)", "ok": converged}
    render.tell(json, source.content(graph, content), table, lines, console, others, **about)
    demand(strict, converged)
