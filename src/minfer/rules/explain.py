"""Why an atom has its probability, in the words of the rules.

Each grounding that has the atom in it pushes its log-odds by the message it would send if the other
atoms were independent with the probabilities of the answer: first order, so the pushes need not add
up to the whole; they say which groundings matter, and which way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted
from minfer.errors import visible
from minfer.rules.blocks import Block
from minfer.rules.formulas import substituted
from minfer.rules.ground import Part, _block_of, _together
from minfer.rules.messages import log_message, messages
from minfer.rules.model import block_weights, weight_of
from minfer.rules.parse import parse_atom

if TYPE_CHECKING:
    from minfer.rules.ground import Grounder, Grounding
    from minfer.rules.joins import ClauseJoin, OpenLiteral
    from minfer.rules.parse import Rule
    from minfer.rules.schema import Store

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
        rows = prior + [
            (
                Right(_signed(r.push)),
                visible(r.text),
                Right("hard" if math.isinf(r.weight) else f"{r.weight:.4g}"),
            )
            for r in self.reasons
        ]
        more = self.n - len(self.reasons)
        notes = {"not listed": counted(more, "more grounding")} if more > 0 else {}
        return Face(conclusion, ("log-odds", "by", "weight"), rows, notes)


def _signed(x: float) -> str:
    return f"{x:+7.3f}" if math.isfinite(x) else f"{'+' if x > 0 else '-'}   inf"


def explain_atom(
    grounder: Grounder, grounding: Grounding, p: NDArray[np.float64], text: str, n: int
) -> Explanation:
    """See :meth:`minfer.rules.answer.Answer.explain`."""
    store = grounder.store
    atom, _ = parse_atom(text, where="explain: ")
    ident = store.atom_id(atom, "explain")
    known, prior = int(store.known()[ident]), float(store.fields()[ident])
    reasons: list[Reason] = []
    total = 0
    listed: set[int] = set()  # rules whose groundings have been found by the values of variables
    if known == 2:
        for part in grounder.parts:
            if grounder.easy(part):
                found = list(_bindings(grounder, p, part, ident))
            elif grounder.kind(part) == "table":
                found = list(_table_bindings(grounder, p, part, ident))
                listed.add(part.rule)
            else:
                continue
            total += len(found)
            reasons += found
        for block in grounding.blocks:
            if block.plain or block.rule in listed:
                continue
            rule = grounder.rules[block.rule]
            rows = np.flatnonzero((block.scope == ident).any(axis=1))
            total += len(rows)
            w = block_weights(block, weight_of(rule, grounding.keys.get(block.rule)))
            for row in rows[:_MOST].tolist():
                push = _push(block, row, ident, float(w[row]), p)
                others = [i for i in block.scope[row].tolist() if i != ident]
                words = ", ".join(store.atom_texts(others[:6])) + (
                    ", ..." if len(others) > 6 else ""
                )
                text_of = f"{rule.text}, with {words}" if others else rule.text
                reasons.append(Reason(text_of, rule.text, _shown(float(w[row]), block), push))
        reasons += _unique_reasons(store, p, ident)
    reasons.sort(key=lambda r: -abs(r.push))
    name = store.atom_texts([ident])[0]
    fixed = None if known == 2 else bool(known)
    return Explanation(
        name, float(p[ident]), prior, fixed, tuple(reasons[:n]), max(total, len(reasons))
    )


def _bindings(
    grounder: Grounder, p: NDArray[np.float64], part: Part, ident: int
) -> Iterator[Reason]:
    """Reasons from a clause of plain literals, with the values of its variables."""
    store, rule = grounder.store, grounder.rules[part.rule]
    builder, weight = grounder.builder(part), _weight(rule, part)
    seen: set[tuple[Any, ...]] = set()
    for join in grounder.bindings(part):
        names = [v for v in join.variables if v in builder.classes]
        listed = [f"{join.variables[v]} as v{k}" for k, v in enumerate(names)]
        listed += [f"{x.id} as i{k}" for k, x in enumerate(join.literals)]
        selects = [
            f"(select {', '.join(listed)} {_with(join, x, ident)} limit {_MOST})"
            for x in join.literals
        ]  # one for each literal: the database begins there, not with all groundings
        if not selects:
            continue
        got = store.con.execute(" union all ".join(selects)).fetchnumpy()
        size = len(next(iter(got.values())))
        values = [store.texts(np.asarray(got[f"v{k}"]), builder.classes[v])
                  for k, v in enumerate(names)]  # fmt: skip
        ids = [np.ma.getdata(got[f"i{k}"]) for k in range(len(join.literals))]
        for row in range(size):
            binding = {v: values[k][row] for k, v in enumerate(names)}
            if tuple(binding.items()) in seen:
                continue
            seen.add(tuple(binding.items()))
            w = weight(binding)
            false, sign, met = 1.0, 0, set[int]()
            for x, column in zip(join.literals, ids):
                i = int(column[row])
                if i == ident:
                    sign = 1 if x.positive else -1
                elif i >= 0 and i not in met:
                    met.add(i)
                    false *= 1 - p[i] if x.positive else p[i]
            push = -sign * float(log_message(np.array([w]), np.array([false]), 0.0)[0])
            text = str(substituted(rule.formula, binding))
            yield Reason(text, rule.text, _shown(w, part), push)


def _table_bindings(
    grounder: Grounder, p: NDArray[np.float64], part: Part, ident: int
) -> Iterator[Reason]:
    """Reasons from a formula that is not a clause, with the values of its variables.

    It is the conjunction of its clauses; those that evidence makes true are in no join.
    """
    store, rule = grounder.store, grounder.rules[part.rule]
    builder, free = grounder.builder(part), grounder.free(part)
    weight = _weight(rule, part)
    joins = grounder.bindings(part)
    mine = " union ".join(
        f"(select {', '.join(join.variables[v] for v in free) or '1'} "
        f"{_with(join, x, ident)} limit {_MOST})"
        for join in joins for x in join.literals
    )  # fmt: skip
    found: dict[tuple[Any, ...], list[Any]] = {}
    for join in joins if mine else []:
        values = [join.variables[v] for v in free]
        ids = [x.id for x in join.literals]
        some = [f"({', '.join(values)}) in ({mine})"] if values else []
        got = store.con.execute(f"select {', '.join(values + ids)} {join.from_where(some)}")
        for row in got.fetchall():
            left = [("lit", i, x.positive) for i, x in zip(row[len(free) :], join.literals)
                    if i >= 0]  # fmt: skip
            found.setdefault(row[: len(free)], []).append(_together("or", left))
    texts = [
        store.texts(np.array([at[k] for at in found]), builder.classes[v]) if found else []
        for k, v in enumerate(free)
    ]
    for row, parts in enumerate(found.values()):
        left = _together("and", parts)
        if isinstance(left, bool):
            continue
        block = _block_of(left, part, rule, None)
        if ident not in block.scope[0]:
            continue
        binding = {v: texts[k][row] for k, v in enumerate(free)}
        w = weight(binding)
        text = str(substituted(rule.formula, binding))
        yield Reason(text, rule.text, _shown(w, part), _push(block, 0, ident, w, p))


def _with(join: ClauseJoin, literal: OpenLiteral, ident: int) -> str:
    """FROM and WHERE of the bindings in which a literal is an atom."""
    return join.present([literal.alias]).from_where([f"{literal.alias}.id = {ident}"])


def _weight(rule: Rule, part: Part) -> Callable[[dict[str, str]], float]:
    """The weight of a grounding by its values, also of one that lazy grounding left out."""
    base, given = float(weight_of(rule)[0]), dict(rule.weights or ())

    def weight(binding: dict[str, str]) -> float:
        w = given.get(tuple(binding[v] for v in rule.plus), base) if given else base
        return w if math.isinf(w) else w * part.share

    return weight


def _shown(w: float, of: Part | Block) -> float:
    """The weight as the rule has it: a conjunction is kept as the opposite of a clause."""
    return w if math.isinf(w) or of.share > 0 else -w


def _push(block: Block, row: int, ident: int, w: float, p: NDArray[np.float64]) -> float:
    """The first-order message of one factor to an atom, as log-odds."""
    one = block.rows([row])
    with np.errstate(invalid="ignore"):
        push = messages(one, np.array([w]), p, floor=0.0)[0, one.scope[0].tolist().index(ident)]
    return 0.0 if np.isnan(push) else float(push)


def _unique_reasons(store: Store, p: NDArray[np.float64], ident: int) -> list[Reason]:
    """The functional constraint that an atom is under."""
    home = next(q for q in store.open_predicates if q.first <= ident < q.first + q.n)
    if home.unique is None:
        return []
    determined, exactly = home.unique
    keys = [f"a{k}" for k in range(home.arity) if k not in determined]
    on = " and ".join(f"b.{a} = a.{a}" for a in keys)
    got = store.con.execute(
        f"select b.id from {home.atoms} a join {home.atoms} b on {on} where a.id = {ident} and "
        f"b.id <> {ident}"
    ).fetchnumpy()
    q = p[np.asarray(got["id"], dtype=np.int64)]
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
