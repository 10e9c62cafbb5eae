"""The jobs: one function each, Arrow record batch in, Arrow record batch out.

A job is a frozen settings object that pickles. ``job.start()`` loads what it needs, warms the
kernels and returns the function. Rows stay rows: for n records come n, in order, each with its
``place`` and ``id`` and either an answer or an ``error``. An answer depends on its own record
alone, never on its neighbours, so it does not matter how records are batched or by whom; nothing
that changes from run to run, such as a time, is part of it.

>>> from minfer.batch.jobs import RunModels
>>> RunModels(query=("rain",)).settings()["query"]
['rain']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from minfer.basics.words import plain
from minfer.batch.shards import bytes_of, hashed
from minfer.errors import EvidenceError, FormatError, MinferError, SettingsError, fullness
from minfer.graph import FactorGraph, with_any_evidence
from minfer.io.formats import suffixes as model_suffixes
from minfer.io.text import check_path
from minfer.parsing.conllu import Sentence, parse_sentence
from minfer.parsing.inference import Inference
from minfer.reduction.recipes import AnyRecipe, Paper
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.parsing.parser import Parser, SentenceBatch
    from minfer.reduction.objectives import SelectionObjective
    from minfer.solvers.base import Solver

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
Solve = Callable[[Sequence[Any]], list[dict[str, Any]]]

_TEXTS = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.float64())


class Job:
    """What the engines need to know about a job."""

    name: ClassVar[str]  # as the command is called
    rows: ClassVar[int]  # records in a batch
    columns: ClassVar[dict[str, pa.DataType]]  # of the input; which of them there are differs
    #: Columns that name files, the first one that of a file given as input itself.
    paths: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")  # kinds of table it reads
    suffixes: ClassVar[tuple[str, ...]] = ()  # of files that are records themselves
    evidence_suffix: ClassVar[str | None] = None  # of files beside these that are not read
    formats: ClassVar[tuple[str, ...]]  # of its output, the default first
    texts: ClassVar[bool] = False  # whether all cells of JSON lines are read as texts

    def settings(self) -> dict[str, Any]:
        """All that the answers depend on, as JSON: of the model its content, of objects a text."""
        found: dict[str, Any] = {"job": self.name}
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.name == "model" and value is not None:
                value = file_facts(value)
            elif isinstance(value, tuple):
                value = list(value)
            elif not isinstance(value, str | int | float | None):
                value = repr(value)
            found[one.name] = value
        return found

    def check(self) -> None:
        """MinferError if a file that the job itself needs is not what it should be."""

    def schema(self, format: str) -> pa.Schema:
        """Of the function's output, ``error`` included."""
        head = [("place", pa.string()), ("id", pa.string())]
        return pa.schema([*head, *self._answers(format), ("error", pa.string())])

    def _answers(self, format: str) -> list[tuple[str, pa.DataType]]:
        """The columns of an answer."""
        raise NotImplementedError

    def start(self, format: str) -> BatchFunction:
        """Load and warm up; the function, for output of a format."""
        raise NotImplementedError

    def _function(
        self, format: str, prepare: Callable[[dict[str, Any]], Any], solve: Solve
    ) -> BatchFunction:
        """A row for each record: what ``solve`` says of what ``prepare`` makes of it."""
        schema = self.schema(format)

        def answer(batch: pa.RecordBatch) -> pa.RecordBatch:
            rows: list[dict[str, Any]] = []
            items, places = [], []
            for row in batch.to_pylist():
                place = {name: row.get(name) for name in ("place", "id")}
                rows.append(place)
                try:
                    items.append(prepare(row))
                    places.append(place)
                except Exception as error:
                    if fullness(error):
                        raise  # no fault of the record
                    place |= {"place": row.get("place"), "error": reason(error)}
            for place, found in zip(places, _each(solve, items)):
                place |= found
            columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
            return pa.record_batch(columns, schema=schema)

        return answer

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        """FormatError if there is no column to work on."""
        raise NotImplementedError


@dataclass(frozen=True)
class ParseSentences(Job):
    """Parse sentences: ``words`` (a list of strings), or ``conllu`` (the lines of one).

    Parameters
    ----------
    model : file of a trained parser
    tags : ``predicted`` or ``gold``; as in training by default
    marginals : whether CoNLL-U gets probabilities in MISC; tables have them anyway
    inference : :class:`minfer.parsing.Inference`
    """

    model: str
    _: KW_ONLY
    tags: str | None = None
    marginals: bool = False
    inference: Inference = field(default_factory=Inference)

    name = "parse"
    rows = 1024
    columns: ClassVar = {"id": pa.string(), "conllu": pa.binary(), "words": _TEXTS}
    tables = ("conllu", "jsonl", "parquet")
    formats = ("conllu", "conllu.gz", "parquet", "jsonl", "jsonl.gz")

    def check(self) -> None:
        from minfer.parsing.parser import Parser

        Parser.load(self.model)

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        if not {"words", "conllu"} & set(names):
            raise FormatError(f"{where}: there is neither `words`, a list of strings, nor `conllu`")

    def _answers(self, format: str) -> list[tuple[str, pa.DataType]]:
        if format.startswith("conllu"):
            return [("conllu", pa.string())]
        return [
            *((name, _TEXTS) for name in ("words", "upos", "xpos")),
            ("heads", pa.list_(pa.int32())),
            ("deprels", _TEXTS),
            ("probs", _NUMBERS),
            ("second_heads", pa.list_(pa.int32())),
            ("second_probs", _NUMBERS),
            ("log_prob", pa.float64()),
        ]

    def start(self, format: str = "conllu") -> BatchFunction:
        from minfer.parsing.parser import Parser

        parser = Parser.load(self.model)

        def sentence(row: dict[str, Any]) -> Sentence:
            found = _sentence(row)
            parser.check(found, self.tags, inference=self.inference)
            if self.marginals:
                found.check_room()
            return found

        def lines(sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
            found = parser.parse(
                sentences, self.tags, inference=self.inference, marginals=self.marginals
            )
            return [{"conllu": str(parsed)} for parsed in found]

        def arrays(sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
            batch = parser.parse_batch(sentences, self.tags, inference=self.inference)
            return list(_parse_rows(parser, sentences, batch))

        parse = lines if format.startswith("conllu") else arrays
        parse([Sentence.from_forms(["one", "word"], ["NUM", "NOUN"])])  # compiles or loads kernels
        return self._function(format, sentence, parse)


def _sentence(row: dict[str, Any]) -> Sentence:
    """The sentence of a row; if a line is wrong, the row's ``place`` in a file becomes its."""
    if row.get("conllu") is None:
        if not (words := row.get("words")):
            raise FormatError("there is neither `words` nor `conllu`")
        return Sentence.from_forms(words)
    file, _, first = (row.get("place") or "").rpartition(": line ")
    in_file = bool(file) and first.isdecimal()
    source = file if in_file else "sentence"
    line = int(first) if in_file else 1
    try:
        return parse_sentence(row["conllu"], line=line, source=source, heads=False)
    except FormatError as error:
        if not in_file:
            raise
        number, _, fault = str(error).removeprefix(f"{source}: line ").partition(": ")
        row["place"] = f"{file}: line {number}"
        raise FormatError(fault) from None


def _parse_rows(
    parser: Parser, sentences: Sequence[Sentence], batch: SentenceBatch
) -> Iterator[dict[str, Any]]:
    model, start = parser.model, batch.data.start.tolist()
    names = [model.relations[k] for k in batch.labels.tolist()]
    tags = None if batch.tags is None else [model.classes[k] for k in batch.tags.tolist()]
    columns = {
        "heads": batch.heads.tolist(),
        "deprels": names,
        "probs": batch.probs.tolist(),
        "second_heads": batch.second.tolist(),
        "second_probs": batch.second_probs.tolist(),
    }
    log_prob = batch.log_p.tolist()
    for k, sentence in enumerate(sentences):
        here = slice(start[k], start[k + 1])
        upos, xpos = zip(*tags[here]) if tags is not None else (sentence.upos, sentence.xpos)
        row = {"words": sentence.forms, "upos": upos, "xpos": xpos, "log_prob": log_prob[k]}
        yield row | {name: values[here] for name, values in columns.items()}


@dataclass(frozen=True)
class RunModels(Job):
    """Marginals of models: a file each, or one shared model with ``evidence`` row by row.

    ``evidence`` is a JSON object ``{"x3": 1}``, or a map in Parquet; states by number or name, and
    likelihoods of states, as in ``{"CVP": {"LOW": 0.2, "HIGH": 0.8}}``. ``states`` has the names of
    states, where the model has them.

    Parameters
    ----------
    model : one model for all rows; None takes each row's ``model``
    solver : any solver that pickles
    objective : MinSize, MinDivergence, MinJoint or Budget; None infers in the whole model
    recipe : Paper, Compensated or Iterated, with an objective
    query : variables whose marginals are returned; all of them by default
    """

    model: str | None = None
    _: KW_ONLY
    solver: Solver = field(default_factory=BeliefPropagation)
    objective: SelectionObjective | None = None
    recipe: AnyRecipe = field(default_factory=Paper)
    query: tuple[str, ...] = ()

    name = "run"
    rows = 64
    columns: ClassVar = {"id": pa.string(), "model": pa.string(), "evidence": pa.string()}
    paths = ("model",)
    suffixes = tuple(s for s in model_suffixes() if s != ".xml")  # of which few are networks
    evidence_suffix = ".evid"
    formats = ("parquet", "jsonl", "jsonl.gz")

    def settings(self) -> dict[str, Any]:
        return super().settings() | ({"recipe": None} if self.objective is None else {})

    def check(self) -> None:
        from minfer.io import read

        if self.model is not None:
            graph = read(self.model)
            for name in self.query:
                graph.index(name)

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        wanted = "model" if self.model is None else "evidence"
        if wanted not in names:
            raise FormatError(f"{where}: there is no `{wanted}`")

    def _answers(self, format: str) -> list[tuple[str, pa.DataType]]:
        reduced = [("kept_share", pa.float64()), ("divergence", pa.float64())]
        return [
            ("variables", _TEXTS),
            ("states", pa.list_(_TEXTS)),
            ("marginals", pa.list_(_NUMBERS)),
            ("log_z", pa.float64()),
            ("log_z_kind", pa.string()),
            ("status", pa.string()),
            ("converged", pa.bool_()),
            ("iterations", pa.int64()),
            *(reduced if self.objective is not None else ()),
        ]

    def start(self, format: str = "parquet") -> BatchFunction:
        from minfer.io import read
        from minfer.io.evidence import numbered_evidence, parse_json_evidence

        shared = None if self.model is None else read(self.model)
        small = FactorGraph.pairwise([0.5, 0.0], [[0, 1]], [1.0])
        replace(self, query=())._infer(small)  # compiles or loads the kernels
        latest = lru_cache(maxsize=1)(read)  # rows of one model tend to follow each other

        def graph_of(row: dict[str, Any]) -> FactorGraph:
            if shared is None and row.get("model") is None:
                raise FormatError("there is no `model`")
            graph = latest(row["model"]) if shared is None else shared
            text = row.get("evidence")
            if text is None:
                return graph
            return with_any_evidence(graph, numbered_evidence(graph, parse_json_evidence(text)))

        return self._function(format, graph_of, lambda some: [self._infer(graph) for graph in some])

    def _infer(self, graph: FactorGraph) -> dict[str, Any]:
        from minfer.reduction.infer import infer

        more: dict[str, Any] = {}
        if self.objective is None:
            answer = self.solver(graph)
        else:
            result = infer(graph, self.objective, self.solver, recipe=self.recipe)
            answer = result.marginals
            more = {
                "log_z": plain(result.log_z_full),
                "log_z_kind": result.log_z_full_kind.value,
                "kept_share": result.kept_share,
                "divergence": result.divergence,
                "status": result.status.value,
                "converged": result.converged,
            }
        chosen = [graph.index(name) for name in self.query or range(graph.n_variables)]
        return {
            "variables": [graph.name(v) for v in chosen],
            "states": [list(graph.states(v)) for v in chosen] if graph.has_state_names else None,
            "marginals": [answer[v].tolist() for v in chosen],
            "log_z": plain(answer.log_z),
            "log_z_kind": answer.log_z_kind.value,
            "status": answer.status.value,
            "converged": answer.converged,
            "iterations": answer.iterations,
            **more,
        }


@lru_cache(maxsize=4)
def _model(path: str) -> FactorGraph:
    from minfer.io import read

    return read(path)


@dataclass(frozen=True)
class PredictRows(Job):
    """Posteriors of some variables of one model for each case: see :func:`minfer.predict`.

    Columns named after variables are evidence. A case whose evidence has probability 0
    has no answer and says so in ``problem``; one with an unknown state is a bad record.

    Parameters
    ----------
    model : file of a model
    targets : names of variables
    probabilities : whether to give the probability of every state
    missing : strings that mean not observed
    """

    model: str
    targets: tuple[str, ...]
    _: KW_ONLY
    probabilities: bool = True
    missing: tuple[str, ...] = ("",)

    name = "predict"
    rows = 4096
    tables = ("csv", "jsonl", "parquet")
    formats = ("parquet", "jsonl", "jsonl.gz")
    texts = True

    @property
    def columns(self) -> dict[str, pa.DataType]:  # type: ignore[override]
        graph = _model(self.model)
        names = [graph.name(v) for v in range(graph.n_variables)]
        own = dict.fromkeys((n for n in names if n not in self.targets), pa.string())
        return {"id": pa.string(), **own}

    def _predictor(self) -> Any:
        from minfer.prediction import Predictor

        if not self.targets:
            raise SettingsError("batch predict: name the targets")
        return Predictor(
            _model(self.model), self.targets, on_unknown="mark", missing=self.missing,
            probabilities=self.probabilities, workers=1,
        )  # fmt: skip

    def check(self) -> None:
        self._predictor()

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        if not set(names) & {name for name in self.columns if name != "id"}:
            raise FormatError(f"{where}: no column is a variable of the model")
        try:
            self._predictor().check_strangers([name for name in names if name != "id"])
        except EvidenceError as error:
            raise FormatError(f"{where}: {error}") from None

    def _answers(self, format: str) -> list[tuple[str, pa.DataType]]:
        from minfer.prediction.files import LOG_PE, PROBLEM, answer_names

        graph = _model(self.model)
        targets = [graph.index(name) for name in self.targets]
        columns = []
        for v, name, of_best, by_state in answer_names(graph, targets, self.probabilities):
            named = graph._states is not None and graph._states[v] is not None
            columns.append((name, pa.string() if named else pa.int64()))
            columns += [(label, pa.float64()) for label in (of_best, *by_state)]
        return [*columns, (LOG_PE, pa.float64()), (PROBLEM, pa.string())]

    def start(self, format: str = "parquet") -> BatchFunction:
        import pyarrow.compute as pc

        from minfer.model.evidence import table_of
        from minfer.prediction.files import IMPOSSIBLE, PROBLEM, as_arrow

        ask, schema = self._predictor(), self.schema(format)
        mine = set(self.columns) - {"id"}

        def function(batch: pa.RecordBatch) -> pa.RecordBatch:
            names = [name for name in batch.schema.names if name in mine]
            table = table_of(batch.select(["place", *names]))
            answer = as_arrow(ask.answer(table, ask.targets, names).columns)
            problem = answer.column(PROBLEM)
            unknown = pc.fill_null(pc.not_equal(problem, IMPOSSIBLE), False)
            has_id = "id" in batch.schema.names
            columns = {
                **{name: answer.column(name) for name in answer.column_names},
                "place": batch.column("place"),
                "id": batch.column("id") if has_id else pa.nulls(batch.num_rows),
                PROBLEM: pc.if_else(unknown, None, problem),
                "error": pc.if_else(unknown, problem, None),
            }
            out = []
            for kind in schema:
                values = columns[kind.name]
                if isinstance(values, pa.ChunkedArray):
                    values = values.combine_chunks()
                if pa.types.is_floating(kind.type):  # as JSON wants it: NaN is null
                    values = pc.if_else(pc.is_finite(values), values, None)
                out.append(values.cast(kind.type))
            return pa.record_batch(out, schema=schema)

        function(pa.record_batch([pa.array(["warm-up"])], names=["place"]))
        return function


@dataclass(frozen=True, kw_only=True)
class DenoisePictures(Job):
    """Clean pictures; the parameters are those of :func:`minfer.denoise`.

    ``clean`` holds a PNG file of the result, ``alpha`` and ``level`` what was used for black and
    white.
    """

    alpha: float | None = None
    coupling: float = 1.0
    objective: SelectionObjective | None = None
    solver: Solver | None = None
    level: float | None = None
    labels: int | None = None
    means: tuple[float, ...] | None = None

    name = "denoise"
    rows = 8
    columns: ClassVar = {"id": pa.string(), "picture": pa.string()}
    paths = ("picture",)
    suffixes = (".png", ".pgm", ".pbm", ".ppm", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg")
    formats = ("png", "parquet")

    def check_columns(self, where: str, names: Sequence[str]) -> None:
        if "picture" not in names:
            raise FormatError(f"{where}: there is no `picture`")

    def _answers(self, format: str) -> list[tuple[str, pa.DataType]]:
        return [
            ("height", pa.int64()),
            ("width", pa.int64()),
            ("alpha", pa.float64()),
            ("level", pa.float64()),
            ("status", pa.string()),
            ("converged", pa.bool_()),
            ("kept_share", pa.float64()),
            ("clean", pa.binary()),
        ]

    def start(self, format: str = "png") -> BatchFunction:
        from minfer.pictures import read_picture

        def values(row: dict[str, Any]) -> Any:
            if row.get("picture") is None:
                raise FormatError("there is no `picture`")
            try:
                return read_picture(row["picture"]).values
            except OSError as error:
                raise FormatError(f"cannot read {row['picture']}: {error.strerror}") from None

        shades = max(2, self.labels or 0)
        self._clean(np.linspace(0, 1, 2 * shades).reshape(2, shades))  # compiles or loads kernels
        return self._function(format, values, lambda some: [self._clean(one) for one in some])

    def _clean(self, values: Any) -> dict[str, Any]:
        from minfer.images.denoising import denoise
        from minfer.pictures import encode_picture

        found = denoise(
            values, alpha=self.alpha, coupling=self.coupling, objective=self.objective,
            solver=self.solver, level=self.level, labels=self.labels, means=self.means,
        )  # fmt: skip
        height, width = found.shape
        return {
            "height": height,
            "width": width,
            "alpha": None if found.shades is None else found.shades.alpha,
            "level": None if found.shades is None else found.shades.level,
            "status": found.result.status.value,
            "converged": found.result.converged,
            "kept_share": found.result.kept_share,
            "clean": encode_picture(found.clean),
        }


def _each(solve: Solve, items: list[Any]) -> Iterable[dict[str, Any]]:
    """All at once; one by one if that fails, to find which it was."""
    if not items:
        return []
    try:
        return solve(items)
    except Exception as error:  # of whatever kind: one record must not stop the others
        if fullness(error):
            raise
        if len(items) == 1:
            return [{"error": reason(error)}]
    half = len(items) // 2
    return [*_each(solve, items[:half]), *_each(solve, items[half:])]


def reason(error: Exception) -> str:
    """What an errors file says of an error; of a kind that nobody foresaw, the kind too."""
    return str(error) if isinstance(error, MinferError) else f"{type(error).__name__}: {error}"


def file_facts(path: str) -> dict[str, str]:
    """Name and SHA-256 of a file that the answers depend on."""
    check_path(path)
    try:
        content = hashed(bytes_of(path, 0, os.path.getsize(path)))
        return {"file": os.path.basename(path), "sha256": content}
    except OSError as error:
        raise FormatError(f"cannot read {os.fspath(path)}: {error.strerror}") from None


def check_format(job: Job, format: str | None) -> str:
    """The format of the output, which must be one that the job has."""
    format = job.formats[0] if format is None else format
    if format not in job.formats:
        raise SettingsError(f"batch {job.name} writes {', '.join(job.formats)}, not {format}")
    return format
