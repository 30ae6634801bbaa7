"""Save a model, and keep it elsewhere if that fails: what took hours to train is not lost to a full disk."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from umpteen.errors import UmpteenError
from umpteen.models.predictor import Predictor
from umpteen.store import SaveFailed


def save_or_rescue(model: Predictor, output: Path, checkpoint: Path | None = None) -> None:
    """Save a model in ``output``; if that fails, keep it where there is room and say where, and how to go on.

    Then its stages are kept too, if there are any.

    Raises
    ------
    SaveFailed : the model is not in ``output``.
    """
    try:
        model.save(output)
    except (OSError, UmpteenError) as error:
        kept = _rescued(model, output, checkpoint)
        failure = SaveFailed(f"{error}. {_remedy(kept, output)}{_stages(checkpoint)}")
        failure.errno = getattr(error, "errno", None)
        raise failure from error


def _rescued(model: Predictor, output: Path, checkpoint: Path | None) -> Path | None:
    """Write the model to a private folder in the first place that takes it, and return it."""
    for place in _places(output, checkpoint):
        with suppress(OSError, UmpteenError):
            folder = Path(tempfile.mkdtemp(prefix=f"{output.name[:40]}-unsaved-", dir=place))
            try:
                model._write(folder)
            except BaseException:
                with suppress(OSError):
                    folder.rmdir()
                raise
            return folder
    return None


def _places(output: Path, checkpoint: Path | None) -> Iterator[Path]:
    """Yield folders to try: near where the user looks first, the temporary folder last."""
    if checkpoint is not None:
        yield checkpoint.absolute()
    yield next(parent for parent in output.absolute().parents if parent.is_dir())
    with suppress(RuntimeError):  # there may be no home
        home = Path.home()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
        yield cache if cache.is_dir() else home
    yield Path(tempfile.gettempdir())


def _remedy(kept: Path | None, output: Path) -> str:
    if kept is None:
        return "The trained model could not be kept elsewhere either, and is lost"
    source, target = (json.dumps(str(path), ensure_ascii=False) for path in (kept, output.absolute()))
    code = shlex.quote(f"import umpteen; umpteen.load({source}).save({target})")
    return f"The trained model is kept in '{kept}'; save it with: {shlex.quote(sys.executable)} -c {code}"


def _stages(checkpoint: Path | None) -> str:
    if checkpoint is None or not checkpoint.is_dir():
        return ""
    return f" (its stages are kept in '{checkpoint}': the same command goes on from there)"
