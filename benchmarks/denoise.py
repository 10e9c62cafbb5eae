"""Denoising large pictures: how time and memory grow, and what peers take for the same model.

    python benchmarks/denoise.py                       # scaling only: 512 to 4096
    python benchmarks/denoise.py --peers-env DIR       # also pgmax and pyGMs, an environment each

Everything runs in processes of its own, one at a time, pinned to one core; times are CPU seconds
of whole calls with all kernels loaded: model building, inference and the cleaned picture. Peak
memory is the largest resident set of the process, interpreter and picture included.

The picture is the package's house, tiled, under normal noise of deviation 0.3; coupling 1. All
calls have alpha 5 and the mean as level, but for the first, which estimates them.
Peers run parallel sum-product and have no stop rule. Their number of iterations is the smallest
after which their answer on the smallest picture is as accurate on average as ours, both against the
fixed point of belief propagation. Their compilation is told apart and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from stopwatch import measure

HERE = Path(__file__).resolve().parent
ALPHA, SIGMA, TILE = 5.0, 0.3, 512
SIDES = (512, 1024, 2048, 4096)
PEER_SIDES = (512, 2048)
PEERS = {"pygms-ising": 4096, "pgmax": 1024}  # largest side run; pgmax has 1.7 GiB at 512
PEER_BAR = 5.0  # times faster


def picture(side: int) -> np.ndarray:
    """The noisy picture, (side, side)."""
    from minfer.pictures import base_pictures, gaussian

    tiles = -(-side // TILE)
    clean = np.tile(base_pictures(min(side, TILE))["house"], (tiles, tiles))[:side, :side]
    return gaussian(clean, SIGMA, np.random.default_rng(side))


# ---------------------------------------------------------------------- workers


def ours(side: int, how: str, save: str | None) -> dict[str, Any]:
    """One whole call; ``how`` is estimated (as it comes), plain, reduced or trw (the paper's)."""
    from minfer import MinJoint, TreeReweighted
    from minfer.images.denoising import FACTOR_COST, TOL, denoise

    def call(x: np.ndarray) -> tuple[np.ndarray, float, Any]:
        model: dict[str, Any] = {"alpha": ALPHA, "level": x.mean()}
        if how == "trw":
            from minfer import Paper

            solver = TreeReweighted(tol=TOL)
            found = denoise(x, objective=MinJoint(0.08), solver=solver, recipe=Paper(), **model)
        elif how == "reduced":
            found = denoise(x, objective=MinJoint(FACTOR_COST), **model)
        elif how == "plain":
            found = denoise(x, **model)
        else:
            found = denoise(x)
        _ = found.clean
        return found.result.marginals.probs[1::2], found.result.kept_share, found

    call(picture(64))  # loads kernels
    x = picture(side)
    seconds, (probs, kept, _answer) = measure.timed(lambda: call(x))
    out = {"seconds": seconds, "peak": measure.peak(), "kept": kept}
    if save:
        np.save(save, probs)
    return out


def fixed_point(side: int, save: str) -> dict[str, Any]:
    from minfer import BeliefPropagation
    from minfer.images.denoising import picture_model

    x = picture(side)
    m = BeliefPropagation(tol=1e-10)(picture_model(x, ALPHA, level=x.mean())[0])
    np.save(save, m.probs[1::2])
    return {}


def problem(x: np.ndarray) -> Any:
    """The same model as plain arrays, for the peers' adapters."""
    from problems import Problem, grid_edges

    log_odds = ALPHA * (x - x.mean()).ravel()
    edges = grid_edges(*x.shape)
    return Problem(
        name=f"{x.shape[0]}x{x.shape[1]}",
        about="denoising",
        unary=np.stack([np.zeros_like(log_odds), log_odds], axis=1),
        edges=edges,
        tables=np.broadcast_to(np.eye(2), (len(edges), 2, 2)),
        shape=x.shape,
        log_odds=log_odds,
        weights=np.ones(len(edges)),
        feature="equal",
    )


def peer(name: str, noisy: str, target: str, iters: int) -> dict[str, Any]:
    """Build, compile and run a peer once; runs in the peers' environment."""
    from tools import TOOLS

    tool = TOOLS[name]()
    tool.setup()
    p = problem(np.load(noisy))
    built = measure.cpu_seconds(lambda: tool.build(p))
    compiled = measure.cpu_seconds(lambda: tool.compile(iters))
    run, answer = measure.timed(lambda: tool.run(iters))
    error = float(np.abs(tool.marginals(answer)[:, 1] - np.load(target)).mean())
    return {
        "version": tool.version(),
        "build": built,
        "compile": compiled,
        "run": run,
        "error": error,
        "peak": measure.peak(),
    }


def work(words: list[str]) -> dict[str, Any]:
    kind, *rest = words
    if kind == "ours":
        return ours(int(rest[0]), rest[1], rest[2] if len(rest) > 2 else None)
    if kind == "fixed":
        return fixed_point(int(rest[0]), rest[1])
    return peer(rest[0], rest[1], rest[2], int(rest[3]))


# ---------------------------------------------------------------------- the benchmark


def ask(python: str, *words: Any) -> dict[str, Any]:
    """Run one worker; what it says on stdout's last line."""
    env = os.environ | measure.ONE_THREAD
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [python, str(HERE / "denoise.py"), "--worker", *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"failed": why[:200]}
    return json.loads(lines[-1])


def scaling(sides: list[int]) -> list[list[str]]:
    from minfer_experiments.pages import say  # peers' environments lack it

    body, first = [], {}
    for how in ("estimated", "plain", "reduced", "trw"):
        for side in sides:
            if how == "trw" and side > 2048:
                continue
            found = ask(sys.executable, "ours", side, how)
            if "failed" in found:
                body.append([how, f"{side}", found["failed"], "", "", ""])
                continue
            each = found["seconds"] / side**2 * 1e9
            first.setdefault(how, each)
            growth = each / first[how]
            body.append([
                how, f"{side}x{side}", f"{found['kept']:.1%}", f"{found['seconds']:.2f}",
                f"{each:.0f}", f"{growth:.2f}", f"{found['peak'] / 2**30:.2f}",
            ])  # fmt: skip
            say(" ".join(body[-1]))
    return body


def iterations(side: int, target: np.ndarray, error: float) -> int:
    """Parallel iterations until the mean error is within ``error``."""
    import reference

    for it, probs in enumerate(reference.flooding(problem(picture(side))), 1):
        if np.abs(probs[:, 1] - target).mean() <= error or it == 500:
            return it
    raise AssertionError


def against_peers(envs: Path, sides: list[int], tools: list[str]) -> tuple[list[list[str]], bool]:
    from minfer_experiments.pages import say
    from peers_environments import install, python_of

    body, met = [], True
    iters = 0
    pythons = {}
    for tool in tools:
        home = envs / tool.partition("-")[0]
        pythons[tool] = str(python_of(home))
        if not home.exists():
            say(f"{home.name}: {install(home.name, home)}")
    with tempfile.TemporaryDirectory() as scratch:
        for side in sides:
            noisy, target, mine = (f"{scratch}/{n}.npy" for n in ("noisy", "target", "mine"))
            np.save(noisy, picture(side))
            ask(sys.executable, "fixed", side, target)
            found = ask(sys.executable, "ours", side, "plain", mine)
            error = float(np.abs(np.load(mine) - np.load(target)).mean())
            iters = iters or iterations(side, np.load(target), error)
            seconds = found["seconds"]
            body.append([f"{side}x{side}", "minfer.denoise", "", "", f"{seconds:.2f}", "", "1",
                         f"{error:.1e}", f"{found['peak'] / 2**30:.1f}"])  # fmt: skip
            say(" ".join(body[-1]))
            for tool in tools:
                if side > PEERS[tool]:
                    body.append([f"{side}x{side}", tool, "not run (memory)", *[""] * 6])
                    continue
                r = ask(pythons[tool], "peer", tool, noisy, target, iters)
                if "failed" in r:
                    body.append([f"{side}x{side}", tool, r["failed"], *[""] * 6])
                    continue
                ratio = (r["build"] + r["run"]) / seconds
                met &= ratio >= PEER_BAR
                body.append([
                    f"{side}x{side}", f"{tool} {r['version']}", f"{iters}", f"{r['build']:.2f}",
                    f"{r['run']:.2f}", f"{r['compile']:.2f}", f"{ratio:.1f}", f"{r['error']:.1e}",
                    f"{r['peak'] / 2**30:.1f}",
                ])  # fmt: skip
                say(" ".join(body[-1]))
    return body, met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="*", default=SIDES)
    parser.add_argument("--peer-sides", type=int, nargs="+", default=PEER_SIDES)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument(
        "--peers-env", type=Path, help="folder of their environments; made if missing"
    )
    parser.add_argument("--core", type=int, default=None, help="core to pin to (default the last)")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever a peer prints must not reach the answer
        answers.write(json.dumps(work(args.worker)) + "\n")
        answers.flush()
        return
    from minfer_experiments.pages import table

    measure.pin(args.core)
    if args.sides:
        body = scaling(list(args.sides))
        head = ["call", "picture", "pairs kept", "CPU s", "ns a pixel", "against the smallest"]
        print(table([*head, "peak GiB"], body))
    if args.peers_env is None:
        return
    body, met = against_peers(args.peers_env, list(args.peer_sides), list(args.peers))
    head = ["picture", "tool", "its", "build s", "run s", "compile s", "x minfer", "mean error"]
    print("\n" + table([*head, "peak GiB"], body))
    if not met:
        sys.exit(f"a peer is less than {PEER_BAR:g} times slower")


if __name__ == "__main__":
    main()
