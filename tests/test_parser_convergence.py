"""What a converged run of the parser's belief propagation did last, repeated by naive arithmetic.

Every case is answered, the messages before the last iteration are taken, and one undamped iteration
is made from them in numpy, in logarithms, with the tree factor by enumeration of all trees.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from draws import draws
from minfer import BeliefPropagation
from minfer.parsing.graphs import to_graph
from minfer.parsing.inference import Inference, Messages, marginals, still_to_move
from minfer.parsing.kernels import parser as kernels
from minfer.parsing.kernels.seeds import seed
from minfer.reduction.objectives import MinJoint
from test_trees import FACTORS
from test_trees import messages as by_enumeration

FEW = 6  # words up to which all trees are enumerated
ROUNDING = 1e-10


def to_arcs(state, unary):
    """Log-odds (A,) of the arcs: ``unary``, and the messages of all pairs."""
    total = np.array(unary, dtype=float)
    np.add.at(total, state.pairs, state.from_pairs)
    return total


def naive_iteration(state, arcs, projective, single_root):
    """Every message anew, undamped: all pairs', from the beliefs before, and then the tree's."""
    cavity = to_arcs(state, state.from_tree)[state.pairs] - state.from_pairs
    weighted = cavity + state.theta[:, None]
    sent = np.where(
        cavity > 0,  # the same twice, without differences of large numbers
        state.theta[:, None] + np.logaddexp(0, -weighted) - np.logaddexp(0, -cavity),
        np.logaddexp(0, weighted) - np.logaddexp(0, cavity),
    )
    state = state._replace(from_pairs=sent[:, ::-1])
    scores = arcs[state.heads, state.modifiers]
    incoming = np.zeros((len(scores), 2))
    incoming[:, 1] = to_arcs(state, scores)
    n = len(arcs) - 1
    if n <= FEW:
        out, _ = by_enumeration(
            state.heads, state.modifiers, incoming.ravel(), n, projective, single_root
        )
    else:  # held equal to enumeration in test_trees.py
        out = np.empty(incoming.size)
        tree = FACTORS[projective](state.heads, state.modifiers, n, single_root)
        tree.messages(incoming.reshape(1, -1), out[None])
    off, on = out.reshape(-1, 2).T
    return state._replace(from_tree=np.clip(on - off, -1e100, 1e100) + scores)


def movements(before, after):
    """The largest movement of a pair's message, of one of the tree's, and of a belief."""
    return (
        np.abs(expit(after.from_pairs) - expit(before.from_pairs)).max(),
        np.abs(expit(after.from_tree) - expit(before.from_tree)).max(),
        np.abs(
            expit(to_arcs(after, after.from_tree)) - expit(to_arcs(before, before.from_tree))
        ).max(),
    )


def draw(rng):
    """Scores and settings of a sentence of 2 to 8 words: weak to overwhelming, some of them tied,
    arcs that are missing or masked."""
    n = int(rng.choice([2, 3, 4, 5, 6, 8], p=[0.2, 0.25, 0.25, 0.2, 0.05, 0.05]))
    sizes = 10.0 ** rng.uniform(-3, [1.0, 1.0] if rng.random() < 0.7 else [3.0, 2.3])
    arcs, (gp, sib) = rng.normal(size=(n + 1, n + 1)), rng.normal(size=(2, n + 1, n + 1, n + 1))
    if rng.random() < 0.3:
        arcs, gp, sib = np.round(arcs), np.round(gp), np.round(sib)
    arcs, gp, sib = arcs * sizes[0], gp * sizes[1], sib * sizes[1]
    if rng.random() < 0.3:
        gone = rng.random((n, n + 1)) < 0.3
        arcs[1:][gone] = rng.choice([-np.inf, -3e4])
    settings = {"projective": bool(rng.integers(2)), "single_root": bool(rng.integers(2))}
    kinds = [(gp, sib), (gp, None), (None, sib)][rng.integers(3)]
    inference = Inference.full(
        max_iters=400, tol=10.0 ** -rng.integers(2, 10), damping=rng.choice([0, 0, 0.3, 0.6, 0.9])
    )
    return arcs, kinds, settings, inference


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(8))
def test_the_last_iteration_of_a_converged_run_moves_nothing_repeated_naively(seed):
    rng = np.random.default_rng(seed)
    converged = 0
    for case in range(draws(60)):
        arcs, (gp, sib), settings, inference = draw(rng)
        answer = marginals(
            arcs, gp=gp, sib=sib, inference=inference, keep_messages=True, **settings
        )
        assert np.isfinite(answer.probs).all()
        if not answer.converged:
            assert answer.residual > inference.tol
            assert answer.iterations == inference.max_iters
            continue
        if not answer.kept:
            assert (answer.residual, answer.messages, answer.iterations) == (0.0, None, 0)
            continue
        converged += 1
        before = answer.messages
        after = naive_iteration(before, arcs, **settings)
        moved = movements(before, after)
        assert max(moved) <= inference.tol + ROUNDING, (seed, case)
        assert answer.residual == pytest.approx(max(moved), rel=1e-3, abs=ROUNDING), (seed, case)
        probs = expit(to_arcs(after, after.from_tree))
        found = answer.probs[before.heads, before.modifiers]
        np.testing.assert_allclose(found, probs, atol=1e-9 + 0.1 * inference.tol)
    assert converged > 2 * draws(60) // 3


def two_words():
    """Two trees: 0 -> 1 -> 2 of weight e^12, by its grandparent alone, and 0 -> 2 -> 1 of e^8."""
    arcs = np.array([[0.0, -4.0, 6.0], [0.0, 0.0, -4.0], [0.0, 2.0, 0.0]])
    gp = np.zeros((3, 3, 3))
    gp[0, 1, 2] = 20.0
    return arcs, gp


@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("projective", [True, False])
def test_a_tree_that_a_pair_makes_likely(projective, damping):
    """After one iteration no probability has moved by more than .001; the message has."""
    arcs, gp = two_words()
    ours = marginals(
        arcs, gp=gp, projective=projective, inference=Inference.full(100, damping=damping)
    )
    assert ours.converged
    assert ours.probs[0, 1] > 0.98


def test_damped_messages_are_not_taken_for_settled():
    """Far from its end a heavily damped run moves less than tol in each iteration."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    gp[1, 2, 3] = gp[0, 1, 2] = 2.0
    plain, damped = (
        marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-2, d)) for d in (0.0, 0.97)
    )
    assert plain.converged
    assert damped.converged
    assert damped.residual <= 1e-2
    assert damped.still_to_move is None  # there is only one undamped iteration
    np.testing.assert_allclose(damped.probs, plain.probs, atol=0.02)


def test_a_limit_between_the_damped_run_and_its_confirmation_is_not_converged():
    arcs, gp = two_words()
    whole = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-3, 0.5))
    assert whole.converged
    for k in range(1, whole.iterations):
        cut = marginals(arcs, gp=gp, inference=Inference.full(k, 1e-3, 0.5))
        assert not cut.converged
        assert cut.residual > 1e-3
    again = marginals(arcs, gp=gp, inference=Inference.full(whole.iterations, 1e-3, 0.5))
    assert np.array_equal(again.probs, whole.probs)


def test_the_messages_told_are_those_before_the_last_iteration():
    rng = np.random.default_rng(1)
    arcs, gp = rng.normal(size=(6, 6)), rng.normal(size=(6, 6, 6))
    for k in (1, 2, 5):
        inference = Inference.full(max_iters=k, tol=0.0)
        answer = marginals(arcs, gp=gp, inference=inference, keep_messages=True)
        assert isinstance(answer.messages, Messages)
        after = naive_iteration(answer.messages, arcs, True, True)
        found = answer.probs[after.heads, after.modifiers]
        np.testing.assert_allclose(found, expit(to_arcs(after, after.from_tree)), atol=1e-12)
        _, *others = movements(answer.messages, after)  # it did not look at the pairs
        assert answer.residual == pytest.approx(max(others))
    assert marginals(arcs, gp=gp).messages is None


def test_what_still_to_move_is_told_of_a_run_that_ends_slowly():
    rng = np.random.default_rng(2)
    arcs, gp = rng.normal(size=(7, 7)), rng.normal(size=(7, 7, 7))
    tight = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-13))
    loose = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-4))
    assert 0 < loose.still_to_move < 1e-2
    assert np.abs(loose.probs - tight.probs).max() < 3 * loose.still_to_move
    assert still_to_move(0.1, 1.0) is None
    assert still_to_move(0.1, np.inf) is None
    assert still_to_move(0.0, np.inf) == 0.0
    assert marginals(arcs).still_to_move == 0.0


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_where_every_tree_needs_an_arc_far_below_its_rivals(projective, single_root):
    """Words 1 and 2 would hang on each other by far; each tree breaks that up."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    arcs[1, 2] = arcs[2, 1] = 2000.0
    arcs[0, 1], arcs[0, 2], arcs[0, 3] = -1.0, 1.0, -700.0
    arcs[3, 1] = arcs[3, 2] = -900.0
    gp[0, 2, 1] = -1.5
    graph = to_graph(arcs, gp=gp, projective=projective, single_root=single_root)
    theirs = BeliefPropagation(tol=1e-10)(graph)
    ours = marginals(
        arcs, gp=gp, projective=projective, single_root=single_root,
        inference=Inference.full(300, 1e-10),
    )  # fmt: skip
    assert ours.converged
    assert 0.3 < ours.probs[0, 2] < 0.7
    assert ours.probs[0, 2] == pytest.approx(theirs["0->2"][1], abs=1e-8)
    assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-8)


def test_overwhelming_pairs_answer_in_logarithms():
    """A pair of e^1000 is not a number; it decides all the same."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    gp[0, 3, 1], gp[3, 1, 2] = 1000.0, 1000.0
    ours = marginals(arcs, gp=gp, inference=Inference.full(100, 1e-6))
    assert ours.converged
    assert ours.heads.tolist() == [3, 1, 0]
    assert ours.log_z == pytest.approx(2000.0)


def sentence(rng, n, projective, single_root, strength):
    arcs = 2 * rng.normal(size=(n + 1, n + 1))
    mu = np.empty_like(arcs)
    seed(False, projective, single_root, arcs, mu)
    settings = kernels.PackedInference(projective, single_root, True, True)
    candidates, (pair_arcs, *_) = kernels.candidates(settings, arcs, mu)
    return arcs, mu, candidates, pair_arcs, strength * rng.normal(size=len(pair_arcs))


@pytest.mark.slow  # compiles what the parser has inside one kernel
@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_logarithms_do_the_same_iterations(projective, single_root, damping):
    rng = np.random.default_rng(3)
    for strength in (0.1, 1.0, 3.0):
        for n in (2, 5, 9):
            case = sentence(rng, n, projective, single_root, strength)
            arcs, mu, candidates, pair_arcs, theta = case
            log_mu = mu.copy()
            settings = Inference.full(6, 1e-9, damping).packed(projective, single_root, True, True)
            plain, theirs = (
                kernels.second_order(
                    settings, True, arcs, result, candidates, pair_arcs, theta, in_logs
                )
                for in_logs, result in ((False, mu), (True, log_mu))
            )
            iters, residual, ratio, log_z, (logs, _, messages) = plain
            in_logs, _, log_messages = theirs[4]
            assert (logs, in_logs) == (False, True)
            assert theirs[0] == iters
            assert theirs[1] == pytest.approx(residual, rel=1e-3, abs=1e-12)
            assert theirs[2] == pytest.approx(ratio, rel=0.01)
            assert theirs[3] == pytest.approx(log_z, abs=1e-9)
            np.testing.assert_allclose(log_mu, mu, atol=1e-10)
            np.testing.assert_allclose(np.log(messages[:, :2]), log_messages[:, :2], atol=1e-8)
            np.testing.assert_allclose(messages[:, 2], log_messages[:, 2], atol=1e-9)


def test_reduced_runs_say_so_too():
    rng = np.random.default_rng(4)
    for _ in range(20):
        arcs, gp = 3 * rng.normal(size=(6, 6)), 3 * rng.normal(size=(6, 6, 6))
        inference = Inference.scan(MinJoint(1e-2), max_iters=200, tol=1e-3)
        answer = marginals(arcs, gp=gp, inference=inference, keep_messages=True)
        if answer.converged and answer.kept:
            before = answer.messages
            assert len(before.theta) == answer.kept
            moved = movements(before, naive_iteration(before, arcs, True, True))
            assert max(moved) <= inference.tol + ROUNDING
