"""A trained parser's weights, and its file.

One file in the safetensors format, with what the model is and was trained on as JSON in its header:
nothing in it is executed when it is loaded. Tables hold half-precision numbers; training rounds to
them at its end, so that a loaded model parses as the trained one did.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import FormatError, MinferError
from minfer.io.text import PathLike, atomic_write, read_bytes, shown
from minfer.parsing.features import TEMPLATES

FORMAT = 1
_HEADER = "minfer_parser"
TABLES = ("arcs", "pairs", "tagger", "labels")


@dataclass(frozen=True)
class Settings:
    """What kind of parser it is.

    Attributes
    ----------
    projective : whether arcs may not cross
    single_root : whether exactly one word has head 0
    gp, sib : whether there are grandparent and sibling factors
    tags : ``gold`` or ``predicted``, the tags it was trained with
    theta_low, theta_high : bounds on the weights of pairs, which are clipped to them
    """

    projective: bool = True
    single_root: bool = True
    gp: bool = True
    sib: bool = True
    tags: str = "predicted"
    theta_low: float = -8.0
    theta_high: float = 8.0


@dataclass(frozen=True, eq=False)
class Model:
    """Weights and what they belong to.

    Attributes
    ----------
    settings : Settings
    upos : UPOS tags in the training data
    classes : pairs (UPOS, XPOS), the classes of the tagger
    relations : classes of the labeller
    arcs, pairs : (lines * 16,) float32, tables of first- and second-order features
    tagger, labels : (lines, classes) float32
    info : what it was trained on, for people
    """

    settings: Settings
    upos: tuple[str, ...]
    classes: tuple[tuple[str, str], ...]
    relations: tuple[str, ...]
    arcs: NDArray[np.float32]
    pairs: NDArray[np.float32]
    tagger: NDArray[np.float32]
    labels: NDArray[np.float32]
    info: dict[str, Any] = field(default_factory=dict)

    def rounded(self) -> Model:
        """The same with weights that half precision holds."""
        tables = {name: _half(getattr(self, name)).astype(np.float32) for name in TABLES}
        return Model(
            self.settings, self.upos, self.classes, self.relations, **tables, info=self.info
        )

    def save(self, path: PathLike) -> None:
        save = _safetensors().save
        header = {
            "format": FORMAT,
            "features": features_digest(),
            "settings": asdict(self.settings),
            "upos": self.upos,
            "classes": self.classes,
            "relations": self.relations,
            "info": self.info,
        }
        tables = {name: _half(getattr(self, name)) for name in TABLES}
        with atomic_write(path) as file:
            file.write(save(tables, metadata={_HEADER: json.dumps(header)}))

    @classmethod
    def load(cls, path: PathLike) -> Model:
        tables, header = read_tensors(path, _HEADER)
        name = shown(path)
        if header.get("format") != FORMAT or header.get("features") != features_digest():
            version = header.get("info", {}).get("minfer", "another version")
            raise FormatError(
                f"{name}: a parser trained with minfer {version}, whose features differ from this "
                "version's: train it again, or install that version"
            )
        try:
            return cls(
                Settings(**header["settings"]),
                tuple(header["upos"]),
                tuple((u, x) for u, x in header["classes"]),
                tuple(header["relations"]),
                **{name: tables[name].astype(np.float32) for name in TABLES},
                info=header["info"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{name}: the model is incomplete ({error}): train again") from None


def features_digest() -> str:
    """Stands for the templates: weights fit no others."""
    text = json.dumps(TEMPLATES, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def read_tensors(path: PathLike, header: str) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays of a safetensors file and the JSON in its header under a name."""
    load = _safetensors().load
    data = read_bytes(path)
    wrong = FormatError(f"{shown(path)}: not a parser that minfer saved")
    try:
        size = int.from_bytes(data[:8], "little")
        meta = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][header])
    except (ValueError, KeyError, TypeError):
        raise wrong from None
    if not isinstance(meta, dict):
        raise wrong
    try:
        return load(data), meta
    except Exception as error:  # the library has its own error type
        raise FormatError(f"{shown(path)}: damaged: {error}") from None


def _half(table: NDArray[np.float32]) -> NDArray[np.float16]:
    return np.clip(table, -6e4, 6e4).astype(np.float16)


def _safetensors() -> Any:
    try:
        import safetensors.numpy as library
    except ImportError:
        raise MinferError(
            "parser files need safetensors, which is not installed: pip install 'minfer[parsing]'"
        ) from None
    return library
