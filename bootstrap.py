#!/usr/bin/env python3
"""Set everything up in .venv and run something in it. Needs nothing but Python 3.11 or newer.

    python3 bootstrap.py demo           install minfer and run its demo
    python3 bootstrap.py test           install it with its test tools and run the tests
    python3 bootstrap.py minfer ...     run any minfer command in there
    python3 bootstrap.py python ...     run that environment's Python

The environment is made once and updated when pyproject.toml changes. MINFER_VENV names another
folder for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("MINFER_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


def say(text: str) -> None:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, **options: object) -> int:
    return subprocess.run([str(c) for c in command], **options).returncode  # type: ignore[call-overload]


def has_pip() -> bool:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return PYTHON.exists() and run(PYTHON, "-m", "pip", "--version", **quiet) == 0


def make_environment() -> None:
    """A virtual environment with pip, also where Debian ships Python without ensurepip."""
    if has_pip():
        return
    say(f"making {VENV}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if run(sys.executable, "-m", "venv", VENV, **quiet) == 0 and has_pip():
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if run(sys.executable, "-m", "virtualenv", VENV, **quiet) == 0 and has_pip():
        return
    # without ensurepip: an empty environment, filled by the system's own pip
    shutil.rmtree(VENV, ignore_errors=True)
    if run(sys.executable, "-m", "venv", "--without-pip", VENV, **quiet) == 0 and (
        run(sys.executable, "-m", "pip", "--python", PYTHON, "install", "pip", **quiet) == 0
    ):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = [f"python{version}-venv", "python3-venv"]
    apt = shutil.which("apt-get")
    if apt and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("this Python has neither ensurepip nor pip: installing python3-venv")
        run(apt, "update", "-qq")
        for package in packages:
            if run(apt, "install", "-y", "-qq", package) == 0:
                break
        shutil.rmtree(VENV, ignore_errors=True)
        if run(sys.executable, "-m", "venv", VENV) == 0 and has_pip():
            return
    sys.exit(
        "bootstrap: this Python cannot make virtual environments (no ensurepip, no pip).\n"
        "On Debian or Ubuntu:  sudo apt-get install python3-venv   and run this again."
    )


def install(extras: str) -> None:
    """Install the checkout (editable), unless this very pyproject.toml is installed already."""
    stamp = VENV / f".minfer-{extras or 'core'}"
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    target = f"{ROOT}[{extras}]" if extras else str(ROOT)
    say(f"installing minfer{f' with {extras}' if extras else ''} (a minute or two)")
    command = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", target]
    if run(*command) != 0:
        sys.exit("bootstrap: the installation failed; pip's own words are above")
    stamp.write_text(digest)


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - run by any Python
        sys.exit(f"bootstrap: minfer needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    if not arguments or arguments[0] not in ("demo", "test", "minfer", "python"):
        print(__doc__)
        return 0 if arguments[:1] in ([], ["-h"], ["--help"]) else 2
    make_environment()
    what, rest = arguments[0], arguments[1:]
    if what == "test":
        install("test,all")
        # the tests start many processes, each of which would compile the package's text again
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        run(PYTHON, "-m", "minfer", "warmup", cwd=ROOT)  # once, for all processes of the tests
        return run(PYTHON, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *rest, cwd=ROOT)
    install("")
    if what == "python":
        return run(PYTHON, *rest)
    return run(BIN / "minfer", *(["demo", *rest] if what == "demo" else rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
