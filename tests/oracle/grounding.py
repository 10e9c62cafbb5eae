"""Rules over tiny domains, grounded and enumerated in plain Python: the twin of ``minfer.Rules``.

Nothing of the grounding is used: a world is a set of true atoms, a formula is evaluated by walking
over it, variables take all values of their type. Only the parser is shared.
"""

from __future__ import annotations

import math
import operator
import random
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np

from minfer.rules import formulas as f
from minfer.rules.formulas import clauses, free_variables
from minfer.rules.parse import parse_rule

PEOPLE = ["Anna", "Bob", "Carl"]
NUMBERS = [0, 1, 3]
OPS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


class Case(NamedTuple):
    """A program, as data."""

    domains: dict[str, list]  # by type
    types: dict[str, tuple[str, ...]]  # of predicates
    closed: dict[str, list[tuple]]
    open: dict[str, list[tuple]]  # candidates
    everything: frozenset[str]  # open predicates stated without candidates
    priors: dict[str, list[float]]
    symmetric: frozenset[str]
    unique: dict[str, bool]  # f(x, y!): exactly one (True), at most one
    evidence: dict[tuple, bool]
    rules: list[str]
    split: bool


def value(term, binding):
    if isinstance(term, f.Variable):
        return binding[term.name]
    if isinstance(term, f.Constant):
        return term.text if term.number is None else term.number
    left, right = value(term.left, binding), value(term.right, binding)
    return None if None in (left, right) else OPS[term.op](left, right)


def holds(formula, binding, world, kinds, domains) -> bool:
    """Whether a formula is true in a world; ``kinds``: types of its variables."""
    if isinstance(formula, f.Atom):
        return (formula.predicate, *(value(t, binding) for t in formula.terms)) in world
    if isinstance(formula, f.Compare):
        return OPS[formula.op](value(formula.left, binding), value(formula.right, binding)) != (
            formula.negated
        )
    if isinstance(formula, f.Not):
        return not holds(formula.part, binding, world, kinds, domains)
    if isinstance(formula, f.And):
        return all(holds(p, binding, world, kinds, domains) for p in formula.parts)
    if isinstance(formula, f.Or):
        return any(holds(p, binding, world, kinds, domains) for p in formula.parts)
    if isinstance(formula, f.Implies):
        left = holds(formula.left, binding, world, kinds, domains)
        return not left or holds(formula.right, binding, world, kinds, domains)
    if isinstance(formula, f.Iff):
        left = holds(formula.left, binding, world, kinds, domains)
        return left == holds(formula.right, binding, world, kinds, domains)
    inner = (
        holds(formula.part, binding | dict(zip(formula.variables, v)), world, kinds, domains)
        for v in product(*(domains[kinds[x]] for x in formula.variables))
    )
    return any(inner) if isinstance(formula, f.Exists) else all(inner)


def kinds_of(formula, types) -> dict[str, str]:
    out = {}
    for atom in f.atoms(formula):
        for term, kind in zip(atom.terms, types[atom.predicate]):
            if isinstance(term, f.Variable):
                out[term.name] = kind
    return out


def score(case: Case, world: set, rules) -> float:
    """The log-weight of a world."""
    total = 0.0
    for rule in rules:
        kinds = kinds_of(rule.formula, case.types)
        pieces = [(rule.formula, rule.weight)]
        if case.split and not rule.hard:
            found = clauses(rule.formula)
            pieces = [(f.Or(c), rule.weight / len(found)) for c in found]
        for formula, weight in pieces:
            free = list(free_variables(formula))
            for values in product(*(case.domains[kinds[x]] for x in free)):
                true = holds(formula, dict(zip(free, values)), world, kinds, case.domains)
                if math.isinf(weight):
                    total += 0.0 if true else -math.inf
                else:
                    total += weight if true else 0.0
    return total


def enumerate_worlds(case: Case) -> dict[tuple, float] | None:
    """P(atom) of every candidate, or None where no world is possible."""
    atoms = [(name, *row) for name, rows in case.open.items() for row in rows]
    fields = np.concatenate([case.priors[name] for name in case.open])
    rules = [parse_rule(text) for text in case.rules]
    logs, truths = [], []
    for truth in product([False, True], repeat=len(atoms)):
        if any(case.evidence.get(a, t) != t for a, t in zip(atoms, truth)):
            continue
        if unique_holds(case, atoms, truth):
            logs.append(score(case, world_of(case, atoms, truth), rules) + fields @ truth)
            truths.append(truth)
    if max(logs, default=-math.inf) == -math.inf:
        return None
    weights = np.exp(np.array(logs) - max(logs))
    return dict(zip(atoms, (weights @ np.array(truths) / weights.sum()).tolist()))


def world_of(case: Case, atoms, truth) -> set:
    """All that is true where these are the truths of the open atoms."""
    world = {(name, *row) for name, rows in case.closed.items() for row in rows}
    for atom, t in zip(atoms, truth):
        if t:
            world.add(atom)
            if atom[0] in case.symmetric:
                world.add((atom[0], atom[2], atom[1]))
    return world


def unique_holds(case: Case, atoms, truth) -> bool:
    for name, exactly in case.unique.items():
        count: dict[Any, int] = {}
        for atom, t in zip(atoms, truth):
            if atom[0] == name:
                count[atom[1]] = count.get(atom[1], 0) + t
        if any(n > 1 or (exactly and n == 0) for n in count.values()):
            return False
    return True


def draw_case(seed: int) -> Case:
    rng = random.Random(seed)
    people = PEOPLE[: rng.choice([1, 2, 2, 3])]
    numbers = NUMBERS[: rng.choice([1, 2])]
    domains = {"person": people, "number": numbers}
    types = {
        "man": ("person",), "likes": ("person", "person"), "age": ("person", "number"),
        "all": ("person",), "every": ("number",),
        "a": ("person",), "b": ("person", "person"), "s": ("person", "person"),
        "g": ("person", "number"),
    }  # fmt: skip
    closed = {
        name: [row for row in product(*(domains[t] for t in types[name])) if rng.random() < 0.5]
        for name in ("man", "likes", "age")
    }
    closed["all"], closed["every"] = [(x,) for x in people], [(x,) for x in numbers]
    room = rng.choice([3, 5, 8])
    open_, everything, symmetric = {}, set(), set()
    for name in rng.sample(["a", "b", "s", "g"], rng.choice([1, 2, 3])):
        rows = list(product(*(domains[t] for t in types[name])))
        if name == "s":
            symmetric.add(name)
            rows = list(combinations_with_replacement(people, 2))
        if rng.random() < 0.4 and len(rows) <= room:
            everything.add(name)
        else:
            rows = rng.sample(rows, min(len(rows), rng.randint(1, 4), max(room, 1)))
        room -= len(rows)
        open_[name] = rows
        if room <= 0:
            break
    for name in ("a", "b", "s", "g"):
        if name not in open_:
            closed[name] = [
                row for row in product(*(domains[t] for t in types[name])) if rng.random() < 0.3
            ]
            if name == "s":  # closed ones are as they are listed
                symmetric.discard("s")
    priors = {}
    for name, rows in open_.items():
        same = name in everything
        one = rng.choice([0.0, rng.gauss(0, 1)])
        priors[name] = [one if same else round(rng.gauss(0, 1), 3) for _ in rows]
    unique = {}
    if "g" in open_ and rng.random() < 0.5:
        unique["g"] = rng.random() < 0.5
    if "b" in open_ and rng.random() < 0.2:
        unique["b"] = rng.random() < 0.5
    evidence = {
        (name, *row): rng.random() < 0.5
        for name, rows in open_.items() for row in rows if rng.random() < 0.2
    }  # fmt: skip
    rules = [draw_rule(rng, types, domains) for _ in range(rng.choice([1, 1, 2, 3]))]
    return Case(
        domains, types, closed, open_, frozenset(everything), priors, frozenset(symmetric), unique,
        evidence, rules, rng.random() < 0.15,
    )  # fmt: skip


def draw_rule(rng: random.Random, types, domains) -> str:
    names = {"person": ["x", "y", "z"][: rng.choice([1, 2, 2, 3])], "number": ["n"]}
    formula = draw_formula(rng, types, domains, names, rng.choice([1, 2, 2, 3]), [0])
    used = {}
    for atom in f.atoms(parse_rule(formula).formula):
        for t, kind in zip(atom.terms, types[atom.predicate]):
            if isinstance(t, f.Variable):
                used.setdefault(t.name, kind)
    free = list(free_variables(parse_rule(formula).formula))
    if len(used) >= 2 and rng.random() < 0.3:
        x, y = rng.sample(list(used), 2)
        if used[x] == used[y] and x in free and y in free:
            formula = f"({formula}) v {x} {rng.choice(['=', '!=', '<', '>='])} {y}"
    if "n" in free and rng.random() < 0.5:
        formula = (
            f"n * 2 {rng.choice(['<', '>', '='])} {rng.choice(['1', '2', 'n + 1'])} => ({formula})"
        )
    if rng.random() < 0.2:
        return f"{formula}."
    return f"{round(rng.gauss(0, 1.5), 3)}: {formula}"


def draw_formula(rng, types, domains, names, depth, made) -> str:
    if depth == 0 or rng.random() < 0.15:
        name = rng.choice(list(types))
        terms = []
        for kind in types[name]:
            if rng.random() < 0.15:
                terms.append(str(rng.choice(domains[kind])))
            else:
                terms.append(rng.choice(names[kind]))
        return ("!" if rng.random() < 0.4 else "") + f"{name}({', '.join(terms)})"
    kind = rng.choice(["^", "v", "v", "=>", "=>", "<=>", "EXIST", "!"])
    if kind == "!":
        return f"!({draw_formula(rng, types, domains, names, depth - 1, made)})"
    if kind == "EXIST":
        made[0] += 1
        new = f"w{made[0]}"
        inner = {**names, "person": [*names["person"][:1], new, new]}
        body = draw_formula(rng, types, domains, inner, depth - 1, made)
        word = rng.choice(["EXIST", "EXIST", "EXIST", "FORALL"])
        if new not in body:
            body = f"({body}) {rng.choice(['^', 'v'])} a({new})"
        return f"({word} {new} {body})"
    parts = [draw_formula(rng, types, domains, names, depth - 1, made) for _ in range(2)]
    return f"({parts[0]} {kind} {parts[1]})"


def program_of(case: Case, **settings: Any):
    """The same as ``minfer.Rules``."""
    from minfer import Rules

    rules = Rules(split=case.split, **settings)
    for name, rows in case.closed.items():
        columns = {f"c{k}": [r[k] for r in rows] for k in range(len(case.types[name]))}
        rules.closed(name, columns, types=case.types[name])
    for name, rows in case.open.items():
        more = {}
        if name in case.unique:
            more["exactly_one" if case.unique[name] else "at_most_one"] = "c1"
        columns = tuple(f"c{k}" for k in range(len(case.types[name])))
        if name in case.everything:
            prior = case.priors[name][0] if case.priors[name] else 0.0
            rules.open(
                name, types=case.types[name], columns=columns, log_odds=prior,
                symmetric=name in case.symmetric, **more,
            )  # fmt: skip
            continue
        table = {c: [r[k] for r in rows] for k, c in enumerate(columns)}
        rules.open(
            name, table | {"prior": case.priors[name]}, types=case.types[name], log_odds="prior",
            symmetric=name in case.symmetric, **more,
        )  # fmt: skip
    for text in case.rules:
        rules.rule(text)
    for atom, truth in case.evidence.items():
        rules.evidence(f"{'' if truth else '!'}{atom[0]}({', '.join(map(str, atom[1:]))})")
    return rules
