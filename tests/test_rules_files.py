"""The programs that come with Tuffy, read as they are."""

from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest

from oracle import lists

pytest.importorskip("duckdb")


from minfer import BeliefPropagation, Rules

TUFFY = lists.UAI.parent / "relational" / "tuffy"
pytestmark = pytest.mark.skipif(
    not TUFFY.is_dir(), reason=f"no programs of Tuffy in {TUFFY}; set MINFER_DATA"
)


def program(name: str, **settings) -> Rules:
    where = TUFFY / name
    return Rules.read(
        where / "prog.mln.gz", where / "evidence.db.gz", where / "query.db.gz", **settings
    )


@pytest.mark.parametrize(("name", "query"), [("smoke", "Cancer"), ("cse", "advisedBy")])
def test_small_programs_are_read_and_answered(name, query):
    rules = program(name)
    assert rules.queried == [query]
    answer = rules.infer(solver=BeliefPropagation(damping=0.5, max_iters=500))
    p = np.asarray(answer.table(query, kind="columns")["probability"])
    assert len(p) > 3
    assert np.isfinite(answer.probabilities).all()
    assert answer.probabilities.min() >= 0
    assert answer.probabilities.max() <= 1
    assert answer.converged  # cse needs the damping


def test_packed_and_plain_files_are_one_program(tmp_path):
    for name in ("prog.mln", "evidence.db", "query.db"):
        with gzip.open(TUFFY / "smoke" / f"{name}.gz") as packed, open(tmp_path / name, "wb") as f:
            shutil.copyfileobj(packed, f)
    plain = Rules.read(tmp_path / "prog.mln", tmp_path / "evidence.db", tmp_path / "query.db")
    assert np.array_equal(plain.infer().probabilities, program("smoke").infer().probabilities)


@pytest.mark.slow
def test_class_is_planned_and_answered():
    rules = program("class")
    plan = rules.plan()
    assert plan.groundings > 100_000
    answer = rules.infer(solver=BeliefPropagation(damping=0.3, max_iters=300))
    assert np.isfinite(answer.probabilities).all()
