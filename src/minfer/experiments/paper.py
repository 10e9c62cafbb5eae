"""The paper's figures and table by name: each runs, and gives its numbers, page and claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from minfer.experiments import fig1, fig2, table1
from minfer.experiments.pages import Claim
from minfer.experiments.parsing import load, treebanks
from minfer.plots import pyplot

Note = Callable[[str], None]


class Made(NamedTuple):
    """What an experiment gives."""

    records: Sequence[dict[str, Any]]
    page: str
    claims: Sequence[Claim]
    section: str  # of the paper
    draw: Callable[[str], None] | None = None  # to a file


def run_fig1(quick: bool, data: str | None, models: Path, note: Note) -> Made:
    """Figure 1; ``models`` is not for it."""
    pieces = fig1.tasks(fig1.settings(quick, data))
    pyplot("the figure needs", headless=True)  # before the work, not after it
    import minfer.kernels._jit  # noqa: F401 (loads numba before anything is timed)

    rows: list[fig1.Row] = []
    for done, task in enumerate(pieces, 1):
        rows += task.work()
        note(f"{done}/{len(pieces)} {task.name}")
    draw = partial(fig1.draw, rows)
    return Made(fig1.records(rows), fig1.page(rows), fig1.claims(rows), "5.1", draw)


def run_table1(quick: bool, data: str | None, models: Path, note: Note) -> Made:
    """Table 1."""
    rows: list[table1.Row] = []
    notes = []
    for treebank in treebanks(data)[: 3 if quick else None]:
        split = load(str(data), treebank, quick)
        notes.append(table1.split_note(treebank, split))
        rows += table1.Table(treebank, split, models, passes=1 if quick else 3).rows(note)
    return Made(table1.records(rows), table1.page(rows, notes), table1.claims(rows), "5.2")


def run_fig2(quick: bool, data: str | None, models: Path, note: Note) -> Made:
    """Figure 2, of the first treebank."""
    treebank = treebanks(data)[0]
    pyplot("the figure needs", headless=True)
    split = load(str(data), treebank, quick)
    result = fig2.Figure(treebank, split, models, passes=1 if quick else 3).measure(note)
    draw = partial(fig2.draw, result)
    return Made(fig2.records(result), fig2.page(result), fig2.claims(result), "5.2", draw)


EXPERIMENTS = {"fig1": run_fig1, "table1": run_table1, "fig2": run_fig2}
