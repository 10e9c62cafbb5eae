"""The public names and their signatures, pinned: a change must be meant.

``python tests/test_api.py`` writes tests/api.txt anew; read the difference, and see
docs/stable.md for what may change when.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

PINNED = Path(__file__).with_name("api.txt")
#: Packages whose ``__all__`` is promised, with the extra that some need.
PACKAGES = {
    "minfer": None,
    "minfer.batch": "pyarrow",
    "minfer.interop": None,
    "minfer.learn": None,
    "minfer.parsing": None,
    "minfer.report": None,
    "minfer.rules": None,
    "minfer.torch": "torch",
}


def lines(package: str) -> Iterator[str]:
    """One line for each public name of a package, and for each public method of a class."""
    module = importlib.import_module(package)
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        yield f"{package}.{name}{signature(thing)}"
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        for key in sorted(dir(thing)):
            member = inspect.getattr_static(thing, key)
            ours = getattr(owner(thing, key), "__module__", "").startswith("minfer.")
            if key.startswith("_") or not ours:
                continue
            if isinstance(member, (classmethod, staticmethod)):
                yield f"{package}.{name}.{key}{signature(member.__func__)}"
            elif inspect.isfunction(member):
                yield f"{package}.{name}.{key}{signature(member)}"
            else:
                yield f"{package}.{name}.{key}"


def owner(kind: type, key: str) -> type | None:
    return next((base for base in kind.__mro__ if key in vars(base)), None)


def signature(thing: object) -> str:
    """Names, kinds and defaults; types are the type checker's to guard."""
    if not callable(thing) or isinstance(thing, enum.EnumMeta):  # calling an enumeration looks up
        return ""  # a member, in words that each Python has for itself
    if isinstance(thing, type) and issubclass(thing, np.ndarray):  # numpy's, which older ones hide
        return "(...)"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    text = str(inspect.Signature(bare))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_and_signatures(package):
    needs = PACKAGES[package]
    if needs is not None:
        pytest.importorskip(needs, reason=f"{needs} is not installed")
    pinned = [line for line in PINNED.read_text().splitlines() if line.startswith(f"{package}.")]
    own = [line for line in pinned if re.match(rf"{re.escape(package)}\.[A-Za-z_]\w*", line)]
    others = [p for p in PACKAGES if p.startswith(f"{package}.")]
    own = [line for line in own if not any(line.startswith(f"{p}.") for p in others)]
    assert list(lines(package)) == own, "python tests/test_api.py shows what changed"


if __name__ == "__main__":
    PINNED.write_text("".join(f"{line}\n" for p in PACKAGES for line in lines(p)))
    print(PINNED)
