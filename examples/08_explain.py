"""Ask why: the words that speak for a label, the path to it, and why another one is not suggested."""

from pathlib import Path

import umpteen

train = umpteen.load_demo("train").take(slice(4_000))
settings = {"tree": {"leaf_size": 32}, "search": {"beam": 3}, "store": {"examples": 1_000}}
model = umpteen.XRLinear(**settings).fit(train.texts, train.Y, label_names=train.labels)
text = "A command line tool that converts audio files"

found = model.explain(text)
print(f"{found.label}: {found.score:.3f}")
for word, contribution in found.top_words(3):
    print(f"  {contribution:+.2f}  {word}")
for step in found.paths[0].steps:
    print(f"  level {step.level}: margin {step.margin:.2f}, rank {step.rank}")
for near in found.nearest:
    print(f"  {near.similarity:.2f}  {near.text[:50]!r}: {', '.join(near.labels[:3])}")

# a label that is not suggested
print(model.explain(text, "game: arcade").reason)

# a page for a browser
Path("why.html").write_text(found.to_html(), encoding="utf-8")
