"""Readers against broken files: typed errors only, and quickly. benchmarks/fuzz.py runs more."""

from __future__ import annotations

from collections import Counter

import fuzzing

N = 5000


def test_valid_seeds_are_accepted(tmp_path):
    for kind, name, data in fuzzing.seeds():
        outcome, _ = fuzzing.check(fuzzing.Case(-1, kind, name, data), tmp_path)
        assert outcome == "accepted", (kind, name)


def test_cases_are_reproducible():
    assert [fuzzing.case(3, k) for k in range(50)] == [fuzzing.case(3, k) for k in range(50)]


def test_only_typed_errors_escape(tmp_path):
    outcomes: Counter[str] = Counter()
    for number in range(N):
        broken = fuzzing.case(1, number)
        try:
            outcome, seconds = fuzzing.check(broken, tmp_path)
        except BaseException as error:
            error.add_note(f"fuzzing.case(1, {number}): {broken.kind} {broken.data[:200]!r}")
            raise
        assert seconds < fuzzing.LIMIT_SECONDS, f"fuzzing.case(1, {number}) took {seconds:.1f} s"
        outcomes[outcome] += 1
    assert outcomes["FormatError"] > N / 2
    assert outcomes["ContradictionError"] > 0
    assert outcomes["EvidenceError"] > 0
