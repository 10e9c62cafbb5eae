"""Dependency parsing with second-order factors: a parser, and its parts for scores of your own.

Riedel, Smith & McCallum (2010), section 5.2, on the model of Smith & Eisner (2008). Start with
:class:`Parser`, or with :func:`marginals` if you have scores already.
"""

from minfer.parsing.conllu import BrokenSentence, Sentence, read_conllu, write_conllu
from minfer.parsing.evaluation import bootstrap_difference, evaluate
from minfer.parsing.exact import exact_grandparent
from minfer.parsing.graphs import to_graph
from minfer.parsing.inference import ArcMarginals, Inference, Messages, marginals
from minfer.parsing.learn import Recipe
from minfer.parsing.parser import Parser
from minfer.parsing.trees import (
    NonProjectiveTree,
    ProjectiveTree,
    chu_liu_edmonds,
    eisner,
    tree_marginals,
)

__all__ = [
    "ArcMarginals",
    "BrokenSentence",
    "Inference",
    "Messages",
    "NonProjectiveTree",
    "Parser",
    "ProjectiveTree",
    "Recipe",
    "Sentence",
    "bootstrap_difference",
    "chu_liu_edmonds",
    "eisner",
    "evaluate",
    "exact_grandparent",
    "marginals",
    "read_conllu",
    "to_graph",
    "tree_marginals",
    "write_conllu",
]


def __getattr__(name: str) -> object:
    hint = ""
    if name in ("batch_marginals", "projective_marginals", "nonprojective_marginals"):
        hint = ": it is tree_marginals(scores, lengths, projective=...)"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
