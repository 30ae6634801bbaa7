"""Your own files: JSON lines with texts and labels, labels weighted by how rare they are."""

import json
import tempfile
from pathlib import Path

import umpteen
from umpteen.metrics import inverse_propensity

RECORDS = [
    {"text": "Boil the pasta and stir in the sauce", "labels": ["cooking", "italian"]},
    {"text": "Roast the vegetables with olive oil", "labels": ["cooking"]},
    {"text": "Change the tyre and pump it up", "labels": ["cycling", "repair"]},
    {"text": "Ride up the hill, then down the valley", "labels": ["cycling"]},
    {"text": "Solder the wire back onto the board", "labels": ["repair", "electronics"]},
] * 4

with tempfile.TemporaryDirectory() as folder:
    for split in ("train", "test"):
        lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
        Path(folder, f"{split}.jsonl").write_text(lines)
    train = umpteen.read(folder, "train")
    test = umpteen.read(folder, "test", labels=train.labels)

print(train, train.labels.names())
model = umpteen.DiSMEC().fit(train.texts, train.Y, label_names=train.labels)
print(model.topk(["pump up the tyre"], k=2).names)
print(model.predict(["pasta with olive oil"]).toarray())  # what reaches search.threshold

weights = inverse_propensity(train.Y)
for name, value in model.evaluate(test.texts, test.Y, ks=(1, 2), inverse_propensity=weights).items():
    print(f"{name:<12}{value:6.1f}")
