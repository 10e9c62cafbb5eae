"""Every CUDA source compiles to PTX, as the launcher would have it compiled, on a machine without a
card; and a mistake in one is seen."""

from __future__ import annotations

import pytest

from minfer.device.cuda import PRELUDE
from minfer.device.runs import HERE, CudaProgram
from minfer.device.trees import PROGRAM as TREES
from ptx import to_ptx

REALS = ("float32", "float64")
PROGRAMS = [
    *(CudaProgram("odds", real, weighted=weighted) for real in REALS for weighted in (False, True)),
    CudaProgram("odds", "float32", parts=8),
    *(CudaProgram(name, real) for name in ("alone", "slopes", "means") for real in REALS),
    *(CudaProgram("vectors", real, 4, True) for real in REALS),
    CudaProgram("vectors", "float32", 3, True, True),
    CudaProgram("vectors", "float32", 20, True),
    CudaProgram("vectors", "float64", 5, False, True),
    TREES,
]


def test_every_source_is_among_them():
    there = {path.stem for path in HERE.glob("*.cu")} - {"judge"}
    assert there == {program.source for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: "-".join(map(str, p)))
def test_it_compiles(tmp_path, program):
    ptx = to_ptx(PRELUDE + program.text, tmp_path)
    kernels = program.text.count("KERNEL void ") - program.text.count("KERNEL void name(")
    assert ptx.count(".entry ") >= kernels


def test_a_mistake_is_seen(tmp_path):
    text = PROGRAMS[0].text.replace("REAL p = chance<T>(odds)", "REAL p = chance<T>(odd)")
    with pytest.raises(ValueError, match="error"):
        to_ptx(PRELUDE + text, tmp_path)
