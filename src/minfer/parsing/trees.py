"""Tree factors: the arcs that are on form a dependency tree (Smith & Eisner 2008).

Words are 1 .. n and 0 is the root. One binary variable per candidate arc (head, modifier), and

    psi(y) = 1 if every word has exactly one head and all hang on the root, 0 otherwise

with exactly one child of the root, or any number (``single_root=False``); :class:`ProjectiveTree`
asks in addition that no two arcs cross. With incoming messages q the factor needs Z, the sum over
trees of the product of r_a = q_a(1) / q_a(0), and its derivatives D_a:

    out_a(1) = D_a prod_{c != a} q_c(0)     out_a(0) = (sum_b r_b D_b) prod_{c != a} q_c(0)

where b runs over the rivals of a, the other arcs into the same word: a tree has one of them. All
terms are positive, so messages are exact to rounding however close to 0 or 1 an arc is, and a zero
or forced arc is only a special weight. ``minfer.kernels.trees.trees`` says how Z and D are
computed.

:func:`tree_marginals` answers directly, for one sentence or many; :func:`eisner` and
:func:`chu_liu_edmonds` find the best tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, integer, integers, real_numbers, told
from minfer.errors import ContradictionError, ModelError
from minfer.factors.group import read_only
from minfer.parsing.projective import is_projective, tree_fault

MOST_WORDS = 2**15 - 1  # arcs are numbered in 32 bits
DENSE = 3  # the sparse chart pays below n^2 / DENSE candidate arcs


def all_arcs(n_words: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every arc of a sentence, ``heads`` and ``modifiers`` (n^2,), by head and then modifier."""
    can = np.ones((n_words + 1, n_words + 1), dtype=bool)
    can[:, 0] = False
    np.fill_diagonal(can, False)
    heads, modifiers = np.nonzero(can)
    return heads.astype(np.int32), modifiers.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Tree:
    """What both tree factors share; use :class:`ProjectiveTree` or :class:`NonProjectiveTree`.

    Parameters
    ----------
    heads, modifiers : (A,) integers
        The candidate arcs, in the order of the factor's scope; no arc twice.
    n_words : int
    single_root : bool
        Whether the root has exactly one child, or any number from one.
    """

    heads: NDArray[np.int32]
    modifiers: NDArray[np.int32]
    n_words: int
    single_root: bool = True
    _heads: NDArray[np.int32] = field(init=False, repr=False)
    _modifiers: NDArray[np.int32] = field(init=False, repr=False)
    _order: NDArray[np.int64] = field(init=False, repr=False)  # (A,) arcs by modifier
    _start: NDArray[np.int64] = field(init=False, repr=False)  # (n + 2,) where a modifier's begin
    _plan: NDArray[np.int32] = field(init=False, repr=False)  # no column: the dense chart
    _dead: NDArray[np.uint8] = field(init=False, repr=False)  # (A,) in no tree of candidates

    projective: ClassVar[bool]

    def __post_init__(self) -> None:
        n_words = integer(self.n_words)
        if n_words is None or n_words < 1:
            raise ModelError(f"a tree needs at least one word, not {told(self.n_words)}")
        if n_words > MOST_WORDS:
            raise ModelError(f"a tree of {n_words:,} words is too large: at most {MOST_WORDS:,}")
        check_flag("single_root", self.single_root)
        heads, modifiers = _checked_arcs(self.heads, self.modifiers, n_words)
        dead = np.zeros(len(heads), dtype=np.uint8)
        order = np.argsort(modifiers, kind="stable").astype(np.int64)
        start = np.searchsorted(modifiers[order], np.arange(n_words + 2)).astype(np.int64)
        plan = np.empty((8, 0), dtype=np.int32)
        size = n_words + 1
        if len(heads) < n_words**2:
            from minfer.kernels.trees import trees
            from minfer.kernels.trees.projective import plan_arcs

            if self.projective and DENSE * len(heads) < n_words**2:
                plan = np.zeros((8, len(heads) + size + 1), dtype=np.int32)
                plan_arcs(heads, modifiers, size, plan)
            trees.find_dead(
                self.projective, bool(self.single_root), size, heads, modifiers, plan,
                np.zeros(len(heads)), dead, np.empty(trees.float_scratch(size)),
                np.empty(trees.int_scratch(size), dtype=np.int64),
            )  # fmt: skip
        values = {
            "heads": read_only(heads), "modifiers": read_only(modifiers), "n_words": n_words,
            "single_root": bool(self.single_root), "_heads": heads, "_modifiers": modifiers,
            "_order": order, "_start": start, "_plan": plan, "_dead": dead,
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._heads, self._modifiers, self.n_words, self.single_root)

    def messages(
        self, incoming: NDArray[np.float64], out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See :meth:`minfer.factors.GlobalFactor.messages`."""
        from minfer.kernels.trees.trees import tree_messages

        log_z, result = np.empty(len(incoming)), np.empty(2 * len(self._heads))
        for i, row in enumerate(np.require(incoming, np.float64, ["C", "W"])):
            log_z[i] = tree_messages(
                self.projective, self.single_root, self.n_words + 1, self._heads, self._modifiers,
                self._plan, self._dead, self._order, self._start, row, result,
            )  # fmt: skip
            out[i] = result
        return log_z

    def max_messages(
        self, incoming: NDArray[np.float64], out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The same by maxima over trees: the best with each arc, and without, by decoding."""
        tops = np.empty(len(incoming))
        rows = np.asarray(incoming, dtype=np.float64).reshape(len(incoming), -1, 2)
        for i, row in enumerate(rows):
            tops[i] = self._best(row)
            for arc in range(len(row)):
                for state in (0, 1):
                    one = row.copy()
                    one[arc] = -np.inf
                    one[arc, state] = 0.0
                    out[i, 2 * arc + state] = self._best(one)
        return tops

    def _best(self, q: NDArray[np.float64]) -> float:
        """The largest sum of the messages (A, 2) of arcs over all trees."""
        from minfer.parsing.kernels.decode import decode

        n = self.n_words + 1
        heads = np.empty(n, np.int64)
        forced = np.isneginf(q[:, 0])
        base = np.where(forced, 0.0, q[:, 0])
        gain = q[:, 1] - base
        n_forced = np.bincount(self._modifiers[forced], minlength=n)
        gain[~forced & (n_forced[self._modifiers] > 0)] = -np.inf  # rivals of a forced arc
        if (n_forced > 1).any():
            return -np.inf
        scores = np.full((n, n), -np.inf)
        scores[self._heads, self._modifiers] = gain
        there_is = decode(self.projective, self.single_root, scores, heads)
        if not there_is or not is_tree(heads, self.projective, self.single_root):
            return -np.inf
        return float(base.sum() + scores[heads[1:], np.arange(1, n)].sum())

    def score(self, assignments: NDArray[np.int64]) -> NDArray[np.float64]:
        """0 where the arcs that are on form a tree, minus infinity elsewhere."""
        return np.array([self._score(row) for row in np.asarray(assignments)])

    def _score(self, assignment: NDArray[np.int64]) -> float:
        on = np.flatnonzero(assignment)
        if len(on) != self.n_words:
            return -np.inf
        heads = np.full(self.n_words + 1, -1, dtype=np.int64)
        heads[self._modifiers[on]] = self._heads[on]
        return 0.0 if is_tree(heads, self.projective, self.single_root) else -np.inf


class ProjectiveTree(Tree):
    """The arcs form a projective dependency tree; inside-outside, O(n^3) or less if pruned.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> from minfer.parsing.trees import ProjectiveTree, all_arcs
    >>> heads, modifiers = all_arcs(2)
    >>> arcs = FactorGraph.pairwise(np.zeros(4), [], [])  # 0-1, 0-2, 1-2, 2-1, all alike
    >>> tree = arcs.add_global([0, 1, 2, 3], ProjectiveTree(heads, modifiers, 2))
    >>> [round(float(p[1]), 3) for p in (BeliefPropagation()(tree)[a] for a in range(4))]
    [0.5, 0.5, 0.5, 0.5]
    """

    projective = True


class NonProjectiveTree(Tree):
    """The arcs form a dependency tree, crossing or not; the matrix-tree theorem, O(n^3)."""

    projective = False


def tree_marginals(
    scores: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    projective: bool = True,
    single_root: bool = True,
) -> tuple[NDArray[Any], Any]:
    """Arc probabilities and log Z of all trees, P(tree) = exp(sum of its scores) / Z.

    Parameters
    ----------
    scores : float array (N, N), or (B, N, N) for B sentences in one call
        [head, modifier] of N - 1 words and the root, 0; the diagonal and column 0 are not read. An
        impossible arc has minus infinity; -1e9 will do, but digits are lost if every tree needs
        such an arc.
    lengths : int array (B,), optional
        Words of each sentence of a batch; by default all have N - 1. Sentence b is in its first
        ``lengths[b] + 1`` rows and columns; what lies beyond is not read, and its probabilities
        are 0.
    projective : bool
        Only trees without crossing arcs.
    single_root : bool
        Only trees with one child of the root.

    Returns
    -------
    The probabilities, in the shape of the scores, those into a word summing to one; and log Z, a
    float, or an array (B,). A batch in float32 gives probabilities in float32, good to about 1e-5;
    all others float64, good to about 1e-11.
    """
    if real_numbers(scores, "arc scores").ndim != 2:
        return _batch_marginals(scores, lengths, projective, single_root)
    if lengths is not None:
        raise ModelError("lengths are for a batch: give scores of shape (B, N, N)")
    clean, one = checked_scores(scores), np.zeros(1, dtype=np.int64)
    mu, log_z, _ = _batch(clean.reshape(-1), one + len(clean), one, one, projective, single_root)
    if log_z[0] == -np.inf:
        raise no_tree(projective, single_root)
    return mu.reshape(clean.shape), float(log_z[0])


def _batch_marginals(
    scores: ArrayLike, lengths: ArrayLike | None, projective: bool, single_root: bool
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    given = real_numbers(scores, "arc scores")
    clean = np.ascontiguousarray(given, np.float32 if given.dtype == np.float32 else np.float64)
    _check_shape(clean.shape)
    if not clean.flags.writeable:  # compiled code would take it for another type
        clean = clean.copy()
    batch, n = clean.shape[:2]
    n_nodes, order = checked_lengths(lengths, batch, n) + 1, np.arange(batch)
    used, packed, start = None, clean.reshape(-1), order * (n * n)
    if (n_nodes < n).any():  # sentence after sentence, row after row
        inside = np.arange(n) < n_nodes[:, None]
        used = inside[:, :, None] & inside[:, None, :]
        packed = clean[used]
        start = np.cumsum(n_nodes**2) - n_nodes**2
        order = np.argsort(n_nodes, kind="stable")
    mu, log_z, fine = _batch(packed, n_nodes, start, order, projective, single_root)
    if not fine:
        _refuse_scores(clean, n_nodes)
        b = int(np.flatnonzero(~np.isfinite(log_z))[0])
        if log_z[b] == -np.inf:
            error = no_tree(projective, single_root)
            raise type(error)(f"sentence {b}: {error}")
        raise ModelError(
            f"sentence {b}: scores so large that their sums overflow; subtract the largest score "
            "of a word's heads from all of them first"
        )
    if used is None:
        return mu.reshape(clean.shape), log_z
    out = np.zeros_like(clean)
    out[used] = mu
    return out, log_z


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < 2:
        raise ModelError(f"arc scores must have shape (N, N) or (B, N, N) with N >= 2, not {shape}")


def checked_lengths(lengths: ArrayLike | None, batch: int, n: int) -> NDArray[np.int64]:
    """Words of each of a batch of sentences with scores for up to n - 1."""
    if lengths is None:
        return np.full(batch, n - 1)
    words = integers(lengths, "lengths")
    if words.shape != (batch,):
        raise ModelError(f"lengths must be {batch} integers, not {words.dtype} {words.shape}")
    for b in np.flatnonzero((words < 1) | (words >= n)).tolist():
        raise ModelError(f"sentence {b}: {words[b]} words, but scores for 1 to {n - 1}")
    return words.astype(np.int64)


def checked_batch(
    scores: Any, lengths: ArrayLike | None, projective: bool, single_root: bool
) -> NDArray[np.int64]:
    """The same, once all else but the scores themselves has been looked at."""
    check_flag("projective", projective)
    check_flag("single_root", single_root)
    _check_shape(tuple(scores.shape))
    return checked_lengths(lengths, len(scores), scores.shape[1])


def eisner(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best projective tree, -1 at 0; O(n^3).

    ``scores`` (n+1, n+1) [head, modifier], minus infinity where there is no arc. The same scores
    give the same tree, ties or not. Under arc probabilities it is the tree with the most expected
    correct arcs: minimum Bayes risk, as in the paper's section 5.2.
    """
    return _best_tree(scores, True, single_root)


def chu_liu_edmonds(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best tree, crossing arcs or not, -1 at 0; exact for a single root too.

    ``scores`` as for :func:`eisner`.
    """
    return _best_tree(scores, False, single_root)


def _best_tree(scores: ArrayLike, projective: bool, single_root: bool) -> NDArray[np.int64]:
    from minfer.parsing.kernels.decode import decode

    check_flag("single_root", single_root)
    clean = checked_scores(scores)
    heads = np.empty(len(clean), dtype=np.int64)
    if not decode(projective, bool(single_root), clean, heads):
        raise no_tree(projective, single_root)
    return heads


def is_tree(heads: NDArray[np.int64], projective: bool, single_root: bool) -> bool:
    """Whether ``heads`` (n+1,), entry 0 unused and -1 for none, is a tree of the kind asked for."""
    words: list[int] = heads[1:].tolist()
    if tree_fault(words, multi_root=not single_root) is not None:
        return False
    return not projective or is_projective(words)


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """A copy of arc scores (n+1, n+1) for the kernels, minus infinity where no arc can be."""
    copy = np.array(real_numbers(scores, "arc scores"), dtype=np.float64, order="C")
    if copy.ndim != 2 or copy.shape[0] != copy.shape[1] or len(copy) < 2:
        raise ModelError(f"arc scores must have shape (n+1, n+1) for n >= 1, not {copy.shape}")
    copy[:, 0] = -np.inf
    np.fill_diagonal(copy, -np.inf)
    if not (copy < np.inf).all():
        h, m = (int(i) for i in np.argwhere(~(copy < np.inf))[0])
        raise ModelError(f"arc {h} -> {m}: score {copy[h, m]}; scores are finite or minus infinity")
    return copy


def no_tree(projective: bool, single_root: bool) -> ContradictionError:
    kind = "projective tree" if projective else "tree"
    root = "exactly one child of the root" if single_root else "any number of children of the root"
    return ContradictionError(
        f"no {kind} with {root} can be made of the arcs whose score is above minus infinity"
    )


def _batch(
    packed: NDArray[Any],
    n_nodes: NDArray[np.int64],
    start: NDArray[np.int64],
    order: NDArray[np.int64],
    projective: bool,
    single_root: bool,
) -> tuple[NDArray[Any], NDArray[np.float64], bool]:
    """mu, log Z, and whether it is finite throughout; arguments as of the kernel."""
    check_flag("projective", projective)
    check_flag("single_root", single_root)
    from minfer.kernels.trees.trees import batch_marginals

    mu, log_z = np.empty_like(packed), np.empty(len(n_nodes))
    fine = batch_marginals(
        bool(projective), bool(single_root), n_nodes, start, order, packed, mu, log_z
    )
    return mu, log_z, fine


def _refuse_scores(scores: NDArray[Any], n_nodes: NDArray[np.int64]) -> None:
    """An error if a score that will be read is NaN or infinite; others may be anything."""
    node = np.arange(scores.shape[1])
    inside = node < n_nodes[:, None]
    arcs = inside[:, :, None] & inside[:, None, :] & (node > 0) & (node[:, None] != node)
    for b, h, m in np.argwhere(arcs & ~(scores < np.inf)).tolist():
        raise ModelError(
            f"sentence {b}, arc {h} -> {m}: score {scores[b, h, m]}; scores are finite or minus "
            "infinity"
        )


def _checked_arcs(
    heads: ArrayLike, modifiers: ArrayLike, n_words: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    h, m = integers(heads, "heads"), integers(modifiers, "modifiers")
    if h.ndim != 1 or h.shape != m.shape:
        raise ModelError(f"heads and modifiers must both have shape (A,), not {h.shape}, {m.shape}")
    bad = (h < 0) | (h > n_words) | (m < 1) | (m > n_words) | (h == m)
    if bad.any():
        a = int(np.flatnonzero(bad)[0])
        raise ModelError(
            f"arc {a}: {h[a]} -> {m[a]}; heads are 0 to {n_words}, modifiers 1 to {n_words}, and "
            "no word is its own head"
        )
    code = h.astype(np.int64) * (n_words + 1) + m
    _, first = np.unique(code, return_index=True)
    if len(first) != len(code):
        a = int(np.setdiff1d(np.arange(len(code)), first)[0])
        raise ModelError(f"arc {a}: {h[a]} -> {m[a]} is given twice")
    return h.astype(np.int32), m.astype(np.int32)
