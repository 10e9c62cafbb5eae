"""What answers are held against: sums over all assignments of drawn and named models.

* :mod:`oracle.truth`: sums over all assignments, slow and obvious; no arithmetic of the package.
* :mod:`oracle.models`: models drawn by number, by a generator, or by Hypothesis.
* :mod:`oracle.lists`: every solver, every kind of factor, named graphs.
* :mod:`oracle.puzzles`, :mod:`oracle.grounding`, :mod:`oracle.learning`: hard constraints, rules
  and labelled models, drawn and judged by plain Python.
* :mod:`oracle.circuits`, :mod:`oracle.causes`, :mod:`oracle.quickscore`, :mod:`oracle.slices`:
  circuits by a plain search, noisy gates written out, networks of them, networks through time.
* :mod:`oracle.promises`: what an answer promises, refuted if it can be.
"""
