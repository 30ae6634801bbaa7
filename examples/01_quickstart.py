"""Texts in, labels out: train on the data that comes with the package, tag a sentence, save and load."""

import tempfile

import umpteen

train, test = umpteen.load_demo("train"), umpteen.load_demo("test")
print(train)

model = umpteen.XRLinear(seed=1).fit(train.texts, train.Y, label_names=train.labels)
figures = model.evaluate(test.texts, test.Y)
print("  ".join(f"{name} {figures[name]:.1f}" for name in ("P@1", "P@3", "P@5")))

top = model.topk(["An image viewer for the terminal, written in Python"], k=5)
for name, score in zip(top.names[0], top.scores[0], strict=True):
    print(f"{score:.2f}  {name}")

with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/debtags")
    again = umpteen.load(f"{folder}/debtags")
    print(again.topk(["A library for reading PDF files"], k=3).names[0])
