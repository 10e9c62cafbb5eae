"""Kinds of factors; :mod:`minfer.factors.group` says what a kind is."""

from minfer.factors.causes import IndependentCauses
from minfer.factors.connectives import (
    Ands,
    AtMostOne,
    Cardinalities,
    Clauses,
    ExactlyOne,
    Ors,
    Parities,
)
from minfer.factors.distances import Distances
from minfer.factors.features import Features
from minfer.factors.globals import GlobalFactor, Globals
from minfer.factors.group import FactorGroup, Machine, Tables
from minfer.factors.logical import Automata, Logical

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
    "IndependentCauses",
    "Logical",
    "Machine",
    "Ors",
    "Parities",
    "Tables",
]
