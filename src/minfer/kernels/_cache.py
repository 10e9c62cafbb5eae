"""A kernel cache that survives damage: numba's, with a seal on every file.

numba trusts its files. One that was cut short ends the run with an UnpicklingError, and machine
code with a flipped bit is run. Here each file ends with the SHA-256 of what is before it, and data
carry their key:

* a file that is damaged or cannot be read is removed, and its kernel is compiled anew;
* two processes that save two versions of a kernel at once may choose one file name for both (numba
  numbers them): neither version is ever taken for the other;
* a kernel that cannot be written, to a full disk say, is used and not kept.

Each is said once on stderr. Any number of processes may do all this at once: a file that another
one has removed or replaced meanwhile is a miss, nothing worse. Nothing but files that have the name
of an index (.nbi) or of compiled code (.nbc) is ever removed.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.caching import FunctionCache, IndexDataCacheFile

_SEAL = 32  # bytes


class Fault(NamedTuple):
    """A damaged file of the cache."""

    path: Path
    why: str
    removed: bool


#: What this process came upon, in order: damaged files, and why kernels were not kept.
FAULTS: list[Fault] = []
UNSAVED: list[str] = []
#: Seconds this process has spent loading kernels.
LOADING = [0.0]


class KernelCache(FunctionCache):
    """The cache of one kernel, all its versions."""

    _cache_file: SealedFiles

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = SealedFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began = time.perf_counter()
        try:
            return super().load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception as error:  # as it was written, and yet of no use to this numba
            key = self._index_key(sig, target_context.codegen())
            self._cache_file.discard(key, error)
            return None
        finally:
            LOADING[0] += time.perf_counter() - began

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            why = _reason(error)
            if not UNSAVED:
                _say(
                    f"compiled kernels cannot be kept in {self._cache_path} ({why}): this run goes "
                    "on, the next compiles them again"
                )
            UNSAVED.append(why)


class SealedFiles(IndexDataCacheFile):
    """The index of a kernel and the compiled code of each of its versions."""

    def load(self, key: Any) -> Any:
        name = self._load_index().get(key)
        found = None if name is None else read(Path(self._data_path(name)))
        return found[1] if found is not None and found[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def discard(self, key: Any, error: Exception) -> None:
        """Remove one version."""
        name = self._load_index().get(key)
        if name is not None:
            discard(Path(self._data_path(name)), error)

    def _load_index(self) -> dict[Any, str]:
        found = read(Path(self._index_path))
        return found[1] if found is not None and found[0] == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._source_stamp, overloads))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        body = self._dump(content)
        with self._open_for_write(path) as file:  # beside it, then renamed
            file.write(body + hashlib.sha256(body).digest())


def read(path: Path) -> Any:
    """What a sealed file holds, or None: there is no such file, or it was damaged and is gone."""
    try:
        content = memoryview(path.read_bytes())
        body, seal = content[:-_SEAL], content[-_SEAL:]
        if hashlib.sha256(body).digest() != seal:
            raise ValueError("cut short or altered")
        return pickle.loads(body)
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Exception as error:
        discard(path, error)
        return None


def discard(path: Path, error: Exception) -> None:
    """Remove a damaged file, remember it, and say so if it is the first."""
    try:
        path.unlink(missing_ok=True)  # never a folder, and of a link the link
        removed = True
    except OSError:
        removed = False
    fault = Fault(path, _reason(error), removed)
    if not FAULTS:
        done = (
            "was damaged; it is removed and compiled anew"
            if removed
            else "is damaged and cannot be removed; its kernel is compiled in each run"
        )
        _say(f"an entry of the kernel cache {done} ({path}: {fault.why}); see `minfer doctor`")
    FAULTS.append(fault)


def load_all(folder: Path, kernels: Iterable[Any]) -> int:
    """Read every file of a cache, and load what it holds for these kernels; how many versions.

    Files that are damaged are discarded, and added to ``FAULTS``.
    """
    for path in sorted(folder.rglob("*.nb[ic]")):
        read(path)
    loaded = 0
    for kernel in kernels:
        cache, context = kernel._cache, kernel.targetctx
        for key in cache._cache_file._load_index():
            if key == cache._index_key(key[0], context.codegen()):  # for this processor
                loaded += cache.load_overload(key[0], context) is not None
    return loaded


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _say(text: str) -> None:
    print(f"minfer: {text}", file=sys.stderr, flush=True)
