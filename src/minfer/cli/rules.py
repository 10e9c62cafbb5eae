"""``minfer rules``: programs of Markov logic over files of evidence."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli import reduce
from minfer.cli.batch import ENGINE_PANEL, Where
from minfer.cli.failures import UsageError
from minfer.cli.generate import option, takes
from minfer.cli.options import OUTPUT_PANEL, Json, Strict, make_solver, solver_options
from minfer.cli.progress import wait_for

if TYPE_CHECKING:
    from minfer.rules import Rules
    from minfer.rules.answer import Answer

rules = typer.Typer(name="rules")

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="Rules: an .mln file of Alchemy or Tuffy (.gz).")
]
EvidenceFiles = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(metavar="[EVIDENCE]...", help="What is known: .db files (.gz)."),
]
Query = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--query",
        "-q",
        metavar="NAME|FILE",
        help="Predicates to answer, or a file that lists them. Default: all without a *.",
    ),
]
Split = Annotated[
    bool,
    typer.Option(
        "--split/--whole",
        help="Split formulas into clauses that share their weight, as Alchemy does, or count a "
        "weight where the whole formula is true.",
    ),
]
Most = Annotated[
    float,
    typer.Option(metavar="N", help="More groundings are refused before any is built."),
]
Memory = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="2GB", help="Memory of the database; beyond that it spills to disk."),
]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads of the database.")]
GROUNDING_PANEL = "Grounding"
How = Annotated[
    str,
    typer.Option(
        "--grounding",
        metavar="WORD",
        help="auto (lazy where counts say that there are many more groundings than rows), full "
        "(build all) or lazy (build those that matter).",
        rich_help_panel=GROUNDING_PANEL,
    ),
]
Threshold = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="G",
        help="Lazy: groundings become factors from this gain on; with --tolerance, where lowering "
        "it begins.",
        rich_help_panel=GROUNDING_PANEL,
    ),
]
Tolerance = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="X",
        help="Lazy: lower the threshold until two answers differ by no more than this on average. "
        "Default: 0.001 where no threshold is given.",
        rich_help_panel=GROUNDING_PANEL,
    ),
]
Rounds = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        min=1,
        metavar="N",
        help="Lazy: rounds of selection, each with the marginals of the one before. Default: 2.",
        rich_help_panel=GROUNDING_PANEL,
    ),
]
Sums = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        min=0,
        metavar="N",
        help="Lazy: how often messages of what is not built are summed, at most. Default: 1, with "
        "--tolerance 10.",
        rich_help_panel=GROUNDING_PANEL,
    ),
]
_MOST = 30_000_000.0


@rules.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """Rules over tables (Markov logic): probabilities, counts before the work, reasons.

    Programs and evidence of Alchemy and Tuffy are read unchanged. Needs duckdb,
    the extra `rules`. In Python, `minfer.Rules` takes data frames and files.

    \b
    Example:
      minfer rules plan prog.mln evidence.db
      minfer rules run prog.mln evidence.db --query category -o out.csv
      minfer rules explain prog.mln evidence.db --atom "category(P1, Networking)"
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _read(
    program: str, evidence: list[str] | None, query: list[str] | None, **settings: Any
) -> Rules:
    from minfer.rules import Rules

    asked: Any = query
    if query is not None and len(query) == 1:
        asked = query[0]
    return Rules.read(program, evidence or (), asked, **settings)


def _asked(grounding: str, *lazy: Any) -> dict[str, Any]:
    """The options of grounding that were given, as :meth:`minfer.Rules.infer` takes them."""
    if grounding not in ("auto", "full", "lazy"):
        raise UsageError(f"--grounding must be auto, full or lazy, not {grounding!r}")
    names = ("threshold", "tolerance", "rounds", "sums")
    given = {name: value for name, value in zip(names, lazy) if value is not None}
    if given and grounding == "full":
        raise UsageError(f"--{next(iter(given))} is for --grounding lazy")
    return {"grounding": "lazy" if given else grounding, **given}


def _infer(made: Rules, settings: dict[str, Any], asked: dict[str, Any]) -> Answer:
    named = any(v is not None for v in settings.values())
    solver = make_solver(settings) if named else None
    return wait_for("grounding and inferring", lambda: made.infer(solver=solver, **asked))


def _infer_apart(made: Rules, settings: dict[str, Any], where: Where) -> Answer:
    from minfer.batch.rules import infer_rules

    named = any(v is not None for v in settings.values())
    solver = make_solver(settings) if named else None
    return wait_for(
        "grounding and inferring", lambda: infer_rules(made, solver=solver, **asdict(where))
    )


@dataclass(frozen=True)
class RuleLimits(reduce.JobLimits):
    """The reduction, for rules."""

    method: str | None = option("compensated (default) or paper; for --grounding full.", "WORD")


@rules.command()
@solver_options
@takes(reduce.PANEL, limits=RuleLimits)
@takes(ENGINE_PANEL, where=Where)
def run(
    program: Program,
    evidence: EvidenceFiles = None,
    query: Query = None,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Atoms and probabilities: .csv, .tsv (.gz), .parquet; - is CSV.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = "-",
    known: Annotated[
        bool,
        typer.Option(
            "--known/--unknown",
            help="Also write atoms that evidence fixes.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    split: Split = True,
    max_groundings: Most = _MOST,
    memory_limit: Memory = None,
    threads: Threads = 1,
    grounding: How = "auto",
    threshold: Threshold = None,
    tolerance: Tolerance = None,
    rounds: Rounds = None,
    sums: Sums = None,
    json: Json = False,
    strict: Strict = False,
    *,
    limits: RuleLimits,
    where: Where,
    **settings: Any,
) -> None:
    """Probabilities of the atoms that a program asks for.

    With --workers, --engine ray or --address, parts that no rule ties together are solved side by
    side (extra `batch`).

    \b
    Examples:
      minfer rules run prog.mln evidence.db --query category -o out.csv
      minfer rules run prog.mln evidence.db --solver gibbs --n-sweeps 5000
      minfer rules run prog.mln evidence.db --grounding lazy --tolerance 0.002
      minfer rules run prog.mln evidence.db --workers 4 -o out.csv
    """
    from minfer.prediction.files import kind_of

    kind_of(out, "-o", "answers")  # fail before the work, not after it
    asked = _asked(grounding, threshold, tolerance, rounds, sums)
    objective, recipe = limits.choice
    if objective is not None:
        asked |= {"objective": objective}
        if grounding != "lazy" or limits.method is not None:  # sums are its compensation
            asked |= {"recipe": recipe}
    apart = where != Where()
    if apart and (objective is not None or asked["grounding"] == "lazy"):
        raise UsageError("--workers and --engine are for --grounding full without an objective")
    made = _read(
        program, evidence, query, split=split, max_groundings=max_groundings,
        memory_limit=memory_limit, threads=threads,
    )  # fmt: skip
    if apart:
        answer = _infer_apart(made, settings, where)
    else:
        answer = _infer(made, settings, asked)
    rows: dict[str, Any] = {}
    if json and out == "-":
        found = answer.columns(made.queried, known)
        listed = [[x.item() if hasattr(x, "item") else x for x in c] for c in found.values()]
        n = len(listed[0])
        rows = {"answer": [dict(zip(found, row)) for row in zip(*listed)]}
    else:
        n = answer.write(out, made.queried, known)
    possible = answer.possible
    facts = {
        "program": program,
        "atoms": made.store.n_atoms,
        "written": n,
        "groundings": int(possible) if float(possible).is_integer() else possible,
        "factors": answer.factors,
        "status": answer.status.value,
        "seconds": answer.timings,
        "out": out,
    }
    if answer.lazily is not None or answer.result is not None:
        facts |= {"kept": answer.kept, "mean_error_estimate": answer.mean_error_estimate}
    if answer.lazily is not None:
        how = answer.lazily
        facts["lazily"] = {
            "thresholds": how.thresholds,
            "differences": how.differences,
            "tolerance": how.tolerance,
            "agreed": how.agreed,
            "checked": how.checked,
            "another": how.another,
            "notes": how.notes,
        }
    if json:
        from minfer.cli import render

        sys.stdout.write(render.to_json(facts | rows) + "\n")
    else:
        sys.stderr.write(f"minfer: {answer}\n")
    if strict and not answer.converged:
        raise typer.Exit(5)


@rules.command()
def plan(
    program: Program,
    evidence: EvidenceFiles = None,
    query: Query = None,
    split: Split = True,
    json: Json = False,
) -> None:
    """How many groundings each rule has, counted before anything is built.

    \b
    Example:
      minfer rules plan prog.mln evidence.db
    """
    found = _read(program, evidence, query, split=split).plan()
    if json:
        from minfer.cli import render

        listed = [
            {"rule": r.rule, "groundings": r.groundings, "exact": r.exact, "kind": r.kind}
            for r in found.rules
        ]
        facts = {"atoms": found.atoms, "known": found.known, "groundings": found.groundings}
        sys.stdout.write(render.to_json({**facts, "rules": listed}) + "\n")
        return
    typer.echo(str(found))


@rules.command()
@solver_options
def explain(
    program: Program,
    evidence: EvidenceFiles = None,
    atom: Annotated[
        str, typer.Option("--atom", "-a", metavar="ATOM", help='The atom: "smokes(Anna)".')
    ] = "",
    query: Query = None,
    rows: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Groundings to show, strongest first.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = 10,
    split: Split = True,
    max_groundings: Most = _MOST,
    memory_limit: Memory = None,
    threads: Threads = 1,
    grounding: How = "auto",
    threshold: Threshold = None,
    tolerance: Tolerance = None,
    rounds: Rounds = None,
    sums: Sums = None,
    json: Json = False,
    **settings: Any,
) -> None:
    """Why an atom has its probability, in the words of the rules.

    \b
    Example:
      minfer rules explain prog.mln evidence.db --atom "smokes(Anna)"
    """
    if not atom:
        raise UsageError('--atom says which one: --atom "smokes(Anna)"')
    asked = _asked(grounding, threshold, tolerance, rounds, sums)
    made = _read(
        program, evidence, query, split=split, max_groundings=max_groundings,
        memory_limit=memory_limit, threads=threads,
    )  # fmt: skip
    answer = _infer(made, settings, asked)
    found = answer.explain(atom, rows)
    if json:
        from minfer.cli import render

        sys.stdout.write(render.to_json(asdict(found)) + "\n")
        return
    typer.echo(str(found))
