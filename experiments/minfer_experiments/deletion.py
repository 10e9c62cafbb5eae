"""Edge deletion, the baseline that needs the full model solved first (Choi & Darwiche 2006).

Removing factor i from F costs

    D(p_F || p_{F - i}) = log E_F[1 / Psi_i] + E_F[log Psi_i] = g(mu^F_i, -theta_i),

the gain of adding its inverse, from the marginals of F itself. The paper's point is to avoid that
inference; this is what it would buy. With ``compensate`` the deleted factors leave their messages
at the fixed point of the full model behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minfer.errors import ModelError
from minfer.reduction import seeds
from minfer.reduction.compensation import compensate as compensation_of
from minfer.reduction.parts_of_infer import Clock, Seed, edge_weights, seed_mask, with_edge_weights
from minfer.reduction.result import Result

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.objectives import SelectionObjective
    from minfer.solvers.base import Marginals, Solver

_PASSES = 5  # of the deleted factors' messages towards those of the full model


def deletion_costs(model: FactorGraph, full: Marginals, seed: np.ndarray) -> np.ndarray:
    """D(p_F || p_{F - i}) of every factor outside the seed, shape (F,); infinite on the seed."""
    if full.graph.n_factors != model.n_factors:
        raise ModelError("deletion_costs: the marginals must be those of the full model")
    out = np.full(model.n_factors, np.inf)
    for g in model.groups:
        rows = np.flatnonzero(~seed[g._span])
        if g.form == "messages" or not len(rows):
            continue
        part = g.take(rows, g._ids[rows])
        values = np.empty(len(part))
        part.removal_costs(np.ascontiguousarray(full.factors(part._ids)), values)
        out[part._ids] = values
    return out


def delete(
    model: FactorGraph,
    full: Marginals,
    objective: SelectionObjective,
    solver: Solver,
    seed: Seed = seeds.unary_and_globals,
    compensate: bool = False,
) -> Result:
    """Drop the factors whose removal costs least by the full model's marginals, and infer again.

    Parameters
    ----------
    model : FactorGraph
    full : Marginals
        The solver's answer for the full model.
    objective : as for :func:`minfer.infer`, over removal costs instead of gains
    solver : Solver
    seed : never deleted
    compensate : bool
        Deleted factors leave their messages behind.
    """
    clock = Clock()
    mask = seed_mask(model, seed)
    costs = deletion_costs(model, full, mask)
    clock.lap("scores")
    keep = objective(costs)
    clock.lap("select")
    part, left = model.keep(keep), None
    if compensate and not keep.all():
        rho = edge_weights(solver, model, keep)
        left = compensation_of(model, full.probs, keep, store=True, rho=rho)
        solver = with_edge_weights(solver, rho, model)
        for _ in range(_PASSES):
            left = left.refreshed(full.probs)
        part = part.tilt(left.field)
    clock.lap("compensate")
    answer = solver(part, full)
    clock.lap("infer")
    return Result(model, answer, full, keep, mask, costs, "deletion", clock.laps, left)
