"""Parts of the diagrams in docs/img: text, lines and boxes in colours that suit light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# class: (attribute, colour on light pages, colour on dark pages)
_COLOURS = {
    "page": ("fill", "#ffffff", "#0d1117"),
    "ink": ("fill", "#1f2937", "#e5e7eb"),
    "grey": ("fill", "#64748b", "#94a3b8"),
    "warm": ("fill", "#c2410c", "#fb923c"),
    "cool": ("fill", "#0e7490", "#22d3ee"),
    "pale": ("fill", "#e2e8f0", "#334155"),
    "line": ("stroke", "#94a3b8", "#64748b"),
    "strong": ("stroke", "#c2410c", "#fb923c"),
    "weak": ("stroke", "#e2e8f0", "#334155"),
    "question": ("fill", "#f1f5f9", "#1e293b"),
    "answer": ("fill", "#ffedd5", "#431407"),
}


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a whole SVG file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" aria-label="{escape(title)}">'
    )
    back = f'<rect width="{width}" height="{height}" rx="6" class="page"/>'
    return "\n".join([head, _style(), back, *parts, "</svg>", ""])


def _style() -> str:
    light, dark = (
        " ".join(f".{name} {{ {attribute}: {(day, night)[i]}; }}" for name, (attribute, day, night) in _COLOURS.items())
        for i in (0, 1)
    )
    return f"<style>{light} path, line {{ fill: none; }} @media (prefers-color-scheme: dark) {{ {dark} }}</style>"


def words(
    x: float, y: float, text: str, kind: str = "ink", *, anchor: str = "start", bold: bool = False, size: int = 13
) -> str:
    """Return text whose baseline is at ``y``."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place}{weight} class="{kind}">{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "line", width: float = 1.0) -> str:
    """Return a straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke-width="{width:g}" class="{kind}"/>'


def circle(x: float, y: float, radius: float, kind: str) -> str:
    """Return a filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a box with round corners."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" class="{kind}"/>'
