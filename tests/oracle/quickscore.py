"""Two-level diagnosis networks, and Quickscore: their posteriors by inclusion and exclusion.

Diseases d_i with priors p_i cause findings by noisy-or, P(f_j absent | d) = (1 - l_j) prod over
causes i of (1 - q_ij)^d_i, with a leak l_j. With findings A absent and B present (Heckerman 1989)

    P(A, B) = sum over S of B of (-1)^|S| prod_{j in A + S} (1 - l_j) prod_i (1 - p_i + p_i r_i(S)),

r_i(S) = prod over j in A + S of (1 - q_ij): 2^|B| terms, each a product over diseases. The signs
cancel digits, in long doubles all of them from some 15 present findings on (``Score.slip`` bounds
that), so there is the same sum without signs: over the sets of present findings that somebody
causes, each disease by itself, P(T) = sum over U with U + V = T of P(U) P_i(V). Both are of
2^|B| numbers; tests hold one against the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minfer import FactorGraph
from oracle.truth import WIDE


class Diagnosis(NamedTuple):
    priors: np.ndarray  # (D,)
    causes: list[np.ndarray]  # of each finding, numbers of diseases
    strength: list[np.ndarray]  # q of each of them
    leak: np.ndarray  # (F,)
    absent: list[int]
    present: list[int]

    def graph(self) -> FactorGraph:
        """With tables of all causes' states, and the findings as evidence."""
        n = len(self.priors)
        tables: list[np.ndarray] = [np.array([1 - p, p]) for p in self.priors]
        scopes = [[v] for v in range(n)]
        for j, (causes, q) in enumerate(zip(self.causes, self.strength)):
            none = np.array(1 - self.leak[j])
            for x in q:
                none = np.multiply.outer(none, [1.0, 1 - x])
            tables.append(np.stack([none, 1 - none], axis=-1))
            scopes.append([*causes.tolist(), n + j])
        with np.errstate(divide="ignore"):
            logs = [np.log(t) for t in tables]
        graph = FactorGraph.empty([2] * (n + len(self.causes))).add_tables(scopes, logs)
        seen = {n + j: 0 for j in self.absent} | {n + j: 1 for j in self.present}
        return graph.with_evidence(seen)


class Score(NamedTuple):
    log_p: float  # of the findings
    posterior: np.ndarray  # (D,)
    slip: float  # relative error that rounding may have left


def drawn(
    seed: int, diseases: int, findings: int, most_causes: int, absent: int, present: int
) -> Diagnosis:
    """Findings as a patient with some of the diseases has them."""
    rng = np.random.default_rng(seed)
    priors = rng.uniform(0.005, 0.1, diseases)
    sizes = rng.integers(1, most_causes + 1, findings)
    causes = [np.sort(rng.choice(diseases, k, replace=False)) for k in sizes]
    strength = [rng.uniform(0.1, 0.95, k) for k in sizes]
    leak = rng.uniform(0.005, 0.05, findings)
    ill = rng.random(diseases) < 3 * priors
    healthy = [(1 - lo) * np.prod(np.where(ill[c], 1 - q, 1.0)) for c, q, lo in
               zip(causes, strength, leak)]  # fmt: skip
    found = rng.random(findings) > healthy
    order = rng.permutation(findings)
    likely = sorted(order.tolist(), key=lambda j: -int(found[j]))
    yes, no = likely[:present], likely[findings - absent :]
    return Diagnosis(priors, causes, strength, leak, no, yes)


def quickscore(model: Diagnosis) -> Score:
    """P(findings) and the posterior of each disease."""
    n, k = len(model.priors), len(model.present)
    scale = np.ones(n, dtype=WIDE)  # r_i of what is absent
    whole = WIDE(1)
    for j in model.absent:
        whole *= 1 - WIDE(model.leak[j])
        scale[model.causes[j]] *= 1 - model.strength[j].astype(WIDE)
    terms = np.ones((1,) * k, dtype=WIDE)
    for a, j in enumerate(model.present):
        terms = terms * _along(np.array([1, -(1 - WIDE(model.leak[j]))]), a, k)
    parts = []
    for i in range(n):
        ill = model.priors[i].astype(WIDE) * scale[i] * np.ones((1,) * k, dtype=WIDE)
        for a, j in enumerate(model.present):
            for q in model.strength[j][model.causes[j] == i]:
                ill = ill * _along(np.array([1, 1 - WIDE(q)]), a, k)
        parts.append((ill, 1 - model.priors[i].astype(WIDE) + ill))
        terms = terms * parts[-1][1]
    total = terms.sum()
    each = [(terms * (ill / both)).sum() / total for ill, both in parts]
    slip = np.finfo(WIDE).eps * (2 * n + 4 * k) * np.abs(terms).sum() / abs(total)
    return Score(float(np.log(total) + np.log(whole)), np.array(each, dtype=float), float(slip))


def without_signs(model: Diagnosis, most: int = 1000) -> Score:
    """The same by sums of numbers that are not negative; posteriors of ``most`` diseases that cause
    something present, and of all that do not; NaN of others."""
    n, k = len(model.priors), len(model.present)
    log_rest = float(np.log1p(-model.leak[model.absent]).sum())
    ill, caused = model.priors.copy(), [[] for _ in range(n)]
    for j in model.absent:
        ill[model.causes[j]] *= 1 - model.strength[j]
    for a, j in enumerate(model.present):
        for i, q in zip(model.causes[j].tolist(), model.strength[j].tolist()):
            caused[i].append((a, q))

    def with_ill(p: np.ndarray, i: int) -> np.ndarray:
        out = p * ill[i]
        for a, q in caused[i]:
            no, yes = np.moveaxis(out, a, 0)
            yes += q * no
            no *= 1 - q
        return out

    def with_any(p: np.ndarray, some: list[int]) -> np.ndarray:
        for i in some:
            p = (1 - model.priors[i]) * p + with_ill(p, i)
        return p

    joint = np.full(n, np.nan)

    def each(p: np.ndarray, some: list[int]) -> None:
        """Of some diseases, when all others are in ``p``."""
        if len(some) == 1:
            joint[some[0]] = with_ill(p, some[0]).flat[-1]
            return
        left, right = some[: len(some) // 2], some[len(some) // 2 :]
        each(with_any(p, right), left)
        each(with_any(p, left), right)

    start = np.ones((1,) * k)
    for a, j in enumerate(model.present):
        start = start * _along(np.array([1 - model.leak[j], model.leak[j]]), a, k, float)
    causes = [i for i in range(n) if caused[i]]
    total = with_any(start, causes).flat[-1]
    each(with_any(start, causes[most:]), causes[:most])
    joint /= total
    others = np.setdiff1d(np.arange(n), causes)
    free = 1 - model.priors[others] + ill[others]
    joint[others] = ill[others] / free
    return Score(float(np.log(total) + np.log(free).sum() + log_rest), joint, 1e-12)


def _along(pair: np.ndarray, axis: int, n: int, dtype: type = WIDE) -> np.ndarray:
    """Two numbers along one axis of n."""
    return pair.astype(dtype).reshape([2 if a == axis else 1 for a in range(n)])
