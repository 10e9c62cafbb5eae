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
from minfer.words import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minfer.experiments import fig2, table1
    from minfer.experiments.fig1 import Claim, Row

EXPERIMENTS = ("fig1", "table1", "fig2")

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
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="Which one: fig1, table1 or fig2.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")] = ".",
    quick: Annotated[bool, typer.Option("--quick", help="Use less data: about a minute.")] = False,
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="table1, fig2: the folder of the treebanks. fig1: also run on the .npz files in "
            "a folder, with arrays labels (P, H, W) and noisy (P, N, H, W).",
        ),
    ] = None,
    models: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="table1, fig2: folder where trained parsers are stored and reused; default: that "
            "of --out.",
        ),
    ] = None,
) -> None:
    """Repeat an experiment of the paper: numbers, a figure and a page.

    fig1 is Figure 1: size, error and speed-up of the three objectives in image
    denoising (section 5.1), next to our additions. It writes fig1.png
    (needs matplotlib, the extra `plot`), fig1.csv and fig1.md, and says which
    of the section's statements hold. It takes a few minutes.

    table1 is Table 1: size, time, error and accuracy in dependency parsing
    (section 5.2), per treebank found below --data; it writes table1.csv and
    table1.md. fig2 is Figure 2: size and time against the number of variables,
    time against accuracy; it writes fig2.png, fig2.csv and fig2.md. Both train
    parsers (the extra `parsing`) and store them for the next run.
    The treebanks are those of Universal Dependencies, as downloaded.

    \b
    Examples:
      minfer paper fig1 --quick
      minfer paper fig1 -o results
      minfer paper table1 --data ud-treebanks -o results
    """
    if experiment not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {experiment!r}; choose from {_listed()}")
    for folder in (out, models):
        if folder is not None and not Path(folder).is_dir():
            raise UsageError(f"cannot write to {folder}: there is no such folder")
    if experiment == "fig1":
        _fig1(Path(out), quick, data)
    elif experiment == "table1":
        _table1(Path(out), quick, data, Path(models or out))
    else:
        _fig2(Path(out), quick, data, Path(models or out))


def _listed() -> str:
    return ", ".join(EXPERIMENTS)


def _fig1(folder: Path, quick: bool, data: str | None) -> None:
    from minfer.experiments.fig1 import settings

    chosen = settings(quick, data)
    pyplot()  # before the work, not after it
    import minfer.kernels._jit  # noqa: F401 (loads numba before anything is timed)

    began = time.process_time()
    rows = _run(chosen)
    _write(rows, folder)
    _report(rows, time.process_time() - began)


def _run(chosen: Any) -> list[Row]:
    """All pieces, each with a line on stderr."""
    from minfer.experiments.fig1 import tasks

    rows: list[Row] = []
    pieces = tasks(chosen)
    for done, task in enumerate(pieces, 1):
        rows += wait_for(f"{done}/{len(pieces)} {task.name}", task.work)
        note(f"{done}/{len(pieces)} {task.name}")
    return rows


def _write(rows: Sequence[Row], folder: Path) -> None:
    from minfer.experiments.fig1 import page, records

    _write_texts(folder, "fig1", records(rows), page(rows))
    draw(rows, str(folder / "fig1.png"))
    note(f"wrote fig1.png, fig1.csv and fig1.md in {folder}")


def _write_texts(folder: Path, name: str, content: Sequence[dict[str, str]], page: str) -> None:
    """The numbers as CSV, and the page."""
    from minfer.io.text import write_bytes

    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(content[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(content)
    write_bytes(str(folder / f"{name}.csv"), text.getvalue().encode())
    write_bytes(str(folder / f"{name}.md"), page.encode())


def _report(rows: Sequence[Row], seconds: float) -> None:
    from minfer.experiments.fig1 import claims

    _report_claims("section 5.1 says", claims(rows), seconds)


def _report_claims(title: str, claims: Sequence[Claim], seconds: float) -> None:
    from minfer.cli import render

    table = render.empty_table(title, "comes out", "numbers")
    for claim in claims:
        table.add_row(claim.text, "yes" if claim.holds else "NO", claim.evidence)
    console = render.console()
    render.show(console, table)
    console.print(f"{duration(seconds)} of CPU time")


# ---------------------------------------------------------------------- section 5.2


def _table1(folder: Path, quick: bool, data: str | None, models: Path) -> None:
    from minfer.experiments.parsing import load, treebanks
    from minfer.experiments.table1 import Table, claims, page, records, split_note

    found = treebanks(data)
    if quick:
        found = found[:3]
    began = time.process_time()
    rows: list[table1.Row] = []
    notes = []
    for treebank in found:
        split = load(str(data), treebank, quick)
        notes.append(split_note(treebank, split))
        table = Table(treebank, split, models, passes=1 if quick else 3)
        rows += wait_for(treebank.name, lambda table=table: table.rows(note))  # type: ignore[misc]
    _write_texts(folder, "table1", records(rows), page(rows, notes))
    note(f"wrote table1.csv and table1.md in {folder}")
    _report_claims("section 5.2 says", claims(rows), time.process_time() - began)


def _fig2(folder: Path, quick: bool, data: str | None, models: Path) -> None:
    from minfer.experiments.fig2 import Figure, claims, page, records
    from minfer.experiments.parsing import load, treebanks

    treebank = treebanks(data)[0]
    pyplot()  # before the work, not after it
    began = time.process_time()
    figure = Figure(treebank, load(str(data), treebank, quick), models, passes=1 if quick else 3)
    result = wait_for(treebank.name, lambda: figure.measure(note))
    _write_texts(folder, "fig2", records(result), page(result))
    draw_fig2(result, str(folder / "fig2.png"))
    note(f"wrote fig2.png, fig2.csv and fig2.md in {folder}")
    _report_claims("section 5.2 says", claims(result), time.process_time() - began)


# ---------------------------------------------------------------------- the picture


def pyplot() -> Any:
    from minfer.plots import pyplot

    return pyplot("the figure needs", headless=True)


def draw(rows: Sequence[Row], path: str) -> None:
    """Figure 1 of the paper, and the error against exact marginals where these can be had."""
    from minfer.experiments.fig1 import MAIN, STRIPS, Curves
    from minfer.io import atomic_write

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


DRAWN_2 = {  # method -> colour of Figure 2
    "full BP": "black",
    "MinDivergence": "tab:green",
    "MinSize": "tab:blue",
    "MinJoint": "tab:red",
    "lazy, arc-pruned tree": "tab:orange",
}


def draw_fig2(result: fig2.Result, path: str) -> None:
    """Figure 2 of the paper, with full BP and the lazy parser beside its methods."""
    from minfer.io import atomic_write

    plt = pyplot()
    figure, (a, b, c) = plt.subplots(1, 3, figsize=(14, 4.4), dpi=110)
    for method, colour in DRAWN_2.items():
        points = result.of(method)
        variables = [p.variables for p in points]
        if method != "full BP":
            a.plot(variables, [p.factors for p in points], ".", color=colour, label=method)
        label = f"{method}: ^{result.slope(method):.2f}"
        b.plot(variables, [p.ms for p in points], ".", color=colour, label=label)
        tried = [t for t in result.tradeoff if t.method == method]
        c.plot(
            [t.ms for t in tried], [t.uas for t in tried], "o-", color=colour, label=method,
            markersize=3,
        )  # fmt: skip
    a.set(title="(a) added factors", xlabel="variables", ylabel="pairs in the graph")
    b.set(title="(b) time and its growth", xlabel="variables", ylabel="ms a sentence")
    b.set(xscale="log", yscale="log")
    c.set(title="(c) time and accuracy", xlabel="ms a sentence", ylabel="UAS")
    c.set_xlim(left=0)
    best = max(t.uas for t in result.tradeoff)
    c.set_ylim(best - 1.5, best + 0.1)
    for axis in (a, b, c):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    with atomic_write(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    plt.close(figure)
