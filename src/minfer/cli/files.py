"""Files of commands: models and evidence read, outputs checked before the work, answers written."""

from __future__ import annotations

import csv
import io
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.cli.failures import UsageError, note
from minfer.cli.progress import wait_for
from minfer.errors import FormatError, visible
from minfer.typed import evidence_beside, evidence_of, is_pairs

if TYPE_CHECKING:
    from minfer.cli.options import Input
    from minfer.graph import FactorGraph


class Given(NamedTuple):
    """A model and its evidence, as a command line names them."""

    file: str
    bare: FactorGraph
    seen: dict[int, Any]
    seconds: float  # that reading took

    @property
    def graph(self) -> FactorGraph:
        """The model with its evidence."""
        from minfer.queries.evidence import with_any_evidence

        return with_any_evidence(self.bare, self.seen)

    def show_json(self, graph: FactorGraph, content: dict[str, Any]) -> None:
        """One JSON object: the answer, and what it is the answer to."""
        from minfer.cli import render
        from minfer.solvers.telling import sizes

        model = {"file": self.file, **sizes(graph)}
        about = {"minfer": render.version(), "model": model}
        render.write_json({**about, **content, "read_seconds": self.seconds})


def load(source: Input) -> Given:
    """The model, and the evidence beside it."""
    model, evidence = source.model, source.evidence
    files = [model, *(text for text in evidence or () if not is_pairs(text))]
    if files.count("-") > 1:
        raise UsageError("only one of model and evidence can be standard input (-)")
    began = time.perf_counter()
    graph = read_model(model)
    seen = evidence_of(graph, evidence, source.soft)
    if not evidence and (beside := evidence_beside(model)):
        note(f"{beside} was not read; add --evidence {beside} to use it")
    return Given(model, graph, seen, time.perf_counter() - began)


def read_model(model: str) -> FactorGraph:
    """The model in a file; what is odd about it becomes notes."""
    import minfer

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        graph = wait_for(f"reading {model}", lambda: minfer.read(model))
    for warning in said:
        note(str(warning.message))
    return graph


def given_words(source: Input) -> list[str]:
    """The plain command for a model and its evidence."""
    pairs = [("--evidence", e) for e in source.evidence or ()]
    pairs += [("--soft", e) for e in source.soft or ()]
    return ["minfer", "run", source.model, *(word for pair in pairs for word in pair)]


SUFFIXES = {
    "--report": (".html", ".htm"),
    "--picture": (".png", ".svg"),
    "--svg": (".svg",),
    "--calibration": (".png",),
}


def check_outputs(
    outputs: dict[str, str | None], inputs: Sequence[str | None], json: bool = False
) -> None:
    """Fail before the work, not after it, unless every output, by its flag, can be written.

    None overwrites another or an input, and one at most goes to standard output.
    """
    given = {flag: path for flag, path in outputs.items() if path is not None}
    if [*given.values(), *(["-"] if json else [])].count("-") > 1:
        flags = ", ".join(f"{flag} -" for flag in outputs if flag not in SUFFIXES)
        raise UsageError(f"only one of {flags} and --json can go to standard output")
    files = {flag: path for flag, path in given.items() if path != "-" or flag in SUFFIXES}
    for flag, path in files.items():
        for other in files:
            if other != flag and files[other] == path:
                raise UsageError(f"{flag} and {other} are the same file, {path}")
        check_suffix(flag, path, *SUFFIXES.get(flag, ("",)))
        check_writable(path, inputs)
    if "--picture" in given:
        pictures()


def check_suffix(flag: str, path: str, *suffixes: str) -> None:
    """A file is of the kind that its name says."""
    if not path.lower().endswith(suffixes):
        shown = " or ".join(suffix for suffix in suffixes if suffix != ".htm")
        raise UsageError(f"{flag} {path}: end the name in {shown}")


def check_readable(*paths: str | None) -> None:
    """Files that are there, or standard input."""
    for path in paths:
        if path not in (None, "-") and not Path(str(path)).exists():
            raise FormatError(f"cannot read {path}: there is no such file")


def check_model_name(path: str) -> None:
    """The suffix tells a format that models can be written in."""
    from minfer.io.text import writing_complaint

    if complaint := writing_complaint(path):
        raise UsageError(complaint)


def check_writable(path: str, inputs: Sequence[str | None] = ()) -> None:
    """Standard output, or a file in an existing folder that is none of the inputs."""
    from minfer.io.text import check_path

    if path == "-":
        return
    check_path(path, "write")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if Path(path).exists() and any(source and _same(path, source) for source in inputs):
        raise UsageError(f"{path} is also an input and would be overwritten")


def _same(path: str, source: str) -> bool:
    return os.path.exists(source) and Path(path).samefile(source)  # any text: it may be no file


def wrote(path: str | None, more: str = "") -> None:
    """Say that a file was written."""
    if path not in (None, "-"):
        note(f"wrote {path}{more}")


def pictures() -> Any:
    """matplotlib for ``--picture``, or RefusedError where it is missing."""
    from minfer.plots import pyplot

    return pyplot("--picture needs", headless=True)


def write_csv(path: str, rows: Iterable[Sequence[Any]], told: str = "") -> None:
    """Rows as CSV, to a file or standard output."""
    from minfer.io.text import write_bytes

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_bytes(path, text.getvalue().encode())
    wrote(path, told)


def write_records(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that name their cells, all alike, as CSV."""
    write_csv(path, [list(rows[0]), *([*row.values()] for row in rows)])


def draw_pair(
    path: str, title: str, left: Callable[[Any], Any], right: Callable[[Any], Any], **options: Any
) -> None:
    """Two drawings side by side, under a title, as a picture."""
    from minfer.pictures import write_figure

    plt = pictures()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), dpi=110, layout="constrained", **options)
    left(axes[0])
    right(axes[1])
    figure.suptitle(visible(title), fontsize=10, parse_math=False)  # a dollar sign in it is one
    write_figure(path, figure)
    plt.close(figure)
    wrote(path)
