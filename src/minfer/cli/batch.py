"""Parse, infer, predict or denoise over any number of files; stop and resume at any moment.

The input is cut into shards, processed on this machine or by Ray. Each
gives one part of the output, either complete or absent; bad records go
to a separate file. Needs pyarrow, the extra `batch`.

\b
Examples:
  minfer batch parse en.model corpus/ -o parsed
  minfer batch status parsed
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from minfer.cli import reduce, render
from minfer.cli.failures import note
from minfer.cli.generate import Given, Options, Words, argument, group, option, output, taken
from minfer.cli.options import JSON, MISSING, PROBABILITIES, PictureSolving, Solving, member
from minfer.cli.parse import PARSER, PARSING, PairsGiven
from minfer.cli.progress import Meter
from minfer.errors import FormatError, RefusedError, SettingsError
from minfer.io.typed import listed

if TYPE_CHECKING:
    from minfer.batch import Job, Progress

batch = group("batch", __doc__)

_MB = 1 << 20

INPUTS = argument("IN  Files, or folders of them.")
OUT = option("-o OUTDIR  Output folder.", ...)


@dataclass(frozen=True)
class Where(Options):
    """Where work is done side by side."""

    panel = "Engine"
    engine: str = option("local|ray  Processes on this machine, or Ray.", "local")
    workers: int | None = option("N  Processes or actors. Default: one per core.", min=1)
    address: str | None = option(
        "HOST:PORT  Address of a running Ray cluster; without it, a local Ray is started."
    )


@dataclass(frozen=True)
class How(Where):
    """The options that all jobs share."""

    format_: str | None = output("WORD  Output format, one of those above.")
    on_error: str = option(
        "skip|fail  Log bad records in errors files and continue, or stop at the first.", "skip"
    )
    fresh: bool = option(
        "Start over: remove what an earlier run wrote to OUTDIR, and nothing else."
    )
    shard_mb: float = option(
        "MB  Input per shard: the most work that a kill can cost each worker.", 8.0, min=0.001
    )
    json: bool = JSON


@member(batch)
def parse(
    model: str = PARSER,
    inputs: list[str] = INPUTS,
    out: str = OUT,
    parsing: Given = PARSING,
    *,
    pairs: PairsGiven,
    how: How,
) -> None:
    """Parse sentences: CoNLL-U (.gz), JSON lines or Parquet with a column `words`.

    Each part of the input gives one part of the output, either complete or
    absent. Stop it at any moment; the same command resumes. Formats:
    conllu (default), conllu.gz; parquet, jsonl, jsonl.gz, always with marginals.

    \b
    Examples:
      minfer batch parse en.model corpus/ -o parsed
      minfer batch parse en.model wiki.conllu.gz -o parsed --workers 8 --marginals
      minfer batch parse en.model corpus/*.parquet -o parsed --format parquet --engine ray
    """
    from minfer.batch import ParseSentences

    _run(ParseSentences(model, inference=pairs.inference, **parsing), inputs, out, how)


@member(batch)
def run(
    inputs: list[str] = INPUTS,
    out: str = OUT,
    model: str | None = option("MODEL  One model for all; IN are then tables of evidence."),
    query: Words = option("-q x5,x9  Only these variables."),
    *,
    limits: reduce.JobLimits,
    solving: Solving,
    how: How,
) -> None:
    """Marginals of many models, or of one under many observations.

    IN are model files or folders of them, or tables (JSON lines, Parquet) with
    a column `model` that names files, and with `evidence` as in {"x3": 1}.
    With --model only the evidence is read from the tables. Formats: parquet
    (default), jsonl, jsonl.gz.

    \b
    Examples:
      minfer batch run models/ -o answers
      minfer batch run models.jsonl -o answers --solver exact --format jsonl
      minfer batch run rows.parquet --model sprinkler.minfer -o answers --query rain
    """
    from minfer.batch import RunModels

    objective, recipe = limits.choice
    solver = (solving if objective is None else solving.or_else(reduce.DEFAULT_SOLVER)).make()
    chosen = tuple(listed(query))
    job = RunModels(model, solver=solver, objective=objective, recipe=recipe, query=chosen)
    _run(job, inputs, out, how)


@member(batch)
def predict(
    model: str = argument("MODEL  Model file for all cases."),
    inputs: list[str] = INPUTS,
    out: str = OUT,
    targets: list[str] = option("-t A,B  Variables to predict.", ...),
    answers: Given = PROBABILITIES,
    missing: Words = MISSING,
    *,
    how: How,
) -> None:
    """Posteriors for tables of cases: CSV (.gz), JSON lines, Parquet.

    Columns named after variables are evidence, and `id` is passed through.
    Impossible cases are marked; cases with unknown states are bad records.
    Formats: parquet (default), jsonl, jsonl.gz. For one file on one machine,
    `minfer predict` is simpler.

    \b
    Examples:
      minfer batch predict net.minfer cases/ -o answers --targets LUNG,BRONC
      minfer batch predict net.minfer cases.parquet -o answers -t LUNG --engine ray
    """
    from minfer.batch import PredictRows

    blanks = ("", *(missing or ()))
    chosen = tuple(listed(targets))
    _run(PredictRows(model, chosen, missing=blanks, **answers), inputs, out, how)


@member(batch)
def denoise(
    inputs: list[str] = INPUTS,
    out: str = OUT,
    picture: Given = taken("minfer:denoise", "alpha coupling level", labels="--labels --classes K"),
    limits: Given = taken(
        "minfer.images.denoising:reducing", "reduce", "Reduction", factor_cost="G"
    ),
    *,
    solving: PictureSolving,
    how: How,
) -> None:
    """Clean pictures: files, folders, or tables with a column `picture`.

    The clean pictures are written below OUTDIR/pictures under their own names, as
    .png, or to the tables with --format parquet.

    \b
    Examples:
      minfer batch denoise scans/ -o clean
      minfer batch denoise scans/ -o clean --factor-cost 0.03 --workers 4
    """
    from minfer.batch import DenoisePictures
    from minfer.images.denoising import reducing

    solver = solving.make() if solving.given else None
    _run(DenoisePictures(objective=reducing(**limits), solver=solver, **picture), inputs, out, how)


@member(batch)
def status(out: str = argument("OUTDIR  Folder of a batch run."), json: bool = JSON) -> None:
    """How far a run has got, and whether it is running.

    \b
    Example:
      minfer batch status parsed
    """
    from minfer.batch import status as status_of

    state, running, settings = status_of(out)
    _tell(out, state, json, running=running, settings=settings)


# ---------------------------------------------------------------------- inside


def _run(job: Job, inputs: list[str], out: str, how: How) -> None:
    from minfer.batch import run as run_job
    from minfer.batch.driver import complaint

    settings = asdict(how)
    json, settings["format"] = settings.pop("json"), settings.pop("format_")
    if math.isinf(how.shard_mb):
        raise SettingsError("shard_mb must be a finite number")
    settings["shard_bytes"] = round(settings.pop("shard_mb") * _MB)
    try:
        with Meter() as meter:
            settings["report"] = lambda p: meter(p, p.done == p.shards)
            state = run_job(job, inputs, out, note=note, **settings)
    except KeyboardInterrupt:
        note("stopped; run the same command to continue")
        raise
    except RefusedError as error:
        sizes = re.search(r"shard_bytes was (\d+), is (\d+)", str(error))
        if sizes is None:
            raise
        old, new = (int(x) / _MB for x in sizes.groups())
        told = str(error).replace(sizes[0], f"--shard-mb was {old:g}, is {new:g}")
        raise RefusedError(told) from None
    _tell(out, state, json)
    if bad := complaint(state, out):
        if not state.rows:
            raise FormatError(bad)
        note(bad)


def _tell(out: str, state: Progress, json: bool, **more: Any) -> None:
    lines = state.summary(more.get("running", False))
    render.tell(json, {"folder": out, **state.to_dict(), **more}, notes={"folder": out, **lines})
