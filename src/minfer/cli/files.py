"""Files of commands: models and evidence read, outputs checked before the work, answers written."""

from __future__ import annotations

import csv
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.cli.failures import UsageError, note
from minfer.cli.progress import wait_for
from minfer.typed import evidence_beside, evidence_of, is_pairs
from minfer.words import visible

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals


def load(
    model: str, evidence: list[str] | None, soft: list[str] | None = None
) -> tuple[FactorGraph, float]:
    """The model with its evidence, and the seconds that reading took."""
    from minfer.queries.evidence import with_any_evidence

    graph, seen, seconds = load_apart(model, evidence, soft)
    return with_any_evidence(graph, seen), seconds


def load_apart(
    model: str, evidence: list[str] | None, soft: list[str] | None
) -> tuple[FactorGraph, dict[int, Any], float]:
    """The model, the evidence beside it, and the seconds that reading took."""
    began = time.perf_counter()
    graph = read_model(model)
    seen = evidence_of(graph, evidence, soft)
    if not evidence and (beside := evidence_beside(model)):
        note(f"{beside} was not read; add --evidence {beside} to use it")
    return graph, seen, time.perf_counter() - began


def read_model(model: str) -> FactorGraph:
    """The model in a file; what is odd about it becomes notes."""
    import minfer

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        graph = wait_for(f"reading {model}", lambda: minfer.read(model))
    for warning in said:
        note(str(warning.message))
    return graph


def given_words(model: str, evidence: list[str] | None, soft: list[str] | None) -> list[str]:
    """The plain command for a model and its evidence."""
    pairs = [("--evidence", e) for e in evidence or ()] + [("--soft", e) for e in soft or ()]
    return ["minfer", "run", model, *(word for pair in pairs for word in pair)]


def check_inputs(model: str, evidence: list[str] | None) -> None:
    """Fail before the work, not after it."""
    files = [model, *(text for text in evidence or () if not is_pairs(text))]
    if files.count("-") > 1:
        raise UsageError("only one of model and evidence can be standard input (-)")


def check_outputs(
    out: str | None,
    pr: str | None,
    json: bool,
    inputs: list[str],
    save: str | None = None,
    csv_file: str | None = None,
) -> None:
    """Every output can be written, and none overwrites another or an input."""
    if [out, pr, save, csv_file, "-" if json else None].count("-") > 1:
        raise UsageError(
            "only one of --out -, --pr -, --save-reduced -, --csv - and --json can go to standard "
            "output"
        )
    if out is not None and out == pr != "-":
        raise UsageError(f"--out and --pr are the same file, {out}")
    if csv_file not in (None, "-") and csv_file in (out, pr, save):
        raise UsageError(f"--csv and another output are the same file, {csv_file}")
    if save is not None and save != "-":
        if save in (out, pr):
            raise UsageError(f"--save-reduced and another output are the same file, {save}")
        check_model_name(save)
    for path in (out, pr, save, csv_file):
        if path is None or path == "-":
            continue
        check_writable(path, inputs)


def check_report(path: str, others: list[str | None], inputs: list[str]) -> None:
    """A report goes to a file of its own."""
    if path in others:
        raise UsageError(f"--report and another output are the same file, {path}")
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--report {path}: end the name in .html")
    check_writable(path, inputs)


def check_model_name(path: str) -> None:
    """The suffix tells a format that models can be written in."""
    from minfer.io.text import writing_complaint

    if complaint := writing_complaint(path):
        raise UsageError(complaint)


def check_writable(path: str, inputs: list[str]) -> None:
    """A file in an existing folder that is none of the inputs."""
    from minfer.io.text import check_path

    check_path(path, "write")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if Path(path).exists() and any(_same(path, source) for source in inputs):
        raise UsageError(f"{path} is also an input and would be overwritten")


def _same(path: str, source: str) -> bool:
    return os.path.exists(source) and Path(path).samefile(source)  # any text: it may be no file


def write_files(answer: Marginals, out: str | None, pr: str | None) -> None:
    import minfer

    for path, write in ((out, minfer.write_mar), (pr, minfer.write_pr)):
        if path is None:
            continue
        write(answer, path)
        if path != "-":
            note(f"wrote {path}")


def show_json(model: str, graph: FactorGraph, content: dict[str, Any], seconds: float) -> None:
    """One JSON object: the answer, and what it is the answer to."""
    from minfer.cli import render

    content = {
        "minfer": render.version(),
        "model": {"file": model, **render.model_info(graph)},
        **content,
        "read_seconds": seconds,
    }
    sys.stdout.write(render.to_json(content) + "\n")


PICTURES = (".png", ".svg")


def pictures() -> Any:
    """matplotlib for ``--picture``, or RefusedError where it is missing."""
    from minfer.plots import pyplot

    return pyplot("--picture needs", headless=True)


def check_files(csv_file: str | None, picture: str | None, json: bool, inputs: list[str]) -> None:
    """A table as CSV and a picture of it can be written."""
    if csv_file == "-" and json:
        raise UsageError("only one of --csv - and --json can go to standard output")
    if picture is not None:
        if Path(picture).suffix.lower() not in PICTURES:
            raise UsageError(f"--picture {picture}: end the name in .png or .svg")
        pictures()  # before the work, not after it
        if picture == csv_file:
            raise UsageError(f"--csv and --picture are the same file, {picture}")
    for path in (csv_file, picture):
        if path is not None and path != "-":
            check_writable(path, inputs)


def write_csv(path: str, rows: Iterable[Sequence[Any]]) -> None:
    """Rows as CSV, to a file or standard output."""
    from minfer.io.text import write_bytes

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_bytes(path, text.getvalue().encode())
    if path != "-":
        note(f"wrote {path}")


def draw_pair(
    path: str, title: str, left: Callable[[Any], Any], right: Callable[[Any], Any], **options: Any
) -> None:
    """Two drawings side by side, under a title, as a picture."""
    from minfer.io import atomic_write

    plt = pictures()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), dpi=110, layout="constrained", **options)
    left(axes[0])
    right(axes[1])
    figure.suptitle(visible(title), fontsize=10, parse_math=False)  # a dollar sign in it is one
    with atomic_write(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower())
    plt.close(figure)
    note(f"wrote {path}")
