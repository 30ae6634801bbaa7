"""The checkpoint of a training of several processes: rank 0 reads and writes it, and tells the others what it read."""

from __future__ import annotations

import numpy as np

from umpteen.neural.distributed import ranks
from umpteen.store import Checkpoint


class RankCheckpoint(Checkpoint):
    """A checkpoint in a folder that only rank 0 needs to see; all ranks call every method."""

    def __init__(self, own: Checkpoint):
        self.own, self.folder, self.key = own, own.folder, own.key

    def has(self, stage: str) -> bool:
        """Return whether rank 0 can read the stage."""
        return ranks().from_main(self.own.has(stage) if ranks().is_main else None)

    def load(self, stage: str, *, mmap: bool = True) -> dict[str, np.ndarray]:
        """Return the arrays of a stage."""
        found = self.own.load(stage, mmap=mmap) if ranks().is_main else {}
        names = ranks().from_main(list(found))
        return {name: ranks().array_from_main(found.get(name)) for name in names}

    def save(self, stage: str, arrays: dict[str, np.ndarray]) -> None:
        """Save a stage; ranks other than 0 have nothing to save."""
        if ranks().is_main:
            self.own.save(stage, arrays)

    def drop(self, *stages: str) -> None:
        """Remove stages, as far as they exist."""
        if ranks().is_main:
            self.own.drop(*stages)


def for_all_ranks(checkpoint: Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint that all ranks of a training can use; alone, it is the checkpoint itself."""
    return RankCheckpoint(checkpoint) if checkpoint is not None and ranks().are_many else checkpoint
