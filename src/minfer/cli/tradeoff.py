"""``minfer tradeoff``: error and time against size, next to the baselines to beat."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError
from minfer.cli.files import check_files, check_inputs, draw_pair, load, write_csv
from minfer.cli.options import OUTPUT_PANEL, Csv, Evidence, Json, Model, Soft
from minfer.cli.progress import wait_for
from minfer.cli.reduce import SEED_GRAPHS
from minfer.errors import FormatError
from minfer.words import counted

if TYPE_CHECKING:
    from rich.progress import Progress

    from minfer.graph import FactorGraph
    from minfer.reduction.tradeoff import Reference, Tradeoff

OBJECTIVES = ("min-divergence", "min-joint", "min-size")


def tradeoff(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    objective: Annotated[
        str,
        typer.Option(metavar="WORD", help="What to sweep: min-divergence, min-joint or min-size."),
    ] = "min-divergence",
    values: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="A,B,...",
            help="Values to sweep: shares of the factors to add, factor costs (min-joint), or "
            "shares of the seed's divergence to leave (min-size).",
        ),
    ] = None,
    seed_graph: Annotated[
        str, typer.Option(metavar="WORD", help="Seed: globals, unary or forest.")
    ] = "globals",
    reference: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="F.MAR",
            help="True marginals, in UAI MAR format. Default: exact ones if they are cheap, else "
            "those of converged belief propagation.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of timed calls per row.")
    ] = 5,
    csv_file: Csv = None,
    picture: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Draw error against time and size to a .png or .svg file (needs minfer[plot]).",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Error and time of reduced inference at many sizes, next to the baselines to beat.

    The paper's method, compensated and refreshed (as in `minfer run
    --reduce`), against full belief propagation stopped after 1, 2, 3, 5 and
    10 sweeps, and active-set belief propagation. Times are CPU time of the
    whole call, errors absolute differences of probabilities.

    \b
    Examples:
      minfer tradeoff grid.uai
      minfer tradeoff grid.uai --objective min-joint --values 0.1,0.01,0.001
      minfer tradeoff grid.uai --reference grid.uai.MAR --csv grid.csv --picture grid.png
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"--objective must be {' or '.join(OBJECTIVES)}, not {objective!r}")
    if seed_graph not in SEED_GRAPHS:
        raise UsageError(f"--seed-graph must be {' or '.join(SEED_GRAPHS)}, not {seed_graph!r}")
    sweep = _numbers(values, objective)
    inputs = [model, *(evidence or ()), *([reference] if reference else [])]
    check_files(csv_file, picture, json, inputs)
    check_inputs(model, evidence)
    graph, _ = load(model, evidence, soft)
    truth = None if reference is None else read_reference(reference, graph)
    found = measure(graph, objective, sweep, seed_graph, truth, repeats)
    if csv_file is not None:
        rows = found.rows()
        write_csv(csv_file, [list(rows[0]), *([*row.values()] for row in rows)])
    if picture is not None:
        draw(found, picture, model)
    from minfer.cli import render

    if json:
        info = {"file": model, **render.model_info(graph)}
        content = {"minfer": render.version(), "model": info, "objective": objective}
        typer.echo(render.to_json({**content, **found.to_dict()}))
    else:
        console = render.console(stderr=csv_file == "-")
        render.face(console, found.face(), {"model": f"{model}: {render.describe(graph)}"})


def _numbers(text: str | None, objective: str) -> list[float] | None:
    if text is None:
        return None
    try:
        values = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise UsageError(f"--values: {text!r} is not a list of numbers such as 0,0.1,0.5") from None
    if not values:
        raise UsageError("--values: give at least one number, as in --values 0,0.1,0.5")
    most = float("inf") if objective == "min-joint" else 1.0
    if not all(0 <= value <= most for value in values):
        what = "factor costs are 0 or more" if objective == "min-joint" else "shares are 0 to 1"
        raise UsageError(f"--values {text}: {what}")
    return list(dict.fromkeys(values))


def read_reference(path: str, graph: FactorGraph) -> Reference:
    """Marginals from a file, checked against the model."""
    import numpy as np

    from minfer.io import read_mar
    from minfer.reduction.tradeoff import Reference

    marginals = read_mar(path)
    sizes = [len(p) for p in marginals]
    if sizes != graph.n_states.tolist():
        raise FormatError(
            f"{path}: it has {counted(len(sizes), 'variable')} with "
            f"{counted(sum(sizes), 'state')}, the model {graph.n_variables} with "
            f"{int(graph.n_states.sum())}"
        )
    probs = np.concatenate([*marginals, np.zeros(0)])
    return Reference(probs, path)


def measure(
    graph: FactorGraph,
    objective: str,
    values: list[float] | None,
    seed_graph: str,
    reference: Reference | None,
    repeats: int,
) -> Tradeoff:
    """The sweep, with a bar on stderr if that is a terminal."""
    import minfer.kernels._jit  # noqa: F401 (loads numba before anything is timed)
    from minfer.reduction import seeds
    from minfer.reduction.tradeoff import Measurement

    seed = getattr(seeds, SEED_GRAPHS[seed_graph])
    sweep = Measurement(graph, objective, values, seed, reference, repeats)
    with _bar(len(sweep)) as bar:
        for done, (name, work) in enumerate(sweep.steps()):
            bar.update(bar.task_ids[0], completed=done, description=name, refresh=True)
            wait_for(f"{done}/{len(sweep)} {name}", work)
    return sweep.result()


def _bar(total: int) -> Progress:
    """Drawn between steps only: nothing else runs while a step is timed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    hidden = not sys.stderr.isatty()
    bar = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        disable=hidden,
    )
    bar.add_task("", total=total)
    return bar


def draw(found: Tradeoff, path: str, title: str) -> None:
    """Mean error against CPU time and against the kept share, every method a line."""
    from minfer import plots

    def against(x: str, ax: Any) -> None:
        plots.tradeoff(found, x, ax)
        if x == "seconds":
            ax.get_legend().remove()
        else:
            ax.set_ylabel("")

    draw_pair(
        path,
        f"{Path(title).name}: {counted(found.n_factors, 'factor')}",
        partial(against, "seconds"),
        partial(against, "kept_share"),
        sharey=True,
    )
