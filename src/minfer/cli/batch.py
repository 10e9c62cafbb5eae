"""``minfer batch``: jobs over more files than fit anywhere, resumed where they were stopped."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli import reduce
from minfer.cli.failures import note
from minfer.cli.generate import option, takes
from minfer.cli.options import (
    OUTPUT_PANEL,
    Json,
    Missing,
    Probabilities,
    make_solver,
    solver_options,
    targets_option,
)
from minfer.cli.parse.options import (
    REDUCTION_PANEL,
    ModelFile,
    Pairs,
    Tags,
    check_choice,
)
from minfer.errors import FormatError, MinferError
from minfer.typed import listed
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.batch import Job, Progress

ENGINE_PANEL = "Engine"
_SECONDS = 10.0  # between two lines of progress where there is no terminal

batch = typer.Typer(name="batch")


@batch.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """Parse, infer, predict or denoise over any number of files; stop and resume at any moment.

    The input is cut into shards, processed on this machine or by Ray. Each
    gives one part of the output, either complete or absent; bad records go
    to a separate file. Needs pyarrow, the extra `batch`.

    \b
    Example:
      minfer batch parse en.model corpus/ -o parsed
      minfer batch status parsed
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Inputs = Annotated[list[str], typer.Argument(metavar="IN...", help="Files, or folders of them.")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="OUTDIR", help="Output folder.")]
SHARD_MB = 8.0


@dataclass(frozen=True)
class Where:
    """Where work is done side by side."""

    engine: str = option("Processes on this machine, or Ray.", "local|ray", default="local")
    workers: int | None = option("Processes or actors. Default: one per core.", "N", min=1)
    address: str | None = option(
        "Address of a running Ray cluster; without it, a local Ray is started.", "HOST:PORT"
    )


@dataclass(frozen=True)
class How(Where):
    """The options that all jobs share."""

    format_: str | None = option("Output format.", "WORD", "--format", rich_help_panel=OUTPUT_PANEL)
    on_error: str = option(
        "Log bad records in errors files and continue, or stop at the first.",
        "skip|fail",
        default="skip",
    )
    fresh: bool = option(
        "Start over: remove what an earlier run wrote to OUTDIR, and nothing else.",
        None,
        "--fresh",
        default=False,
    )
    shard_mb: float = option(
        "Input per shard: the most work that a kill can cost each worker.",
        "MB",
        default=SHARD_MB,
        min=0.001,
    )
    json: bool = option(
        "One JSON object on standard output instead of the table.",
        None,
        "--json",
        default=False,
        rich_help_panel=OUTPUT_PANEL,
    )


batch_options = takes(ENGINE_PANEL, how=How)


@batch.command()
@batch_options
@takes(REDUCTION_PANEL, pairs=Pairs)
def parse(
    model: ModelFile,
    inputs: Inputs,
    out: Out,
    tags: Tags = None,
    marginals: Annotated[
        bool,
        typer.Option(
            "--marginals",
            help="Write probabilities of arcs and trees to MISC; tables always have them.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    *,
    pairs: Pairs,
    how: How,
) -> None:
    """Parse sentences: CoNLL-U (.gz), JSON lines or Parquet with a column `words`.

    Each part of the input gives one part of the output, either complete or
    absent. Stop it at any moment; the same command resumes. Formats:
    conllu (default), conllu.gz, parquet, jsonl, jsonl.gz.

    \b
    Examples:
      minfer batch parse en.model corpus/ -o parsed
      minfer batch parse en.model wiki.conllu.gz -o parsed --workers 8 --marginals
      minfer batch parse en.model s3/*.parquet -o parsed --format parquet --engine ray
    """
    from minfer.batch import ParseSentences

    check_choice("--tags", tags, ("predicted", "gold"))
    inference = pairs.inference
    _run(
        ParseSentences(model, tags=tags, marginals=marginals, inference=inference), inputs, out, how
    )


@batch.command()
@batch_options
@solver_options
@takes(reduce.PANEL, limits=reduce.JobLimits)
def run(
    inputs: Inputs,
    out: Out,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--model", metavar="MODEL", help="One model for all; IN are then tables of evidence."
        ),
    ] = None,
    query: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--query", "-q", metavar="x5,x9", help="Only these variables."),
    ] = None,
    *,
    limits: reduce.JobLimits,
    how: How,
    **settings: Any,
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
    default = "auto" if objective is None else reduce.DEFAULT_SOLVER
    solver = make_solver(settings, default)
    chosen = tuple(listed(query))
    _run(
        RunModels(model, solver=solver, objective=objective, recipe=recipe, query=chosen),
        inputs,
        out,
        how,
    )


@batch.command()
@batch_options
def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file for all cases.")],
    inputs: Inputs,
    out: Out,
    targets: Annotated[
        list[str],
        targets_option("Variables to predict."),
    ],
    probabilities: Probabilities = True,
    missing: Missing = None,
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

    job = PredictRows(
        model, tuple(listed(targets)), probabilities=probabilities, missing=("", *(missing or ()))
    )
    _run(job, inputs, out, how)


@dataclass(frozen=True)
class BatchPicture:
    """The model of every picture."""

    alpha: float | None = option(
        "Trust in single pixels. Default: estimated from each picture.", "A"
    )
    coupling: float = option("Weight of equal neighbours.", "W", default=1.0)
    level: float | None = option(
        "Grey value that favours neither black (0) nor white (1). Default: estimated from each "
        "picture.",
        "X",
    )
    labels: int | None = option("Segment into K classes, estimated from each picture.", "K")


@dataclass(frozen=True)
class BatchLimits:
    """Which pairs of neighbours to ignore."""

    reduce: bool = option("Ignore pairs of neighbours that matter little.", default=False)
    factor_cost: float | None = option(
        "Keep pairs whose score is at least G; with --reduce alone, 0.03.", "G"
    )


@batch.command()
@batch_options
@partial(solver_options, default=reduce.DEFAULT_SOLVER)
@takes(reduce.PANEL, limits=BatchLimits)
@takes(picture=BatchPicture)
def denoise(
    inputs: Inputs,
    out: Out,
    *,
    picture: BatchPicture,
    limits: BatchLimits,
    how: How,
    **settings: Any,
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
    from minfer.denoising import FACTOR_COST
    from minfer.reduction.objectives import MinJoint

    objective = None
    if limits.reduce or limits.factor_cost is not None:
        objective = MinJoint(FACTOR_COST if limits.factor_cost is None else limits.factor_cost)
    asked = any(value is not None for value in settings.values())
    solver = make_solver(settings, reduce.DEFAULT_SOLVER) if asked else None
    job = DenoisePictures(objective=objective, solver=solver, **asdict(picture))
    _run(job, inputs, out, how)


@batch.command()
def status(
    out: Annotated[str, typer.Argument(metavar="OUTDIR", help="Folder of a batch run.")],
    json: Json = False,
) -> None:
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

    meter = _Meter()
    try:
        state = run_job(
            job, inputs, out, format=how.format_, shard_bytes=round(how.shard_mb * (1 << 20)),
            engine=how.engine, workers=how.workers, address=how.address, on_error=how.on_error,
            fresh=how.fresh, report=meter, note=note,
        )  # fmt: skip
    except KeyboardInterrupt:
        meter.end()
        note("stopped; run the same command to continue")
        raise
    except MinferError:
        meter.end()
        raise
    meter.end()
    bad = f"{state.errors:,} bad (see {out}/part-*.errors.jsonl)"
    _tell(out, state, how.json)
    if state.errors and not state.rows:
        raise FormatError(f"no record could be answered, {bad}")
    if state.errors:
        note(f"{state.rows:,} of {counted(state.rows + state.errors, 'record')} answered, {bad}")


class _Meter:
    """Progress on stderr: a line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.live, self.last = sys.stderr.isatty(), time.perf_counter()

    def __call__(self, state: Progress) -> None:
        now = time.perf_counter()
        if self.live:
            sys.stderr.write(f"\r\x1b[K{progress_line(state)}")
        elif now - self.last >= _SECONDS or state.done == state.shards:
            sys.stderr.write(f"minfer: {progress_line(state)}\n")
            self.last = now
        sys.stderr.flush()

    def end(self) -> None:
        if self.live:
            sys.stderr.write("\n")


def progress_line(state: Progress) -> str:
    """Shards, records, rate and time left."""
    from minfer.cli.render import duration

    records = counted(state.rows + state.errors, "record")
    text = f"{state.done:,} of {counted(state.shards, 'shard')}, {records}"
    if state.errors:
        text += f" ({state.errors:,} of them bad)"
    if state.new_rows:
        text += f"; {state.rate:,.0f} a second"
    if (left := state.seconds_left) is not None and state.done < state.shards:
        text += f", {duration(left)} left"
    return text


def _tell(out: str, state: Progress, json: bool, **more: Any) -> None:
    """How far a run is, on stdout."""
    from minfer.cli import render

    if json:
        facts = {
            "folder": out,
            "shards": state.shards,
            "done": state.done,
            "missing": state.missing,
            "records": state.rows + state.errors,
            "answered": state.rows,
            "errors": state.errors,
            "seconds": state.seconds,
            "records_per_second": state.rate,
            **more,
        }
        sys.stdout.write(render.to_json(facts) + "\n")
        return
    running = more.get("running")
    word = "done" if state.done == state.shards else "running" if running else "not finished"
    lines: dict[str, Any] = {
        "folder": out,
        "state": word,
        "shards": f"{state.done:,} of {state.shards:,}",
        "records": f"{state.rows + state.errors:,}",
        "answered": f"{state.rows:,}",
        "bad": f"{state.errors:,}",
    }
    if state.missing:
        parts = counted(state.missing, "part")
        lines["lost"] = f"{parts} missing or changed: run the same command again"
    if state.new_rows:
        lines["time"] = f"{duration(state.seconds)}, {state.rate:,.0f} records a second"
    render.show(render.console(), render.facts(lines))
