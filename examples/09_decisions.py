"""Decide: probabilities, the labels that predict returns, and thresholds for a goal."""

import umpteen

train, test = umpteen.load_demo("train").take(slice(4_000)), umpteen.load_demo("test")
model = umpteen.XRLinear().fit(train.texts, train.Y, label_names=train.labels)
text = "A command line tool that converts audio files"

# how likely is each label?
top = model.topk([text], 5)
for name, probability in zip(top.names[0], top.probabilities[0], strict=True):
    print(f"{probability:.2f}  {name}")

# predict returns the labels above a threshold that fit found on texts it held out
half, rest = test.take(slice(750)), test.take(slice(750, None))


def report(what: str) -> None:
    found = model.predict(rest.texts)
    right = found.multiply(rest.Y > 0).nnz
    print(f"{what:14}: {found.nnz / len(rest):.1f} labels per text, precision {right / found.nnz:.2f}", end="")
    print(f", recall {right / rest.Y.nnz:.2f}, threshold {model.calibration_.threshold:.2f}")


report("as fitted")

# other goals, on labelled texts that the model was not trained on
for goal in ("f1", "precision=0.9", "recall=0.8", "labels=3", "f1@2"):
    model.tune(half.texts, half.Y, goal)
    report(goal)

# or decide by yourself
print(model.predict([text], threshold=0.8).nnz, "labels are at least 80 % likely")
model.save("decided")  # keeps probabilities and threshold
