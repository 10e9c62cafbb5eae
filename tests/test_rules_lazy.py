"""Lazy grounding: what is kept is what a scan of all groundings keeps, and answers agree."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("duckdb")

from draws import blocks, draws, few, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    MinJoint,
    MinSize,
    RefusedError,
    Rules,
    SettingsError,
)
from minfer.reduction.recipes import Compensated
from minfer.rules import lazy
from minfer.rules.blocks import gains, roots
from minfer.rules.model import block_weights, weight_of
from minfer.rules.selection import Selector
from oracle import grounding as oracle


def plain_gain(u: float, w: float) -> float:
    """By the definition: log E[psi] - E[log psi] of psi = e^w where the formula is true."""
    if math.isinf(w):
        return math.inf if u == 1 else -math.log(1 - u)
    top = max(w, 0.0)
    return top + math.log((1 - u) * math.exp(w - top) + u * math.exp(-top)) - w * (1 - u)


def false_by_worlds(block, p, rows=slice(None)):
    """P(formula is false) for some of the rows of a block, world by world."""
    scope = block.scope[rows]
    worlds = np.array(list(itertools.product((0, 1), repeat=scope.shape[1])))
    if block.positive is not None:
        true = (worlds == block.positive).any(axis=1)
    elif block.truth is not None:
        true = block.truth[tuple(worlds.T)].astype(bool)
    else:
        step, accepting = block.automaton
        state = np.zeros(len(worlds), int)
        for a, x in enumerate(worlds.T):
            state = step[a, state, x]
        true = accepting[state].astype(bool)
    total = np.zeros(len(scope))
    for world in worlds[~true]:
        total += np.where(world, p[scope], 1 - p[scope]).prod(axis=1)
    return total


def scan(program, grounding, p) -> tuple[dict, dict]:
    """All factors over two atoms or more: their weights, and their gains."""
    weights, chances = defaultdict(float), {}
    for block in grounding.blocks:
        rule = program.rules[block.rule]
        w = block_weights(block, weight_of(rule, grounding.keys.get(block.rule)))
        if block.scope.shape[1] < 2:
            continue
        for row, chance in enumerate(false_by_worlds(block, p).tolist()):
            at = factor_key(block, row, grounding)
            weights[at] += w[row]
            chances[at] = chance
    return dict(weights), {at: plain_gain(chances[at], w) for at, w in weights.items()}


def factor_key(block, row: int, grounding) -> tuple:
    key = ()
    if block.key is not None:
        key = grounding.keys[block.rule][int(block.key[row])]
    if block.positive is not None:
        signs = block.positive.tolist()
        return block.rule, block.share, key, frozenset(zip(block.scope[row].tolist(), signs))
    what = block.truth.tobytes() if block.truth is not None else block.automaton[0].tobytes()
    return block.rule, key, tuple(block.scope[row].tolist()), what


def lazily_kept(selector, p, threshold: float) -> dict:
    found: dict = defaultdict(float)
    kept = selector.select(p, threshold)
    grounding = selector.grounding(kept)
    for block in grounding.blocks:
        if block.scope.shape[1] == 1:
            continue
        w = block_weights(block, selector.weights(block.rule))
        for row in range(len(block)):
            at = factor_key(block, row, grounding)
            if block.positive is not None:
                assert at not in found, "a factor is there twice"
            found[at] += w[row]
    return dict(found)


THRESHOLDS = (1e-1, 1e-2, 1e-3, 1e-6)


def agrees(program, grounding, selector, p, thresholds=THRESHOLDS) -> int:
    """Whether the same is kept at some thresholds; None: one just below the gain of a factor."""
    weights, all_gains = scan(program, grounding, p)
    ordinary = sorted(g for g in all_gains.values() if 1e-4 < g < math.inf) or [1e-3]
    total = 0
    for threshold in thresholds:
        if threshold is None:
            threshold = 0.999 * ordinary[len(ordinary) // 2]
        found = lazily_kept(selector, p, threshold)
        near = {at for at, g in all_gains.items() if abs(g - threshold) < 1e-9}
        expected = {at for at, g in all_gains.items() if g >= threshold}
        assert set(found) - near == expected - near, threshold
        for at, w in found.items():
            assert w == weights[at] or w == pytest.approx(weights[at])
        total += len(found)
    return total


RULES = [
    "same(x, y) ^ same(y, z) => same(x, z)",
    "same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
    "same(x, y) ^ same(x, z) ^ same(y, z)",
    "link(x, y) ^ link(y, z) => link(x, z)",
    "link(x, y) => link(y, x)",
    "link(x, y) v link(y, x) v s(x)",
    "e(x, k) ^ e(y, k) ^ s(x) => s(y)",
    "e(x, k) ^ e(y, k) ^ x != y ^ s(x) ^ link(x, y) => s(y)",
    "e(x, k) ^ e(y, k) ^ same(x, y) ^ s(x) => s(y)",
    "s(x) ^ s(y) ^ same(x, y)",
    "s(x) v s(y)",
    "s(x) ^ t(y) => link(x, y)",
    "s(x) ^ s(y) ^ s(z) => t(x)",
    "e(x, +k) ^ s(x) => t(x)",
    "same(x, y) => (s(x) <=> s(y))",
    "s(x) => EXIST y link(x, y)",
    "s(x) ^ label(x, l) => t(x)",
    "label(x, l) ^ same(x, y) => label(y, l)",
    "link(x, y) ^ same(x, y) => !s(x)",
    "same(x, y) ^ link(y, A) => s(x)",
    "s(x)",
]


def drawn_program(seed: int) -> Rules:
    """A few rules over a few constants: symmetric, functional, known, outside the candidates."""
    rng = np.random.default_rng(seed)
    names = list("ABCD")
    pairs = [(x, y) for x in names for y in names]
    half = [(x, y) for x, y in pairs if x < y or (x == y and rng.random() < 0.3)]

    def some(rows, share):
        found = [r for r in rows if rng.random() < share]
        return found or rows[:1]

    program = Rules(unbound="domain")
    program.closed("e", some([(x, k) for x in names for k in "PQR"], 0.7), types=("o", "k"))
    same = some(half, rng.choice([0.6, 1.0]))
    program.open("same", same, types=("o", "o"), symmetric=True)
    if rng.random() < 0.5:
        program.open("link", some(pairs, 0.7), types=("o", "o"))
    else:
        program.open("link", types=("o", "o"))
    program.open("s", types=("o",)).open("t", some([(x,) for x in names], 0.6), types=("o",))
    labels = [(x, k) for x in names for k in "UV"]
    kind = rng.choice(["exactly_one", "at_most_one"])
    program.open(
        "label", {"a": [x for x, _ in labels], "b": [k for _, k in labels]}, types=("o", "l"),
        **{kind: "b"},
    )  # fmt: skip
    for rule in rng.choice(RULES, rng.integers(1, 4), replace=False).tolist():
        w = float(rng.choice([0.1, 1.0, 3.0]) * rng.choice([-1, 1, 1]))
        hard = "<=>" not in rule and rng.random() < 0.2
        if "+" in rule:
            program.rule(rule, weights={"P": w, "Q": -w})
        else:
            program.rule(rule, weight=math.inf if hard else w)
    if rng.random() < 0.6:
        program.evidence("s(A)", "!s(B)" if rng.random() < 0.5 else "s(B)")
        x, y = same[0]
        program.evidence(f"{'!' if rng.random() < 0.5 else ''}same({x}, {y})")
    return program


def draw(seed: int, program: Rules | None = None) -> int:
    """Compares on one drawn program; how many factors were kept."""
    if program is None:
        program = drawn_program(seed)
    try:
        grounding = program.grounder.ground()
    except ContradictionError:
        with pytest.raises(ContradictionError):
            Selector(program.grounder, 1e6)
        return 0
    rng = np.random.default_rng(seed)
    known, total = program.store.known(), 0
    selector = Selector(program.grounder, 1e6)
    for scale, some in ((1.0, None), (4.0, THRESHOLDS[seed % 4])):
        p = 1 / (1 + np.exp(-rng.normal(0, scale, program.store.n_atoms)))
        thresholds = [*THRESHOLDS, None] if thorough() else [some]
        total += agrees(program, grounding, selector, np.where(known == 2, p, known), thresholds)
    return total


@pytest.mark.drawn
@pytest.mark.parametrize("block", [
    *range(4),
    *(pytest.param(k, marks=pytest.mark.slow)
      for k in range(100, 100 + 4 * blocks(7))),
])  # fmt: skip
def test_what_is_kept_is_what_a_full_scan_keeps(block):
    some = sum(draw(6 * block + k) for k in few(range(6), 1 if block < 4 else 6))
    assert some > (50 if thorough() else 0) or block >= 4


def by_the_database(program) -> Selector:
    """A selector none of whose joins is in order of rank."""
    out = Selector(program.grounder, 1e6)
    out.by_rank = {}
    return out


BY_RANK = [
    "1: same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
    "1: link(x, y) ^ link(y, z) => link(x, z)",
    "-1: link(x, y) ^ t(y) ^ x != y => s(x)",
    "1: link(x, y) ^ link(z, y) ^ x > z => s(y)",
    "1: s(x) ^ s(y) ^ x < y => link(x, y)",
    "2: link(x, y) => link(y, x)",
    "inf: link(x, y) ^ s(x) => s(y)",
    "1: link(x, y) ^ s(x) ^ t(y)",
    "1: s(x) ^ t(x) => link(x, x)",
    "1: link(x, 3) ^ s(x) => t(x)",
]


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("rule", "known"),
    few([(rule, k % 4 in (1, 2)) for k, rule in enumerate(np.repeat(BY_RANK, 2).tolist())], 5),
)
def test_joins_in_order_of_rank_find_what_the_database_finds(rule, known):
    """Kept factors and sums, with candidates missing and atoms known, keys dense and far apart."""
    for step in few((100_000, 1) if known else (1, 100_000), 1):
        rng = np.random.default_rng(step)
        at = step * np.arange(12)
        x, y = (v.ravel() for v in np.meshgrid(at, at))
        some = rng.random(len(x)) < 0.7
        low = x[some] < y[some]
        program = Rules(unbound="domain").open(
            "link", {"a": x[some], "b": y[some]}, types=("o", "o")
        )
        program.open("same", {"a": x[some][low], "b": y[some][low]}, types=("o", "o"),
                     symmetric=True)  # fmt: skip
        program.open("s", {"a": at}, types=("o",)).open("t", {"a": at[2:]}, types=("o",))
        program.rule(rule.replace("3", str(3 * step)))
        if known:
            program.evidence(f"s({step})", f"!s({2 * step})")
            a, b = x[some][low], y[some][low]
            for name in ("link", "same"):
                program.evidence(f"{name}({a[0]}, {b[0]})", f"!{name}({a[5]}, {b[5]})")
        selector, plain = Selector(program.grounder, 1e6), by_the_database(program)
        assert selector.by_rank
        unknown = program.store.known() == 2
        p, now = 1 / (1 + np.exp(-rng.normal(-1, 2, (2, program.store.n_atoms))))
        p, now = (np.where(unknown, v, program.store.known()) for v in (p, now))
        assert agrees(program, program.ground(), selector, p, few([None, *THRESHOLDS], 2)) > 0
        ways = itertools.product((1e-1, 1e-3), (None, now), (1e-4, 0.0))
        for threshold, messages, band in few(ways, 2):
            kept = selector.select(p, threshold)
            found = selector.sums(p, kept, band, messages)
            ids = unknown & np.isfinite(found)
            expected = plain.sums(p, kept, band, messages)
            assert np.abs(found - expected)[ids].max() < 1e-10


def test_what_a_closed_table_or_a_literal_makes_few_is_no_product_of_all():
    """Two literals without a common variable: all pairs, of which the database meets a few."""
    at = np.arange(2000)
    program = Rules().closed("f", {"a": at[1:], "b": at[:-1]}, types=("o", "o"))
    program.open("s", {"a": at}, types=("o",))
    program.open("link", {"a": at[1:], "b": at[:-1]}, types=("o", "o"))
    program.rule("1: f(x, y) ^ s(x) => s(y)").rule("1: s(x) ^ link(x, y) => s(y)")
    selector = Selector(program.grounder, 1e6)
    for join in selector.by_rank.values():
        assert join.shared
    kept = selector.select(np.full(program.store.n_atoms, 0.5), 1e-3)
    assert sum(map(len, kept.values())) == 2 * 1999


def test_of_kept_factors_nothing_is_summed():
    """Two pieces with as many literals, in which another one is known."""
    program = Rules()
    for name in ("s", "t", "r"):
        program.open(name, list(range(20)), types=("o",))
    program.rule("1: s(x) ^ t(x) => r(x)").rule("1: !s(x) v !t(x) v !r(x)")
    program.evidence(*[f"s({k})" for k in range(5)], *[f"t({k})" for k in range(5, 10)])
    known = program.store.known()
    p = np.random.default_rng(0).uniform(0.05, 0.95, len(known))
    p = np.where(known == 2, p, known)
    for selector in (Selector(program.grounder, 1e6), by_the_database(program)):
        kept = selector.select(p, 1e-9)
        assert sum(map(len, kept.values())) > 20
        assert np.abs(selector.sums(p, kept, 1e-9)).max() < 1e-12


@pytest.mark.drawn
def test_what_is_kept_of_any_formula_is_what_a_full_scan_keeps():
    for seed in few(range(8), 3):
        draw(seed, oracle.program_of(oracle.draw_case(seed), unbound="domain"))


def test_the_same_tables_are_merged_before_the_threshold():
    """Symmetric: x and y the other way round give the same table, so its weight is twice that."""
    program = Rules().open("s", list("ABC"), types=("o",))
    program.open("same", [("A", "B"), ("A", "C"), ("B", "C")], types=("o", "o"), symmetric=True)
    program.rule("0.5: same(x, y) => (s(x) <=> s(y))").evidence("s(A)")
    blocks = program.ground().blocks
    assert sorted(len(b) for b in blocks) == [1, 2]
    assert all((b.count == 2).all() for b in blocks)
    selector = Selector(program.grounder, 1e6)
    p = np.where(program.store.known() == 2, 0.5, 1.0)
    between = math.sqrt(float(gains(0.25, 0.5) * gains(0.25, 1.0)))
    kept = selector.select(p, between).values()
    assert [len(b) for b in kept] == [len(b) for b in selector.dense]
    assert agrees(program, program.ground(), selector, p) > 0


@pytest.mark.parametrize("w", [0.01, 0.1, 2.0, 40.0, -0.01, -0.1, -2.0, -40.0])
def test_gains_and_their_two_roots(w):
    u = np.concatenate([np.logspace(-12, -0.01, 200), 1 - np.logspace(-12, -1, 100)])
    assert np.allclose(gains(u, w), [plain_gain(x, w) for x in u], rtol=1e-6, atol=1e-12)
    for share in (0.9, 1e-2, 1e-5):
        threshold = share * float(gains(u, w).max())
        low, high = roots(threshold, w)
        inside = (u >= low) & (u <= high)
        sure = np.abs(gains(u, w) - threshold) > 1e-9 * threshold
        assert ((gains(u, w) >= threshold) == inside)[sure].all()
    assert roots(2 * float(gains(u, w).max()) + 1, w) is None
    assert np.isfinite(gains([0.0, 1.0], w)).all()


def test_gains_at_the_ends():
    """What cannot be false is in no interval; hard rules go by the reverse divergence."""
    for w in (-720.0, -5000.0, -1e8):
        low, _ = roots(1e-6, w)
        assert low > 0 == gains(0.0, w)
    assert gains(0.25, math.inf) == pytest.approx(-math.log(0.75))
    low, high = roots(1e-3, math.inf)
    assert (low, high) == (pytest.approx(-math.expm1(-1e-3)), 1.0)


def records(n: int = 24, weight: float = 1.0, **settings) -> Rules:
    rng = np.random.default_rng(1)
    person = rng.integers(0, n // 4, n)
    i, j = np.triu_indices(n, 1)
    f = np.where(person[i] == person[j], rng.normal(2, 2, len(i)), rng.normal(-5, 1, len(i)))
    program = Rules(**settings)
    program.open("same", {"a": i, "b": j, "f": f}, columns=("a", "b"), types=("r", "r"),
                 symmetric=True, log_odds="f")  # fmt: skip
    return program.rule(f"{weight}: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")


def test_the_threshold_is_lowered_until_answers_agree():
    program = records()
    exact = program.infer(grounding="full", solver=BeliefPropagation()).probabilities
    answer = program.infer(grounding="lazy", tolerance=1e-4)
    how = answer.lazily
    assert how.agreed
    assert answer.converged
    assert answer.mean_error_estimate == max(how.differences[-1], how.moved) <= 1e-4
    assert len(how.thresholds) == len(how.differences) + 1
    assert np.abs(answer.probabilities - exact).mean() < 1e-3
    assert f"{answer.kept:,} factors of" in str(answer)
    assert answer.explain("same(0, 1)", 2).probability == answer.probability("same(0, 1)")
    assert program._grounding is not None  # of the full answer, not of the lazy one


def test_an_answer_that_cannot_agree_says_so():
    program = records(max_groundings=400)
    answer = program.infer(grounding="lazy", threshold=1e-2, tolerance=1e-12)
    assert answer.lazily.agreed is False
    assert not answer.converged
    assert "more than" in str(answer)
    with pytest.raises(RefusedError, match="larger threshold"):
        program.infer(grounding="lazy", threshold=1e-9)


@pytest.mark.parametrize("rule", [
    "1.0: same(x, y) ^ same(y, z) ^ x < z => same(x, z)",  # summed by the database
    "-1.5: same(x, y) ^ same(y, z) => same(x, z)",  # some of it merged
    "0.7: same(x, y) => (s(x) <=> s(y))",  # a table
    "inf: s(x) ^ same(x, y) => s(y)",
    "-25: same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
    "25: same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
    "40: same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
])  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_summed_messages_are_those_of_the_factors_that_are_not_kept(rule, inside):
    """One by one; if they are in the marginals already, of each other atom without its own."""
    weight, _, formula = rule.partition(": ")
    program = records(8)
    program._rules.clear()
    program.open("s", list(range(8)), types=("r",)).rule(formula, weight=float(weight))
    selector = Selector(program.grounder, 1e6)
    p, now = np.random.default_rng(0).uniform(0.05, 0.95, (2, program.store.n_atoms))
    grounding = program.ground()
    weights, all_gains = scan(program, grounding, p)
    middle = float(np.median(list(all_gains.values())))
    kept = selector.select(p, middle)
    chosen = lazily_kept(selector, p, middle)
    found = selector.sums(p, kept, 1e-3, now if inside else None)
    expected, done = np.zeros_like(p), set(chosen)
    for block in grounding.blocks:
        for row in range(len(block) if block.scope.shape[1] > 1 else 0):
            at = factor_key(block, row, grounding)
            if at in done or all_gains[at] < 1e-3:
                continue
            done.add(at)
            atoms = block.scope[row].tolist()
            cavities = now.copy() if inside else p
            for i in atoms if inside else []:
                push = plain_message(block, row, weights[at], i, now)
                cavities[i] = 1 / (1 + math.exp(push) * (1 / now[i] - 1))
            for i in atoms:
                expected[i] += plain_message(block, row, weights[at], i, cavities)
    assert len(done) - len(chosen) > 10
    assert np.abs(found - expected).max() < 1e-9


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("weight", "certain"),
    few(itertools.product([-720.0, 720.0, -5000.0, 5000.0], [False, True]), 4),
)
def test_weights_beyond_what_a_number_holds_are_summed_as_logs(weight, certain):
    program = records(8 if thorough() else 6, weight)
    selector = Selector(program.grounder, 1e6)
    p, now = np.random.default_rng(0).uniform(0.05, 0.95, (2, program.store.n_atoms))
    if certain:
        p[:5] = [0, 1, 0, 1, 0]
    for messages in (None,) if certain else (None, now):
        found = selector.sums(p, {}, 1e-6, messages)
        expected = np.zeros_like(p)
        for block in program.ground().blocks:
            for row, (a, b, c) in enumerate(block.scope.tolist()):
                u = p[a] * p[b] * (1 - p[c])
                if u in (0.0, 1.0) or plain_gain(u, weight) < 1e-6:
                    continue
                q = p if messages is None else now.copy()
                if messages is not None:
                    for i in (a, b, c):
                        push = plain_message(block, row, weight, i, now, 0.0)
                        odds = math.exp(min(push, 700)) * (1 - now[i])
                        q[i] = now[i] / (now[i] + odds)
                for i in (a, b, c):
                    expected[i] += plain_message(block, row, weight, i, q, 0.0)
        assert np.isfinite(found).all()
        assert np.abs(found - expected).max() < 1e-6 * abs(weight)
    assert np.isfinite(program.infer(grounding="lazy", threshold=1e-3).probabilities).all()


def plain_message(block, row: int, w: float, atom: int, p, least: float = 1e-9) -> float:
    """A factor's message to an atom, as log-odds, the others independent."""
    logs = []
    for state in (0.0, 1.0):
        q = p.copy()
        q[atom] = state
        u = float(false_by_worlds(block, q, [row])[0])
        false, true = (math.log(x) if x > 0 else -math.inf for x in (u, 1 - u))
        logs.append(
            max(float(np.logaddexp(true, false - w)), math.log(least) if least else -math.inf)
        )
    return logs[1] - logs[0]


@pytest.mark.drawn
@pytest.mark.parametrize(("seed", "n", "persons"), few([(0, 20, 5), (3, 20, 5), (0, 24, 12)], 2))
def test_the_estimate_is_not_far_below_the_error(seed, n, persons):
    """Sums here push what they are made of out of their own band; two thresholds must see that."""
    a, b = np.triu_indices(n, 1)
    prior = np.where(a % persons == b % persons, 2.0, -6.0)
    prior = prior + np.random.default_rng(seed).normal(0, 1, len(a))
    program = Rules().open(
        "same", {"a": a, "b": b, "f": prior}, columns=("a", "b"), symmetric=True, log_odds="f"
    )
    program.rule("1: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
    bp = BeliefPropagation(max_iters=2000, tol=1e-9, damping=0.3)
    exact = program.infer(grounding="full", solver=bp).probabilities
    for tolerance in (1e-3, 1e-5):
        answer = program.infer(grounding="lazy", tolerance=tolerance, solver=bp)
        error = np.abs(answer.probabilities - exact).mean()
        assert answer.converged
        assert error <= tolerance
        assert error <= 3 * answer.mean_error_estimate


def drawn_records(seed: int) -> Rules:
    """Records in groups with priors near or far, and a habit that the same have in common."""
    rng = np.random.default_rng(seed)
    n, groups = int(rng.integers(12, 25)), int(rng.integers(3, 9))
    a, b = np.triu_indices(n, 1)
    near, far = rng.choice([1.0, 2.0, 3.0]), rng.choice([-3.0, -4.0, -6.0])
    prior = np.where(a % groups == b % groups, near, far)
    prior = prior + rng.normal(0, rng.choice([0.3, 1.0, 2.0]), len(a))
    weight = float(rng.choice([0.2, 0.5, 1.0, 2.0]))
    program = Rules().open("same", {"a": a, "b": b, "f": prior}, columns=("a", "b"),
                           types=("r", "r"), symmetric=True, log_odds="f")  # fmt: skip
    program.rule(f"{weight}: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
    if seed % 3:
        good = {"a": np.arange(n), "f": rng.normal(-1, 1, n)}
        program.open("good", good, columns=("a",), types=("r",), log_odds="f")
        program.rule(f"{rng.choice([-1.0, 0.5, 1.0])}: same(x, y) ^ good(x) => good(y)")
    return program


def agreement_holds(seed: int) -> list[bool]:
    """Whether answers agreed; where they did, their error against all groundings is within it."""
    program = drawn_records(seed)
    bp = BeliefPropagation(max_iters=2000, tol=1e-9, damping=0.3)
    exact = program.infer(grounding="full", solver=bp).probabilities
    found = []
    for tolerance in (1e-3, 1e-5):
        answer = program.infer(grounding="lazy", tolerance=tolerance, solver=bp)
        how = answer.lazily
        error = np.abs(answer.probabilities - exact).mean()
        if how.agreed:
            assert how.checked
            assert error <= tolerance, (seed, tolerance, error)
        elif how.another > tolerance:
            assert not answer.converged
            assert how.several
            assert "another start" in str(answer)
        found.append(bool(how.agreed))
    return found


def test_what_agreed_is_within_the_tolerance_of_all_groundings():
    assert agreement_holds(1) == [True, True]  # what is below both bands comes to 2e-5
    assert agreement_holds(3) == [False, False]  # another answer, 0.05 away, is as good a one


@pytest.mark.slow
def test_what_agreed_is_within_the_tolerance_in_many_programs():
    n = blocks(5)
    outcomes = [agreed for k in range(5 * n) for agreed in agreement_holds(k)]
    assert sum(outcomes) >= 4 * n


FORMULAS = [
    "friends(x, y) ^ smokes(x) => smokes(y)", "same(x, y) ^ same(y, z) ^ x < z => same(x, z)",
    "smokes(x) ^ smokes(y) ^ x < y", "same(x, y) ^ smokes(x) => smokes(y)",
    "smokes(x) v cancer(x)", "friends(x,y) ^ same(x,y)", "!smokes(x) v !cancer(y) v same(x,y)",
    "same(x,y) ^ friends(y,z) ^ smokes(z) => cancer(x)",
]  # fmt: skip


def few_people(seed: int) -> tuple[Rules, float]:
    """A program with strong rules over five to twelve people, and a tolerance."""
    r = random.Random(seed)
    people = range(r.randint(5, 12))
    ordered = [(a, b) for a in people for b in people if a != b]
    friends = [pair for pair in ordered if r.random() < 0.3] or [(0, 1)]
    prior = [round(r.gauss(0, 2), 3) for _ in people]
    pairs = [(a, b) for a, b in ordered if a < b]
    same = [round(r.gauss(-1, 3), 3) for _ in pairs]
    rules = []
    for _ in range(r.randint(1, 4)):
        k, weight = r.randrange(8), str(round(r.uniform(-2.5, 2.5), 3))
        if r.random() < 0.12:
            weight = "1.0" if k in (2, 5) else "inf"
        rules.append(f"{weight}: {FORMULAS[k]}")
    symmetric = r.random() < 0.8
    if not symmetric:
        other = random.Random(seed + 1)
        pairs, same = ordered, [other.gauss(-1, 3) for _ in ordered]
    out = Rules().closed("friends", friends, types=("p", "p"))
    for name, odds in (("smokes", prior), ("cancer", prior[::-1])):
        out.open(name, {"p": list(people), "f": odds}, columns="p", types="p", log_odds="f")
    a, b = zip(*pairs)
    out.open("same", {"a": a, "b": b, "f": same}, columns=("a", "b"), types=("p", "p"),
             symmetric=symmetric, log_odds="f")  # fmt: skip
    for rule in rules:
        out.rule(rule)
    return out, r.choice([1e-3, 1e-4, 1e-5])


def check_few_people(seed: int) -> list[bool]:
    """Answers that are called converged are those of belief propagation over all groundings.

    Returns whether they were called so, with a tolerance and with all factors kept.
    """
    program, tolerance = few_people(seed)
    bp = BeliefPropagation(tol=1e-9, max_iters=5000)
    full = program.infer(solver=bp, grounding="full")
    found = []
    for asked, limit in (({"tolerance": tolerance}, tolerance), ({"threshold": 1e-15}, 1e-5)):
        answer = program.infer(solver=bp, grounding="lazy", **asked)
        how = answer.lazily
        assert answer.converged == answer.status.ok
        if how.several:
            assert not answer.converged
            assert not how.agreed
            assert how.another > limit
            assert "another start" in str(answer)
        elif answer.converged:
            assert how.starts == 8
            assert "8 other starts led to the same answer" in str(answer)
        if full.converged and answer.converged:
            apart = np.abs(full.probabilities - answer.probabilities).mean()
            assert apart <= limit, (seed, asked, apart)
        found.append(answer.converged)
    return found


@pytest.mark.parametrize("seed", [119, 223, *few([74, 30, 75, 115, 136, 191, 254, 82], 2)])
def test_answers_that_depend_on_the_start_do_not_agree(seed):
    """Two were said to agree, .09 and .32 away; of others all factors kept depend on the start."""
    agreed = check_few_people(seed)
    assert not agreed[1]
    assert not agreed[0] or seed not in (119, 223)


@pytest.mark.drawn
def test_drawn_answers_that_converged_are_those_of_all_groundings():
    outcomes = [check_few_people(seed) for seed in range(1000, 1000 + draws(15))]
    assert np.mean(outcomes) > 0.3


def test_how_many_starts_are_tried(monkeypatch):
    program = records(12)
    assert program.infer(grounding="lazy", threshold=1e-2).lazily.starts == 8
    answer = program.infer(grounding="lazy", tolerance=1e-2, starts=1)
    assert answer.lazily.starts == 1
    assert "1 other start led to the same answer" in str(answer)
    assert answer.to_dict()["lazily"]["starts"] == 1
    answer = program.infer(grounding="lazy", tolerance=1e-2, starts=0)
    assert answer.lazily.starts == 0
    assert answer.lazily.agreed is False  # nothing is claimed that was not tried
    assert answer.converged
    assert "; no other start was tried" in str(answer)
    assert "asked for" not in str(answer)
    monkeypatch.setattr("minfer.rules.lazy.STARTS_UP_TO", 0)
    assert program.infer(grounding="lazy", tolerance=1e-2).lazily.starts == 3
    assert program.infer(grounding="lazy", threshold=1e-2).lazily.starts == 0
    exact = records(6).infer(grounding="lazy", tolerance=1e-2, solver=Exact())
    assert [exact.lazily.starts, exact.lazily.agreed] == [0, True]
    lazily = program.infer(MinJoint(1e-3), grounding="lazy", rounds=1, sums=0)
    fully = program.infer(MinJoint(1e-3), solver=BeliefPropagation())
    assert lazily.kept == fully.kept  # the same rule selects


def test_what_could_not_be_checked_is_said(monkeypatch):
    monkeypatch.setattr("minfer.rules.lazy.MAX_CHECKED", 10)
    answer = records().infer(grounding="lazy", tolerance=1e-2)
    assert answer.lazily.agreed
    assert not answer.lazily.checked
    assert f"gains below {answer.lazily.band:g} are in neither" in str(answer)
    checked = records(12).infer(grounding="lazy", tolerance=1e-2, sums=0)
    assert not checked.lazily.checked


def test_large_programs_are_grounded_lazily_by_themselves(monkeypatch):
    bp = BeliefPropagation()
    assert records(12).infer(solver=bp).lazily is None
    monkeypatch.setattr(lazy, "AUTO_FROM", 100)
    monkeypatch.setattr(lazy, "AUTO_RATIO", 1.0)
    assert records(12).infer(solver=bp).lazily is not None
    friends = Rules().closed("f", [(k, k + 1) for k in range(200)]).open("s", list(range(201)))
    friends.rule("1: f(x, y) ^ s(x) => s(y)")
    assert friends.infer(solver=bp).lazily is None  # as many groundings as rows
    assert lazy.AUTO_UP_TO == 1e11  # 100 billion, as pages and the help say
    monkeypatch.setattr(lazy, "AUTO_UP_TO", 100)
    assert records(12).infer(solver=bp).lazily is None


def test_a_small_memory_spills_outside_the_working_folder_and_changes_nothing(
    tmp_path, monkeypatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(there))
    rows = {"a": np.arange(2_000_000), "b": np.arange(2_000_000) % 1_000_003}

    def program(**settings):
        out = Rules(**settings).closed("big", rows, types=("n", "n"))
        out.open("s", list(range(50)), types=("n",), probability=0.2)
        out.rule("1: big(x, y) ^ s(x) => s(y)").rule("0.5: s(x) ^ s(y) ^ x < y => s(x)")
        return out.rule("0.3: s(x) ^ s(y) ^ x + 1 = y")

    bp = BeliefPropagation()
    wide = program().infer(solver=bp, grounding="lazy", tolerance=1e-3)
    small = program(memory_limit="24MB")
    answer = small.infer(solver=bp, grounding="lazy", tolerance=1e-3)
    assert any(path.is_file() for path in there.rglob("*")), "nothing was spilled"
    assert np.array_equal(answer.probabilities, wide.probabilities)
    assert not list(here.iterdir())
    small.store.con.close()
    assert not any(path.is_file() for path in there.rglob("*"))


def test_settings_that_cannot_be():
    program = records(6)
    once = Compensated(refreshes=0)
    for words, objective, settings in (
        ("MinSize needs the gains of all", MinSize(3), {"grounding": "lazy"}),
        ("above 0", None, {"grounding": "lazy", "threshold": 0.0}),
        ("for grounding='lazy'", None, {"grounding": "full", "tolerance": 0.1}),
        ("not a setting of lazy", None, {"grounding": "lazy", "recipe": once}),
        ("grounding", None, {"grounding": "some"}),
        *(("starts", None, {"grounding": "lazy", "starts": bad}) for bad in (-1, 1.5, True)),
        *(("starts= is for grounding='lazy'", objective, {"grounding": how, "starts": 3})
          for objective, how in ((None, "auto"), (None, "full"), (MinJoint(1e-3), "full"))),
    ):  # fmt: skip
        with pytest.raises(SettingsError, match=words):
            program.infer(objective, **settings)


def test_a_literal_without_candidates_beside_a_variable_of_the_whole_domain():
    """The database must not move the domain to the other side of a left join."""
    free = [(0, 5), (1, 0), (1, 1), (1, 4), (2, 4), (3, 0), (3, 1), (3, 4), (3, 5), (4, 2), (4, 5)]
    free += [(5, 1), (5, 2), (5, 3), (5, 5)]
    some = [(x, y) for x in range(6) for y in range(6) if (x, y) not in free]
    program = (
        Rules(unbound="domain")
        .closed("one", [0], types=("t",))
        .closed("all", list(range(6)), types=("p",))
        .open("a", some, types=("p", "p"))
        .open("b", [(3, 3), (0, 1), (1, 1), (2, 3), (1, 3)], types=("p", "p"))
        .open("c", [(x, y) for x in range(6) for y in range(6)], types=("p", "p"))
        .rule("one(s) ^ b(y, z) => a(y, z) v c(y, x).")
    )
    selector = Selector(program.grounder, math.inf)
    assert agrees(program, program.ground(), selector, np.full(program.store.n_atoms, 0.5))
    for piece in selector.pieces:
        assert (
            " join " not in piece.join.from_where().replace(" left join ", " <").partition("<")[2]
        )


@pytest.mark.parametrize(
    "rule",
    [
        "1.3: s(x, y) v s(y, x)",
        "1.3: s(x, y) ^ s(y, x)",
        "-1: s(x, y) => s(y, x)",
        "1: s(x, y) ^ s(y, x) ^ s(y, z) => s(x, z)",
        "s(x, y) v s(y, x).",
        "s(+x, y) v s(y, x)",
        "s(+x, y) v s(x, y)",
    ],
)
def test_one_atom_in_two_literals_is_one_atom(rule):
    rows = [("A", "B"), ("B", "C"), ("A", "C"), ("C", "C")]
    program = Rules().open("s", rows, types=["p", "p"], symmetric=True)
    program.rule(rule, weights={"A": 1.0, "B": -2.0} if "+" in rule else None)
    full = program.infer(solver=Exact(), grounding="full").probabilities
    lazy = program.infer(solver=Exact(), grounding="lazy", threshold=1e-13).probabilities
    assert lazy == pytest.approx(full, abs=1e-9)


def test_groundings_that_were_left_out_are_explained():
    names = [f"P{k}" for k in range(6)]
    pairs = [(a, b) for a in names for b in names]
    program = Rules().open("s", pairs, types=["p", "p"], log_odds=-1.5).open("b", names)
    program.rule("s(x, y) ^ s(y, z) => s(+x, z)", weights={"P0": 2.0, "P1": 1e-4, "P2": 1e-7})
    program.rule("b(+x) ^ s(x, y) => b(y)", weights={"P3": 1.0})
    lazily = program.infer(threshold=0.05)
    fully = program.infer(grounding="full", solver=BeliefPropagation())
    for atom in ("s(P1, P2)", "b(P4)"):
        lazy, full = lazily.explain(atom, 100), fully.explain(atom, 100)
        assert lazy.n == full.n
        assert {r.text: r.weight for r in lazy.reasons} == {r.text: r.weight for r in full.reasons}
