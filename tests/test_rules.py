"""Rules over tables: agreement with enumeration, semantics, tables of all kinds, bad input."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("duckdb")

import ground_oracle as oracle
from minfer import (
    ContradictionError,
    Exact,
)


def compare(seed: int, **settings) -> str:
    case = oracle.draw_case(seed)
    expected = oracle.enumerate_worlds(case)
    program = oracle.program_of(case, **settings)
    try:
        answer = program.infer(solver=Exact())
    except ContradictionError:
        assert expected is None, (seed, case.rules)
        return "impossible"
    assert expected is not None, (seed, case.rules)
    found = dict(zip(program.store.atom_texts(np.arange(program.store.n_atoms)),
                     answer.probabilities))  # fmt: skip
    for atom, p in expected.items():
        text = f"{atom[0]}({', '.join(map(str, atom[1:]))})"
        assert abs(found[text] - p) < 1e-9, (seed, case.rules, text, found[text], p)
    return "answered"


@pytest.mark.parametrize("block", range(10))
def test_drawn_programs_agree_with_enumeration(block):
    outcomes = [compare(100 * block + k, unbound="domain") for k in range(100)]
    assert outcomes.count("answered") > 50


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10, 60))
def test_many_drawn_programs_agree_with_enumeration(block):
    for k in range(100):
        compare(100 * block + k, unbound="domain")
