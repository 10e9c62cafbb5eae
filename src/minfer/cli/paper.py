"""``minfer paper``: the paper's experiments, run again."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minfer.paper.fig1 import Row

EXPERIMENTS = ("fig1",)

DRAWN = {  # method -> colour and line of Figure 1
    "MinSize": ("tab:blue", "-"),
    "MinSize, sorted": ("tab:blue", ":"),
    "MinDivergence": ("tab:green", "-"),
    "MinDivergence, sorted": ("tab:green", ":"),
    "MinJoint": ("tab:red", "-"),
    "MinJoint, compensated": ("tab:orange", "--"),
    "MinJoint, refreshed": ("tab:purple", "--"),
    "full": ("black", "-"),
    "full, 2 sweeps": ("tab:gray", "-."),
}
LEAST_DRAWN = 1e-5  # smaller errors are drawn here


def paper(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Which one: fig1.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the files it writes.")
    ] = ".",
    quick: Annotated[bool, typer.Option("--quick", help="On less data: about a minute.")] = False,
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="fig1: also run on the .npz files in a folder, with arrays labels (P, H, W) and "
            "noisy (P, N, H, W).",
        ),
    ] = None,
) -> None:
    """Run an experiment of the paper again: numbers, a figure and a page.

    fig1 is Figure 1: size, error and speed-up of the three objectives in image
    denoising (section 5.1), with our additions beside them. It writes fig1.png
    (needs matplotlib, the extra `plot`), fig1.csv and fig1.md, and tells which
    of the section's statements come out. It takes some minutes.

    \b
    Examples:
      minfer paper fig1 --quick
      minfer paper fig1 -o results
    """
    if experiment not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {experiment!r}; there is {EXPERIMENTS[0]}")
    if not Path(out).is_dir():
        raise UsageError(f"cannot write to {out}: there is no such folder")
    _fig1(Path(out), quick, data)


def _fig1(folder: Path, quick: bool, data: str | None) -> None:
    from minfer.paper.fig1 import settings

    chosen = settings(quick, data)
    pyplot()  # before the work, not after it
    import minfer.kernels._jit  # noqa: F401 (loads numba before anything is timed)

    began = time.process_time()
    rows = _run(chosen)
    _write(rows, folder)
    _report(rows, time.process_time() - began)


def _run(chosen: Any) -> list[Row]:
    """All pieces, each with a line on stderr."""
    from minfer.paper.fig1 import tasks

    rows: list[Row] = []
    pieces = tasks(chosen)
    for done, task in enumerate(pieces, 1):
        rows += wait_for(f"{done}/{len(pieces)} {task.name}", task.work)
        note(f"{done}/{len(pieces)} {task.name}")
    return rows


def _write(rows: Sequence[Row], folder: Path) -> None:
    from minfer.io.text import write_bytes
    from minfer.paper.fig1 import page, records

    text = io.StringIO()
    content = records(rows)
    writer = csv.DictWriter(text, fieldnames=list(content[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(content)
    write_bytes(str(folder / "fig1.csv"), text.getvalue().encode())
    write_bytes(str(folder / "fig1.md"), page(rows).encode())
    draw(rows, str(folder / "fig1.png"))
    note(f"wrote fig1.png, fig1.csv and fig1.md in {folder}")


def _report(rows: Sequence[Row], seconds: float) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from minfer.cli import render
    from minfer.paper.fig1 import claims

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("section 5.1 says", "comes out", "numbers"):
        table.add_column(title, overflow="fold")
    for claim in claims(rows):
        table.add_row(claim.text, "yes" if claim.holds else "NO", claim.evidence)
    console = render.console()
    render.show(console, table)
    console.print(f"{render.duration(seconds)} of CPU time")


# ---------------------------------------------------------------------- the picture


def pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RefusedError(
            "the figure needs matplotlib, which is not installed: pip install 'minfer[plot]'"
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw(rows: Sequence[Row], path: str) -> None:
    """Figure 1 of the paper, and the error against exact marginals where these can be had."""
    from minfer.io import atomic_write
    from minfer.paper.fig1 import MAIN, STRIPS, Curves

    plt = pyplot()
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure, axes = plt.subplots(2, 2, figsize=(10, 7), dpi=110)
    panels = (
        ("(a) relative size", MAIN.name, "size"),
        ("(b) mean error against full inference", MAIN.name, "error"),
        ("(c) speed-up over full inference", MAIN.name, "speed_up"),
        ("(d) 12-row strips: mean error against exact", STRIPS, "exact_error"),
    )
    for axis, (title, setting, field) in zip(axes.flat, panels):
        c = Curves(rows, setting)
        for method, (colour, line) in DRAWN.items():
            if (field == "size" and "," in method) or not c.alphas:
                continue
            values = [max(v, LEAST_DRAWN) for v in c(method, field)]
            axis.plot(c.alphas, values, line, color=colour, label=method, marker="o", markersize=3)
        axis.set(title=title, xlabel="alpha", xscale="log")
        axis.set_xticks(c.alphas)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.3)
        if "error" in field:
            axis.set_yscale("log")
    axes[1, 0].axhline(1, color="black", linewidth=0.8)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    with atomic_write(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    plt.close(figure)
