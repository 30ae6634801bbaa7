"""How encoders and networks learn: the loop, the losses, resolutions one after the other, and all levels at once."""

import umpteen.engine.openmp  # noqa: F401  before torch
from umpteen.train.course import Course
from umpteen.train.levels import Finetuning, Resolution
from umpteen.train.loop import Group, optimise

__all__ = ["Course", "Finetuning", "Group", "Resolution", "optimise"]
