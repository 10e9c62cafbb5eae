"""Tables of cases in, posteriors out: ``minfer.predict``.

``files`` makes tables and files of posteriors, ``predictor`` asks :mod:`minfer.solvers.plans`.
"""

from __future__ import annotations

from minfer.prediction.calibration import Calibration
from minfer.prediction.evaluation import Evaluated, evaluate
from minfer.prediction.predictor import Predictor, Summary, predict

__all__ = ["Calibration", "Evaluated", "Predictor", "Summary", "evaluate", "predict"]
