"""Rules over tables: Markov logic with joins done by a database.

Read in this order: :mod:`~minfer.rules.formulas`, :mod:`~minfer.rules.schema`,
:mod:`~minfer.rules.joins`, :mod:`~minfer.rules.ground`, :mod:`~minfer.rules.model`,
:mod:`~minfer.rules.program`, :mod:`~minfer.rules.weights`.
"""

from minfer.rules.answer import Answer, Explanation, Reason
from minfer.rules.plan import Plan, RulePlan
from minfer.rules.program import Rules
from minfer.rules.tables import Query
from minfer.rules.weights import Learned, learn

__all__ = [
    "Answer", "Explanation", "Learned", "Plan", "Query", "Reason", "RulePlan", "Rules", "learn",
]  # fmt: skip
