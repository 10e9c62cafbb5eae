"""Groundings with their weights as a factor graph: a variable for each atom, in order of ids.

Factors over one atom become fields; clauses of two atoms are pairs, longer ones logical groups;
other formulas are features, or automata where their tables would be large. A clause and the same
one the other way round (``s(x) => s(y)`` and ``s(y) => s(x)``) are one factor: half the work, and
no cycle of two. A functional predicate is a group of exactly-one or at-most-one constraints.
Weights are put in here, so that learning can put in others without grounding again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ContradictionError, ModelError
from minfer.factors.connectives import AtMostOne, Clauses, ExactlyOne
from minfer.factors.features import Features
from minfer.factors.logical import Automata
from minfer.factors.tables import Tables
from minfer.graph import FactorGraph
from minfer.rules.blocks import Floats

if TYPE_CHECKING:
    from minfer.factors.group import FactorGroup
    from minfer.rules.blocks import Block
    from minfer.rules.ground import Grounder, Grounding
    from minfer.rules.parse import Rule
    from minfer.rules.schema import Store

_FEATURE = 6  # atoms of a feature


@dataclass
class Model:
    """A graph and where its factors come from."""

    graph: FactorGraph  # variables are atoms, by id
    log_odds: Floats  # of the atoms, priors and unary rules together, infinite where known (atoms,)
    #: (first, last + 1, block) of factor numbers; block -1 for functional predicates.
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    #: Those of the grounding, clauses that are there both ways round in blocks of their own.
    blocks: list[Block] = field(default_factory=list)


def weight_of(rule: Rule, keys: Sequence[tuple[str, ...]] | None = None) -> Floats:
    """The weight of a rule, shape (1,), or those of its keys."""
    if rule.weight is None and rule.weights is None:
        raise ModelError(f"{rule.name}: it has no weight; give one, or learn it (Rules.learn)")
    given, base = dict(rule.weights or ()), 0.0 if rule.weight is None else rule.weight
    return np.array([given.get(k, base) for k in keys or ()] or [base])


def block_weights(block: Block, weights: Floats) -> Floats:
    """One number for each factor of a block: the weight that counts where it is true."""
    w = weights[block.key] if block.key is not None else np.broadcast_to(weights[0], (len(block),))
    n = 1.0 if block.count is None else block.count
    return np.where(np.isinf(w), w, w * block.share * n)


def build(
    grounder: Grounder, grounding: Grounding, weights: Sequence[Floats] | None = None
) -> Model:
    """The factor graph. ``weights`` replaces those of the rules, one array for each."""
    store, rules = grounder.store, grounder.rules
    if weights is None:
        used = {block.rule for block in grounding.blocks}
        weights = [
            weight_of(rule, grounding.keys.get(k)) if k in used else np.zeros(1)
            for k, rule in enumerate(rules)
        ]
    log_odds = store.fields()
    forced = np.zeros((store.n_atoms, 2), dtype=bool)
    known = np.isinf(log_odds)
    forced[known, (log_odds[known] > 0).astype(int)] = True
    log_odds[known] = 0.0
    groups: list[FactorGroup] = []
    model = Model(FactorGraph.empty(np.full(store.n_atoms, 2)), log_odds)
    model.blocks = [part for block in grounding.blocks for part in both_ways(block)]
    n, constant = 0, 0.0
    for number, block in enumerate(model.blocks):
        w = block_weights(block, weights[block.rule])
        if block.scope.shape[1] == 1:
            atoms, hard = block.scope[:, 0], np.isinf(w)
            forced[atoms[hard], int(block.up)] = True
            pushes = np.where(hard, 0.0, w if block.up else -w)
            log_odds += np.bincount(atoms, pushes, minlength=len(log_odds))
            continue
        groups.append(_group(block, w, n))
        model.ranges.append((n, n + len(block), number))
        n += len(block)
        if block.both:  # one of the two clauses is always true: log Z has that
            constant += float(w[np.isfinite(w)].sum())
    for exactly, scopes in grounder.unique_scopes():
        kind = ExactlyOne if exactly else AtMostOne
        sizes = np.array([len(s) for s in scopes])
        for size in np.unique(sizes).tolist():
            scope = np.stack([scopes[k] for k in np.flatnonzero(sizes == size)])
            _check_keys(store, scope, exactly, forced)
            if size == 1:
                if exactly:
                    forced[scope[:, 0], 1] = True
                continue
            ids, literal = n + np.arange(len(scope)), np.ones(scope.shape, dtype=np.int32)
            flip, shape = np.zeros(size, dtype=bool), (2,) * size
            groups.append(kind(ids, scope, shape, literal, flip))
            model.ranges.append((n, n + len(scope), -1))
            n += len(scope)
    both = forced.all(axis=1)
    if both.any():
        atom = store.atom_texts(np.flatnonzero(both)[:1])[0]
        raise ContradictionError(f"hard rules and evidence make {atom} both true and false")
    for block in grounding.blocks:
        _check_clauses(grounder, block, weights[block.rule], forced)
    log_odds[forced[:, 1]], log_odds[forced[:, 0]] = np.inf, -np.inf
    delta = np.zeros((store.n_atoms, 2))
    free = np.isfinite(log_odds)
    delta[free, 1] = log_odds[free]
    delta[:1] += constant
    delta[log_odds == np.inf, 0] = -np.inf
    delta[log_odds == -np.inf, 1] = -np.inf
    model.graph = model.graph._append(*groups).tilt(delta.ravel())
    return model


def both_ways(block: Block) -> list[Block]:
    """A block of clauses over two atoms: what is there both ways round, and the rest."""
    if block.positive is None or block.scope.shape[1] != 2 or block.positive.all() or (
        not block.positive.any()
    ):  # fmt: skip
        return [block]
    n = len(block)
    first, second = block.scope[: n // 2], block.scope[n // 2 :]
    more = [x for x in (block.count, block.key) if x is not None]
    if n and n % 2 == 0 and np.array_equal(first, second[:, ::-1]) and all(
        np.array_equal(x[: n // 2], x[n // 2 :]) for x in more
    ):  # fmt: skip
        return [replace(block.rows(slice(n // 2)), both=True)]
    low, high = block.scope.min(axis=1), block.scope.max(axis=1)
    code = low.astype(np.int64) << 32 | high
    order = np.lexsort((low == block.scope[:, 0], *more, code))
    same = np.ones(max(n - 1, 0), dtype=bool)
    for x in (code, *more):
        same &= x[order[1:]] == x[order[:-1]]
    same &= block.scope[order[1:], 0] != block.scope[order[:-1], 0]
    if not same.any():
        return [block]
    pair = np.flatnonzero(same)
    pair = pair[np.concatenate([[True], pair[1:] > pair[:-1] + 1])]
    left = np.ones(n, dtype=bool)
    left[order[pair]] = left[order[pair + 1]] = False
    out = [replace(block.rows(order[pair]), both=True)]
    return out + ([block.rows(np.flatnonzero(left))] if left.any() else [])


def _check_keys(
    store: Store, scope: NDArray[np.int32], exactly: bool, forced: NDArray[np.bool_]
) -> None:
    """That of each key's atoms no more are known to be true than may be, and not all false."""
    true = forced[scope, 1].sum(axis=1)
    bad = true > 1
    if exactly:
        bad |= forced[scope, 0].all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        atoms = scope[row][forced[scope[row], 1]] if true[row] > 1 else scope[row]
        named = ", ".join(store.atom_texts(atoms[:4])) + (", ..." if len(atoms) > 4 else "")
        what = "true" if true[row] > 1 else "false"
        words = "exactly one" if exactly else "at most one"
        raise ContradictionError(
            f"evidence and hard rules make {named} {what}, but {words} per key can be true"
        )


def _check_clauses(
    grounder: Grounder, block: Block, weights: NDArray, forced: NDArray[np.bool_]
) -> None:
    """That no hard clause has all its literals known to be false."""
    if block.positive is None or block.scope.shape[1] < 2 or not np.isinf(weights).any():
        return
    broken = forced[block.scope, 1 - block.positive.astype(int)].all(axis=1)
    if broken.any():
        row = block.scope[int(np.argmax(broken))]
        signs = ["!" if yes else "" for yes in block.positive]  # what is known
        named = ", ".join(s + a for s, a in zip(signs, grounder.store.atom_texts(row)))
        raise ContradictionError(
            f"{grounder.rules[block.rule].name}: evidence and other hard rules break this hard "
            f"rule, as they make {named} true"
        )


def _group(block: Block, w: Floats, first: int) -> FactorGroup:
    """A block over two atoms or more as factors, all hard (a rule is so for all keys) or none."""
    n, arity = block.scope.shape
    shape, hard = (2,) * arity, bool(np.isinf(w).any())
    ids, flip = np.arange(first, first + n), np.zeros(arity, dtype=bool)
    if block.positive is not None and arity > 2:
        literal = np.tile(block.positive.astype(np.int32), (n, 1))
        return Clauses(ids, block.scope, shape, literal, flip, w)
    truth = block.truth
    if block.positive is not None:
        truth = np.ones(shape, dtype=bool)
        truth[tuple((~block.positive).astype(int))] = False
    if truth is None or arity > _FEATURE:
        step, accepting = block.automaton or automaton_of(truth)  # type: ignore[arg-type]
        final = np.zeros((n, len(accepting)))
        if hard:
            final[:, ~accepting] = -np.inf
        else:
            final[:, accepting] = w[:, None]
        literal, begin = np.ones((n, arity), dtype=np.int32), np.zeros(n, dtype=np.int32)
        step = np.ascontiguousarray(step, dtype=np.int32)
        return Automata(ids, block.scope, shape, literal, flip, step, begin, final)
    if hard:
        with np.errstate(divide="ignore"):
            table = np.log((truth & truth.T if block.both else truth).reshape(1, -1).astype(float))
        return Tables(ids, block.scope, shape, table)
    if block.both:  # as often true as the atoms are equal, and once more: see build
        truth = np.eye(2, dtype=bool)
    return Features(ids, block.scope, truth, np.ascontiguousarray(w))


def automaton_of(truth: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Steps (A, K, 2) and accepting states of the least automaton for a truth table."""
    arity = truth.ndim
    steps: list[NDArray[np.int64]] = []
    rows: NDArray[Any] = truth.reshape(1, -1)
    for _ in range(arity):
        halves = rows.reshape(2 * len(rows), -1)
        rows, which = np.unique(halves, axis=0, return_inverse=True)
        steps.append(which.reshape(-1, 2))
    size = max([2, *(len(s) for s in steps), len(rows)])
    out = np.zeros((arity, size, 2), dtype=np.int32)
    for a, s in enumerate(steps):
        out[a, : len(s)] = s
    accepting = np.zeros(size, dtype=bool)
    accepting[: len(rows)] = rows[:, 0]
    return out, accepting
