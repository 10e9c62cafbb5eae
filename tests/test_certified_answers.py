"""Reduced answers with certified intervals: ``infer(..., certify=)``, ``Result.certified``."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    Join,
    JoinTemplates,
    MeanField,
    MinDivergence,
    MinJoint,
    RefusedError,
    SettingsError,
    infer,
    relax,
)
from minfer.reduction.recipes import Compensated, Iterated, Paper
from oracle import models
from oracle import truth as naive

STRIP = FactorGraph.grid(8 * np.random.default_rng(0).normal(size=(4, 30)), coupling=1.0)


@given(
    models.binary_graphs(max_variables=5, scale=2.0),
    st.integers(0, 5),
    st.sampled_from([Exact(), BeliefPropagation(max_iters=2), MeanField()]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=draws(60), deadline=None)
def test_no_answer_is_further_off(graph, m, solver, compensate, iterate) -> None:
    """Whatever was left out and whoever solved it: the interval holds the solver's error, too."""
    run = relax if iterate else infer
    recipe = Compensated(refreshes=0) if compensate else Paper()
    recipe = Iterated(compensate=compensate) if iterate else recipe
    result = run(graph, MinDivergence(m), solver, recipe=recipe)
    assert result.intervals is result.interval is None
    sure = result.certified(60.0, work=20_000)
    truth = naive.marginals(graph)
    assert (sure.intervals.lo <= truth + 1e-12).all()
    assert (truth <= sure.intervals.hi + 1e-12).all()
    assert np.abs(sure.marginals.probs - truth).max(initial=0.0) <= sure.interval + 1e-12
    assert sure.timings == result.timings, "intervals are not part of the method's time"


def test_what_the_result_says() -> None:
    result = infer(STRIP, MinJoint(0.05), Gibbs(n_sweeps=50, rng=0), certify=2.0)
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["reduction"]["interval"] == result.interval
    assert content["intervals"]["intervals"]["x3"]["lo"] == result.intervals[3][:, 0].tolist()
    assert "largest possible error" in result._repr_html_()
    again = pickle.loads(pickle.dumps(result))
    assert again.interval == result.interval
    np.testing.assert_array_equal(again.intervals.lo, result.intervals.lo)
    plain = infer(STRIP, MinJoint(0.05))
    assert plain.to_dict()["intervals"] is None
    assert "possible" not in plain._repr_html_()
    soon = relax(STRIP, MinJoint(0.05), recipe=Iterated(time_limit=5.0), certify=2.0)
    assert soon.interval < 0.05
    assert infer(FactorGraph.empty([]), MinJoint(0.1), certify=1.0).interval == 0.0


def test_candidates_that_are_never_built_are_refused() -> None:
    side = np.zeros(4, dtype=np.int64)
    seed = FactorGraph.pairwise([0.0, 0.5, 1.0, -3.0], [], [])
    join = Join(side, side, 0.5, 0.5)
    source = JoinTemplates([join], lambda _, scope: np.full(len(scope), 0.5))
    with pytest.raises(RefusedError, match=r"minfer\.ground"):
        infer(seed, MinJoint(1e-3), source=source, certify=1.0)
    lazy = infer(seed, MinJoint(0.01), source=source)
    assert lazy.n_untouched > 0
    with pytest.raises(RefusedError, match="never built"):
        lazy.certified(1.0)


@pytest.mark.parametrize("seconds", [0, -1.0, "soon", True, float("nan")])
def test_seconds_are_checked_first(seconds) -> None:
    for run in (infer, relax):
        with pytest.raises(SettingsError, match="certify"):
            run(STRIP, MinJoint(0.05), certify=seconds)
