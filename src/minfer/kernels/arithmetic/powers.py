"""Numbers that take exp and log apart: e^x = 2^k e^r and log (m 2^k) = k ln 2 + log m."""

from __future__ import annotations

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HI = 6.93147180369123816490e-01
LN2_LO = 1.90821492927058770002e-10
MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the rounded value in the low bits
EXP_MIN = -708.0  # exp below this counts as zero: the clique's own probability is under 1e-307
SQRT_HALF = 0.7071067811865476
