"""Hulls over a ball's boundary: the truth lies inside, whatever the model."""

from __future__ import annotations

from drawn_models import alone, cases, violations
from minfer.certified.hull import Hull


def test_the_truth_lies_inside():
    n = vacuous = 0
    for graph, p in cases(2, 40):
        for levels in (2, 4):
            bounds = alone(Hull(), graph, levels)
            assert not violations(bounds, p)
            n += len(p)
            vacuous += int(((bounds.hi - bounds.lo) >= 1).sum())
    assert n > 6000
    assert vacuous < 0.7 * n
