"""The paper's experiments, and the one way in which experiments here measure and write pages.

``fig1``, ``table1`` and ``fig2`` (with ``parsing``) repeat the paper's; ``deletion`` is a baseline,
``proposition1`` a diagnostic. ``measure`` times calls, ``pages`` makes Markdown of numbers,
``results`` keeps numbers in files; the scripts in ``benchmarks/`` use these three as well.
``learned_denoising`` and ``neural_parser`` are examples to copy.
"""
