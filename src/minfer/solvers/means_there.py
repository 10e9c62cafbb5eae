"""Mean field with its sweeps on a graphics card (:mod:`minfer.device.means`).

The card moves q; its bound on log Z is computed from it on the processor, in float64, so that it is
one whatever q was stored in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.device.means import MeansRun
from minfer.device.runs import Device
from minfer.engine.conditioning import Conditioned
from minfer.engine.message_state import wired
from minfer.engine.wiring import Wired, wire
from minfer.errors import DeviceError
from minfer.solvers.base import Status
from minfer.solvers.on_device import (
    failed,
    laid_out,
    lent,
    log_prior,
    of_pairs,
    sweep_there,
    taken,
    weights,
)

if TYPE_CHECKING:
    from minfer.kernels.messages.layout import SiteLayout
    from minfer.solvers.mean_field import MeanField


class MeansThere(NamedTuple):
    """What a card made of a model."""

    q: NDArray[np.float64]  # (sum S,)
    bound: float  # see :func:`bound`
    status: Status
    residuals: NDArray[np.float64]  # of sweeps forwards and backwards
    planned: float  # when it began
    note: str


def means_there(
    solver: MeanField, model: Conditioned, parts: SiteLayout, idle: NDArray[np.bool_],
    q: NDArray[np.float64], begin: float,
) -> MeansThere | str:  # fmt: skip
    """What becomes of q (sum S,) but for ``idle`` variables (V,); or why it is the processor's."""
    from minfer.kernels.messages.layout import GENERAL

    mesh = wired(model, wire, "wired", False) if model.groups else None
    against = ""
    if mesh is None or not of_pairs(mesh) or (parts.kind == GENERAL).any():
        against = "devices have mean field on binary pairs without zeros so far"
    there, why = taken(solver.device, against, 0 if mesh is None else len(mesh.wiring.rev))
    if there is None or mesh is None:
        return why
    try:
        return _climbed(there, mesh, solver, parts, idle, q, begin)
    except DeviceError as error:
        return failed(solver, error)


def _climbed(
    there: Device, mesh: Wired, solver: MeanField, parts: SiteLayout, idle: NDArray[np.bool_],
    q: NDArray[np.float64], begin: float,
) -> MeansThere:  # fmt: skip
    planned, dtype = clock(), np.dtype("float64" if solver.dtype == "float64" else "float32")
    layout = laid_out(there, mesh, *mesh.by_colour(whole=True))
    with lent(mesh, (layout, dtype, "means"), partial(MeansRun, there, layout, dtype)) as run:
        w = weights(there, mesh, layout, dtype)
        both = (solver.max_iters + 1) // 2
        run.start(log_prior(mesh)[None], w, q[None, 1::2], float(solver.tol), both)
        limit = solver.time_limit
        left = None if limit is None else max(limit - (clock() - begin), 1e-9)
        status, residuals = sweep_there(run, both, left)
        means, swept = run.means()
    q = q.copy()
    which = np.flatnonzero(swept & ~idle)
    q[2 * which + 1], q[2 * which] = means[which], 1.0 - means[which].astype(float)
    name = "float32" if dtype.itemsize == 4 else "float64"
    note = f"on {there.name}, coloured sweeps in {name}"
    return MeansThere(q, bound(parts, idle, q), status, np.abs(residuals), planned, note)


def bound(parts: SiteLayout, idle: NDArray[np.bool_], q: NDArray[np.float64]) -> float:
    """The lower bound on log Z at q of a model of quadratic pairs, less the model's constant."""
    busy = np.repeat(~idle, parts.card)
    mine, one = q[busy], q[1::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(mine > 0.0, mine * (parts.bias[busy] - np.log(mine)), 0.0)
    owner = np.repeat(np.arange(len(one)), np.diff(parts.pair_ptr))
    pairs = parts.qweight * one[owner] * one[parts.qvar]
    return float(parts.constant[0]) + float(entropy.sum()) + 0.5 * float(pairs.sum())
