"""Kinds of factors, each a file; :mod:`minfer.factors.group` says what a kind is."""

from minfer.factors.clause import Clauses
from minfer.factors.counting import AtMostOne, Cardinalities, ExactlyOne
from minfer.factors.distances import Distances, distances, recognised
from minfer.factors.features import (
    MAX_FEATURE_ARITY,
    TRUTH_TABLES,
    Features,
    binary_pairs,
    conjunctions,
    truth_table,
)
from minfer.factors.globals import GlobalFactor, Globals
from minfer.factors.group import (
    KINDS,
    MAX_LOG,
    MAX_TABLE_CELLS,
    FactorGroup,
    Machine,
    all_cells,
    interaction,
    n_entries,
    patterns,
    read_only,
)
from minfer.factors.logical import Automata, Logical
from minfer.factors.output import Ands, Ors
from minfer.factors.parity import Parities
from minfer.factors.tables import Tables, check_entries, check_log_psi

__all__ = [
    "KINDS",
    "MAX_FEATURE_ARITY",
    "MAX_LOG",
    "MAX_TABLE_CELLS",
    "TRUTH_TABLES",
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
    "all_cells",
    "binary_pairs",
    "check_entries",
    "check_log_psi",
    "conjunctions",
    "distances",
    "interaction",
    "n_entries",
    "patterns",
    "read_only",
    "recognised",
    "truth_table",
]
