"""Questions to a model: posteriors and joints, the best assignments, samples, and why.

| file | question |
|---|---|
| ``query.py`` | P(targets given evidence), prepared for more evidence |
| ``cliques.py`` | a clique tree in numpy: sums, maxima, what each table sees of the rest |
| ``best.py`` | the most probable explanations, marginal MAP |
| ``samples.py`` | exact samples of the posterior |
| ``sensitivity.py``, ``information.py`` | what the answer depends on |
"""

from minfer.queries.query import Posterior, Posteriors, Query, prepare, query

__all__ = ["Posterior", "Posteriors", "Query", "prepare", "query"]
