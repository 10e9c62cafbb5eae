"""Build a wheel with machine code inside, for this system, Python and numba, and test it.

    python packaging/ready_wheel.py -o dist
    python packaging/ready_wheel.py -o dist --work build/ready
    python packaging/ready_wheel.py -o dist --modules minfer.kernels.trees --tests tests/test_x.py

For each kind of processor in :data:`VARIANTS`, one process compiles every kernel that Python calls;
that machine code goes into the wheel. Then the wheel is installed into an empty folder, and once
for each variant that this processor can run, every kernel is asked what plain Python has answered
(as `minfer doctor` does), and the whole suite runs on exactly that machine code. Only a wheel that
passes is put into the output folder; of variants that could not be run here, it has none.

With ``--work`` what was compiled is kept there, and a later build compiles only kernels whose
sources have changed since: a kernel is known by the hash of its sources, types and processor, and
each file has a seal (src/minfer/kernels/compiling/cache.py). The tests run all the same.

What happens with them on the other side is told in src/minfer/kernels/compiling/cache.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
READY = ROOT / "src" / "minfer" / "kernels" / "ready"


class Variant(NamedTuple):
    """A kind of processor: LLVM's name, and what one must be able to do."""

    name: str
    cpu: str
    needs: str = ""


_V3 = "avx avx2 bmi bmi2 f16c fma lzcnt movbe popcnt sse4.2"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
#: By machine, the best first. What x86-64-v4 would give is in docs/reference/speed.md.
VARIANTS = {
    "x86_64": [Variant("x86-64-v3", "x86-64-v3", _V3), Variant("x86-64", "x86-64")],
    "aarch64": [Variant("aarch64", "generic")],
}
#: Known, and built only when asked for.
MORE = {"x86-64-v4": Variant("x86-64-v4", "x86-64-v4", _V4)}

#: Run in a process of its own, with numba told what to compile for.
COMPILE = """
import json, os, sys
from minfer.upkeep.warmup import compile_home, homes
from minfer.kernels.compiling import cache, frugal, identity, jit

jit.be_quiet()
assert not (cache.UNAVAILABLE or frugal.UNAVAILABLE or identity.UNAVAILABLE)
for module in homes():
    if module.startswith(tuple(sys.argv[1:]) or ""):
        print(module, file=sys.stderr, flush=True)
        wrong = compile_home(module)[3]
        assert not wrong, wrong
assert not cache.UNSAVED, cache.UNSAVED
target = jit._KERNELS[0].targetctx.codegen().magic_tuple()
made = [(k._cache, k._cache.key(types, k.targetctx)) for k in jit._KERNELS for types in k.overloads]
files = [str(kept.folder / kept.file(key)) for kept, key in made]
json.dump([cache.described(), target, [file for file in files if os.path.exists(file)]], sys.stdout)
"""

#: The machine code of a variant is in use, and every kernel says what plain Python has said.
ASK = """
from minfer.kernels.compiling.jit import READY
from minfer.upkeep.health import CHECKS

assert not READY.missing, READY.missing
found = CHECKS["kernels"]()
print(found)
assert found.ok, found
"""


def collect(variants: list[Variant], scratch: Path, modules: list[str], workers: int) -> int:
    """Compile everything, or some modules, into the package; how many versions of kernels."""
    shutil.rmtree(READY, ignore_errors=True)
    READY.mkdir()

    def work(variant: Variant) -> Any:
        return _compile(variant, scratch / f"cache-{variant.name}", modules)

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(work, variants))
    about: dict[str, Any] = {"variants": []}
    for variant, (described, target, files) in zip(variants, found, strict=True):
        about |= described
        needs = variant.needs.split()
        about["variants"].append({"name": variant.name, "target": target, "needs": needs})
        for path in map(Path, files):
            place = READY / variant.name / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    about["tag"] = f"cp{sys.version_info.major}{sys.version_info.minor}-none-{tag}"
    (READY / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return sum(1 for _ in READY.rglob("*.nbc"))


def _compile(variant: Variant, cache: Path, modules: list[str]) -> Any:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "MINFER_CACHE_DIR": str(cache),
        "MINFER_READY": "0",
        "NUMBA_CPU_NAME": variant.cpu,
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }
    call = [sys.executable, "-c", COMPILE, *modules]
    done = subprocess.run(call, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def build(folder: Path) -> Path:
    """The wheel of the package as it is now."""
    for old in folder.glob("minfer-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    if find_spec("hatchling") is not None:  # where nothing can be downloaded
        command.append("--no-build-isolation")
    subprocess.run([*command, str(ROOT)], check=True)
    [wheel] = folder.glob("minfer-*.whl")
    return wheel


def check(wheel: Path, variants: list[Variant], scratch: Path, tests: list[str]) -> None:
    """Run the tests on the machine code of a wheel, and nothing else."""
    site = scratch / "site"
    shutil.rmtree(site, ignore_errors=True)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(wheel)], check=True)
    for variant in variants:
        print(f"the tests, on machine code for {variant.name}", file=sys.stderr, flush=True)
        cache = scratch / f"tested-{variant.name}"
        shutil.rmtree(cache, ignore_errors=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(site),
            "MINFER_CACHE_DIR": str(cache),
            "MINFER_READY": variant.name,
        }
        call = [sys.executable, "-c", ASK]
        subprocess.run(call, env=environment, cwd=scratch, check=True, stdout=sys.stderr)
        call = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *tests]
        subprocess.run(call, env=environment, cwd=ROOT, check=True)


def runs_here(variant: Variant) -> bool:
    from llvmlite.binding import get_host_cpu_features

    here = get_host_cpu_features()
    return all(here.get(need, False) for need in variant.needs.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    parser.add_argument("--variants", nargs="+", help="names of kinds of processors")
    parser.add_argument("--modules", nargs="+", default=[], help="of kernels; default: all")
    parser.add_argument("--tests", nargs="+", default=[], help="files of tests; default: all")
    parser.add_argument("--work", type=Path, help="a folder in which what is compiled is kept")
    parser.add_argument("--workers", type=int, default=1, help="variants compiled at once")
    options = parser.parse_args()
    usual = VARIANTS.get(platform.machine(), [])
    known = {variant.name: variant for variant in usual} | MORE
    chosen = [known[name] for name in options.variants] if options.variants else usual
    variants = [variant for variant in chosen if runs_here(variant)]
    if not variants:
        sys.exit(f"no variant for {platform.machine()} can be tested on this processor")
    with tempfile.TemporaryDirectory() as empty:
        scratch = (options.work or Path(empty)).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            count = collect(variants, scratch, options.modules, options.workers)
            wheel = build(scratch)
        finally:
            shutil.rmtree(READY, ignore_errors=True)
        check(wheel, variants, scratch, options.tests)
        options.out.mkdir(parents=True, exist_ok=True)
        done = Path(shutil.copy(wheel, options.out))
    names = ", ".join(variant.name for variant in variants)
    print(f"{done}: {count} kernels for {names}, tested, {done.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
