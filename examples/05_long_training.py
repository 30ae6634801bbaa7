"""Long training: an estimate first, progress on the way, and stages that survive an interruption."""

import tempfile
from pathlib import Path

import umpteen

train = umpteen.load_demo("train").take(slice(2_000))
model = umpteen.Parabel(seed=1)
print("estimate:", model.estimate(train.texts, train.Y))

seen = []


def progress(stage: str, done: int, total: int) -> None:
    """Called from the training thread; the command line draws its bars with this."""
    if stage not in seen:
        seen.append(stage)
    if stage.startswith("tree 3: level") and done == total:
        raise KeyboardInterrupt  # pretend that somebody pressed Ctrl-C


with tempfile.TemporaryDirectory() as folder:
    stages = Path(folder, "stages")
    try:
        model.fit(train.texts, train.Y, progress=progress, checkpoint=stages)
    except KeyboardInterrupt:
        print("interrupted; kept", sorted(path.name for path in stages.glob("tree-0/*")), "and more")

    # the same call goes on where it stopped; another number of threads would do as well
    trained: list[str] = []
    model.fit(train.texts, train.Y, progress=lambda stage, *_: trained.append(stage), checkpoint=stages)
    print("trained after the interruption:", sorted({stage for stage in trained if "level" in stage}))

    model.save(Path(folder, "model"))  # the stages are not needed any more
    print("stages left:", stages.exists())
