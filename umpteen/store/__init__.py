"""Model folders, checkpoints, and files that are written atomically."""

from umpteen.store.atomic import SaveFailed, atomic_write
from umpteen.store.checkpoint import Checkpoint, Run, fingerprint
from umpteen.store.folder import FORMAT, Stored, is_model, read
from umpteen.store.labels import format_labels, parse_labels
from umpteen.store.names import check_name
from umpteen.store.places import check_checkpoint, check_output
from umpteen.store.saving import files_of, write
from umpteen.store.tensors import load_tensors, save_tensors

__all__ = [
    "FORMAT", "Checkpoint", "Run", "SaveFailed", "Stored", "atomic_write", "check_checkpoint", "check_name",
    "check_output", "files_of", "fingerprint", "format_labels", "is_model", "load_tensors", "parse_labels", "read",
    "save_tensors", "write",
]  # fmt: skip
