"""Buckets: bounds of log Z by mini-buckets and by search, and what they say of each marginal.

With bounds L_s <= Z_s <= U_s of what the assignments with x_v = s add up to,

    L_s / (L_s + sum_{q != s} U_q)  <=  p(x_v = s)  <=  U_s / (U_s + sum_{q != s} L_q).

Weighted mini-buckets (:mod:`minfer.engine.buckets.bounds`) give them for all variables in a few
passes; the larger the mini-buckets, the nearer. Best-first search (:mod:`.search` there) opens what
is left between the two, and ends with the exact answer.

Each call has a budget of work; mini-buckets grow with it up to what memory allows, and what they
leave of it is the search's, which goes on where it was. This bounds log Z, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from minfer.basics.limits import clock
from minfer.certified.bounds import Refining
from minfer.certified.local import LocalBounds
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from minfer.certified.bounds import Bounds
    from minfer.engine.buckets.search import BoundedSearch
