"""Build a wheel with machine code inside, for this system, Python and numba.

    python packaging/ready_wheel.py -o dist
    python packaging/ready_wheel.py -o dist --units "bp abreast" estimators     a small one

Every kernel is compiled for a generic processor of this machine's kind (x86-64-v3 on x86-64), into
an empty cache. A second run, which finds all of them there, tells which ones Python calls itself:
only these go into the wheel, since each holds what it calls. What happens with them on the other
side is told in src/minfer/kernels/_ready.py.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY = ROOT / "src" / "minfer" / "kernels" / "ready"

#: Run in a process of its own, with numba told what to compile for.
COMPILE = """
import json, sys
from minfer.exercise import units
from minfer.kernels import _jit, _ready
from minfer.kernels._cache import LOADED, UNSAVED

_jit.be_quiet()
chosen = sys.argv[1:]
for unit in units():
    if not chosen or unit.title in chosen:
        unit.work()
assert not UNSAVED, UNSAVED
from numba.core.registry import cpu_target

target = cpu_target.target_context.codegen().magic_tuple()
about = {**_ready.described(), "target": target}
json.dump([about, sorted(LOADED), str(_jit.CACHE_DIR)], sys.stdout)
"""


def collect(cache: Path, units: list[str]) -> int:
    """Compile everything, or some units of it, and copy what is called to the package; how many."""
    machine = platform.machine()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "MINFER_CACHE_DIR": str(cache),
        "NUMBA_CPU_NAME": {"x86_64": "x86-64-v3"}.get(machine, "generic"),
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }
    call = [sys.executable, "-c", COMPILE, *units]
    warm = call if units else [sys.executable, "-m", "minfer", "warmup"]
    subprocess.run(warm, env=environment, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
    about, loaded, folder = json.loads(done.stdout)
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    about["tag"] = f"cp{sys.version_info.major}{sys.version_info.minor}-none-{tag}"
    needs = {"x86_64": "avx avx2 bmi bmi2 f16c fma lzcnt movbe popcnt sse4.2"}.get(machine, "")
    about["needs"] = needs.split()
    shutil.rmtree(READY, ignore_errors=True)
    READY.mkdir()
    for name in loaded:  # folder/file, without the ending
        (READY / name).parent.mkdir(exist_ok=True)
        for path in Path(folder).glob(f"{name}.*"):
            if path.suffix in (".nbi", ".nbc"):
                shutil.copy(path, READY / path.parent.name)
    (READY / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return len(loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    parser.add_argument("--cache", type=Path, help="keep the compiled kernels here, to go on from")
    parser.add_argument("--units", nargs="+", default=[], help="of `minfer warmup`, by title")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            count = collect(options.cache or Path(scratch), options.units)
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", options.out, ROOT]
        subprocess.run([str(word) for word in command], check=True)
    finally:
        shutil.rmtree(READY, ignore_errors=True)
    wheel = max(options.out.glob("minfer-*-none-*.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel}: {count} kernels, {wheel.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
