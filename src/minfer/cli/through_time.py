"""Networks through time: beliefs and best states for tables of sequences.

A row of a table is a slice. Its columns are variables, and `case` and `time`,
which say what sequence a row belongs to and when. Models are .minfer files
that minfer.Dynamic or minfer.learn.DynamicNetwork has written, or GeNIe's
.xdsl with a dynamic part.

\b
Examples:
  minfer time smooth sensor.minfer readings.csv -o beliefs.csv
  minfer time best sensor.minfer readings.csv
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minfer.basics.words import counted
from minfer.cli import render
from minfer.cli.failures import noted
from minfer.cli.files import NET, OUT, wrote
from minfer.cli.generate import Options, Words, argument, group, option, output
from minfer.cli.options import CASES, MISSING, MODEL, SUMMARY, member
from minfer.cli.progress import wait_for
from minfer.io.typed import listed

if TYPE_CHECKING:
    from minfer.through_time.answers import Timeline
    from minfer.through_time.dynamic import Dynamic

time = group("time", __doc__)

TARGETS = option("-t A,B  Variables to ask for. Default: those without a column.")


@dataclass(frozen=True)
class Sequenced(Options):
    """A table of sequences, and where the answer goes."""

    case: str | None = option("COLUMN  What tells sequences apart. Default: case, if it is there.")
    time: str | None = option("COLUMN  When a row is, in steps. Default: time, if it is there.")
    missing: Words = MISSING
    workers: int | None = option("N  Threads. Default: one per core.", min=1)
    out: str = output("-o OUT  Answers: .csv, .tsv (.gz), .parquet; - is CSV.", "-", file=OUT)
    json: bool = SUMMARY

    @property
    def given(self) -> dict[str, Any]:
        missing = ("", *(self.missing or ()))
        return {"case": self.case, "time": self.time, "missing": missing, "workers": self.workers}


def _load(model: str) -> Dynamic:
    import minfer

    with noted():
        return wait_for(f"reading {model}", lambda: minfer.Dynamic.load(model))


def _chosen(targets: list[str] | None) -> list[str] | None:
    return None if targets is None else listed(targets)


def _answer(model: str, cases: str, how: Sequenced, question: str, *given: Any) -> None:
    """Ask, and write the table."""
    from minfer.prediction import files

    ask = getattr(_load(model), question)
    found: Timeline = wait_for(f"asking ({question})", lambda: ask(cases, *given, **how.given))
    with files.open_answers(how.out) as sink:
        sink(found.columns())
    scores = found.scores.tolist()
    if how.json:
        render.write_json({
            "model": model, "cases": cases, "question": question, "out": how.out,
            "rows": len(found), "sequences": len(scores), "log_scores": scores,
        })  # fmt: skip
    else:
        what = f"{counted(len(found), 'row')} of {counted(len(scores), 'sequence')}"
        told = f"{what}; log score {sum(scores):.6g}"
        sys.stderr.write(f"minfer: {told}\n")
        wrote(how.out)


@member(time, name="filter")
def filtered(
    model: str = MODEL, cases: str = CASES, targets: Words = TARGETS, *, how: Sequenced
) -> None:
    """Beliefs at each time given what was observed up to it.

    \b
    Examples:
      minfer time filter sensor.minfer readings.csv -o beliefs.csv
      minfer time filter sensor.minfer readings.csv -t broken
    """
    _answer(model, cases, how, "filter", _chosen(targets))


@member(time)
def smooth(
    model: str = MODEL, cases: str = CASES, targets: Words = TARGETS, *, how: Sequenced
) -> None:
    """Beliefs at each time given all that was observed, before and after it.

    \b
    Examples:
      minfer time smooth sensor.minfer readings.csv -o beliefs.csv
      minfer time smooth sensor.minfer readings.csv -t hot,broken --json -o beliefs.csv
    """
    _answer(model, cases, how, "smooth", _chosen(targets))


@member(time)
def predict(
    model: str = MODEL,
    cases: str = CASES,
    horizon: int = option("-n N  Steps beyond the last row of each sequence.", 1, min=1),
    targets: Words = option("-t A,B  Variables to ask for. Default: all."),
    *,
    how: Sequenced,
) -> None:
    """Beliefs after the last row of each sequence, a row for each further step.

    \b
    Example:
      minfer time predict sensor.minfer readings.csv --horizon 12 -o ahead.csv
    """
    _answer(model, cases, how, "predict", horizon, _chosen(targets))


@member(time)
def best(model: str = MODEL, cases: str = CASES, *, how: Sequenced) -> None:
    """The most probable states of all variables at all times together.

    \b
    Example:
      minfer time best sensor.minfer readings.csv -o states.csv
    """
    _answer(model, cases, how, "best")


@member(time)
def unroll(
    model: str = MODEL,
    n: int = argument("N  Slices.", min=1),
    out: str = output("-o OUT  Model to write; the suffix sets the format.", ..., file=NET),
) -> None:
    """The plain graph of some slices, for every other command: `hot` at time 2 is `hot@2`.

    \b
    Examples:
      minfer time unroll sensor.minfer 8 -o eight.minfer
      minfer time unroll sensor.minfer 24 -o day.uai
    """
    import minfer

    minfer.write(_load(model).unroll(n), out)
    wrote(out)
