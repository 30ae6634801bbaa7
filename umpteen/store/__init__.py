"""Model folders, checkpoints, and files that are written atomically."""

from umpteen.store.atomic import SaveFailed, atomic_write
from umpteen.store.checkpoint import Checkpoint, Run, fingerprint
from umpteen.store.folder import FORMAT, Stored, is_model, read
from umpteen.store.labels import format_labels, parse_labels
from umpteen.store.names import check_name
from umpteen.store.output_parts import OutputParts
from umpteen.store.places import check_checkpoint, check_output
from umpteen.store.records import format_bounded, format_records, parse_records
from umpteen.store.saving import files_of, write
from umpteen.store.tensors import load_tensors, save_tensors

__all__ = [
    "FORMAT", "Checkpoint", "OutputParts", "Run", "SaveFailed", "Stored", "atomic_write", "check_checkpoint",
    "check_name", "check_output", "files_of", "fingerprint", "format_bounded", "format_labels", "format_records",
    "is_model", "load_tensors", "parse_labels", "parse_records", "read", "save_tensors", "write",
]  # fmt: skip
