"""The files in deploy/ for clusters are well-formed and agree with each other and with the docs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SLURM = ROOT / "deploy" / "slurm-ray.sh"


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all((ROOT / "deploy" / "kuberay.yaml").read_text()))


def test_all_pods_of_the_kubernetes_job_mount_the_paths_of_the_command(documents: list[dict[str, Any]]) -> None:
    claim, job = documents
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    cluster = job["spec"]["rayClusterSpec"]
    command = shlex.split(job["spec"]["entrypoint"])
    paths = [word for word in command if word.startswith("/")]
    assert command[:2] == ["umpteen", "train"]
    assert command[command.index("--storage") + 1] in paths
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert all(path.startswith(mount["mountPath"] + "/") for path in paths)
        assert pod["volumes"] == [
            {"name": mount["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        ]


def test_the_kubernetes_job_and_the_image_have_the_version_of_ray_that_is_tested(
    documents: list[dict[str, Any]],
) -> None:
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert documents[1]["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]
    assert f"rayproject/ray:{pinned[1]}-" in (ROOT / "docs" / "clusters.md").read_text()
    assert "ray" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


COMMAND = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
case "${0##*/}" in
    srun) while [[ $1 == --* ]]; do shift; done; "$@" ;;
    ray) [[ $* != *--head* ]] || exec python3 -c "$LISTEN" "$@" ;;
    umpteen) until grep -q "^srun .*ray start --address" "$CALLS"; do sleep 0.05; done ;;  # it ends the script
esac
"""

LISTEN = """
import socket, sys
host, port = (next(a.partition("=")[2] for a in sys.argv if a.startswith(n)) for n in ("--node-ip", "--port"))
socket.create_server((host, int(port))).accept()
"""


@pytest.mark.skipif(os.name != "posix" or shutil.which("bash") is None, reason="bash is not installed")
def test_the_slurm_script_starts_a_head_then_workers_then_the_training(tmp_path: Path) -> None:
    """The script runs with commands that write down how they are called, in place of those of Slurm and Ray."""
    subprocess.run(["bash", "-n", SLURM], check=True)
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    for name in ("srun", "ray", "umpteen"):
        (folder / name).write_text(COMMAND)
        (folder / name).chmod(0o755)
    (folder / "python").symlink_to(shutil.which("python3"))
    (folder / "hostname").write_text("#!/bin/bash\necho 127.0.0.1 192.0.2.7\n")
    (folder / "hostname").chmod(0o755)
    (folder / "activate").write_text(f'PATH="{folder}:$PATH"\n')
    environment = {
        "CALLS": str(tmp_path / "calls"), "LISTEN": LISTEN, "PATH": os.environ["PATH"], "SLURM_CPUS_PER_TASK": "4",
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_NNODES": "3", "SLURMD_NODENAME": "first",
        "UMPTEEN_ENVIRONMENT": str(folder.parent),
    }  # fmt: skip
    command = ["bash", SLURM, "in put", "model", "storage", "--seed", "1"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    calls = (tmp_path / "calls").read_text().splitlines()
    address = f"127.0.0.1:{20000 + os.getpid() % 10000}"
    head, worker, training = (
        next(c for c in calls if part in c)
        for part in ("ray start --head", f"ray start --address={address}", "umpteen ")
    )
    assert head.startswith("srun ")
    assert "--nodelist=first" in head
    assert "--nodes=2 --ntasks=2 --exclude=first" in worker
    assert training == f"umpteen train in put -o model --engine ray --address {address} --storage storage --seed 1"
    assert calls.index(head) < calls.index(training)
