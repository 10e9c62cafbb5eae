"""``minfer sample``: exact samples of the posterior, as a table."""

from __future__ import annotations

from minfer.basics.words import counted
from minfer.cli.files import File, written
from minfer.cli.generate import command, option
from minfer.cli.options import Input
from minfer.cli.progress import wait_for


@command()
def sample(
    source: Input,
    n: int = option("-n N  How many samples.", 1000, min=0),
    out: str = option(
        "-o FILE.csv  File to write; - is standard output; .gz compresses.",
        "-",
        file=File("out", (".csv", ".csv.gz")),
    ),
    seed: int = option("N  The same seed gives the same samples.", 0, min=0),
    numbers: bool = option("Indices of states instead of their names."),
) -> None:
    """Independent, exact samples of all variables given evidence, as CSV.

    \b
    Examples:
      minfer sample alarm.minfer -n 1000 -o cases.csv
      minfer sample alarm.minfer -n 10 -e HR=LOW --seed 7
    """
    import numpy as np

    import minfer
    from minfer.io.text import write_csv

    graph, seen = source.bare, source.seen
    drawn = wait_for("drawing", lambda: minfer.sample(graph, n, seen, seed=seed))
    rows = np.asarray(drawn).tolist() if numbers else zip(*drawn.to_dict().values())
    told = f", {counted(n, 'sample')} of {counted(graph.n_variables, 'variable')}"
    written(out, lambda path: write_csv(path, [drawn.variables, *rows]), told)
