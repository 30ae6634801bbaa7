"""Label trees over HTTP: the children of a node, and the nodes that the search kept for a text."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request, Response

from umpteen.models.tree_view import TreeView, text_paths, tree_views, why_no_tree
from umpteen.serve import openapi
from umpteen.serve.middleware import note
from umpteen.serve.problems import Problem
from umpteen.serve.request_bodies import DEFAULT_K, check_json, k_of, name_of, read_object, text_of
from umpteen.serve.served_model import ServedModel

_EXAMPLES = 3  # labels that are named of each child
_PARTS = 24  # children of a child whose sizes are returned
_JSON = "application/json"
_PATH_FIELDS = frozenset({"text", "k", "model"})

router = APIRouter()

_views: WeakKeyDictionary[ServedModel, list[TreeView]] = WeakKeyDictionary()  # with the names that were computed


@router.get("/v1/tree", openapi_extra=openapi.TREE)
async def node(
    request: Request,
    model: str | None = Query(None, max_length=4096, description="An id of /v1/models; the first one by default."),
    tree: int = Query(1, ge=1, le=1000, description="The number of the tree, if the model has several."),
    node: str = Query("0-0", pattern=r"^[0-9]{1,4}-[0-9]{1,10}$", description="Level and number; 0-0 is the root."),
    start: int = Query(0, ge=0, le=2**31 - 1, description="The first child, in the order of their texts."),
    limit: int = Query(50, ge=1, le=200, description="Children at most."),
) -> Response:
    """Return a node of a label tree: its name, the nodes above it and its children."""
    service = request.app.state.service
    loaded = service.entry(name_of(model, "model")).ready()
    level, number = map(int, node.split("-"))
    found = service.searches.run(_node, loaded, tree, (level, number), start, limit)
    return Response(await service.in_time(found), media_type=_JSON)


@router.post("/v1/tree/path", openapi_extra=openapi.TREE_PATH)
async def path(request: Request) -> Response:
    """Return where a text went: the nodes of each level that the search kept, with their scores."""
    check_json(request.scope)
    service = request.app.state.service
    values = read_object(await request.body(), _PATH_FIELDS)
    text = text_of(values, service.settings)
    k = k_of(values.get("k", DEFAULT_K), service.settings.max_k) or DEFAULT_K
    loaded = service.entry(name_of(values.get("model"), "model")).ready()
    note(request.scope, service, [text])
    found = service.explanations.run(_path, loaded, text, k, service.settings.threads)
    return Response(await service.in_time(found), media_type=_JSON)


def _of_model(loaded: ServedModel) -> list[TreeView]:
    if loaded not in _views:
        _views[loaded] = tree_views(loaded.model)
    return _views[loaded]


def _node(loaded: ServedModel, tree: int, at: tuple[int, int], start: int, limit: int) -> bytes:
    views = _of_model(loaded)
    if not views:
        return _body({"model": loaded.name, "trees": [], "reason": why_no_tree(loaded.model)})
    if tree > len(views):
        raise Problem(404, "unknown_tree", f"the model has {len(views)} label trees; their numbers begin with 1")
    view = views[tree - 1]
    level, number = at
    sizes = (1, *view.tree.sizes)
    if level >= len(sizes) or number >= sizes[level]:
        raise Problem(404, "unknown_node", "the tree has no such node; GET /v1/tree without a node returns the root")
    return _body(
        {
            "model": loaded.name,
            "trees": [
                {"tree": i, "part": one.part, "n_levels": one.tree.n_levels} for i, one in enumerate(views, start=1)
            ],
            "tree": tree,
            "node": view.node(level, number).to_dict(),
            "ancestors": [one.to_dict() for one in view.ancestors(level, number)],
            "start": start,
            "children": [_child(view, child) for child in view.children(level, number, start, limit)],
        }
    )


def _child(view: TreeView, child: Any) -> dict[str, Any]:
    if child.key is not None:
        return child.to_dict()
    at = child.level, child.node
    return child.to_dict() | {"examples": view.examples(*at, _EXAMPLES), "parts": view.sizes_below(*at, _PARTS)}


def _path(loaded: ServedModel, text: str, k: int, threads: int) -> bytes:
    views = _of_model(loaded)
    paths = text_paths(loaded.model, text, min(k, len(loaded.labels)), views=views, threads=threads or None)
    found = [{"tree": number, **one.to_dict()} for number, one in enumerate(paths, start=1)]
    return _body({"model": loaded.name, "paths": found, **({} if views else {"reason": why_no_tree(loaded.model)})})


def _body(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode()
