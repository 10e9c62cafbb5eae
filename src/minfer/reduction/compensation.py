"""Compensation: an ignored factor leaves its unary part behind.

The paper's conclusion names "reparametrization of the remaining factors" as future work (Riedel,
Smith & McCallum 2010, section 6; Choi & Darwiche 2006 do it for deleted edges). Here every ignored
factor i sends one message of belief propagation to each of its variables, and falls silent:

    c_{i -> a}(x_a) = log sum_{x_i \\ x_a} Psi_i(x_i) prod_{b != a} q_b(x_b),
    p_H'(x)  proportional to  prod_{i in H} Psi_i(x) * exp( sum_{i ignored} sum_a c_{i -> a}(x_a) ),

q the seed's marginals. What is left of the factor after that is its interaction, the *residual*
(:mod:`minfer.reduction.gains`). A *refresh* sends the messages again from the marginals of H', now
with the cavities q_b ∝ p_b e^{-c_{i -> b}}, since p_b already knows about the factor. Refreshed
until nothing changes this is belief propagation on the full model, so every refresh is a step
towards its fixed point, and the size of the next step says how far away it still is.

If the solver is tree-reweighted, so are the messages: with the edge appearance probabilities rho of
the full model, psi^(1/rho) stands for psi, and c counts rho times (Wainwright et al. 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError, RefusedError
from minfer.factors.features import binary_pairs
from minfer.factors.group import FactorGroup, Floats, Mask, n_entries

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

_MAX_ODDS = 1e100
_CHUNK = 1 << 22


class Dropped(NamedTuple):
    """Dropped factors of one shape: n log-tables, or one for all, over A variables each."""

    scope: NDArray[np.int32]  # (n, A)
    log_psi: Floats  # (n, cells) or (1, cells), the last variable fastest
    shape: tuple[int, ...]  # (S_1, ..., S_A)


def too_large(model: FactorGraph, keep: Mask) -> str:
    """A factor outside a mask (F,) that is too large for a table, in words, if there is one."""
    for g in model.groups:
        outside = ~keep[g._ids]
        if g.form != "messages" and not g.has_tables and outside.any():
            number = int(g._ids[int(np.argmax(outside))])
            over = f"{g._a_noun} over {g.arity} variables"
            return f"factor {number}, {over}, is too large for a table"
    return ""


def ignored(model: FactorGraph, keep: Mask) -> list[Dropped]:
    """The factors outside a mask (F,) as :func:`minfer.reduction.bound.certificate` takes them."""
    batches = []
    for g in model.groups:
        rows = np.flatnonzero(~keep[g._ids])
        if not len(rows):
            continue
        if g.form == "messages":
            what = f"factor {int(g._ids[rows[0]])} is {g._a_noun}"
            raise ModelError(f"{what} and has no table: it cannot be dropped")
        tables = g.stored_tables() if g.shared else g.log_tables(rows)
        batches.append(Dropped(g._scope[rows], tables, g.shape))
    return batches


@dataclass(frozen=True, eq=False)
class Compensation:
    """Messages of the ignored factors and what they add up to.

    Attributes
    ----------
    field : float array (sum of states,)
        Log-weights for :meth:`FactorGraph.tilt`.
    messages : one array per group, or None
        Odds (F, 2) of binary pairs, log-messages (F, S_1 + ... + S_A) of others.
    rho : float array (F,) or None
        Edge appearance probabilities of the full model; None means 1.
    """

    model: FactorGraph
    keep: NDArray[np.bool_]
    probs: NDArray[np.float64]
    field: NDArray[np.float64]
    messages: tuple[NDArray[np.float64], ...] | None
    rho: NDArray[np.float64] | None = None

    def remembered(self) -> Compensation:
        """The same with its messages, sent again if they were not stored."""
        if self.messages is not None:
            return self
        return compensate(self.model, self.probs, self.keep, store=True, rho=self.rho)

    def refreshed(
        self,
        probs: NDArray[np.float64],
        damping: float = 0.0,
        keep: NDArray[np.bool_] | None = None,
    ) -> Compensation:
        """New messages from new marginals; of fewer factors where more are kept by now."""
        old = self.remembered()
        assert old.messages is not None
        messages = tuple(m.copy() for m in old.messages)
        field = self.field
        if keep is None or np.array_equal(keep, self.keep):
            keep = self.keep
        else:  # anew, so that nothing stays of those that are kept by now, not even rounding
            field = _left_behind(self.model, old.messages, ~keep, self.rho)
        return _send(self.model, probs, keep, messages, damping, field, self.rho)

    def residues(self) -> list[Dropped]:
        """What is left of the ignored factors: with the reduced model, exactly the full one.

        Every rigorous statement rests on F = H' + residues, H' the kept factors tilted by
        ``field``. Each table is taken less its own messages, which keeps bounds tight; a constant
        left nothing behind and stays whole; and where ``field`` is not the sum of the messages
        (odds are cut at 1e250) the difference is a residue of its own.
        """
        old = self.remembered()
        assert old.messages is not None
        out = []
        for g, m in zip(self.model.groups, old.messages):
            rows = np.flatnonzero(~self.keep[g._span])
            if g.form == "messages" or not len(rows) or g.arity == 1:
                continue
            tables = np.array(g.log_tables(rows)).reshape(len(rows), *g.shape)
            for axis, part in enumerate(log_messages(g, m, rows, self.rho)):
                tables -= part.reshape(len(rows), *(-1 if b == axis else 1 for b in range(g.arity)))
            out.append(Dropped(g._scope[rows], tables.reshape(len(rows), -1), g.shape))
        told = _left_behind(self.model, old.messages, ~self.keep, self.rho)
        with np.errstate(invalid="ignore"):
            rest = np.where(told == self.field, 0.0, told - self.field)
        sizes = self.model._n_states
        for size in np.unique(sizes):
            variables = np.flatnonzero(sizes == size).astype(np.int32)
            tables = rest[self.model._offsets[variables][:, None] + np.arange(size)]
            some = tables.any(axis=1)
            if some.any():
                out.append(Dropped(variables[some, None], tables[some], (int(size),)))
        return out


def compensate(
    model: FactorGraph,
    probs: Floats,
    keep: Mask,
    store: bool = False,
    rho: NDArray[np.float64] | None = None,
) -> Compensation:
    """First messages of all factors outside ``keep``, from marginals that do not know them.

    ``keep`` (F,) must hold for every global factor; ``store`` remembers the messages, as a refresh
    needs; ``rho`` (F,) are edge appearance probabilities, if the solver is tree-reweighted.
    """
    messages = tuple(_silence(g) for g in model.groups) if store else None
    unary = ~keep & (model.arity < 2)
    field = np.zeros(int(model._offsets[-1]))
    if unary.any():
        field = _left_behind(model, tuple(_silence(g) for g in model.groups), unary, None)
    return _send(model, probs, keep, messages, 0.0, field, rho)


def _is_pair(group: FactorGroup) -> bool:
    return group.form == "table" and group.shape == (2, 2)


def _silence(group: FactorGroup) -> NDArray[np.float64]:
    if group.form == "messages" or group.arity < 2:
        return np.zeros((0, 0))
    return np.ones((len(group), 2)) if _is_pair(group) else np.zeros((len(group), sum(group.shape)))


def _send(
    model: FactorGraph,
    probs: NDArray,
    keep: NDArray[np.bool_],
    messages: tuple[NDArray, ...] | None,
    damping: float,
    field: NDArray[np.float64],
    rho: NDArray[np.float64] | None,
) -> Compensation:
    """Messages of all ignored factors of arity 2 and more; earlier ones are overwritten."""
    from minfer.kernels.messages import compensation as k

    if which := too_large(model, keep):
        raise RefusedError(
            f"{which}, and what it leaves behind is computed from tables: put it into the seed, or "
            "infer without compensation"
        )
    now = np.array(probs)  # moved by every message
    field = field.copy()
    binary = model._n_states == 2
    first = model._offsets[:-1][binary]
    none = np.zeros((0, 0))
    for i, g in enumerate(model.groups):
        here = np.ascontiguousarray(keep[g._span])
        if g.form == "messages" or g.arity < 2 or here.all():
            continue
        m = none if messages is None else messages[i]
        weight = np.zeros(0) if rho is None else np.ascontiguousarray(rho[g._span])
        if _is_pair(g):
            values, basis = g.pair_values()
            truth = basis[0] > 0 if len(basis) == 1 else np.zeros(4, dtype=bool)
            off, on = binary_pairs(now, model._offsets).T
            before = np.clip(on / np.maximum(off, 1 / _MAX_ODDS), 1 / _MAX_ODDS, _MAX_ODDS)
            belief = before.copy()
            k.pair_messages(g._scope, values, truth, here, weight, belief, m, damping)
            field[first + 1] += np.log(belief / before)[binary]
            belief = belief[binary]
            now[first], now[first + 1] = 1 / (1 + belief), belief / (1 + belief)
        else:
            sizes = np.array(g.shape, dtype=np.int64)
            step = max(1, _CHUNK // n_entries(g.shape))
            for a in range(0, len(g), step):
                rows = slice(a, a + step)
                tables = g.stored_tables() if g.shared else g.log_tables(rows)
                k.table_messages(
                    g._scope[rows], np.require(tables, requirements=["C", "W"]), sizes, here[rows],
                    weight[rows], model._offsets, now, m[rows], damping, field,
                )  # fmt: skip
    return Compensation(model, keep, probs, field, messages, rho)


def _left_behind(
    model: FactorGraph,
    messages: tuple[NDArray, ...],
    which: NDArray[np.bool_],
    rho: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """What some factors left behind, shape (sum of states,); unary factors leave all they are."""
    field = np.zeros(int(model._offsets[-1]))
    for g, m in zip(model.groups, messages):
        rows = np.flatnonzero(which[g._span])
        if g.form == "messages" or not len(rows):
            continue
        first = model._offsets[g._scope[rows]]  # (n, A)
        for a, part in enumerate(log_messages(g, m, rows, rho)):
            where = first[:, a, None] + np.arange(g.shape[a])
            field += np.bincount(where.ravel(), part.ravel(), minlength=len(field))
    return field


def log_messages(
    group: FactorGroup,
    messages: NDArray[np.float64],
    rows: NDArray[np.int64],
    rho: NDArray[np.float64] | None,
) -> list[NDArray[np.float64]]:
    """What some factors of a group told each of their variables, A arrays (n, S_a)."""
    if group.arity == 0:
        return []
    if group.arity == 1:
        return [np.asarray(group.log_tables(rows))]
    power = np.ones((len(rows), 1)) if rho is None else rho[group._span][rows][:, None]
    if _is_pair(group):
        odds = power * np.log(messages[rows])
        return [np.stack([np.zeros(len(rows)), odds[:, a]], axis=1) for a in range(2)]
    ends = np.cumsum(group.shape)[:-1]
    return [power * part for part in np.split(messages[rows], ends, axis=1)]
