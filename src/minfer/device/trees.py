"""Arc probabilities of many sentences on a device; the kernels are in ``trees.cu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer.device.runs import CudaProgram, Device

PROGRAM = CudaProgram("trees", "float64")
#: Threads of a block. A step of the matrix-tree theorem has n^2 entries, one of a chart 2 n.
SIZES = {"crossing": 256, "nested": 64}


def tree_sums(
    device: Device,
    scores: Any,  # (B, nodes, nodes) float64, there, as all that follows
    words: Any,  # (B,) int32
    mu: Any,  # (B, nodes, nodes), written
    log_z: Any,  # (B,), written
    fine: Any,  # (B,) int32, written: 0 where the processor must do it
    projective: bool,
    single_root: bool,
) -> None:
    """Arc probabilities and log Z."""
    batch, nodes = scores.shape[:2]
    kernel = "nested" if projective else "crossing"
    per = 4 * nodes * nodes + 2 * nodes if projective else nodes * (nodes + 4)
    flags = np.int32(nodes), np.int32(single_root)
    most = batch if 8 * per <= device.shared else device.room // 2 // (8 * per)
    most = max(most, 1)
    for begin in range(0, batch, most):
        some = slice(begin, begin + most)
        given = [x[some] for x in (words, scores, mu, log_z, fine)]
        blocks = min(most, batch - begin)
        device.launch_blocks(PROGRAM, kernel, blocks, SIZES[kernel], per, *flags, *given)
