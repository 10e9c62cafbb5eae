"""The paper's experiments, and the one way in which experiments here measure and write pages.

``fig1``, ``table1`` and ``fig2`` (with ``parsing``) repeat the paper's. ``measure`` times calls,
``pages`` makes Markdown of numbers, ``results`` keeps numbers in files; the scripts in
``benchmarks/`` use these three as well.
"""
