"""Time tf-idf against scikit-learn: ``python -m benchmarks.bench_tfidf FOLDER [--rows N] [--threads N]``.

FOLDER is a dataset with texts and labels, train and test. Every measurement runs in a process of its own, reading
and compiling are not counted. The matrices are compared at the end, and so is what xr-linear makes of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks import report
from umpteen import XRLinear
from umpteen.data import read_pair
from umpteen.data.tfidf import Tfidf
from umpteen.engine import n_threads

MARKERS = ("<!-- tfidf:begin -->", "<!-- tfidf:end -->")
Transform = Callable[[list[str]], sp.csr_matrix]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_sklearn(texts: list[str]) -> tuple[float, sp.csr_matrix, list[str], Transform]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    settings = {"ngram_range": (1, 2), "max_features": 200_000, "sublinear_tf": True, "dtype": np.float32}
    vectoriser = TfidfVectorizer(**settings)
    start = time.perf_counter()
    rows = vectoriser.fit_transform(texts)
    seconds = time.perf_counter() - start
    return seconds, sp.csr_matrix(rows), vectoriser.get_feature_names_out().tolist(), vectoriser.transform


def run_ours(texts: list[str], threads: int) -> tuple[float, sp.csr_matrix, list[str], Transform, float]:
    Tfidf(threads=threads).fit_transform(["compile first", "compile"])
    tfidf = Tfidf(threads=threads)
    start = time.perf_counter()
    rows = tfidf.fit_transform(texts)
    seconds = time.perf_counter() - start
    title = " ".join(texts[0].split()[:15])
    tfidf.transform_one(title)
    start = time.perf_counter()
    for _ in range(2000):
        tfidf.transform_one(title)
    one = (time.perf_counter() - start) / 2000
    return seconds, rows, tfidf.terms, tfidf.transform, one


def measure(args: argparse.Namespace) -> None:
    """Run one measurement in this process and leave what was found in a folder."""
    train, test = read_pair(args.folder)
    if args.rows:
        train = train.take(np.arange(min(args.rows, len(train))))
    texts = list(train.texts)
    before = peak_mb()
    if args.only == "sklearn":
        seconds, rows, terms, transform = run_sklearn(texts)
        one = None
    else:
        seconds, rows, terms, transform, one = run_ours(texts, int(args.only))
    found = {"seconds": seconds, "peak": peak_mb(), "before": before, "one": one}
    found |= {"terms": terms, "rows": len(texts)}
    rows.sort_indices()
    figures = XRLinear().fit(rows, train.Y).evaluate(transform(test.texts), test.Y)
    found["downstream"] = [figures[f"P@{k}"] for k in (1, 3, 5)]
    sp.save_npz(args.out / f"{args.only}.npz", rows, compressed=False)
    (args.out / f"{args.only}.json").write_text(json.dumps(found), encoding="utf8")


def difference(a: Path, b: Path, terms_a: list[str], terms_b: list[str]) -> tuple[int, float]:
    """Return how many terms are in one matrix only, and the largest difference over the others.

    Terms that occur equally often at the end of the 200 000 may be chosen differently; rows are scaled again
    over the common terms so that this does not count as a difference.
    """
    common = set(terms_a) & set(terms_b)
    parts = []
    for path, terms in ((a, terms_a), (b, terms_b)):
        rows = sp.load_npz(path)[:, [column for column, term in enumerate(terms) if term in common]]
        norms = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
        parts.append(sp.diags(1 / np.maximum(norms, 1e-30)) @ rows)
    return len(set(terms_a) ^ set(terms_b)), float(abs(parts[0] - parts[1]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--page", type=Path, help="a Markdown page to put the table into")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder-out", dest="out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        measure(args)
        return
    names = dict.fromkeys(["sklearn", "1", str(n_threads(args.threads))])
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [sys.executable, "-m", "benchmarks.bench_tfidf", str(args.folder), "--only", name]
            rows = ["--rows", str(args.rows)] if args.rows else []
            subprocess.run([*command, "--folder-out", folder, *rows], check=True)
        text = describe(Path(folder), list(names))
    print(text)
    if args.page:
        page = args.page.read_text(encoding="utf8")
        args.page.write_text(report.replace_between(page, text, *MARKERS), encoding="utf8")


def describe(folder: Path, names: list[str]) -> str:
    """Put what the measurements left in a folder into words."""
    found = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf8")) for name in names}
    base, last = found["sklearn"], found[names[-1]]
    head = ("tf-idf", "seconds", "×", "peak MB", "of it before", "P@1/3/5 of xr-linear on it")
    lines = [
        [
            "scikit-learn TfidfVectorizer" if name == "sklearn" else f"**umpteen**, {name} thread{'s' * (name != '1')}",
            f"{one['seconds']:.2f}",
            f"{base['seconds'] / one['seconds']:.1f}×",
            f"{one['peak']:.0f}",
            f"{one['before']:.0f}",
            "/".join(f"{value:.2f}" for value in one["downstream"]),
        ]
        for name, one in found.items()
    ]
    alone, largest = difference(folder / "sklearn.npz", folder / f"{names[-1]}.npz", base["terms"], last["terms"])
    return (
        f"{report.table(head, lines)}\n\n"
        f"{last['rows']:,} texts, words and pairs of words, the 200,000 most frequent terms. A text of 15 words takes "
        f"{found['1']['one'] * 1e6:.1f} µs. {alone:,} terms are in one of the two matrices only (they occur equally "
        f"often at the cut); over the others the largest difference of a value is {largest:.1e}."
    )


if __name__ == "__main__":
    main()
