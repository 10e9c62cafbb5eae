"""What the libraries offer, each claim with the name that does it.

`python peers_claims.py PEER`, run in the environment of a peer, tries to find every name and
prints what is missing as JSON. peers.py does so whenever it measures, so that the table of
features on the page says nothing that the installed versions do not have.
"""

from __future__ import annotations

import json
import pkgutil
import sys
import warnings
from typing import NamedTuple


class Claim(NamedTuple):
    """A name as `module:object`, and what the page says in the cell."""

    name: str
    says: str = "yes"


BN = "Bayesian networks"

#: feature -> peer -> claim; a peer that is not named does not have it
CLAIMS: dict[str, dict[str, Claim]] = {
    "loopy belief propagation": {
        "minfer": Claim("minfer:BeliefPropagation"),
        "pgmax": Claim("pgmax.infer.bp:BP"),
        "pygms": Claim("pygms.messagepass:LBP"),
        "pomegranate": Claim("pomegranate.factor_graph:FactorGraph.predict_proba"),
        "pyagrum": Claim("pyagrum:LoopyBeliefPropagation", BN),
        "supar": Claim("supar.structs:DependencyLBP", "its own pairs of arcs"),
    },
    "exact marginals": {
        "minfer": Claim("minfer:Exact"),
        "pygms": Claim("pygms.wmb:JTree"),
        "pyagrum": Claim("pyagrum:ShaferShenoyMRFInference"),
        "pgmpy": Claim("pgmpy.inference:VariableElimination"),
        "torch-struct": Claim("torch_struct:DependencyCRF.marginals", "its structures"),
        "supar": Claim("supar.structs:DependencyCRF.marginals", "its structures"),
    },
    "mean field": {
        "minfer": Claim("minfer:MeanField"),
        "pygms": Claim("pygms.messagepass:NMF"),
        "supar": Claim("supar.structs:DependencyMFVI", "its own pairs of arcs"),
    },
    "sampling": {
        "minfer": Claim("minfer:Gibbs"),
        "pygms": Claim("pygms.montecarlo:GibbsSampling"),
        "pyagrum": Claim("pyagrum:GibbsSampling", BN),
        "pgmpy": Claim("pgmpy.sampling:GibbsSampling"),
        "torch-struct": Claim("torch_struct:DependencyCRF.sample", "its structures"),
    },
    "log Z": {
        "minfer": Claim("minfer:LogZ"),
        "pygms": Claim("pygms.wmb:JTree.msgForward"),
        "pyagrum": Claim("pyagrum:LazyPropagation.evidenceProbability", "P(evidence)"),
        "pgmpy": Claim(
            "pgmpy.models:DiscreteMarkovNetwork.get_partition_function", "from one table of all"
        ),
        "torch-struct": Claim("torch_struct:DependencyCRF.partition", "its structures"),
        "supar": Claim("supar.structs:DependencyCRF.log_partition", "its structures"),
    },
    "bounds of log Z": {
        "minfer": Claim("minfer:TreeReweighted"),
        "pygms": Claim("pygms.wmb:WMB"),
    },
    "best assignment (MAP)": {
        "minfer": Claim("minfer:mpe"),
        "pgmax": Claim("pgmax.infer:decode_map_states"),
        "pygms": Claim("pygms.search:AStar"),
        "pyagrum": Claim("pyagrum:LazyPropagation.mpe", BN),
        "pgmpy": Claim("pgmpy.inference:VariableElimination.map_query"),
        "torch-struct": Claim("torch_struct:DependencyCRF.argmax", "its structures"),
        "supar": Claim("supar.structs:DependencyCRF.argmax", "its structures"),
    },
    "MAP with an upper bound": {
        "minfer": Claim("minfer.model.ranked:Best.gap"),
        "pgmax": Claim("pgmax.infer.dual_lp:SmoothDualLP"),
        "pygms": Claim("pygms.wmb:WMB"),
    },
    "learning of parameters": {
        "minfer": Claim("minfer.learn:fit"),
        "pgmax": Claim("jax:grad", "by gradients"),
        "pygms": Claim("pygms.ising:refit_pll_opt", "Ising models"),
        "pomegranate": Claim("pomegranate.factor_graph:FactorGraph.fit"),
        "pyagrum": Claim("pyagrum:BNLearner", BN),
        "pgmpy": Claim("pgmpy.models:DiscreteBayesianNetwork.fit", BN),
        "torch-struct": Claim("torch.autograd:grad", "by gradients"),
        "supar": Claim("supar:BiaffineDependencyParser.train", "neural parsers"),
    },
    "learning of structure": {
        "minfer": Claim("minfer.learn:grow", "binary pairs"),
        "pygms": Claim("pygms.ising:fit_chowliu", "Ising models"),
        "pomegranate": Claim("pomegranate.bayesian_network:BayesianNetwork.fit", BN),
        "pyagrum": Claim("pyagrum:BNLearner.learnBN", BN),
        "pgmpy": Claim("pgmpy.causal_discovery:PC", BN),
    },
    "GPU": {
        "minfer": Claim("minfer:BeliefPropagation.device", "BP, TRW, mean field of pairs; trees"),
        "pgmax": Claim("jax:devices", "JAX"),
        "pomegranate": Claim("torch:device", "torch"),
        "pgmpy": Claim("pgmpy:config.set_backend", "torch, if installed"),
        "torch-struct": Claim("torch:device", "torch"),
        "supar": Claim("torch:device", "torch"),
    },
    "gradients": {
        "minfer": Claim("minfer.solvers.gradients:pull_back", "torch, numpy"),
        "pgmax": Claim("jax:grad", "JAX"),
        "pomegranate": Claim("torch.autograd:grad", "torch"),
        "torch-struct": Claim("torch.autograd:grad", "torch"),
        "supar": Claim("torch.autograd:grad", "torch"),
    },
    "UAI files": {
        "minfer": Claim("minfer:read_uai"),
        "pygms": Claim("pygms.filetypes:readUai"),
        "pyagrum": Claim("pyagrum:MarkovRandomField.loadUAI"),
        "pgmpy": Claim("pgmpy.readwrite:UAIReader"),
    },
    "Bayesian networks": {
        "minfer": Claim("minfer:FactorGraph.network"),
        "pygms": Claim("pygms.filetypes:readBif", "reads"),
        "pomegranate": Claim("pomegranate.bayesian_network:BayesianNetwork"),
        "pyagrum": Claim("pyagrum:BayesNet"),
        "pgmpy": Claim("pgmpy.models:DiscreteBayesianNetwork"),
    },
    "BIF files": {
        "minfer": Claim("minfer.io.bif:parse_bif"),
        "pygms": Claim("pygms.filetypes:readBif"),
        "pyagrum": Claim("pyagrum:loadBN"),
        "pgmpy": Claim("pgmpy.readwrite:BIFReader"),
    },
    "rows of a table in one call": {
        "minfer": Claim("minfer:predict", "any cells empty"),
        "pomegranate": Claim("pomegranate.factor_graph:FactorGraph.predict_proba"),
        "pgmpy": Claim("pgmpy.models:DiscreteBayesianNetwork.predict", "the same variables"),
    },
    "sensitivity of a posterior to every entry": {"minfer": Claim("minfer:sensitivity")},
    "causal effects": {
        "minfer": Claim("minfer:FactorGraph.with_do", "of what is set"),
        "pyagrum": Claim("pyagrum:CausalModel"),
        "pgmpy": Claim("pgmpy.inference:CausalInference"),
    },
    "structured factors in a factor graph": {
        "minfer": Claim("minfer.parsing:ProjectiveTree", "trees, your own"),
        "pgmax": Claim("pgmax.fgroup:ORFactorGroup", "OR, AND, pool"),
    },
    "models with factors left out, and the cost of it": {"minfer": Claim("minfer:infer")},
}


def missing(peer: str) -> dict[str, str]:
    """The features of a peer whose name is not there, and why."""
    out = {}
    for feature, claims in CLAIMS.items():
        if peer in claims:
            try:
                pkgutil.resolve_name(claims[peer].name)
            except Exception as error:
                out[feature] = f"{claims[peer].name}: {type(error).__name__}: {error}"[:200]
    return out


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "pgmax":  # with the function that JAX has dropped
        from tools import PGMax

        PGMax().setup()
    print(json.dumps(missing(sys.argv[1])))
