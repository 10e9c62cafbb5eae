"""Why an atom has its probability, in the words of the rules.

Each grounding that has the atom in it pushes its log-odds by the message it would send if the other
atoms were independent with the probabilities of the answer: first order, so the pushes need not add
up to the whole; they say which groundings matter, and which way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted
from minfer.errors import visible
from minfer.rules.blocks import Block, Floats
from minfer.rules.formulas import substituted
from minfer.rules.messages import messages
from minfer.rules.model import block_weights, weight_of
from minfer.rules.parse import parse_atom

if TYPE_CHECKING:
    from minfer.rules.ground import Grounder, Grounding, Part
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
    grounder: Grounder, grounding: Grounding, p: Floats, text: str, n: int
) -> Explanation:
    """See :meth:`minfer.rules.answer.Answer.explain`."""
    store = grounder.store
    atom, _ = parse_atom(text, where="explain: ")
    ident = store.atom_id(atom, "explain")
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
                words = ", ".join(store.atom_texts(others[:6])) + (
                    ", ..." if len(others) > 6 else ""
                )
                text_of = f"{rule.text}, with {words}" if others else rule.text
                reasons.append(Reason(text_of, rule.text, _shown(float(w[row]), block), push))
        reasons += _unique_reasons(store, p, ident)
    reasons.sort(key=lambda r: (-round(abs(r.push), 9), r.text))
    name = store.atom_texts([ident])[0]
    fixed = None if known == 2 else bool(known)
    return Explanation(
        name, float(p[ident]), prior, fixed, tuple(reasons[:n]), max(total, len(reasons))
    )


def _bindings(grounder: Grounder, p: Floats, part: Part, ident: int) -> Iterator[Reason]:
    """Reasons from a formula without quantifiers, with the values of its variables."""
    store, rule, free = grounder.store, grounder.rules[part.rule], grounder.free(part)
    selects = [
        f"({join.present([x.alias]).values_sql(free, [f'{x.alias}.id = {ident}'])} limit {_MOST})"
        for join in grounder.bindings(part) for x in join.literals
    ]  # fmt: skip
    if not selects:  # one for each literal: the database begins there, not with all groundings
        return
    values, found = grounder.instances(part, selects)
    classes, weight = grounder.builder(part).classes, _weight(rule, part)
    texts = [store.texts(codes, classes[v]) for codes, v in zip(values, free)]
    for rows, scope, truth in found:
        here = np.flatnonzero((scope == ident).any(axis=1))
        if truth.all() or not truth.any() or not len(here):
            continue
        bindings = [{v: texts[k][row] for k, v in enumerate(free)} for row in rows[here].tolist()]
        block = Block(part.rule, scope[here], 1.0, truth=truth)
        w = np.array([weight(binding) for binding in bindings])
        for binding, number, push in zip(bindings, w.tolist(), _pushes(block, ident, w, p)):
            text = str(substituted(rule.formula, binding))
            yield Reason(text, rule.text, _shown(number, part), push)


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
