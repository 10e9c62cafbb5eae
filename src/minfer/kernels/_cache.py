"""A kernel cache that survives damage: numba's, with a seal on every file.

numba trusts its files. One that was cut short ends the run with an UnpicklingError, and machine
code with a flipped bit is run. Here each file ends with the SHA-256 of what is before it, and data
carry their key:

* a file that is damaged or cannot be read is removed, and its kernel is compiled anew;
* two processes that save two versions of a kernel at once may choose one file name for both (numba
  numbers them): neither version is ever taken for the other;
* a kernel that cannot be written, to a full disk say, is used and not kept.

Kernels of this package are kept in one folder, named after a hash of all their sources: it serves
every copy of the same code, wherever it lies and whenever it was written.

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

from minfer.kernels._ready import Ready

_SEAL = 32  # bytes


class Fault(NamedTuple):
    """A damaged file of the cache."""

    path: Path
    why: str
    removed: bool


#: What this process came upon, in order: damaged files, and why kernels were not kept.
FAULTS: list[Fault] = []
UNSAVED: list[str] = []
#: Kernels this process has loaded from the user's cache, by the names of their files.
LOADED: set[str] = set()
#: Seconds this process has spent loading kernels.
LOADING = [0.0]


class KernelCache(FunctionCache):
    """The cache of one kernel, all its versions.

    ``folder`` and ``ready``: of a kernel of this package, where its sources are kept, and what came
    with the wheel. Anyone else's are kept where numba would keep them, by path and time.
    """

    _cache_file: SealedFiles

    def __init__(self, function: Any, folder: Path | None = None, ready: Ready | None = None):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        if folder is not None:
            self._cache_path, stamp = str(folder), None
        name = self._impl.filename_base
        self._cache_file = SealedFiles(self._cache_path, name, stamp)
        self._ready = ready
        self._ready_file = None if ready is None else ShippedFiles(str(ready.folder), name, None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began = time.perf_counter()
        try:
            found = super().load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception as error:  # as it was written, and yet of no use to this numba
            key = self._index_key(sig, target_context.codegen())
            self._cache_file.discard(key, error)
            found = None
        if found is None:
            found = self._load_ready(sig, target_context)
        else:
            LOADED.add(self._impl.filename_base)
        LOADING[0] += time.perf_counter() - began
        return found

    def _load_ready(self, sig: Any, target_context: Any) -> Any:
        """From the wheel; None where it has nothing that fits, or numba has changed its ways."""
        ready = self._ready
        files = self._ready_file
        if ready is None or files is None or ready.missing:
            return None
        try:
            data = files.load(ready.key(self._index_key(sig, target_context.codegen())))
            found = None if data is None else self._impl.rebuild(target_context, data)
        except MemoryError:
            raise
        except Exception as error:
            ready.missing = _reason(error)
            return None
        ready.loaded += found is not None
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        """As numba does it, to the folder that was chosen."""
        if self._enabled and self._impl.check_cachable(data):
            Path(self._cache_path).mkdir(parents=True, exist_ok=True)
            self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))

    def has_any(self, target_context: Any) -> bool:
        """Whether there is a version for this processor."""
        codegen = target_context.codegen()
        keys = self._cache_file._load_index()
        if any(key == self._index_key(key[0], codegen) for key in keys):
            return True
        ready, files = self._ready, self._ready_file
        return bool(files and ready and not ready.missing and files._load_index())

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
    """The index of a kernel and the compiled code of each of its versions.

    ``ours``: it is for us to remove what is damaged.
    """

    ours = True

    def load(self, key: Any) -> Any:
        name = self._load_index().get(key)
        found = None if name is None else read(Path(self._data_path(name)), self.ours)
        return found[1] if found is not None and found[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def discard(self, key: Any, error: Exception) -> None:
        """Remove one version."""
        name = self._load_index().get(key)
        if name is not None:
            discard(Path(self._data_path(name)), error)

    def _load_index(self) -> dict[Any, str]:
        found = read(Path(self._index_path), self.ours)
        return found[1] if found is not None and found[0] == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._source_stamp, overloads))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        body = self._dump(content)
        with self._open_for_write(path) as file:  # beside it, then renamed
            file.write(body + hashlib.sha256(body).digest())


class ShippedFiles(SealedFiles):
    """Those of a wheel: nothing there is ours to change."""

    ours = False


def read(path: Path, remove: bool = True) -> Any:
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
        if remove:
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
