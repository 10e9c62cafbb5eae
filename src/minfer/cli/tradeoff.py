"""``minfer tradeoff``: error and time against size, next to the baselines to beat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.cli.files import check_outputs, draw_pair, load, write_records
from minfer.cli.generate import choose, command, numbers, option, output
from minfer.cli.options import CSV, JSON, Input
from minfer.cli.progress import bar, wait_for
from minfer.limits import load_compiler
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.reduction.tradeoff import Measurement

OBJECTIVES = ("min-divergence", "min-joint", "min-size")


@command
def tradeoff(
    source: Input,
    objective: str = option(
        "WORD  What to sweep: min-divergence, min-joint or min-size.", "min-divergence"
    ),
    values: str | None = option(
        "A,B,...  Values to sweep: shares of the factors to add, factor costs (min-joint), or "
        "shares of the seed's divergence to leave (min-size)."
    ),
    seed_graph: str = option("WORD  Seed: globals, unary or forest.", "globals"),
    reference: str | None = option(
        "F.MAR  True marginals, in UAI MAR format. Default: exact ones if they are cheap, else "
        "those of converged belief propagation."
    ),
    repeats: int = option("N  Maximum number of timed calls per row.", 5, min=1),
    csv_file: str | None = CSV,
    picture: str | None = output(
        "FILE  Draw error against time and size to a .png or .svg file (needs minfer[plot])."
    ),
    json: bool = JSON,
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
    import numpy as np

    from minfer import plots
    from minfer.cli import render
    from minfer.io import read_mar
    from minfer.reduction.seeds import SEEDS
    from minfer.reduction.tradeoff import Measurement
    from minfer.reduction.trials import Reference

    choose("--objective", objective, *OBJECTIVES)
    choose("--seed-graph", seed_graph, *SEEDS)
    sweep = None if values is None else [*dict.fromkeys(numbers("--values", values))]
    inputs = [*source.files, reference]
    check_outputs({"--csv": csv_file, "--picture": picture}, inputs, json)
    given = load(source)
    graph = given.graph
    truth = None
    if reference is not None:
        truth = Reference(np.concatenate([*read_mar(reference, graph), np.zeros(0)]), reference)
    measurement = Measurement(graph, objective, sweep, SEEDS[seed_graph][0], truth, repeats)
    _measure(measurement)
    found = measurement.result()
    if csv_file is not None:
        write_records(csv_file, found.rows())
    if picture is not None:

        def left(ax: Any) -> None:
            plots.tradeoff(found, "seconds", ax)
            ax.get_legend().remove()

        def right(ax: Any) -> None:
            plots.tradeoff(found, "kept_share", ax)
            ax.set_ylabel("")

        title = f"{Path(source.model).name}: {counted(found.n_factors, 'factor')}"
        draw_pair(picture, title, left, right, sharey=True)
    if json:
        given.show_json(graph, {"objective": objective, **found.to_dict()})
    else:
        console = render.console(stderr=csv_file == "-")
        render.face(console, found.face(), render.summary(given, graph, {}))


def _measure(sweep: Measurement) -> None:
    """All steps, with a bar on stderr if that is a terminal."""
    load_compiler()
    with bar(len(sweep)) as draw:
        for done, (name, work) in enumerate(sweep.steps()):
            if draw is not None:
                draw(done, name)
            wait_for(f"{done}/{len(sweep)} {name}", work)
