"""Readers against bad files: typed errors only, and quickly. benchmarks/fuzz.py runs more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import crafting
import fuzzing
from draws import draws

N = draws(10_000)
CRAFTED = 300
FUZZ = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"


def test_seeds_are_accepted_and_cases_reproducible(tmp_path):
    for kind, name, data in fuzzing.seeds():
        outcome, _ = fuzzing.check(fuzzing.Case(-1, kind, name, data), tmp_path)
        assert outcome == "accepted", (kind, name)
    assert [fuzzing.case(3, k) for k in range(50)] == [fuzzing.case(3, k) for k in range(50)]


@pytest.mark.drawn
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


def test_honest_files_are_accepted_and_crafted_ones_reproducible(tmp_path):
    pytest.importorskip("safetensors")
    for case in crafting.honest(tmp_path):
        assert crafting.check(case, tmp_path)[0] == "accepted", case.kind
    pytest.importorskip("safetensors")
    a, b = ([crafting.case(3, k, tmp_path) for k in range(30)] for _ in range(2))
    assert a == b


@pytest.mark.slow
def test_no_crafted_file_ends_the_process():
    """In a child: what is accepted goes through the kernels, where a wrong index would end it."""
    for name in ("safetensors", "PIL", "duckdb", "pyarrow"):
        pytest.importorskip(name)
    command = [sys.executable, FUZZ, "--what", "crafted", "--n", str(CRAFTED), "--rng", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)[0]["outcomes"]
    assert sum(outcomes.values()) == CRAFTED
    for kind in ("parser", "checkpoint", "native"):
        assert outcomes[f"{kind}: accepted"] >= 5  # the kernels were reached
        assert outcomes[f"{kind}: FormatError"] >= 20
