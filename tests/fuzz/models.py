"""Open damaged models by the thousand: none may do more than answer or be refused by a sentence.

    python -m tests.fuzz.models --cases 2000 --seed 0

Children open and query the models, so that one that crashes, hangs or wants absurd memory is told apart from the
others. ``--bounds`` compiles kernels that check their bounds, which finds what would be read beside an array without
a crash. A case is repeated by its number: ``--seed 0 --first 1234 --cases 1``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_PATIENCE = 120.0  # seconds for one case: the first ones compile


class Result(NamedTuple):
    """What became of the cases: how many ended how, and the ones that must not happen."""

    ended: Counter[str]
    failures: list[dict[str, Any]]


def fuzz(cases: int, seed: int = 0, *, first: int = 0, folder: Path | None = None, bounds: bool = False) -> Result:
    """Run so many cases; models are trained in ``folder``, a temporary one if none is given."""
    with tempfile.TemporaryDirectory() as temporary:
        seeds = folder or Path(temporary, "seeds")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_PERTURB_": "165"}
        if bounds:
            environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(Path(temporary, "kernels"))}
        make = f"from pathlib import Path; from tests.fuzz.seeds import make; make(Path({str(seeds)!r}))"
        subprocess.run([sys.executable, "-c", make], cwd=ROOT, env=environment, check=True)
        result, at, last = Result(Counter(), []), first, first + cases
        while at < last:
            at = _one_child(seeds, Path(temporary), seed, at, last, environment, result)
        return result


def _one_child(
    seeds: Path, scratch: Path, seed: int, first: int, last: int, environment: dict[str, str], result: Result
) -> int:
    """Let a child run cases until it is done or dies; return the case to go on with."""
    arguments = [str(part) for part in (seeds, scratch, seed, first, last)]
    command = [sys.executable, "-m", "tests.fuzz.child", *arguments]
    case: dict[str, Any] = {"case": first, "what": "start of the child"}
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        while line := _line(child):
            said = json.loads(line)
            if "case" in said:
                case = said
                continue
            result.ended[said["ended"]] += 1
            if said["ended"] == "failed":
                result.failures.append(case | said)
            case = {**case, "case": case["case"] + 1, "what": "the next case"}
        hangs = child.poll() is None and not _ends(child)
        if hangs:
            child.kill()
        status = child.wait()
        if case["case"] >= last and not hangs and status == 0:
            return last
        errors.seek(0)
        how = "takes too long" if hangs else f"ends the process with status {status}"
        result.ended["crashed"] += 1
        result.failures.append(case | {"ended": "crashed", "how": how, "where": errors.read()[-2000:]})
        return case["case"] + 1


def _line(child: subprocess.Popen[str]) -> str:
    """Return what a child says next; nothing if it has ended or says nothing for too long."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], _PATIENCE)
    return child.stdout.readline() if ready else ""


def _ends(child: subprocess.Popen[str]) -> bool:
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--bounds", action="store_true", help="compile kernels that check their bounds")
    parser.add_argument("--seeds", type=Path, help="folder that keeps the undamaged models for the next time")
    given, begun = parser.parse_args(), time.monotonic()
    result = fuzz(given.cases, given.seed, first=given.first, folder=given.seeds, bounds=given.bounds)
    for failure in result.failures:
        print(json.dumps(failure, indent=1, ensure_ascii=False).replace("\\n", "\n  "))
    print(f"{dict(result.ended)} in {time.monotonic() - begun:.0f} s; {len(result.failures)} must not happen")
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
