"""Time tf-idf against scikit-learn: ``python bench_tfidf.py FOLDER [--rows N] [--threads N]``.

FOLDER holds ``train_texts.txt.xz`` (or ``.txt``), one text per line. Every measurement runs in a process of
its own, reading and compiling are not counted, and the matrices are compared at the end.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from umpteen.engine import n_threads
from umpteen.features.tfidf import Tfidf


def read_texts(folder: Path, n_rows: int | None) -> list[str]:
    packed = folder / "train_texts.txt.xz"
    opener, path = (lzma.open, packed) if packed.exists() else (open, folder / "train_texts.txt")
    with opener(path, "rt", encoding="utf8", newline="\n") as f:
        return [line.rstrip("\n") for line in islice(f, n_rows)]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_sklearn(texts: list[str]) -> tuple[float, sp.csr_matrix, list[str]]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    settings = {"ngram_range": (1, 2), "max_features": 200_000, "sublinear_tf": True, "dtype": np.float32}
    vectoriser = TfidfVectorizer(**settings)
    start = time.perf_counter()
    rows = vectoriser.fit_transform(texts)
    return time.perf_counter() - start, sp.csr_matrix(rows), vectoriser.get_feature_names_out().tolist()


def run_ours(texts: list[str], threads: int) -> tuple[float, sp.csr_matrix, list[str], float]:
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
    return seconds, rows, tfidf.terms, one


def measure(args: argparse.Namespace) -> None:
    """Run one measurement in this process and leave what was found in a folder."""
    texts = read_texts(args.folder, args.rows)
    before = peak_mb()
    if args.only == "sklearn":
        seconds, rows, terms = run_sklearn(texts)
        one = None
    else:
        seconds, rows, terms, one = run_ours(texts, int(args.only))
    found = {"seconds": seconds, "peak": peak_mb(), "before": before, "one": one}
    found |= {"terms": terms, "rows": len(texts)}
    rows.sort_indices()
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
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        measure(args)
        return
    names = dict.fromkeys(["sklearn", "1", str(n_threads(args.threads))])
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [sys.executable, __file__, str(args.folder), "--only", name, "--out", folder]
            subprocess.run(command + (["--rows", str(args.rows)] if args.rows else []), check=True)
        notes = {name: (Path(folder) / f"{name}.json").read_text(encoding="utf8") for name in names}
        found = {name: json.loads(note) for name, note in notes.items()}
        print(f"{found['1']['rows']} texts          seconds  times faster  peak MB (of it texts, libraries)")
        for name, one in found.items():
            title = "sklearn" if name == "sklearn" else f"umpteen, {name} threads"
            ratio = found["sklearn"]["seconds"] / one["seconds"]
            print(f"{title:20s} {one['seconds']:9.2f} {ratio:13.1f} {one['peak']:8.0f} ({one['before']:.0f})")
        paths = [Path(folder) / f"{name}.npz" for name in ("sklearn", list(names)[-1])]
        alone, largest = difference(*paths, found["sklearn"]["terms"], found[list(names)[-1]]["terms"])
        print(f"one 15-word text: {found['1']['one'] * 1e6:.1f} µs")
        print(f"terms in one of the two only: {alone}; largest difference over the others: {largest:.1e}")


if __name__ == "__main__":
    main()
