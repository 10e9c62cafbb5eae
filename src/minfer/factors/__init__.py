"""Kinds of factors, each a file; :mod:`minfer.factors.group` says what a kind is."""

from minfer.factors.clause import Clauses
from minfer.factors.counting import AtMostOne, Cardinalities, ExactlyOne
from minfer.factors.distances import Distances
from minfer.factors.features import Features
from minfer.factors.globals import GlobalFactor, Globals
from minfer.factors.group import FactorGroup, Machine, Tables
from minfer.factors.logical import Automata, Logical
from minfer.factors.output import Ands, Ors
from minfer.factors.parity import Parities

__all__ = [
    "Ands",
    "AtMostOne",
    "Automata",
    "Cardinalities",
    "Clauses",
    "Distances",
    "ExactlyOne",
    "FactorGroup",
    "Features",
    "GlobalFactor",
    "Globals",
    "Logical",
    "Machine",
    "Ors",
    "Parities",
    "Tables",
]
