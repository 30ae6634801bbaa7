"""Training texts that a model keeps for its explanations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import BadInput, BadModelFile
from umpteen.models import Ensemble, Model
from umpteen.models.examples import Examples

from .conftest import Made, params

KEPT = {"store.examples": 12}
EVIL = "<script>one</script>\r\nline \\ \u2028 and a half character \ud800"


@pytest.mark.parametrize("name", params(["xr-linear", "xr-transformer", "lightxml", "extremetext"]))
def test_the_nearest_training_texts_are_shown(
    name: str, made: Made, brief: Callable[..., Model], tmp_path: Path
) -> None:
    model = brief(name, **KEPT).fit(made.texts, made.lists)
    assert len(model.examples_.texts) == 12
    row = made.texts.index(model.examples_.texts[5])
    model.save(tmp_path / "m")
    for one in (model, umpteen.load(tmp_path / "m", verify="full")):
        found = one.explain(made.texts[row])
        assert len(found.nearest) == 3
        assert found.nearest[0].text == made.texts[row]
        assert list(found.nearest[0].labels) == made.lists[row]
        assert found.nearest[0].similarity == pytest.approx(1.0, abs=1e-2)
        similar = [near.similarity for near in found.nearest]
        assert similar == sorted(similar, reverse=True)
        assert made.texts[row] in found.to_html()
    again = umpteen.load(tmp_path / "m")
    assert [near.text for near in again.explain("noise1").nearest] == [n.text for n in model.explain("noise1").nearest]


def test_nothing_is_kept_unless_asked_for(fitted: Callable[[str], Model], made: Made, tmp_path: Path) -> None:
    model = fitted("xr-linear")
    assert model.examples_ is None
    assert model.explain(made.texts[0]).nearest == ()
    model.save(tmp_path / "m")
    assert not list((tmp_path / "m").glob("examples*"))


def test_feature_rows_are_not_kept(made: Made, rows: sp.csr_matrix, small: Callable[..., Model]) -> None:
    model = small("xr-linear", **KEPT).fit(rows, made.Y)
    assert model.examples_ is None
    assert model.explain(rows[0]).nearest == ()


def test_models_of_an_ensemble_keep_texts(made: Made, small: Callable[..., Model], tmp_path: Path) -> None:
    ensemble = Ensemble([small("xr-linear", **KEPT), small("plt")]).fit(made.texts, made.lists)
    ensemble.save(tmp_path / "m")
    for one in (ensemble, umpteen.load(tmp_path / "m")):
        first, second = one.explain(made.texts[0]).models
        assert first.nearest[0].text == made.texts[0]
        assert second.nearest == ()


def test_any_text_survives_saving_and_is_escaped(small: Callable[..., Model], tmp_path: Path) -> None:
    model = small("xr-linear", **{"store.examples": 50}).fit([EVIL, "two", ""], [["a"], ["b"], ["a", "b"]])
    assert len(model.examples_.texts) == 3
    model.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m")
    assert again.examples_.texts == [EVIL, "two", ""]
    assert "<script" not in again.explain("one").to_html()


def arrays(n: int = 3, **changes: Any) -> dict[str, np.ndarray]:
    """Return the arrays of n texts with one label each."""
    embeddings = np.ones((n, 4), np.float16)
    return {"indptr": np.arange(n + 1), "labels": np.zeros(n, np.int32), "embeddings": embeddings} | changes


def test_arrays_of_texts() -> None:
    assert Examples.from_arrays(["a", "b", "c"], arrays(), 1).labels.nnz == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": np.arange(5)}, "not those of 3 texts"),
        ({"indptr": np.array([0, 2, 1, 3])}, "not those of 3 texts"),
        ({"indptr": np.array([0, 1, 2, 4])}, "not those of 3 texts"),
        ({"indptr": np.arange(4, dtype=np.int32)}, "'indptr' of its examples is not 1-d int64"),
        ({"labels": np.array([0, 1, 0], np.int32)}, "labels beyond the 1 of the model"),
        ({"labels": np.array([0, -1, 0], np.int32)}, "labels beyond the 1 of the model"),
        ({"embeddings": np.ones((2, 4), np.float16)}, "not finite numbers for 3 texts"),
        ({"embeddings": np.full((3, 4), np.nan, np.float16)}, "not finite numbers for 3 texts"),
        ({"embeddings": np.ones(3, np.float16)}, "'embeddings' of its examples is not 2-d float16"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Examples.from_arrays(["a", "b", "c"], arrays(**changes), 1)


def test_vectors_of_another_width_are_refused() -> None:
    examples = Examples.from_arrays(["a", "b", "c"], arrays(), 1)
    with pytest.raises(BadModelFile, match="vectors of 4 numbers, but the model returns 5"):
        examples.nearest(np.ones((1, 5), np.float32), 3)


def test_a_folder_without_the_texts_is_refused(made: Made, small: Callable[..., Model], tmp_path: Path) -> None:
    small("xr-linear", **KEPT).fit(made.texts, made.lists).save(tmp_path / "m")
    (path,) = (tmp_path / "m").glob("examples*.txt")
    path.write_bytes(path.read_bytes()[:-5] + b"\n\n\n\n\n")
    with pytest.raises(BadModelFile):
        umpteen.load(tmp_path / "m")
