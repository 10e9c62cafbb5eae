"""Fitted models and checkpoints as files: a JSON header and arrays in an ``.npz``, never a pickle.

Files are written whole or not at all, and believed only as far as their bytes go
(:mod:`minfer.io.npz`).
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import FormatError
from minfer.io.npz import read_npz
from minfer.io.text import PathLike, shown, write_bytes

VERSION = 1


def write_arrays(
    path: PathLike, kind: str, header: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    """A file of some kind: what is plain in the header, the rest as arrays."""
    text = json.dumps({"kind": kind, "version": VERSION, "arrays": list(arrays), **header})
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_arrays(path: PathLike, kind: str) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Header and arrays of a file of this kind."""
    (raw,) = read_npz(path, ("header",))
    try:
        header = json.loads(raw.astype(np.uint8).tobytes().decode())
        names = header["arrays"]
        if header["kind"] != kind or header["version"] != VERSION:
            raise ValueError(f"it is a {header['kind']} of version {header['version']}")
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise FormatError(f"{shown(path)}: no {kind} of version {VERSION}: {error}") from None
    return header, dict(zip(names, read_npz(path, tuple(names))))


def digest(*parts: Any) -> str:
    """A fingerprint of texts and arrays."""
    found = hashlib.sha256()
    for part in parts:
        found.update(
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        )
        found.update(b"\0")
    return found.hexdigest()[:32]
