"""Tables of cases in, posteriors out: ``minfer.predict``.

``columns`` reads tables of any kind as states, ``answers`` writes posteriors as the same kind,
``files`` streams both, ``predictor`` joins them around :mod:`minfer.solvers.plans`.
"""

from __future__ import annotations

from minfer.prediction.predictor import Predictor, Summary, predict

__all__ = ["Predictor", "Summary", "predict"]
