"""Small models on which libraries trip, and the right answers.

All but the contradiction are binary with scores log_odds_v y_v + w_e [y_a = y_b], so that special
Ising solvers can take them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import reference
from problems import F8, Problem, grid_edges

Shape = tuple[int, int]


class Case(NamedTuple):
    """A model, iterations that are plenty for flooding, and its marginals [V, S] if it has any."""

    about: str
    make: Callable[[], Problem]
    iters: int
    answer: Callable[[Problem], F8] | None


def ising(name: str, log_odds: F8, edges: Any, weights: F8, shape: Shape | None = None) -> Problem:
    return Problem(
        name=name,
        about=name,
        unary=np.stack([np.zeros_like(log_odds), log_odds], axis=1),
        edges=np.asarray(edges, dtype=np.int32),
        tables=weights[:, None, None] * np.eye(2),
        shape=shape,
        log_odds=log_odds,
        weights=weights,
        feature="equal",
    )


def star() -> Problem:
    rng = np.random.default_rng(100)
    edges = np.stack([np.zeros(100, int), np.arange(1, 101)], axis=1)
    return ising("degree 100", rng.normal(0, 1, 101), edges, rng.normal(0, 2, 100))


def chain() -> Problem:
    """Its potentials multiply to more than a float holds."""
    edges = np.stack([np.arange(599), np.arange(1, 600)], axis=1)
    log_odds = np.random.default_rng(600).normal(0, 1, 600)
    return ising("600-variable chain", log_odds, edges, np.full(599, 3.0), (600, 1))


def cycle() -> Problem:
    log_odds = np.random.default_rng(4).normal(0, 1, 4)
    return ising("4-cycle", log_odds, grid_edges(2, 2), np.ones(4), (2, 2))


def path() -> Problem:
    """Four variables in a row: what evidence on a fifth is tried on."""
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    return ising("path", np.random.default_rng(4).normal(0, 1, 4), edges, np.ones(3), (4, 1))


def not_a_number() -> Problem:
    weights = np.array([1.0, np.nan])
    return ising("NaN potential", np.zeros(3), np.array([[0, 1], [1, 2]]), weights)


def contradiction() -> Problem:
    """One table demands y_1 = 0, the other y_1 = 1."""
    tables = np.full((2, 2, 2), -np.inf)
    tables[0, 0, 0] = tables[1, 1, 1] = 0.0
    name = "contradiction"
    return Problem(name, name, np.zeros((3, 2)), np.array([[0, 1], [1, 2]], np.int32), tables)


CASES = {
    "nan": Case("a NaN among the potentials", not_a_number, 20, None),
    "contradiction": Case("every assignment is impossible", contradiction, 20, None),
    "degree": Case("a variable with 100 neighbours (a tree)", star, 10, reference.bp_fixed_point),
    "chain": Case("600 variables in a chain (a tree)", chain, 650, reference.exact_grid),
    "cycle": Case("four variables in a ring", cycle, 200, reference.exact_grid),
}
