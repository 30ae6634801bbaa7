"""The benchmark harness: bars, tables, markers, the order of jobs, and umpteen's runner on a small matrix."""

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import umpteen
from benchmarks import (
    bars,
    cold_start,
    defaults,
    encoder_cpu,
    estimates,
    install_size,
    jobs,
    many_labels,
    neural,
    neural_page,
    plan,
    plot,
    prepare,
    report,
    run,
    summary,
)
from umpteen.cli.benchmark import COLUMNS, BenchFailed
from umpteen.models import create
from umpteen.models.estimate import Estimate
from umpteen.models.recipes import member_names

ROOT = Path(__file__).resolve().parents[2]


def variant_row(**changes):
    row = {
        "fit_s": 1.0,
        "fit_cpu_s": 2.0,
        "fit_memory_mb": 50.0,
        "model_mb": 3.0,
        "docs_per_s": {"default": 50_000.0},
        "p50_ms": {"default": 0.05},
        "p99_ms": {"default": 0.1},
        "versions": {"umpteen": "1.0"},
        "settings": {"recipe": "xr-linear"},
        **{f"P@{k}": 80.0 - k for k in (1, 3, 5)},
        **{f"PSP@{k}": 40.0 + k for k in (1, 3, 5)},
    }
    return {**row, **changes}


def two_peers():
    pecos = variant_row(
        fit_s=10.0,
        fit_memory_mb=100.0,
        model_mb=8.0,
        docs_per_s={"default": 9000.0, "hash": 10_000.0},
        p50_ms={"default": 0.5, "hash": 0.4, "mmap": 0.3},
        p99_ms={"default": 1.5, "hash": 1.4, "mmap": 1.3},
        versions={"libpecos": "1.2.8", "numpy": "1.26.4"},
        settings={},
    )
    return {"umpteen": variant_row(), "pecos": pecos, "omikuji": variant_row(fit_s=2.0, settings={})}


def verdicts(rows, dataset="eurlex57k"):
    return {bar.what: bar for bar in bars.check({dataset: rows})}


def test_bars_are_ratios_in_the_right_direction():
    found = verdicts(two_peers())
    assert found["fit, times as fast as PECOS"].measured == "10.00"
    assert found["fit, times as fast as PECOS"].verdict == "pass"
    assert found["fit, times as fast as omikuji"].verdict == "FAIL"
    assert found["memory of the fit, share of PECOS's"].measured == "0.50"
    assert found["batch, times as fast as PECOS with hash chunks"].measured == "5.00"
    assert found["one query, times as fast as PECOS's best"].measured == "6.00"
    assert found["model on disk, share of PECOS's"].verdict == "pass"


@pytest.mark.parametrize(("points", "verdict"), [(0.5, "pass"), (-0.09, "pass"), (-0.11, "FAIL")])
def test_one_precision_too_low_fails_the_quality_bar(points, verdict):
    rows = two_peers()
    rows["umpteen"]["P@3"] = rows["pecos"]["P@3"] + points
    assert verdicts(rows)["P@1, P@3, P@5 against PECOS, the worst"].verdict == verdict


def test_what_was_not_measured_is_not_passed():
    found = bars.check({"eurlex-4k": {"umpteen": variant_row()}})
    assert {bar.verdict for bar in found} == {"not measured"}
    assert len(found) == 11


def test_one_versus_all_needs_every_depth():
    rows = two_peers()
    rows["umpteen-dismec"] = variant_row(**{"P@1": 83.5, "P@3": 70.5, "P@5": 58.9})
    rows["umpteen-best"] = variant_row(**{"P@1": 83.5, "P@3": 70.3, "P@5": 58.9}, fit_s=9.0)
    rows["pecos-ova"] = variant_row(fit_s=7.9)
    found = verdicts(rows, "eurlex-4k")
    assert found["dismec, P@1/3/5"].verdict == "pass"
    assert found["dismec, times as fast as PECOS one versus all"].verdict == "FAIL"
    assert found["xr-linear with best settings, P@1/3/5"].verdict == "FAIL"
    assert found["the same, times as fast as PECOS's default tree"].verdict == "pass"


def test_memory_runs_have_a_bound():
    small, large = bars.check({}, {"a": {"peak_mb": 5999.0}, "b": {"peak_mb": 6100.0}})
    assert (small.verdict, large.verdict, large.measured) == ("pass", "FAIL", "6.10")


def test_the_best_turn_counts_but_the_largest_memory():
    fit = {"dataset": "d", "variant": "v", "stage": "fit", "fit_cpu_s": 1.0, "model_mb": 4.0}
    batch = {"dataset": "d", "variant": "v", "stage": "batch"}
    single = {"dataset": "d", "variant": "v", "stage": "single", "way": "default"}
    row = summary.summarise(
        [
            {**fit, "fit_s": 3.0, "fit_memory_mb": 70.0},
            {**fit, "fit_s": 2.0, "fit_memory_mb": 60.0},
            {**batch, "way": "default", "docs_per_s": 10.0},
            {**batch, "way": "default", "docs_per_s": 12.0},
            {**batch, "way": "hash", "docs_per_s": 5.0},
            {**single, "p50_ms": 0.2, "p99_ms": 0.3},
            {**single, "p50_ms": 0.1, "p99_ms": 0.9},
        ]
    )["d"]["v"]
    assert (row["fit_s"], row["fit_memory_mb"], row["turns"]) == (2.0, 70.0, 2)
    assert row["docs_per_s"] == {"default": 12.0, "hash": 5.0}
    assert (row["p50_ms"], row["p99_ms"]) == ({"default": 0.1}, {"default": 0.9})


def test_variants_take_turns_and_slow_ones_are_fitted_once():
    variants = plan.variants_for("eurlex-4k")
    fits = [job.variant.name for job in plan.jobs("eurlex-4k", variants, 2) if job.stage == "fit"]
    assert fits[:3] == ["umpteen", "pecos", "omikuji"]
    assert fits.count("umpteen") == fits.count("pecos") == fits.count("omikuji") == 2
    assert fits.count("pecos-ova") == 1
    ways = {job.way for job in plan.jobs("eurlex-4k", variants, 1) if job.variant.name == "pecos"}
    assert ways == {"default", "hash", "mmap"}


def test_quick_and_full_choose_other_variants():
    assert "pecos-ova" not in [v.name for v in plan.variants_for("eurlex-4k", quick=True)]
    assert "napkinxc" not in [v.name for v in plan.variants_for("eurlex57k")]
    assert "napkinxc-l2" in [v.name for v in plan.variants_for("eurlex57k", full=True)]


def test_changed_settings_or_matrices_change_the_key():
    variant = plan.VARIANTS[1]
    job = plan.Job("eurlex-4k", variant, "fit")
    other = plan.Job("eurlex-4k", plan.Variant(variant.name, "", "pecos", {"nr_splits": 2}), "fit")
    keys = {jobs.job_key(job, "1", 9, 3), jobs.job_key(job, "2", 9, 3), jobs.job_key(other, "1", 9, 3)}
    assert len(keys) == 3
    assert jobs.job_key(job, "1", 9, 3) == jobs.job_key(job, "1", 99, 1)  # the effort of other stages


def test_results_survive_and_can_be_forgotten(tmp_path):
    results = jobs.Results(tmp_path / "new" / "results.json")
    results.put("a", {"variant": "umpteen", "fit_s": 1.0})
    results.put("b", {"variant": "pecos", "fit_s": 2.0})
    again = jobs.Results(results.path)
    assert again.records == results.records
    again.forget({"umpteen"})
    assert list(again.records) == ["b"]
    again.forget({"all"})
    assert again.records == {}


def test_the_last_json_line_is_the_result():
    assert jobs.last_json('log\n{"a": 1}\nINFO {not this}\n{"fit_s": 2.5}\nbye\n') == {"fit_s": 2.5}
    assert jobs.last_json("nothing") is None


def test_a_failed_process_gives_no_record(capsys):
    assert jobs.call([sys.executable, "-c", "raise ValueError('seven')"], dict(os.environ), 60) is None
    assert "seven" in capsys.readouterr().out


def test_tables_show_ratios_and_dashes():
    rows = two_peers()
    del rows["omikuji"]["docs_per_s"]
    text = report.dataset_table(rows)
    lines = text.splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 13
    assert "| 10.0× |" in lines[2]
    assert "79.00/77.00/75.00" in lines[2]
    assert [line for line in lines if line.startswith("| PECOS XR-Linear, memory-mapped")]
    assert "| – | – |" in lines[-1]


def test_text_between_markers_is_replaced_and_the_rest_kept():
    page = f"# Title\n\nbefore\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n"
    once = report.replace_between(page, "new")
    assert "old" not in once
    assert once.startswith("# Title\n\nbefore\n")
    assert once.endswith("\n\nafter\n")
    assert report.replace_between(once, "new") == once
    assert report.replace_between("# Title\n", "new").endswith(f"{report.BEGIN}\n\nnew\n\n{report.END}\n")
    with pytest.raises(ValueError, match="bench:end"):
        report.replace_between(f"{report.BEGIN} and no end", "new")


def test_page_and_raw_figures(tmp_path):
    counts = {"n_train": 100, "n_test": 20, "n_features": 50, "n_labels": 9}
    about = {**counts, "features_per_row": 7.0, "labels_per_row": 2.0}
    rows = {"eurlex57k": two_peers()}
    for _ in range(2):
        run.write(tmp_path, {"eurlex57k": about}, rows, {}, bars.check(rows))
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert page.count(report.BEGIN) == page.count("### Bars") == 1
    assert "libpecos 1.2.8 (with numpy 1.26.4)" in page
    assert str(tmp_path) not in page
    raw = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    assert raw["results"]["eurlex57k"]["pecos"]["fit_s"] == 10.0
    assert {bar["verdict"] for bar in raw["bars"]} == {"pass", "FAIL"}


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    plot.draw({"eurlex57k": two_peers()}, plan.DATASETS, tmp_path / "img" / "a.png")
    assert (tmp_path / "img" / "a.png").stat().st_size > 10_000


def test_ratios_of_missing_figures_are_missing():
    assert set(plot.ratios({}).values()) == {None}
    found = plot.ratios(two_peers())
    assert found["batch"] == pytest.approx(5.0)
    assert found["one query"] == pytest.approx(6.0)


def test_prepared_matrices_have_unit_rows_and_used_labels():
    X = sparse.csr_matrix(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    assert prepare.scale_rows(X).toarray() == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0]]))
    train = sparse.csr_matrix(np.array([[1, 0, 0, 0], [0, 0, 1, 0]], np.float32))
    test = sparse.csr_matrix(np.array([[0, 0, 0, 1]], np.float32))
    kept, kept_test = prepare.keep_used_labels(train, test)
    assert kept.toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert kept_test.toarray().tolist() == [[0, 0, 1]]


def test_held_out_rows_are_drawn_once_and_are_not_trained_on():
    X = sparse.csr_matrix(np.arange(1, 41, dtype=np.float32)[:, None])
    kept, _, held, Y_held = defaults.split(X, X.copy())
    assert held.shape[0] == 4
    assert sorted([*kept.data, *held.data]) == X.data.tolist()
    assert (Y_held.data == held.data).all()
    assert (defaults.split(X, X.copy())[2].data == held.data).all()


def test_alternatives_of_a_default_stand_beside_it():
    row = {"dataset": "bibtex", "negatives": "tfn", "fit_s": 1.5, "P@1": 60.0, "P@3": 50.0, "P@5": 40.0}
    rows = [row | {"setting": "default", "value": None}, row | {"setting": "linear.eps", "value": 0.02, "P@1": 61.0}]
    text = defaults.tables(rows)
    assert "| bibtex | `tfn` | 60.00/50.00/40.00, 1.50 s | 61.00/50.00/40.00, 1.50 s |" in text
    assert "linear.cost" not in text
    assert list(defaults.cases(["linear.cost"]))[:2] == [("default", None), ("linear.cost", 0.25)]


def save_data(folder, n_rows=200, n_features=60, n_labels=24):
    rng = np.random.default_rng(0)
    labels = rng.integers(n_labels, size=n_rows)
    X = sparse.random(n_rows, n_features, 0.05, "csr", np.float32, random_state=1).tolil()
    X[np.arange(n_rows), labels] = 2.0  # each label has a feature of its own
    X = prepare.plain(prepare.scale_rows(sparse.csr_matrix(X)))
    Y = sparse.csr_matrix((np.ones(n_rows, np.float32), labels, np.arange(n_rows + 1)), (n_rows, n_labels))
    for split, rows in (("trn", slice(0, 150)), ("tst", slice(150, None))):
        sparse.save_npz(folder / f"X.{split}.npz", X[rows], compressed=False)
        sparse.save_npz(folder / f"Y.{split}.npz", Y[rows], compressed=False)


def call_runner(stage, folder, *more):
    script = ROOT / "benchmarks" / "peers" / "umpteen_run.py"
    settings = json.dumps({"recipe": "xr-linear", "tree.leaf_size": 6, "tree.branching": 2})
    command = [sys.executable, str(script), stage, "--data", str(folder), "--model", str(folder / "model")]
    command += ["--threads", "1", "--settings", settings, *more]
    done = subprocess.run(command, env=jobs.environment("umpteen", 1), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return jobs.last_json(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_umpteens_runner_measures_all_stages(tmp_path):
    save_data(tmp_path)
    fit = call_runner("fit", tmp_path)
    assert fit["fit_s"] > 0
    assert fit["fit_memory_mb"] >= 0
    assert fit["model_mb"] > 0
    assert set(fit["versions"]) == {"umpteen", "numpy", "scipy", "numba"}
    batch = call_runner("batch", tmp_path, "--predictions", str(tmp_path / "top.npy"))
    assert batch["docs_per_s"] > 0
    single = call_runner("single", tmp_path, "--queries", "20")
    assert single["queries"] == 20
    assert single["p50_ms"] <= single["p99_ms"]
    assert np.load(tmp_path / "top.npy").shape == (50, 5)
    assert summary.quality(tmp_path / "top.npy", tmp_path)["P@1"] > 90


def test_every_row_of_the_neural_tables_can_be_made():
    for cases in neural.PLANS.values():
        for name, case in cases.items():
            encoder = {"encoder.name": "some"} if neural.has_encoder(case.recipe) else {}
            create(member_names(case.recipe)[0], dict(case.settings) | encoder)
            assert "," not in name  # --only A,B


class Answered:
    """A job that is done at once, in place of a process."""

    def __init__(self, job):
        self.job = job
        self.answer, sender = Pipe(duplex=False)
        sender.send(dict.fromkeys(COLUMNS, 12.345) | {"recipe": job.recipe, "gpu_mb": None})

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.answer.close()

    def result(self):
        return self.answer.recv()


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_row_is_measured_once_for_the_same_settings(tmp_path, monkeypatch, at_once):
    measured = []

    def start(job):
        measured.append(job.recipe)
        return Answered(job)

    monkeypatch.setattr(neural, "Running", start)
    out = tmp_path / "rows.json"
    command = [str(tmp_path / "EURLEX57K"), "--encoder", "some", "--out", str(out), "--only", "full,xml-cnn"]
    command += ["--at-once", str(at_once)]
    neural.main(command)
    neural.main(command)
    assert measured == ["full", "xml-cnn"]
    neural.main([*command, "--split", "dev"])
    assert measured == ["full", "xml-cnn"] * 2
    rows = neural.read(out)
    assert {name: row["split"] for name, row in rows["EURLEX57K"].items()} == {"full": "dev", "xml-cnn": "dev"}
    mark = "" if at_once == 1 else "\\*"  # beside others, a time says less
    assert f"| [xml-cnn](recipes/xml-cnn.md) | 12.35/12.35/12.35 | 12.35/12.35/12.35 | 12{mark} |" in (
        neural_page.section(rows)
    )


def test_no_more_rows_are_measured_at_once_than_asked_for():
    running, most = set(), []

    class Counted(Answered):
        def __init__(self, job):
            super().__init__(SimpleNamespace(recipe=job))
            running.add(job)
            most.append(len(running))

        def result(self):
            running.discard(self.job.recipe)
            return super().result()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural, "Running", Counted)
        done = dict(neural.measured({name: name for name in "abcde"}, at_once=2))
    assert {name: row["recipe"] for name, row in done.items()} == {name: name for name in "abcde"}
    assert max(most) == 2


def test_a_row_that_fails_does_not_keep_the_others_from_being_measured(capsys):
    class Failing(Answered):
        def __init__(self, job):
            super().__init__(SimpleNamespace(recipe=job))

        def result(self):
            if self.job.recipe == "b":
                raise BenchFailed("out of memory")
            return super().result()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural, "Running", Failing)
        done = dict(neural.measured({name: name for name in "abc"}))
    assert list(done) == ["a", "c"]
    assert "b out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["Elsewhere"], "there are rows for EURLEX57K, YSO-Finna-en, ReverseDictionary, but not for Elsewhere"),
        (["EURLEX57K", "--only", "full,fool"], "there is no row 'fool' for EURLEX57K"),
        (["EURLEX57K", "--only", "YSO-Finna-en/full"], "there is no row 'YSO-Finna-en/full' for EURLEX57K"),
    ],
)
def test_rows_that_are_not_planned_are_refused(words, why, tmp_path, capsys):
    with pytest.raises(SystemExit):
        neural.main([*words, "--encoder", "some", "--out", str(tmp_path / "rows.json")])
    assert why in " ".join(capsys.readouterr().err.split())


def test_rows_are_chosen_in_the_order_they_are_named_in():
    folders = [Path("ReverseDictionary"), Path("data/EURLEX57K")]
    found = [(folder.name, name) for folder, name in neural.chosen(folders, "EURLEX57K/full,xr-linear")]
    assert found == [("EURLEX57K", "full"), ("ReverseDictionary", "xr-linear"), ("EURLEX57K", "xr-linear")]


def test_the_pages_show_the_rows_that_were_measured():
    docs = ROOT / "docs"
    pages = neural_page.pages(neural.read(docs / "benchmarks-neural.json"), docs)
    assert docs / "benchmarks-neural.md" in pages
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"run benchmarks.neural_page: {path.name} is not up to date"


def test_estimates_are_close_to_what_was_measured(capsys):
    assert estimates.main() == 0, capsys.readouterr().out


def test_estimates_that_are_too_large_or_too_small_are_told():
    expected = Estimate(1, 1, 1, 1, memory_mb=300.0, seconds=5.0, gpu_mb=100.0)
    measured = {"memory_mb": 100.0, "gpu_mb": 250.0, "seconds": 50.0}
    usual = estimates.Row("EURLEX57K", "full", expected, measured | {"gpu_mb": None}, is_alone=False)
    older = estimates.Row("YSO-Finna-en", "cascadexml-dismec", expected, measured)
    lines, worst = estimates.compare([usual, older])
    assert [line[-2:] for line in lines] == [
        ["3.00", ""], ["0.10", "not alone"], ["3.00", "older code"], ["0.40", "older code"], ["0.10", ""]
    ]  # fmt: skip
    assert worst == {"memory_mb": 3.0, "gpu_mb": 1.0, "seconds": 10.0}


def test_rows_with_older_code_are_in_the_file():
    found = neural.read(ROOT / "docs" / "benchmarks-neural.json")
    assert all(name in found[dataset] for dataset, name, _ in estimates.OLDER)


def test_the_page_says_what_shortlists_keep():
    rows = {"cascadexml": {"shortlist_recall": [91.19, 47.77]}, "full": {"shortlist_recall": []}, "xr-linear": {}}
    assert neural_page.shortlists(rows) == "Shortlist recall (%) by level: cascadexml 91.2, 47.8."
    assert neural_page.shortlists({"full": rows["full"]}) == ""


def test_of_many_labels_each_belongs_to_one_text(tmp_path):
    many_labels.make(tmp_path, 50, 15, n_test=3)
    train = umpteen.read(tmp_path, "train")
    assert train.Y.shape == (4, 50)
    assert (train.Y.getnnz(axis=0) == 1).all()
    test = umpteen.read(tmp_path, "test", labels=train.labels)
    assert test.Y.shape == (3, 50)
    assert (test.Y.getnnz(axis=1) == 3).all()


def test_published_figures_are_read_by_column():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    found = neural_page.published(page)
    (_, ensemble), (name, single) = found["lightxml"]
    assert ensemble["Amazon-670K"] == "49.32/44.17/40.25"
    assert (name, single["Amazon-670K"]) == ("LightXML, one model", "47.3/42.2/38.5")
    assert next(iter(found["cascadexml-dismec"][0][1])) == "Wiki10-31K"
    assert len(found["full"]) == 2


def test_a_picture_of_the_rows_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    rows = {"EURLEX57K": {"full": {"fit_s": 10.0, "P@5": 60.0}, "lightxml": {"fit_s": 20.0, "P@5": 61.0}}}
    neural_page.draw(rows, tmp_path / "networks.svg")
    picture = (tmp_path / "networks.svg").read_text(encoding="utf-8")
    assert "lightxml" in picture
    assert "P@5, percent" in picture


def test_sizes_of_an_installation_are_those_of_its_packages(tmp_path):
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name, size in (("wide", 3_000_000), ("narrow", 10), ("thin", 20)):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (site / f"{name}.py").write_bytes(b"#" * size)
        (info / "RECORD").write_text(f"{name}.py,,\n{name}-gone.py,,\n")
    sizes = install_size.sizes(tmp_path)
    assert sizes == {"wide 1.0": 3_000_000, "narrow 1.0": 10, "thin 1.0": 20}
    found = {"packages": sizes, "kernels": 1_000_000, "warmup_s": 49.4, "before": [(5.8, 4)], "after": [(0.9, 0)]}
    text = install_size.render(found | {"machine": report.machine()})
    assert "| wide 1.0 | 3.0 |\n| 2 others | 0.0 |\n| compiled kernels | 1.0 |\n| **all** | 4.0 |" in text
    assert "took 49 s" in text
    assert "in 0.9 s, the start of Python and imports included, and compiled 0 kernels" in text
    page = (ROOT / "docs" / "containers.md").read_text()
    assert all(marker in page for marker in install_size.MARKERS)


def test_cold_starts_are_medians_and_count_what_was_compiled():
    row = cold_start.row("empty cache", [(9.0, {"a": 1.0}), (11.0, {"a": 1.0}), (30.0, {})], [(4.0, {"b": 1.0})] * 3)
    assert row == {"case": "empty cache", "fit_s": 11.0, "answer_s": 4.0, "compiled": 5}
    assert "| empty cache | 11.0 | 4.0 | 5 |" in cold_start.table([row], 3)


def test_encoders_are_compared_with_torch_in_float32():
    figures = {"single_ms": 8.0, "embed_ms": 6.0, "long_ms": 20.0, "texts_per_s": 100.0, "memory_mb": 400.0}
    figures |= {"file_mb": 90.0, "start_s": 2.0, "P@1": 80.0, "P@3": 60.0, "P@5": 50.0}
    rows = {encoder_cpu.BASE: figures, "onnx int8": figures | {"single_ms": 2.0, "texts_per_s": 450.0}}
    options = SimpleNamespace(data=None, texts=1500, threads=2, turns=3)
    lines = encoder_cpu.page(rows, options).splitlines()
    assert lines[2].startswith("| torch float32 | 8.00 (1.0×)")
    assert lines[3].startswith("| onnx int8 | 2.00 (4.0×) | 6.00 (1.0×) | 20.00 (1.0×) | 450 (4.5×) | 80.00/60.00/50")


def test_the_search_for_the_largest_head_closes_in_on_it(monkeypatch, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks import largest_head

    tried = []
    monkeypatch.setattr(
        largest_head, "measured", lambda n, shape, steps: tried.append(n) or (None if n > 700 else [f"{n:,}"])
    )
    largest_head.main(["--labels", "300", "400"])
    assert tried == [300, 400, 600, 900, 750, 675, 712]
    assert "| 675 |" in capsys.readouterr().out
    assert largest_head.next_size(90, None, 100) == [100]
    assert largest_head.next_size(100, None, 100) == []


def test_a_head_is_measured_without_a_gpu_too(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks import largest_head

    monkeypatch.setattr(largest_head, "BATCH", 4)
    step_s, text_s = largest_head.trained(50, largest_head.Shape(1, 32, 2), 6)
    assert step_s > 0
    assert text_s > 0


def test_the_training_loop_is_measured_without_a_gpu_too(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks import gpu

    monkeypatch.setattr(gpu, "N_LABELS", 20)
    found = gpu.loop_rate(1, 32, 2, 8, 4, n_steps=4, compile_="off", record=False)
    assert found["tokens"] > 0
    assert found["encoding"] > 0
