"""``minfer tradeoff``: error and time against size, next to the baselines to beat."""

from __future__ import annotations

from pathlib import Path

from minfer.basics.limits import load_compiler
from minfer.basics.words import counted
from minfer.cli import render
from minfer.cli.files import IN, PICTURE, written
from minfer.cli.generate import command, option, output, setting
from minfer.cli.options import CSV, JSON, Input
from minfer.cli.progress import bar, wait_for
from minfer.io.typed import numbers


@command("minfer.reduction.compare:tradeoff")
def tradeoff(
    source: Input,
    objective: str = setting(),
    values: str | None = setting("A,B,..."),
    seed_graph: str = option("globals|unary|forest  Where inference starts.", "globals"),
    reference: str | None = option(
        "F.MAR  True marginals, in UAI MAR format. Default: exact ones if they are cheap, else "
        "those of converged belief propagation.",
        file=IN,
    ),
    repeats: int = setting(min=1),
    csv_file: str | None = CSV,
    picture: str | None = output(
        "FILE  Draw error against time and size to a .png or .svg file (needs minfer[plot]).",
        file=PICTURE,
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

    from minfer.io import read_mar
    from minfer.io.text import write_records
    from minfer.pictures import draw_tradeoff
    from minfer.reduction.compare import Measurement, Reference
    from minfer.reduction.seeds import SEEDS

    sweep = None if values is None else [*dict.fromkeys(numbers("--values", values))]
    graph = source.graph
    truth = None
    if reference is not None:
        truth = Reference(np.concatenate([*read_mar(reference, graph), np.zeros(0)]), reference)
    measurement = Measurement(graph, objective, sweep, SEEDS[seed_graph][0], truth, repeats)
    load_compiler()
    with bar(len(measurement)) as draw:
        for done, (name, work) in enumerate(measurement.steps()):
            draw(done, name)
            wait_for(f"{done}/{len(measurement)} {name}", work)
    found = measurement.result()
    written(csv_file, lambda path: write_records(path, found.rows()))
    title = f"{Path(source.model).name}: {counted(found.n_factors, 'factor')}"
    written(picture, lambda path: draw_tradeoff(path, found, title))
    content = source.content(graph, {"objective": objective, **found.to_dict()})
    console = render.console(stderr=csv_file == "-")
    render.tell(json, content, found.face(), source.summary(graph, {}), console)
