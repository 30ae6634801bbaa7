"""``umpteen info --tree``: label trees with named nodes, as text or plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umpteen.cli.terminal import Terminal, branch
from umpteen.models.tree_view import ROOT, tree_views, why_no_tree

if TYPE_CHECKING:
    from rich.tree import Tree

    from umpteen.models.tree_view import TreeNode, TreeView

_WHOLE = 100  # nodes of a level up to which it is shown whole, unless a depth is given
_EXAMPLES = 3  # children that are shown of each node at the level after


def show_trees(model: Any, terminal: Terminal, depth: int | None = None) -> None:
    """Print every label tree of a model down to ``depth``, or say that it has none."""
    views = tree_views(model)
    if not views:
        terminal.say(why_no_tree(model))
    for view in views:
        root = view.node(*ROOT)
        drawn = branch(f"{view.part}: {_described(root)}")
        _draw(view, root, drawn, _shown(view, depth))
        terminal.tree(drawn)


def tree_nodes(model: Any, depth: int | None = None) -> list[dict[str, Any]]:
    """Return every label tree of a model down to ``depth`` as nested plain values."""
    return [{"part": view.part, **_nested(view, view.node(*ROOT), _shown(view, depth))} for view in tree_views(model)]


def _shown(view: TreeView, depth: int | None) -> list[int | None]:
    """Return how many children are shown of the nodes of each level, from the root on; None is all."""
    n_levels = view.tree.n_levels
    if depth is not None:
        return [None] * min(depth, n_levels)
    n_whole = max(1, sum(size <= _WHOLE for size in view.tree.sizes))
    return [*[None] * n_whole, _EXAMPLES][:n_levels]


def _draw(view: TreeView, node: TreeNode, drawn: Tree, shown: list[int | None]) -> None:
    if node.level == len(shown):
        return
    children = view.children(node.level, node.node, limit=shown[node.level])
    for child in children:
        below = drawn.add(branch(_described(child)))
        _draw(view, child, below, shown)
    if rest := node.n_children - len(children):
        drawn.add(branch(f"… {rest:,} more"))


def _described(node: TreeNode) -> str:
    texts = "" if node.n_texts is None else f"{node.n_texts:,} texts"
    labels = "" if node.key is not None else f"{node.n_labels:,} labels"
    numbers = ", ".join(number for number in (labels, texts) if number)
    return f"{node.name} ({numbers})" if numbers else node.name


def _nested(view: TreeView, node: TreeNode, shown: list[int | None]) -> dict[str, Any]:
    facts = node.to_dict()
    if node.level < len(shown):
        children = view.children(node.level, node.node, limit=shown[node.level])
        facts["children"] = [_nested(view, child, shown) for child in children]
    return facts
