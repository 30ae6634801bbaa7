"""Label trees over HTTP: nodes, pages of children, paths of texts, and requests that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import umpteen
from tests.small_trees import LABELS, TEXTS
from umpteen.models.tree_view import text_paths, tree_views

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    tree = {"leaf_size": 2, "branching": 2}
    return {
        "binary": umpteen.Parabel(threads=1, tree=tree, trees=2).fit(TEXTS, LABELS),
        "flat": umpteen.DiSMEC(threads=1).fit(TEXTS, LABELS),
    }


@pytest.fixture(scope="module")
def client(models: dict[str, Any]) -> Iterator[Any]:
    from umpteen.serve.app import create_app

    with testclient.TestClient(create_app(models)) as client:
        yield client


def test_the_root_and_its_children(client: Any, models: dict[str, Any]) -> None:
    answer = client.get("/v1/tree").json()
    view = tree_views(models["binary"])[0]
    assert answer["model"] == "binary"
    assert [tree["part"] for tree in answer["trees"]] == ["tree 1", "tree 2"]
    assert answer["trees"][0]["n_levels"] == view.tree.n_levels
    assert answer["node"] == view.node(0, 0).to_dict()
    assert answer["ancestors"] == []
    for shown, child in zip(answer["children"], view.children(0, 0), strict=True):
        assert shown.items() >= child.to_dict().items()
        assert shown["examples"] == view.examples(child.level, child.node)
        assert [tuple(part) for part in shown["parts"]] == view.sizes_below(child.level, child.node, 24)


def test_children_come_in_pages(client: Any, models: dict[str, Any]) -> None:
    view = tree_views(models["binary"])[1]
    level = view.tree.n_levels - 1
    names = [child.name for child in view.children(level, 0)]
    found = []
    for start in range(len(names) + 1):
        query = {"tree": 2, "node": f"{level}-0", "start": start, "limit": 1}
        found += [child["name"] for child in client.get("/v1/tree", params=query).json()["children"]]
    assert found == names
    label = client.get("/v1/tree", params={"tree": 2, "node": f"{level + 1}-0"}).json()
    assert label["children"] == []
    assert label["node"]["key"] is not None
    assert len(label["ancestors"]) == level + 1


def test_a_model_without_a_tree_says_so(client: Any) -> None:
    answer = client.get("/v1/tree", params={"model": "flat"})
    assert answer.status_code == 200
    assert answer.json()["trees"] == []
    assert "has no label tree" in answer.json()["reason"]
    path = client.post("/v1/tree/path", json={"text": "plum", "model": "flat"}).json()
    assert path["paths"] == []
    assert "has no label tree" in path["reason"]


def test_the_path_of_a_text(client: Any, models: dict[str, Any]) -> None:
    answer = client.post("/v1/tree/path", json={"text": "a fast car", "k": 2}).json()
    expected = [path.to_dict() for path in text_paths(models["binary"], "a fast car", 2)]
    assert [{key: path[key] for key in ("part", "levels")} for path in answer["paths"]] == [
        {**path, "levels": [{**level, "kept": list(level["kept"])} for level in path["levels"]]} for path in expected
    ]
    assert [path["tree"] for path in answer["paths"]] == [1, 2]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"node": "9-0"}, 404, "unknown_node"),
        ({"node": "1-2"}, 404, "unknown_node"),
        ({"tree": 3}, 404, "unknown_tree"),
        ({"model": "other"}, 404, "unknown_model"),
        ({"node": "root"}, 422, "invalid_request"),
        ({"node": "1--1"}, 422, "invalid_request"),
        ({"node": "../../etc"}, 422, "invalid_request"),
        ({"tree": 0}, 422, "invalid_request"),
        ({"limit": 100_000}, 422, "invalid_request"),
        ({"start": -1}, 422, "invalid_request"),
        ({"start": 10**30}, 422, "invalid_request"),
    ],
)
def test_a_node_that_is_not_there_is_refused(client: Any, query: dict[str, Any], status: int, code: str) -> None:
    answer = client.get("/v1/tree", params=query)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"text": 5}, 422),
        ({"text": "plum", "k": 0}, 422),
        ({"text": "plum", "k": 10**9}, 422),
        ({"text": "plum", "other": 1}, 422),
        ({"text": "plum\x00"}, 422),
        ({"text": "plum", "model": "other"}, 404),
        ([], 422),
    ],
)
def test_a_wrong_path_request_is_refused(client: Any, body: Any, status: int) -> None:
    answer = client.post("/v1/tree/path", json=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_a_body_that_is_not_json_is_refused(client: Any) -> None:
    assert client.post("/v1/tree/path", content=b'{"text": "plum"}').status_code == 415
    answer = client.post("/v1/tree/path", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
