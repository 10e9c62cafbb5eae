"""Rules over tables (Markov logic): probabilities, sizes in advance, explanations.

Programs and evidence of Alchemy and Tuffy are read unchanged. Needs duckdb,
the extra `rules`. In Python, `minfer.Rules` takes data frames and files.

\b
Examples:
  minfer rules plan prog.mln evidence.db
  minfer rules run prog.mln evidence.db --query category -o out.csv
  minfer rules explain prog.mln evidence.db --atom "category(P1, Networking)"
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from minfer.cli import reduce
from minfer.cli.batch import Where
from minfer.cli.failures import demand, note
from minfer.cli.files import IN, File
from minfer.cli.generate import Options, Words, argument, group, option, output
from minfer.cli.options import JSON, STRICT, Solving, member
from minfer.cli.progress import wait_for
from minfer.errors import SettingsError

if TYPE_CHECKING:
    from minfer.rules import Rules

rules = group("rules", __doc__)


@dataclass(frozen=True)
class RulesAsked(Options):
    """A program, its evidence, what is asked, and how formulas are read."""

    program: str = argument("PROGRAM  Rules: an .mln file of Alchemy or Tuffy (.gz).", file=IN)
    evidence: Words = argument("EVIDENCE  What is known: .db files (.gz).", None, file=IN)
    query: Words = option(
        "-q NAME|FILE  Predicates to answer, or a file that lists them. Default: all that are not "
        "declared with a *.",
        file=IN,
    )
    split: bool = option(
        "--split/--whole  Split formulas into clauses that share their weight, as Alchemy does, "
        "or count a weight where the whole formula is true.",
        True,
    )

    def read(self) -> Rules:
        from minfer.rules import Rules

        settings = asdict(self)
        program, evidence, query = (settings.pop(k) for k in ("program", "evidence", "query"))
        asked: Any = query[0] if query is not None and len(query) == 1 else query
        return Rules.read(program, evidence or (), asked, **settings)


@dataclass(frozen=True)
class DatabaseGiven(RulesAsked):
    """The same, and what grounding may take."""

    max_groundings: float = option(
        "N  Refuse programs with more groundings, before any is built; lazy: with more that become "
        "factors. Default: 30,000,000.",
        30000000.0,
        show_default=False,
    )
    memory_limit: str | None = option("2GB  Memory of the database; beyond that it spills to disk.")
    threads: int = option("N  Threads of the database.", 1, min=1)


@dataclass(frozen=True)
class GroundingGiven(Options):
    """Which groundings are built, as :meth:`minfer.Rules.infer` takes it."""

    panel = "Grounding"
    grounding: str = option(
        "auto|full|lazy  Build all groundings (full) or those that matter (lazy). auto: lazy if "
        "there are many more groundings than rows in the tables, and no more than 100 billion.",
        "auto",
    )
    threshold: float | None = option(
        "G  Lazy: the gain from which groundings become factors; with --tolerance, the first "
        "threshold tried."
    )
    tolerance: float | None = option(
        "X  Lazy: lower the threshold until two answers differ by no more than this on average. "
        "Default: 0.001 if no threshold is given."
    )
    rounds: int | None = option(
        "N  Lazy: rounds of selection, each with the marginals of the one before. Default: 2.",
        min=1,
    )
    sums: int | None = option(
        "N  Lazy: at most how often the messages of what is not built are summed. Default: 1; "
        "with --tolerance, 10.",
        min=0,
    )
    starts: int | None = option(
        "N  Lazy: other starts of the solver that the answer is compared with. Default: 8 up to "
        "20,000 factors; beyond that 3 with --tolerance, else none.",
        min=0,
    )

    @property
    def settings(self) -> dict[str, Any]:
        given = {k: v for k, v in asdict(self).items() if v is not None and k != "grounding"}
        if given and self.grounding == "full":
            raise SettingsError(f"--{next(iter(given))} is for --grounding lazy")
        return {"grounding": "lazy" if given else self.grounding, **given}


@dataclass(frozen=True)
class RuleLimits(reduce.JobLimits):
    """The reduction, for rules."""

    method: str | None = option("compensated|paper  For --grounding full. Default: compensated.")


class WholeSolving(Solving):
    """A solver where there is no ``--reduce``."""

    told = "auto"


@member(rules)
def run(
    database: DatabaseGiven,
    out: str = output(
        "-o OUT  Atoms and probabilities: .csv, .tsv (.gz), .parquet; - is CSV.",
        "-",
        file=File("out", dash=False),  # JSON has the atoms in it
    ),
    known: bool = output("--known/--unknown  Also write atoms that evidence fixes.", False),
    json: bool = JSON,
    strict: bool = STRICT,
    *,
    grounding: GroundingGiven,
    where: Where,
    limits: RuleLimits,
    solving: Solving,
) -> None:
    """Probabilities of the atoms that a program asks for.

    With --workers, --engine ray or --address, independent parts of the program are solved in
    parallel (extra `batch`).

    \b
    Examples:
      minfer rules run prog.mln evidence.db --query category -o out.csv
      minfer rules run prog.mln evidence.db --solver gibbs --n-sweeps 5000
      minfer rules run prog.mln evidence.db --grounding lazy --tolerance 0.002
      minfer rules run prog.mln evidence.db --workers 4 -o out.csv
    """
    from minfer.cli import render
    from minfer.prediction.files import kind_of

    kind_of(out, "-o", "answers")  # fail before the work, not after it
    asked = grounding.settings
    objective, recipe = limits.choice
    if objective is not None:
        asked["objective"] = objective
        if grounding.grounding != "lazy" or limits.method is not None:  # sums are its compensation
            asked["recipe"] = recipe
    apart = where != Where()
    if apart and (objective is not None or asked["grounding"] == "lazy"):
        raise SettingsError("--workers and --engine are for --grounding full without an objective")
    made = database.read()
    solver = solving.make() if solving.given else None
    work = partial(made.infer, solver=solver, **asked)
    if apart:
        from minfer.batch.rules import infer_rules

        work = partial(infer_rules, made, solver=solver, **asdict(where))
    answer = wait_for("grounding and inferring", work)
    rows: dict[str, Any] = {}
    if json and out == "-":
        found = answer.columns(made.queried, known)
        rows["answer"] = [dict(zip(found, row)) for row in zip(*found.values())]
        n = len(rows["answer"])
    else:
        n = answer.write(out, made.queried, known)
    if json:
        about = {"program": database.program, "written": n, "out": out}
        render.write_json({**about, **answer.to_dict(), **rows})
    else:
        sys.stderr.write(f"minfer: {answer}\n")
    if not answer.rules.store.n_atoms:
        note("there are no atoms, because no file names a constant of their types: give evidence")
    demand(strict, answer.converged)


@member(rules)
def plan(asked: RulesAsked, json: bool = JSON) -> None:
    """How many groundings each rule has, counted before anything is built.

    \b
    Example:
      minfer rules plan prog.mln evidence.db
    """
    from minfer.cli import render

    found = asked.read().plan()
    render.tell(json, found.to_dict(), found.face())


@member(rules)
def explain(
    atom: str = option('-a ATOM  The atom to explain, such as "smokes(Anna)".', ...),
    *,
    database: DatabaseGiven,
    rows: int = output("N  Groundings to show, strongest first.", 10, min=1),
    json: bool = JSON,
    grounding: GroundingGiven,
    solving: WholeSolving,
) -> None:
    """Why an atom has its probability, in the words of the rules.

    \b
    Example:
      minfer rules explain prog.mln evidence.db --atom "smokes(Anna)"
    """
    from minfer.cli import render

    asked = grounding.settings
    made = database.read()
    solver = solving.make() if solving.given else None
    answer = wait_for("grounding and inferring", lambda: made.infer(solver=solver, **asked))
    found = answer.explain(atom, rows)
    render.tell(json, asdict(found), found.face())
