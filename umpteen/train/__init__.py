"""How an encoder learns: the loop, the losses, and the resolutions it goes through."""

from umpteen.train.levels import Finetuning, Resolution
from umpteen.train.loop import Group, optimise

__all__ = ["Finetuning", "Group", "Resolution", "optimise"]
