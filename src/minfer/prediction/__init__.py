"""Tables of cases in, posteriors out: ``minfer.predict``.

``files`` makes tables and files of posteriors, ``predictor`` asks :mod:`minfer.solvers.plans`.
"""

from __future__ import annotations

from minfer.prediction.predictor import Predictor, Summary, predict

__all__ = ["Predictor", "Summary", "predict"]
