"""``umpteen plan``: what a training would take, from data, from scaled data and from sizes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from umpteen import XRLinear, XRTransformer
from umpteen.cli.app import app
from umpteen.data.size import DataSize
from umpteen.models.plan import FORMULAS, Plan
from umpteen.models.rates import TYPICAL

GB = 1e9


def planned(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["plan", *words, "--json", "--quiet"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def size(n_rows: int = 2_000_000, n_labels: int = 1_000_000) -> DataSize:
    return DataSize.planned(n_rows, n_labels, labels_per_row=3.5, per_row=32.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = {"texts": ["red apple tree", "green pear", "blue plum tree"], "labels": ["red tree", "green", "blue tree"]}
    for split in ("train", "test"):
        for name, rows in lines.items():
            (tmp_path / f"{split}_{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    return tmp_path


def test_data_is_measured(folder: Path) -> None:
    found = planned(str(folder), "--cores", "2")
    assert {name: found["sizes"][name] for name in ("rows", "labels", "positives")} == {
        "rows": 3, "labels": 4, "positives": 5,
    }  # fmt: skip
    (needs,) = found["needs"]
    assert needs["machines"] == {"nodes": 1, "cores": 2, "memory": None}
    assert needs["seconds"] == pytest.approx(
        sum(s["amount"] * s["rate"] / (2**0.6 if s["shared_by"] == "cores" else 1) for s in found["stages"])
    )
    memory = found["memory"]
    assert needs["ram_bytes"] == pytest.approx(
        memory["process"]
        + memory["data"]
        + memory["tfidf"]
        + max(memory["clustering"], memory["jobs"] + memory["weights"])
    )


def test_statistics_of_data_are_scaled(folder: Path) -> None:
    less, more = planned(str(folder)), planned(str(folder), "--labels", "4K", "--rows", "30_000")
    assert (more["sizes"]["rows"], more["sizes"]["labels"]) == (30_000, 4_000)
    assert more["sizes"]["positives"] == pytest.approx(less["sizes"]["positives"] * 10_000)
    assert more["sizes"]["nonzeros"] / 30_000 == pytest.approx(less["sizes"]["nonzeros"] / 3)
    assert "12.5 rows on average" in more["assumption"]
    assert less["assumption"] == ""


def test_the_shape_of_label_frequencies_is_kept() -> None:
    counts = np.array([1, 4, 0, 16])
    scaled = DataSize(10, 20, 100, counts, np.empty(0)).scaled(8, 40)
    np.testing.assert_allclose(scaled.label_counts, [32, 32, 8, 8, 2, 2, 0, 0])
    assert scaled.labels_per_row == pytest.approx(2.1)


def test_very_many_labels_take_little_memory() -> None:
    data = DataSize.planned(100_000_000, 50_000_000, labels_per_row=5.0, per_row=100.0)
    assert data.n_labels == 50_000_000
    assert len(data.label_counts) == 1_000_000
    assert data.n_positives == pytest.approx(500_000_000, rel=1e-6)
    assert data.count_entries(0) == pytest.approx(5e10, rel=1e-6)
    assert data.scaled(70_000_000).n_labels == 70_000_000


def test_a_limit_of_memory_needs_scratch_storage() -> None:
    free, bound = Plan.of(size(), XRLinear().config, cores=2, memory=3 * GB).needs
    assert free.scratch_bytes == 0
    assert free.ram_bytes > 3 * GB == bound.ram_bytes
    assert bound.scratch_bytes > 1 * GB
    assert bound.seconds == pytest.approx(free.seconds + 3 * bound.scratch_bytes / TYPICAL.disk)
    wide = Plan.of(size(), XRLinear().config, cores=2, memory=100 * GB).needs[1]
    assert (wide.ram_bytes, wide.scratch_bytes, wide.seconds) == (free.ram_bytes, 0, free.seconds)


def test_a_limit_below_one_job_is_not_kept() -> None:
    plan = Plan.of(size(), XRLinear().config, cores=2, memory=1e6)
    assert plan.needs[1].ram_bytes > plan.work.memory.jobs > 1e6


def test_machines_share_the_work_and_send_weights() -> None:
    one, four = Plan.of(size(), XRLinear().config, cores=2, nodes=4).needs
    assert one.worker_bytes == 0
    assert 0 < four.worker_bytes < four.ram_bytes == one.ram_bytes
    assert one.seconds / 4 < four.seconds < one.seconds


def test_more_takes_more() -> None:
    config = XRLinear().config
    base = Plan.of(size(), config, cores=2).needs[0]
    for data in (size(n_rows=4_000_000), size(n_labels=4_000_000)):
        more = Plan.of(data, config, cores=2).needs[0]
        assert more.seconds > base.seconds
        assert more.ram_bytes > base.ram_bytes
        assert more.model_bytes > base.model_bytes
    assert Plan.of(size(), config, cores=8).needs[0].seconds < base.seconds


def test_an_encoder_on_a_gpu() -> None:
    config = XRTransformer(encoder={"name": "missing-encoder", "device": "cuda"}).config
    texts = DataSize.planned_texts(100_000, 10_000, 4.0, 500.0, config.tfidf)
    one, two = Plan.of(texts, config, cores=8, nodes=2).needs
    assert one.gpu_bytes == two.gpu_bytes > 1 * GB
    assert one.model_bytes > 4 * 12 * 12 * 768**2  # the weights of the layers of an encoder like bert-base
    assert two.seconds < one.seconds


def test_a_slower_machine_takes_longer() -> None:
    slow = TYPICAL._replace(**{name: 2 * getattr(TYPICAL, name) for name in ("visit", "clustered", "label", "weight")})
    config = XRLinear().config
    usual, twice = (Plan.of(size(), config, cores=2, rates=rates).needs[0] for rates in (TYPICAL, slow))
    assert twice.seconds == pytest.approx(2 * usual.seconds)


def test_rates_are_measured(folder: Path) -> None:
    found = planned(str(folder), "--measure")
    assert all(found["rates"][name] > 0 for name in ("character", "clustered", "visit", "label", "disk"))
    assert found["rates"]["visit"] != TYPICAL.visit
    assert found["rates"]["flops"]["cuda"] == TYPICAL.flops["cuda"]


def test_tables_show_formulas_and_assumptions() -> None:
    words = ["plan", "--labels", "1M", "--rows", "2M", "--nodes", "4", "--cores", "8", "--memory", "2GB"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    for text in ("1 machine × 8 cores", "4 machines × 8 cores, limit 2 GB", "clustering", "label frequencies", "disk"):
        assert text in result.stdout
    assert all(name in result.stdout for name in FORMULAS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--labels", "10M"], "a plan needs sizes"),
        (["--labels", "many", "--rows", "2M"], "--labels takes a number such as 10M, but got 'many'"),
        (["--labels", "0", "--rows", "2M"], "--labels takes a number"),
        (["--labels", "1M", "--rows", "2M", "--memory", "8XB"], "memory is a number of bytes or text such as"),
        (["--labels", "1M", "--rows", "2M", "--set", "tree.brnching=2"], "tree.branching"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["plan", *words])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
