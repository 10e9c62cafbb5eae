"""Where results, pages and data lie, and the UAI 2014 models among the data.

Data are in the folder that the environment variable MINFER_DATA names, else in ``shared/data``
beside the checkout. The UAI models are gzipped in one folder per family: ``NAME.uai``, evidence
``NAME.uai.evid``, exact marginals ``NAME.uai.MAR``.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer import FactorGraph

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs" / "reference"
#: Tables of every model that pages sum up.
INSTANCES = RESULTS / "instances.md"
DATA = Path(os.environ.get("MINFER_DATA") or ROOT.parent / "shared" / "data")
UAI = DATA / "uai"
TREEBANKS = DATA / "treebanks"


@dataclass(frozen=True)
class UaiModel:
    """One of them; its files are read when they are first asked for."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".uai.gz")

    @property
    def family(self) -> str:
        return self.path.parent.name

    def beside(self, kind: str) -> Path:
        return self.path.with_name(f"{self.name}.uai.{kind}.gz")

    @cached_property
    def graph(self) -> FactorGraph:
        """The model under its evidence."""
        from minfer import read_uai

        seen = self.beside("evid")
        return read_uai(self.path, seen if seen.exists() else None)

    @cached_property
    def marginals(self) -> NDArray[np.float64]:
        """The exact ones, of all states."""
        from minfer.io import read_mar

        return np.concatenate(read_mar(self.beside("MAR")))


def uai_models(folder: Path = UAI, names: Container[str] = ()) -> Iterator[UaiModel]:
    """Those of a folder by name, or the named ones of them."""
    paths = sorted(folder.glob("*/*.uai.gz"))
    if not paths:
        raise SystemExit(
            f"{folder}: no FAMILY/NAME.uai.gz here; --data names the folder of families"
        )
    for model in map(UaiModel, paths):
        if not names or model.name in names:
            yield model
