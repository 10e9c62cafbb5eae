"""The solvers and their options, once, for every command that runs a solver.

The option ``--max-iters`` is the field ``max_iters`` of the solver's dataclass, and so on (but
``--exact-method`` is ``method``: ``--method`` is the reduction's); a test compares this table with
the fields. The table is written out rather than read from the classes
because reading them would load numba before ``--help`` or a usage error could be shown.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from minfer.cli.failures import UsageError
from minfer.errors import ContradictionError, EvidenceError, MinferError, ModelError

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Solver

SOLVERS = {
    "auto": "Auto",
    "bp": "BeliefPropagation",
    "trw": "TreeReweighted",
    "mean-field": "MeanField",
    "structured-mean-field": "StructuredMeanField",
    "gibbs": "Gibbs",
    "tempering": "Tempering",
    "join-graph": "JoinGraph",
    "clamped": "Clamped",
    "exact": "Exact",
}
#: Fields that are objects of Python and have no option: another solver, blocks of variables.
WITHOUT_OPTION = {"clamped": {"solver"}, "structured-mean-field": {"blocks"}}


@dataclass(frozen=True)
class SolverOption:
    """One field of one or more solvers."""

    name: str
    type: type
    help: str
    solvers: tuple[str, ...]
    word: str = ""  # on the command line, where another option has the field's name

    @property
    def key(self) -> str:
        return self.word or self.name

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")


_ITERATIVE = ("auto", "bp", "trw", "mean-field", "structured-mean-field", "join-graph")
_SAMPLERS = ("gibbs", "tempering")

OPTIONS = (
    SolverOption("max_iters", int, "Most iterations.", _ITERATIVE),
    SolverOption(
        "tol",
        float,
        "Stop when updating everything moves nothing by more than this.",
        _ITERATIVE,
    ),
    SolverOption(
        "damping",
        float,
        "Share of the old message to keep, 0 to <1.",
        ("bp", "trw", "join-graph"),
    ),
    SolverOption("schedule", str, "sequential, flooding or residual.", ("bp",)),
    SolverOption("weights", str, "auto, spanning-tree or forests.", ("trw",)),
    SolverOption("n_sweeps", int, "Sweeps of each chain after burn-in.", _SAMPLERS),
    SolverOption("burn_in", int, "Sweeps discarded at the start.", _SAMPLERS),
    SolverOption("n_chains", int, "Independent chains, or ensembles.", _SAMPLERS),
    SolverOption("n_replicas", int, "Copies at different temperatures.", ("tempering",)),
    SolverOption("rng", int, "Seed of the random generator.", (*_SAMPLERS, "clamped")),
    SolverOption("max_cells", int, "Maximum cells of a cluster.", ("join-graph",)),
    SolverOption("k", int, "Variables to clamp.", ("clamped",)),
    SolverOption("restarts", int, "Other starts, for choosing them.", ("clamped",)),
    SolverOption("max_gib", float, "Maximum memory for tables, in GiB.", ("exact",)),
    SolverOption(
        "exact_cells",
        int,
        "Maximum cells for which exact is chosen.",
        ("auto",),
    ),
    SolverOption("method", str, "clique-tree or enumerate.", ("exact",), word="exact_method"),
    SolverOption(
        "time_limit",
        float,
        "Time limit in seconds; then the best answer so far (exact refuses).",
        tuple(SOLVERS),
    ),
)

METAVARS: dict[type, str] = {int: "N", float: "X", str: "WORD"}
SOLVER_PANEL = "Solver"
OUTPUT_PANEL = "Output"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Model file; the suffix sets the format, - is standard input."
    ),
]
Evidence = Annotated[
    Optional[list[str]],  # noqa: UP045 (older typers do not read list[str] | None)
    typer.Option(
        "--evidence",
        "-e",
        metavar="FILE|x3=1,x7=0",
        help="Observed states, by index or name: a file (UAI or JSON), or variable=state pairs "
        "(repeatable; a name with a comma needs quotes, or its own option).",
    ),
]
Soft = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--soft",
        metavar="x3=a:0.2,b:0.8",
        help="Likelihoods of one variable's states, by name (0 for those left out), or one for "
        "each in order, as in x3=0.2,0.8 (repeatable). A JSON file for --evidence can hold them "
        "too.",
    ),
]

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON object on standard output instead of the table.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Csv = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--csv",
        metavar="FILE",
        help="Write the whole table as CSV; - is standard output.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option(
        "--probabilities/--no-probabilities",
        help="Write the probability of every state, or only of the most probable one.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Missing = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="TEXT", help="Text that means not observed, like an empty cell."),
]


def rows_option(order: str) -> Any:
    """``--rows``, of a table for people."""
    return typer.Option(
        min=0, metavar="N", help=f"Rows of the table, {order} first.", rich_help_panel=OUTPUT_PANEL
    )


Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit with code 5 if the answer has not converged.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


# ---------------------------------------------------------------------- intervals

#: Seconds for ``--intervals`` where none are given.
INTERVAL_SECONDS = 5.0
_INTERVAL_FLAGS = ("--intervals", "--certify")


def interval_option(text: str) -> Any:
    """``--intervals``, whose number may be left out."""
    return typer.Option(*_INTERVAL_FLAGS, metavar="[SECONDS]", help=text)


class Command(TyperCommand):
    """A command whose ``--intervals`` may stand without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


class WithoutIntervals(TyperCommand):
    """A command of the parser, which has none yet."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in _before_dashes(args):
            if word.partition("=")[0] in _INTERVAL_FLAGS:
                raise UsageError(
                    f"{word}: the parser has no certified intervals yet; `minfer intervals` and "
                    "`minfer run --intervals` have them, for models"
                )
        return super().parse_args(ctx, args)


def with_seconds(words: list[str]) -> list[str]:
    """``--intervals`` that no number follows gets one.

    >>> with_seconds(["--intervals", "grid.uai"])
    ['--intervals', '5', 'grid.uai']
    >>> with_seconds(["grid.uai", "--intervals", "0.5"])
    ['grid.uai', '--intervals', '0.5']
    """
    out: list[str] = []
    head = _before_dashes(words)
    for k, word in enumerate(words):
        out.append(word)
        alone = k + 1 >= len(head) or not _is_number(words[k + 1])
        if k < len(head) and word in _INTERVAL_FLAGS and alone:
            out.append(f"{INTERVAL_SECONDS:g}")
    return out


def _before_dashes(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def check_interval_seconds(seconds: float | None) -> None:
    """Fail before the work, not after it."""
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--intervals takes positive seconds, not {seconds:g}")


# ---------------------------------------------------------------------- solvers


def solver_options(
    command: Callable[..., None],
    default: str = "auto; with --reduce, bp, or exact if that is cheap",
) -> Callable[..., None]:
    """Add ``--solver`` and the options of all solvers to a command; they come as ``**settings``."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    *most, last = SOLVERS
    choices = f"{', '.join(most)} or {last}. Default: {default}."
    added = [_parameter("solver", str, "--solver", choices, "NAME")]
    for option in OPTIONS:
        who = "all solvers" if len(option.solvers) == len(SOLVERS) else ", ".join(option.solvers)
        text = f"{option.help} ({who})"
        metavar = METAVARS[option.type]
        added.append(_parameter(option.key, option.type, option.flag, text, metavar))
    command.__signature__ = signature.replace(parameters=own + added)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in own + added}
    return command


def _parameter(name: str, kind: type, flag: str, text: str, metavar: str) -> inspect.Parameter:
    option = typer.Option(flag, help=text, metavar=metavar, rich_help_panel=SOLVER_PANEL)
    annotation = Annotated[Optional[kind], option]  # type: ignore[valid-type]  # noqa: UP045
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def solver_name(settings: dict[str, Any], default: str = "auto") -> str:
    return settings.get("solver") or default


def make_solver(settings: dict[str, Any], default: str = "auto") -> Solver:
    """The solver a command line asks for; options that were not given are left to its defaults."""
    name = solver_name(settings, default)
    if name not in SOLVERS:
        raise UsageError(f"there is no solver {name!r}; choose from {', '.join(SOLVERS)}")
    given = {o: settings[o.key] for o in OPTIONS if settings.get(o.key) is not None}
    for option in given:
        if name not in option.solvers:
            who = " and ".join(option.solvers)
            plural = "solvers that have it are" if len(option.solvers) > 1 else "one that has it is"
            raise UsageError(f"solver {name} has no option {option.flag}; the {plural} {who}")
    return construct(name, {option.name: value for option, value in given.items()})


def construct(name: str, settings: dict[str, Any]) -> Solver:
    """A solver by its short name; a setting it does not accept is a usage error."""
    import minfer

    solver_class = getattr(minfer, SOLVERS[name])
    try:
        return solver_class(**settings)
    except MinferError:
        raise  # it says what is wrong with which setting
    except (TypeError, ValueError) as error:
        raise UsageError(f"solver {name}: {error}") from None


# ---------------------------------------------------------------------- evidence and queries


def evidence_of(
    graph: FactorGraph, given: list[str] | None, soft: list[str] | None
) -> dict[int, Any]:
    """All evidence together, by variables' numbers: states' numbers, or likelihoods (S,)."""
    out: dict[int, Any] = {}
    for part in _pieces(graph, given, soft):
        for v, state in part.items():
            if v not in out:
                out[v] = state
            elif not (isinstance(out[v], int) and isinstance(state, int)):
                raise EvidenceError(f"evidence: {graph.name(v)} is given twice")
            elif out[v] != state:
                raise _two_states(graph, v, out[v], state)
    return out


def told_evidence(graph: FactorGraph, seen: dict[int, Any]) -> dict[str, Any]:
    """Evidence by names, as JSON has it."""
    return {
        graph.name(v): graph.states(v)[state]
        if isinstance(state, int)
        else dict(zip(graph.states(v), map(float, state)))
        for v, state in seen.items()
    }


def evidence_text(graph: FactorGraph, seen: dict[int, Any]) -> str:
    """Evidence as people read it: CVP=LOW, HR~LOW:0.2,HIGH:0.8."""
    return ", ".join(
        f"{graph.name(v)}={graph.states(v)[state]}"
        if isinstance(state, int)
        else f"{graph.name(v)}~"
        + ",".join(f"{s}:{float(x):g}" for s, x in zip(graph.states(v), state))
        for v, state in seen.items()
    )


def _pieces(
    graph: FactorGraph, given: list[str] | None, soft: list[str] | None
) -> Iterator[dict[int, Any]]:
    from minfer.io import read_evidence
    from minfer.io.evidence import is_json, numbered_evidence, parse_json_evidence

    for text in given or ():
        if is_pairs(text):
            yield parse_pairs(text, graph)
        elif text == "-" or os.path.exists(text):
            yield read_evidence(text, graph)
        elif is_json(text):
            yield numbered_evidence(graph, parse_json_evidence(text, "--evidence"))
        else:
            raise EvidenceError(
                f"--evidence {text}: there is no such file, and it is not a list such as x3=1,x7=0"
            )
    for text in soft or ():
        yield parse_soft(text, graph)


def _two_states(graph: FactorGraph, v: int, one: int, other: int) -> ContradictionError:
    names = graph.states(v)
    return ContradictionError(
        f"contradictory evidence: {graph.name(v)} is given two states, {names[one]} and "
        f"{names[other]}"
    )


def parse_soft(text: str, graph: FactorGraph) -> dict[int, Any]:
    """``CVP=LOW:0.2,HIGH:0.8``, or ``CVP=0.2,0,0.8``: likelihoods of one variable's states."""
    from minfer.io.evidence import numbered_evidence

    cuts = [cut for cut in _cuts(text) if all(cut)]
    if not cuts:
        raise UsageError(f"--soft: {text!r} is not variable=state:likelihood,...")
    for name, rest in cuts:
        try:
            v = variable(name, graph)
        except ModelError as error:
            failure = error
            continue
        return numbered_evidence(graph, {graph.name(v): _likelihoods(rest, graph, v)})
    raise EvidenceError(f"--soft: {failure}")


def _likelihoods(text: str, graph: FactorGraph, v: int) -> list[float] | dict[str, float]:
    parts = split_list(text)
    if all(_is_number(part) for part in parts):
        return [float(part) for part in parts]
    out: dict[str, float] = {}
    for part in parts:
        state, colon, number = part.rpartition(":")
        state = unquoted(state)
        if not colon or not state or not _is_number(number):
            raise UsageError(f"--soft: {part!r} is not state:likelihood, as in x3=a:0.2,b:0.8")
        if state in out:
            raise EvidenceError(f"--soft: {graph.name(v)}: the state {state} is given twice")
        out[state] = float(number)
    return out


def is_pairs(text: str) -> bool:
    """Whether an ``--evidence`` is ``x3=1,x7=0``, and not a file or JSON."""
    from minfer.io.evidence import is_json

    there = os.path.exists(text)  # unlike Path.exists, for any length of text
    return "=" in text and not there and not is_json(text)


def parse_pairs(text: str, graph: FactorGraph) -> dict[int, int]:
    """``x3=1,CVP=LOW`` as states' numbers by variables' numbers.

    What has a comma in it goes in quotes, or alone, as one ``--evidence``.
    """
    whole = _pair(text, graph)
    if whole is not None:
        return dict([whole])
    evidence: dict[int, int] = {}
    for pair in split_list(text):
        found = _pair(pair, graph)
        if found is None:
            found = _pair_or_error(pair, graph)
        v, state = found
        if evidence.setdefault(v, state) != state:
            raise _two_states(graph, v, evidence[v], state)
    return evidence


def _cuts(pair: str) -> Iterator[tuple[str, str]]:
    """Every way to read ``variable=state``: names may have an = in them."""
    at = pair.find("=")
    while at >= 0:
        yield unquoted(pair[:at]), unquoted(pair[at + 1 :])
        at = pair.find("=", at + 1)


def _pair(pair: str, graph: FactorGraph) -> tuple[int, int] | None:
    """Variable and state, if it reads as such."""
    for name, state in _cuts(pair):
        try:
            v = variable(name, graph)
            return v, graph.state(v, state)
        except ModelError:
            continue
    return None


def _pair_or_error(pair: str, graph: FactorGraph) -> tuple[int, int]:
    """The same of what does not: what is wrong with it."""
    cuts = [cut for cut in _cuts(pair) if all(cut)]
    if not cuts:
        raise UsageError(f"--evidence: {pair!r} is not variable=state")
    for name, state in cuts:
        try:
            v = variable(name, graph)
        except ModelError:
            continue
        try:
            return v, graph.state(v, state)
        except ModelError as error:
            raise EvidenceError(f"evidence: {error}") from None
    try:
        return variable(cuts[-1][0], graph), 0
    except ModelError as error:
        raise EvidenceError(f"evidence: {error}") from None


def split_list(text: str) -> list[str]:
    """Parts between commas that stand in no quotes."""
    parts, quote, part = [], "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (not part.strip() or part.rstrip().endswith("=")):
            quote = letter
        elif letter == ",":
            parts.append(part)
            part = ""
            continue
        part += letter
    return [p.strip() for p in [*parts, part] if p.strip()]


def unquoted(text: str) -> str:
    """Without the quotes around it, if it has any."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def listed(texts: list[str] | None) -> list[str]:
    """Names from ``A,B`` options, quoted where they have a comma in them."""
    return [unquoted(name) for text in texts or () for name in split_list(text)]


def parse_query(texts: list[str] | None, graph: FactorGraph) -> list[int] | None:
    """``x5,x9`` as variable numbers; None asks for all of them."""
    if not texts:
        return None
    names: list[str] = []
    for text in texts:
        names += [text] if text in graph._index else map(unquoted, split_list(text))
    if not names:
        raise UsageError("--query: name at least one variable, as in --query x5,x9")
    return list(dict.fromkeys(variable(name, graph) for name in names))


def variable(text: str, graph: FactorGraph) -> int:
    """A variable by name, by ``x`` and number, or by bare number."""
    by_number = text.isdecimal() and text not in graph._index
    return graph.index(int(text) if by_number else text)


def evidence_beside(model: str) -> Path | None:
    """An evidence file that lies beside a model under the usual name."""
    path = Path(model)
    if model == "-" or not path.exists():
        return None
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    stems = dict.fromkeys([path, plain, plain.with_suffix("")])
    for stem in stems:
        for suffix in (".evid", ".evid.gz"):
            beside = stem.with_name(stem.name + suffix)
            if beside.is_file():
                return beside
    return None
