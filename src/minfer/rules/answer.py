"""Probabilities of atoms as tables, and why an atom has its probability.

Each grounding that has the atom in it pushes its log-odds by the message it would send if the other
atoms were independent with the probabilities of the answer: first order, so the pushes need not add
up to the whole; they say which groundings matter, and which way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted, plain
from minfer.errors import ModelError, visible
from minfer.rules import tables
from minfer.rules.blocks import Block, Floats, messages
from minfer.rules.formulas import Constant, Variable, substituted
from minfer.rules.model import block_weights, weight_of
from minfer.rules.parse import parse_atom
from minfer.rules.plan import whole
from minfer.solvers.base import Status

if TYPE_CHECKING:
    from minfer.reduction.result import Result
    from minfer.rules.ground import Grounder, Grounding, Part
    from minfer.rules.lazy import Lazily
    from minfer.rules.program import Rules
    from minfer.rules.schema import Store
    from minfer.solvers.base import Marginals

PROBABILITY = "probability"
_MOST = 100_000  # groundings of a rule that are looked at


@dataclass(frozen=True)
class Reason:
    """One grounding: what it says, its rule and weight, and how far it pushes the log-odds."""

    text: str
    rule: str
    weight: float
    push: float

    def __str__(self) -> str:
        weight = "hard" if math.isinf(self.weight) else f"weight {self.weight:.4g}"
        return f"{_signed(self.push)}  {visible(self.text)}  ({weight})"


@dataclass(frozen=True, repr=False)
class Explanation(Faced):
    """An atom, its probability, and what pushes it: strongest first.

    Attributes
    ----------
    atom : as it is written
    probability : of the answer
    prior : log-odds before any rule
    known : None, or the truth that evidence says
    reasons : the strongest groundings
    n : groundings with the atom in them
    """

    atom: str
    probability: float
    prior: float
    known: bool | None
    reasons: tuple[Reason, ...]
    n: int

    def face(self) -> Face:
        """What there is to say: the probability, then what pushes it."""
        conclusion = f"P({self.atom}) = {self.probability:.4g}"
        if self.known is not None:
            conclusion += f"; known: evidence says it is {str(self.known).lower()}"
        prior = [] if self.known is not None else [(Right(_signed(self.prior)), "prior", "")]
        rows = list(prior)
        for r in self.reasons:
            weight = "hard" if math.isinf(r.weight) else f"{r.weight:.4g}"
            rows.append((Right(_signed(r.push)), visible(r.text), Right(weight)))
        more = self.n - len(self.reasons)
        notes = {"not listed": counted(more, "more grounding")} if more > 0 else {}
        return Face(conclusion, ("log-odds", "by", "weight"), rows, notes)


def _signed(x: float) -> str:
    return f"{x:+7.3f}" if math.isfinite(x) else f"{'+' if x > 0 else '-'}   inf"


def _bindings(grounder: Grounder, p: Floats, part: Part, ident: int) -> Iterator[Reason]:
    """Reasons from a formula without quantifiers, also of what lazy grounding left out."""
    store, rule, free = grounder.store, grounder.rules[part.rule], grounder.free(part)
    selects = [
        f"({join.present([x.alias]).values_sql(free, [f'{x.alias}.id = {ident}'])} limit {_MOST})"
        for join in grounder.bindings(part) for x in join.literals
    ]  # fmt: skip
    if not selects:  # one for each literal: the database begins there, not with all groundings
        return
    values, found = grounder.instances(part, selects)
    classes = grounder.builder(part).classes
    texts = [store.texts(codes, classes[v]) for codes, v in zip(values, free)]
    for rows, scope, truth in found:
        here = np.flatnonzero((scope == ident).any(axis=1))
        if truth.all() or not truth.any() or not len(here):
            continue
        bindings = [{v: texts[k][row] for k, v in enumerate(free)} for row in rows[here].tolist()]
        keys = [tuple(binding[v] for v in rule.plus) for binding in bindings]
        block = Block(part.rule, scope[here], part.share, truth=truth, key=np.arange(len(here)))
        w = block_weights(block, weight_of(rule, keys))
        for binding, number, push in zip(bindings, w.tolist(), _pushes(block, ident, w, p)):
            text = str(substituted(rule.formula, binding))
            yield Reason(text, rule.text, _shown(number, part), push)


def _shown(w: float, of: Part | Block) -> float:
    """The weight as the rule has it: a conjunction is kept as the opposite of a clause."""
    return w if math.isinf(w) or of.share > 0 else -w


def _pushes(block: Block, ident: int, w: Floats, p: Floats) -> list[float]:
    """First-order messages of factors to an atom that each of them has, as log-odds."""
    with np.errstate(invalid="ignore"):
        sent = messages(block, w, p, floor=0.0)[block.scope == ident]
    return np.where(np.isnan(sent), 0.0, sent).tolist()


def _unique_reasons(store: Store, p: Floats, ident: int) -> list[Reason]:
    """The functional constraint that an atom is under."""
    home = next(q for q in store.open_predicates if q.first <= ident < q.first + q.n)
    if home.unique is None:
        return []
    determined, exactly = home.unique
    keys = [f"a{k}" for k in range(home.arity) if k not in determined]
    on = " and ".join(f"b.{a} = a.{a}" for a in keys)
    got = store.con.arrays(
        f"select b.id from {home.atoms} a join {home.atoms} b on {on} where a.id = {ident} and "
        f"b.id <> {ident}"
    )
    q = p[got["id"]]
    sure, q = int((q >= 1).sum()), q[q < 1]
    none, odds = float(np.log1p(-q).sum()), float((q / (1 - q)).sum())  # of those that are not
    one = none if sure == 1 else none + math.log(odds) if not sure and odds > 0 else -math.inf
    none = none if not sure else -math.inf
    rest = one if exactly else float(np.logaddexp(none, one))
    push = none - rest if max(none, rest) > -math.inf else 0.0
    words = "exactly one" if exactly else "at most one"
    names = ", ".join(home.columns[k] for k in determined)
    given = ", ".join(home.columns[k] for k in range(home.arity) if k not in determined)
    text = f"{words} {names} for each {given} in {home.name}"
    return [Reason(text, text, math.inf, push)]


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

        Words that begin with a lower-case letter are variables, as in rules, but for those that are
        a value at their place: where tables call somebody frank, ``query("cancer(frank)")`` is
        about that one atom.
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
                if (value := store.value(term.name, p.classes[k])) is not None:
                    where.append(f"a{k} = {value}")
                    continue
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
        grounder, grounding, p = self.rules.grounder, self.grounding, self.probabilities
        store = grounder.store
        ident = store.atom_id(parse_atom(atom, where="explain: ")[0], "explain")
        known, prior = int(store.known()[ident]), float(store.fields()[ident])
        reasons: list[Reason] = []
        total = 0
        if known == 2:
            for part in grounder.parts:
                if part.listed:
                    found = list(_bindings(grounder, p, part, ident))
                    total += len(found)
                    reasons += found
            for block in grounding.blocks:
                if block.listed:
                    continue
                rule = grounder.rules[block.rule]
                rows = np.flatnonzero((block.scope == ident).any(axis=1))
                total += len(rows)
                w = block_weights(block, weight_of(rule, grounding.keys.get(block.rule)))
                some = rows[:_MOST]
                pushes = _pushes(block.rows(some), ident, w[some], p)
                for row, push in zip(some.tolist(), pushes):
                    others = [i for i in block.scope[row].tolist() if i != ident]
                    words = ", ".join(store.atom_texts(others[:6]) + ["..."] * (len(others) > 6))
                    text_of = f"{rule.text}, with {words}" if others else rule.text
                    reasons.append(Reason(text_of, rule.text, _shown(float(w[row]), block), push))
            reasons += _unique_reasons(store, p, ident)
        reasons.sort(key=lambda r: (-round(abs(r.push), 9), r.text))
        name = store.atom_texts([ident])[0]
        fixed = None if known == 2 else bool(known)
        return Explanation(
            name, float(p[ident]), prior, fixed, tuple(reasons[:n]), max(total, len(reasons))
        )

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
            p = store.open_predicate(name, "write")
            some = np.arange(p.first, p.first + p.n)
            ids.append(some if known else some[store.known()[some] == 2])
        every = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        atoms = np.array(store.atom_texts(every), dtype=object)
        return {"atom": atoms, PROBABILITY: self.probabilities[every]}

    def to_dict(self) -> dict[str, Any]:
        """How it was found, as plain Python values; :meth:`columns` are the probabilities."""
        content: dict[str, Any] = {
            "atoms": self.rules.store.n_atoms,
            "groundings": whole(self.possible),
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
