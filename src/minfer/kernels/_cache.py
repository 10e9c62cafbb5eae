"""A kernel cache that survives damage: a file for each version of a kernel, with a seal.

numba trusts its files. One that was cut short ends the run with an UnpicklingError, and machine
code with a flipped bit is run. Here each file ends with the SHA-256 of what is before it, and
begins with its key (kernel, sources, types of arguments, processor):

* a file that is damaged or cannot be read is removed, and its kernel is compiled anew;
* there is no index: a version has a file name of its own, so processes that save at once do not
  meet, and neither version is ever taken for the other;
* a kernel that cannot be written, to a full disk say, is used and not kept;
* nor is one that holds a function with a counted name (:mod:`minfer.kernels._symbols`).

Kernels of one module of this package are kept in one folder, named after a hash of the sources they
are made of: it serves every copy of the same code, wherever it lies and whenever it was written.
What nobody has used for a month is removed by ``minfer warmup`` (:func:`prune`).

Each is said once on stderr. Any number of processes may do all this at once: a file that another
one has removed or replaced meanwhile is a miss, nothing worse. Nothing but files that have the name
of compiled code (.nbc, and .nbi of earlier versions) is ever removed.

Names of numba that are not promised to stay are used here. Where one is missing
(:data:`UNAVAILABLE`), kernels are kept by numba's own cache, and the first compilation says so.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from minfer.kernels import _symbols
from minfer.kernels._ready import Ready

#: Why numba's own cache is used; empty where it is not.
UNAVAILABLE = ""
try:
    _dumps: Any = import_module("numba.core.serialize").dumps
    _Result: Any = import_module("numba.core.compiler").CompileResult
    _NAMES = _Result._reduce, _Result._rebuild
    _CPU: Any = import_module("numba.core.registry").cpu_target
    _CPU.target_context.codegen().magic_tuple()
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)
if "cache" in _symbols.WITHOUT:
    UNAVAILABLE = "MINFER_WITHOUT has it"

_SEAL = 32  # bytes
SUFFIX, REFUSED = ".nbc", ".refused"


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


class KernelCache:
    """The cache of one kernel, all its versions: what numba asks of a cache.

    Parameters
    ----------
    function : the kernel as it was written
    folder : where its versions are kept
    ready : what came with the wheel, if it may be used

    Attributes
    ----------
    loaded : the latest version that was taken from it, or from the wheel
    """

    loaded: Any = None

    def __init__(self, function: Any, folder: Path, ready: Ready | None = None) -> None:
        self.folder, self._ready = folder, ready
        self._name = f"{function.__qualname__}-{function.__code__.co_firstlineno}"

    @property
    def cache_path(self) -> str:
        return str(self.folder)

    def enable(self) -> None:
        pass

    def disable(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A version as it was compiled by this user, or else for the wheel; None without one."""
        began = time.perf_counter()
        target_context.refresh()
        found = self._load_own(sig, target_context)
        if found is None:
            found = self._load_ready(sig, target_context)
        LOADING[0] += time.perf_counter() - began
        self.loaded = found
        return found

    def _load_own(self, sig: Any, target_context: Any) -> Any:
        key = self.key(sig, target_context)
        path = self.path(key)
        content = read(path)
        if content is None or content[0] != key:
            return None
        _touch(self.folder)
        try:
            return _Result._rebuild(target_context, *content[1])
        except MemoryError:
            raise
        except Exception as error:  # as it was written, and yet of no use to this numba
            discard(path, error)
            return None

    def _load_ready(self, sig: Any, target_context: Any) -> Any:
        """From the wheel; None where it has nothing that fits, or numba has changed its ways."""
        ready = self._ready
        if ready is None or ready.missing or self._refusal(sig, target_context).exists():
            return None
        key = self.key(sig, target_context, ready.target)
        content = read(self.path(key, ready.place / self.folder.name), remove=False)
        if content is None or content[0] != key:
            return None
        try:
            found = _Result._rebuild(target_context, *content[1])
        except MemoryError:
            raise
        except Exception as error:
            ready.missing = _reason(error)
            return None
        ready.loaded += 1
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a version, without its annotated source; say so once if that cannot be done."""
        try:
            content = data._replace(type_annotation="")._reduce()
            self._check(data, content)
            write(self.path(self.key(sig, data)), (self.key(sig, data), content))
        except (OSError, _NotKept) as error:
            why = _reason(error)
            if not UNSAVED:
                _say(
                    f"compiled kernels cannot be kept in {self.folder} ({why}): this run goes on, "
                    "the next compiles them again"
                )
            UNSAVED.append(why)

    def _check(self, data: Any, content: Any) -> None:
        """Refuse what another process could not use, or would take for something else."""
        name = data.fndesc.qualname
        if data.lifted or data.library.has_dynamic_globals:
            raise _NotKept(f"{name} holds addresses of this process")
        counted = _symbols.counted(content[0][2][0])
        if counted:
            raise _NotKept(f"{name} holds a function that was compiled before: {counted}")

    def key(self, sig: Any, home: Any, target: Any = None) -> tuple[str, Any, Any]:
        """What tells versions apart: kernel and sources, types of arguments, processor.

        ``home``: something with a code generator.
        """
        codegen = home.codegen() if callable(home.codegen) else home.codegen
        types = tuple(getattr(sig, "args", sig))
        processor = tuple(target or codegen.magic_tuple())
        return f"{self.folder.name}/{self._name}", types, processor

    def path(self, key: Any, folder: Path | None = None) -> Path:
        """The file of one version."""
        types, target = (hashlib.sha256(str(part).encode()).hexdigest() for part in key[1:])
        return (folder or self.folder) / f"{self._name}-{target[:8]}-{types[:16]}{SUFFIX}"

    def versions(self, target_context: Any) -> Iterator[Path]:
        """The files of all versions for this processor, here and in the wheel."""
        yield from self._files(self.key((), target_context), self.folder)
        ready = self._ready
        if ready is not None and not ready.missing:
            key = self.key((), target_context, ready.target)
            yield from self._files(key, ready.place / self.folder.name)

    def _files(self, key: Any, folder: Path) -> Iterator[Path]:
        mark = self.path(key).name.rpartition("-")[0]
        with suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(folder))
            yield from (folder / n for n in names if n.startswith(mark) and n.endswith(SUFFIX))

    def has_any(self, target_context: Any) -> bool:
        """Whether there is a version for this processor."""
        return any(True for _ in self.versions(target_context))

    def signatures(self, target_context: Any) -> list[Any]:
        """The types of arguments of all versions for this processor, here and in the wheel."""
        found = [read(p, p.parent == self.folder) for p in self.versions(target_context)]
        return list(dict.fromkeys(content[0][1] for content in found if content is not None))

    def refuse(self, sig: Any, target_context: Any, why: str) -> bool:
        """Load a version no more: remove it, and pass over that of the wheel; whether it is done.

        What is compiled in its place is kept as ever.
        """
        try:
            key = self.key(sig, target_context)
            self.path(key).unlink(missing_ok=True)
            write(self._refusal(sig, target_context), (key, why))
        except OSError:
            return False
        return True

    def _refusal(self, sig: Any, target_context: Any) -> Path:
        """The file that says that the wheel's version is wrong."""
        return self.path(self.key(sig, target_context)).with_suffix(REFUSED)


class _NotKept(Exception):
    """Why a kernel stays in this process."""


def write(path: Path, content: Any) -> None:
    """Seal a file: beside its place, then renamed."""
    body = _dumps(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        beside.write_bytes(body + hashlib.sha256(body).digest())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


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


class Version(NamedTuple):
    """A compiled version of a kernel."""

    kernel: Any
    signature: Any
    made: Any  # numba's result of the compilation
    origin: str  # "the cache" or "the wheel"


def load_all(folder: Path, kernels: Iterable[Any]) -> list[Version]:
    """Read every file of a cache, and load all that there is for these kernels, in a wheel too.

    Files that are damaged are discarded, and added to ``FAULTS``.
    """
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        read(path)
    loaded = []
    for kernel in kernels:
        cache, context = kernel._cache, kernel.targetctx
        if not isinstance(cache, KernelCache):  # numba's own
            continue
        for signature in cache.signatures(context):
            before = cache._ready.loaded if cache._ready else 0
            made = cache.load_overload(signature, context)
            if made is not None:
                shipped = cache._ready and cache._ready.loaded > before
                origin = "the wheel" if shipped else "the cache"
                loaded.append(Version(kernel, signature, made, origin))
    return loaded


#: A folder unused for so many seconds is old, and so is one with so many newer ones of its kind.
_OLD, _GENERATIONS = 30 * 86_400, 10
_CACHE = re.compile(r"kernels-[0-9a-f]{12}")  # of one numba and Python, or of sources, once
_MODULE = re.compile(r"(\w+)[-_][0-9a-f]{16,40}")  # in one of them
_FILE = re.compile(r".*\.(nb[ic]|refused)(\.tmp\.[0-9a-f]+)?")


def prune(current: Path, keep: Iterable[Path]) -> tuple[int, int]:
    """Remove what is old beside and in a cache folder; how many folders and bytes.

    ``keep``: folders in it that are in use. Only folders and files with the names we give them are
    removed, and a folder that holds anything else stays.
    """
    kinds: defaultdict[str, list[Path]] = defaultdict(list)
    for place in current.parent.iterdir():
        if _CACHE.fullmatch(place.name) and place.is_dir() and not place.is_symlink():
            if place != current:
                kinds[""].append(place)
                continue
            for folder in place.iterdir():
                match = _MODULE.fullmatch(folder.name)
                if match and folder.is_dir() and not folder.is_symlink():
                    kinds[match[1]].append(folder)
    kept, gone, freed = set(keep), 0, 0
    for folders in kinds.values():
        folders.sort(key=_last_used, reverse=True)
        for rank, folder in enumerate(folders):
            old = time.time() - _last_used(folder) > _OLD or rank >= _GENERATIONS
            if old and folder not in kept:
                freed += _remove(folder)
                gone += not folder.exists()
    return gone, freed


def _last_used(folder: Path) -> float:
    """When it, or a folder in it, was last written to or loaded from."""
    with suppress(OSError):
        inner = [entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_dir()]
        return max([folder.stat().st_mtime, *inner])
    return 0.0


def _remove(folder: Path) -> int:
    """Remove our files in a folder and in folders of modules there; the bytes freed."""
    freed = 0
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir():
                freed += _remove(entry) if _MODULE.fullmatch(entry.name) else 0
            elif _FILE.fullmatch(entry.name):
                size = entry.stat().st_size
                entry.unlink()
                freed += size
        folder.rmdir()
    return freed


def _touch(folder: Path) -> None:
    """Note that a folder is in use, once a day."""
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > 86_400:
            os.utime(folder)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _say(text: str) -> None:
    print(f"minfer: {text}", file=sys.stderr, flush=True)
