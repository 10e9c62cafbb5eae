"""Probabilities of atoms as tables, and why an atom has its probability."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.words import counted, plain
from minfer.errors import ModelError, visible
from minfer.rules import tables
from minfer.rules.blocks import Floats
from minfer.rules.explain import Explanation, explain_atom
from minfer.rules.formulas import Constant, Variable
from minfer.rules.parse import parse_atom
from minfer.solvers.status import Status

if TYPE_CHECKING:
    from minfer.reduction.result import Result
    from minfer.rules.ground import Grounding
    from minfer.rules.lazy import Lazily
    from minfer.rules.program import Rules
    from minfer.solvers.base import Marginals

PROBABILITY = "probability"


@dataclass
class Answer:
    """What inference found.

    Attributes
    ----------
    rules : the program
    marginals : of all atoms, by id
    result : with an objective, what was kept and what that may cost; else None
    possible : groundings that evidence does not decide, counted by values of variables
    timings : seconds, by stage
    lazily : by lazy grounding, what was kept and how far two answers agree; else None
    """

    rules: Rules
    marginals: Marginals
    result: Result | None
    possible: float
    timings: dict[str, float]
    lazily: Lazily | None = None

    @property
    def grounding(self) -> Grounding:
        """The groundings that the answer was chosen from; lazily, those that were kept."""
        return self.rules.ground() if self.lazily is None else self.lazily.grounding

    @property
    def probabilities(self) -> Floats:
        """P(atom is true) by id, shape (atoms,)."""
        return self.marginals.probs.reshape(-1, 2)[:, 1]

    @property
    def kept(self) -> int:
        """Factors that the answer was computed with (groundings over one atom are none)."""
        if self.result is not None:
            return int(self.result.keep.sum())
        return self.factors

    @property
    def factors(self) -> int:
        """Factors that were built: the same groundings merged, those over one atom left out."""
        return self.rules.model.graph.n_factors if self.lazily is None else self.lazily.kept

    @property
    def mean_error_estimate(self) -> float:
        """Mean error that leaving factors out is estimated to cost; 0 where none was, and NaN
        where the answer has not converged.

        By lazy grounding the mean difference of the last two answers, whose thresholds are ten
        times apart, or by how much summing what was left out moved the last, if that is more; with
        one threshold alone, the latter.
        """
        if not self.converged:
            return math.nan
        if self.lazily is not None:
            return self.lazily.mean_error_estimate
        return 0.0 if self.result is None else self.result.mean_error_estimate

    @property
    def converged(self) -> bool:
        """Whether the solver has; by lazy grounding, whether answers did not disagree besides."""
        if self._disagrees:
            return False
        return self.marginals.converged if self.result is None else self.result.converged

    @property
    def status(self) -> Status:
        """That of the solver; where lazily found answers disagree, "not converged"."""
        found = self.marginals.status if self.result is None else self.result.status
        return Status.MAX_ITERS if self._disagrees and found.ok else found

    @property
    def _disagrees(self) -> bool:
        """Whether another threshold or start gave another answer."""
        how = self.lazily
        return how is not None and (how.several or (how.agreed is False and not how.untried))

    def __getitem__(self, predicate: str) -> Any:
        return self.table(predicate)

    def table(self, predicate: str, *, kind: str | None = None, known: bool = True) -> Any:
        """The atoms of a predicate and their probabilities.

        Parameters
        ----------
        predicate : str
        kind : "pandas", "polars", "arrow" or "columns"; by default that of the candidates
        known : whether atoms are listed that evidence fixes
        """
        store = self.rules.store
        p = store.open_predicate(predicate, "table")
        if kind not in (None, "pandas", "polars", "arrow", "columns"):
            raise ModelError(f"table: kind must be pandas, polars, arrow or columns, not {kind!r}")
        select, joins = [], ""
        for k, number in enumerate(p.classes):
            coding = store.coding(number)
            value = f"a.a{k}"
            if coding.kind == "text":
                joins += f" join {coding.table} d{k} on d{k}.id = a.a{k}"
                value = f"d{k}.v"
            select.append(f"{value}::{p.sql_types[k]} as c{k}")
        name = PROBABILITY if PROBABILITY not in p.columns else f"P({predicate})"
        part = np.ascontiguousarray(self.probabilities[p.first : p.first + p.n])
        ids = np.arange(p.first, p.first + p.n, dtype=np.int32)
        where = "" if known else " where a.known = 2"
        sql = (
            f"select {', '.join(select)}, q.p as p from {p.atoms} a join "
            f"answer_columns q on q.id = a.id{joins}{where} order by a.id"
        )
        columns = {"id": ids, "p": part}
        return tables.as_kind(store.con, kind or p.kind, sql, (*p.columns, name), columns)

    @property
    def tables(self) -> dict[str, Any]:
        """All open predicates' tables."""
        return {p.name: self.table(p.name) for p in self.rules.store.open_predicates}

    def probability(self, atom: str) -> float:
        """P(atom): ``probability("smokes(Anna)")``; words in it are constants."""
        parsed, positive = parse_atom(atom, where="probability: ")
        p = float(self.probabilities[self.rules.store.atom_id(parsed, "probability")])
        return p if positive else 1.0 - p

    def query(self, pattern: str) -> list[tuple[str, float]]:
        """Atoms that fit a pattern, likeliest first: ``query("advisedBy(x, Person5)")``.

        Words that begin with a lower-case letter are variables, as in rules.
        """
        store = self.rules.store
        atom, positive = parse_atom(pattern, where="query: ")
        if not positive:
            raise ModelError("query: a pattern is an atom without !; P(!a) is 1 - P(a)")
        store.check_atom(atom, "query")
        p = store.open_predicate(atom.predicate, "query")
        where: list[str] = []
        seen: dict[str, str] = {}
        for k, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                where.append(f"a{k} = {store.constant(term.text, p.classes[k], 'query')}")
            elif isinstance(term, Variable):
                if term.name in seen:
                    where.append(f"a{k} = {seen[term.name]}")
                seen[term.name] = f"a{k}"
        condition = f" where {' and '.join(where)}" if where else ""
        got = store.con.arrays(f"select distinct id from {p.table}{condition}")
        ids = got["id"]
        ids = ids[np.lexsort((ids, -self.probabilities[ids]))]
        return list(zip(store.atom_texts(ids), self.probabilities[ids].tolist()))

    def explain(self, atom: str, n: int = 10) -> Explanation:
        """Why an atom has its probability: the groundings that push it most, and how far."""
        check_whole("n", n, 1)
        return explain_atom(self.rules.grounder, self.grounding, self.probabilities, atom, n)

    def write(
        self, path: str | os.PathLike[str], predicates: list[str] | None = None, known: bool = True
    ) -> int:
        """Write atoms and probabilities as .csv, .tsv (.gz) or .parquet; returns how many.

        One predicate as the columns of its table, several as ``atom`` and ``probability``.
        """
        from minfer.prediction.files import open_answers

        columns = self.columns(predicates, known)
        with open_answers(path, "write", "answers") as sink:
            sink(columns)
        return len(next(iter(columns.values())))

    def columns(
        self, predicates: list[str] | None = None, known: bool = True
    ) -> dict[str, NDArray[Any]]:
        """What :meth:`write` writes, as columns by name."""
        names = predicates or [p.name for p in self.rules.store.open_predicates]
        if len(names) == 1:
            return self.table(names[0], kind="columns", known=known)
        store = self.rules.store
        ids: list[NDArray] = []
        for name in names:
            if name not in store.predicates or not store.predicates[name].open:
                raise ModelError(f"write: there is no open predicate {visible(name)}")
            p = store.predicates[name]
            some = np.arange(p.first, p.first + p.n)
            ids.append(some if known else some[store.known()[some] == 2])
        every = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        atoms = np.array(store.atom_texts(every), dtype=object)
        return {"atom": atoms, PROBABILITY: self.probabilities[every]}

    def to_dict(self) -> dict[str, Any]:
        """How it was found, as plain Python values; :meth:`columns` are the probabilities."""
        content: dict[str, Any] = {
            "atoms": self.rules.store.n_atoms,
            "groundings": int(self.possible)
            if float(self.possible).is_integer()
            else self.possible,
            "factors": self.factors,
            "status": self.status.value,
            "seconds": self.timings,
        }
        if self.lazily is not None or self.result is not None:
            estimate = plain(self.mean_error_estimate)
            content |= {"kept": self.kept, "mean_error_estimate": estimate}
        if self.lazily is not None:
            told = "thresholds differences tolerance agreed checked starts another notes"
            content["lazily"] = {name: getattr(self.lazily, name) for name in told.split()}
        return content

    def __str__(self) -> str:
        store = self.rules.store
        if self.lazily is not None:
            return f"{counted(store.n_atoms, 'atom')}; {self.lazily}; {self.status.value}"
        kept = f"{self.kept:,} of " if self.result is not None else ""
        text = f"{counted(store.n_atoms, 'atom')}; {kept}{counted(self.factors, 'factor')} from "
        text += f"{counted(int(self.possible), 'grounding')}; {self.status.value}"
        if self.result is not None:
            estimate = self.mean_error_estimate
            text += "" if math.isnan(estimate) else f"; error about {estimate:.2g}"
        return text
