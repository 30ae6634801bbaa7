"""Models on the Hugging Face hub: which folder a model's name stands for, its download and its upload.

A repository may come from a stranger. Of its files only those that its ``config.json`` names are fetched, under names
that the store allows, as plain files in a folder of their own: the hub's own cache consists of links, which the store
refuses. A model is checked against its digests before the folder gets its final name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from umpteen import __version__, store
from umpteen.errors import BadInput, BadModelFile, MissingExtra, UmpteenError
from umpteen.models.card import CARD, PLOT, is_generated
from umpteen.store.folder import MOST_CONFIG, named, table_of
from umpteen.store.table import CONFIG

_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_NAMED = re.compile(rf"(?:(?P<prefix>hf:)/{{1,2}})?(?P<id>{_REPOSITORY})(?:@(?P<revision>[\w][\w./-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAIN = "main"
_MOST_CARD = 1 << 20  # bytes of a README.md that is looked at


def local_folder(
    name: str | os.PathLike[str], *, revision: str | None = None, token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None, local_files_only: bool = False,
) -> Path:  # fmt: skip
    """Return the folder of a model, downloaded from the hub if the name is that of a repository there.

    An existing path is that path. ``hf://org/name`` is always a repository, and ``org/name`` is one if there is no such
    path; both may end with a revision, ``@v1``.

    Parameters
    ----------
    name
        A path, or a repository on the hub.
    revision
        A branch, tag or commit of the repository; ``main`` by default.
    token
        Token of the hub's user; by default the one that ``hf auth login`` or ``HF_TOKEN`` set.
    cache_dir
        Where downloaded models are kept, instead of ``umpteen`` in the folder of ``HF_HOME``.
    local_files_only
        Use what was downloaded before, and do not connect.
    """
    text = os.fspath(name)
    found = _NAMED.fullmatch(text)
    if found is None or (found["prefix"] is None and os.path.lexists(text)):
        if text.startswith("hf:/"):
            raise BadInput(
                f"a model on the hub is called hf://org/name or hf://org/name@revision, but not {text!r:.80}"
            )
        return Path(text)
    try:
        hub = _hub()
    except MissingExtra:
        if found["prefix"] is not None:
            raise
        raise BadModelFile(
            f"model folder '{text}' does not exist; check the path, or pip install 'umpteen[hub]' if it is on the hub"
        ) from None
    wanted = found["revision"] or revision or _MAIN
    root = Path(cache_dir) if cache_dir is not None else Path(hub.constants.HF_HOME, "umpteen")
    is_offline = local_files_only or hub.constants.HF_HUB_OFFLINE
    try:
        return _Repository(hub, found["id"], wanted, token, root).folder(is_offline=is_offline)
    except BadModelFile as error:
        raise BadModelFile(str(error) if found["prefix"] else f"there is no folder '{text}' here; {error}") from error


def is_on_hub(name: str | os.PathLike[str]) -> bool:
    """Return whether a name stands for a repository on the hub and not for a path.

    Examples
    --------
    >>> is_on_hub("hf://org/name@v1"), is_on_hub("no-such-folder/name"), is_on_hub("/a/path"), is_on_hub("name")
    (True, True, False, False)
    """
    found = _NAMED.fullmatch(os.fspath(name))
    return found is not None and (found["prefix"] is not None or not os.path.lexists(name))


def own_folder(name: str | os.PathLike[str]) -> Path:
    """Return the folder of a model that is going to be changed; refuse one that is on the hub."""
    if is_on_hub(name):
        raise BadModelFile(
            f"there is no folder '{os.fspath(name)}' here, and a model on the hub is not changed there; open it with "
            "from_pretrained, save it in a folder, and name that"
        )
    return Path(name)


@dataclass(frozen=True)
class _Repository:
    """A repository at a revision, and where its models are kept."""

    hub: Any
    id: str
    revision: str
    token: str | bool | None
    root: Path

    @property
    def kept(self) -> Path:
        """The folder of all its models."""
        return self.root / f"umpteen--{self.id.replace('/', '--')}"

    def folder(self, *, is_offline: bool) -> Path:
        """Return the folder of the model, and download it unless it was downloaded before."""
        known = self._known_commit()
        if known is not None and (is_offline or known == self.revision):
            return self.kept / known
        if is_offline:
            raise BadModelFile(
                f"'{self.id}' at revision '{self.revision}' was not downloaded to '{self.root}' before; load it once "
                "without local_files_only and HF_HUB_OFFLINE"
            )
        try:
            facts = self._facts()
        except _Unreachable as error:
            if known is not None:  # as the hub's own library does
                return self.kept / known
            raise BadModelFile(str(error)) from error
        if not (self.kept / facts.sha).is_dir():
            self._download(facts)
        self._remember(facts.sha)
        return self.kept / facts.sha

    def _known_commit(self) -> str | None:
        """Return the commit that the revision was at its last download, if the model is still there."""
        commit = self.revision
        if not _COMMIT.fullmatch(commit):
            try:
                commit = self._note.read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                return None
        return commit if _COMMIT.fullmatch(commit) and (self.kept / commit).is_dir() else None

    @property
    def _note(self) -> Path:
        """The file that says which commit the revision was."""
        return self.kept / "refs" / quote(self.revision, safe="")

    def _remember(self, commit: str) -> None:
        self._note.parent.mkdir(parents=True, exist_ok=True)
        store.atomic_write(self._note, f"{commit}\n")

    def _facts(self) -> Any:
        """Return what the hub says about the repository: its commit, and its files with their sizes."""
        with _explained(self.hub, f"the model '{self.id}' cannot be loaded from the hub"):
            api = _api(self.hub, self.token)
            facts = api.model_info(self.id, revision=self.revision, files_metadata=True)
        if not _COMMIT.fullmatch(str(facts.sha)):
            raise BadModelFile(f"the hub calls the revision of '{self.id}' {str(facts.sha)[:80]!r}, which is no commit")
        return facts

    def _download(self, facts: Any) -> None:
        """Download the files that ``config.json`` names, check them, and give their folder its name."""
        sizes = {file.rfilename: file.size for file in facts.siblings or []}
        if CONFIG not in sizes:
            raise BadModelFile(f"'{self.id}' on the hub is no umpteen model: it has no {CONFIG}; check the name")
        if (sizes[CONFIG] or 0) > MOST_CONFIG:
            raise BadModelFile(f"the {CONFIG} of '{self.id}' may have {MOST_CONFIG:,} bytes at most, but has more")
        unfinished = self.kept / f"{facts.sha}.partial"  # the same name again: an interrupted download is resumed
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            self._fetch(CONFIG, facts.sha, unfinished)
            for file, size in table_of(unfinished).items():
                if sizes.get(file) not in (size, None) or file not in sizes:
                    raise BadModelFile(
                        f"'{self.id}' on the hub lacks its file '{file}' of {size:,} bytes; ask its author to push it "
                        "again"
                    )
                self._fetch(file, facts.sha, unfinished)
            store.read(unfinished).verify()
        except BadModelFile:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        try:
            os.rename(unfinished, self.kept / facts.sha)
        except OSError:
            if not (self.kept / facts.sha).is_dir():  # another process may have finished first
                raise

    def _fetch(self, file: str, commit: str, folder: Path) -> None:
        with _explained(self.hub, f"the file '{file}' of '{self.id}' cannot be loaded from the hub"):
            self.hub.hf_hub_download(self.id, file, revision=commit, token=self.token, local_dir=folder)


def push(
    folder: Path, repo_id: str, *, private: bool | None = None, token: str | bool | None = None,
    commit_message: str = "Upload a model of umpteen", branch: str | None = None,
) -> str:  # fmt: skip
    """Upload a model folder in one commit and return the commit's address; parameters as in ``push_to_hub``.

    Files of the model that was there before are removed, as far as its ``config.json`` names them; a ``README.md`` that
    was not written by umpteen is kept.
    """
    if not re.fullmatch(_REPOSITORY, repo_id, re.ASCII):
        raise BadInput(f"a repository on the hub is called org/name, but not {repo_id!r:.80}")
    hub = _hub()
    with _explained(hub, f"the model cannot be pushed to '{repo_id}'"):
        api = _api(hub, token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        if branch is not None:
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        old = _Remote(hub, api, repo_id, branch)
        files = [CONFIG, *named(folder), *(name for name in (CARD, PLOT) if (folder / name).is_file())]
        if not is_generated(old.content(CARD, _MOST_CARD)):
            files = [name for name in files if name not in (CARD, PLOT)]
        stale = [name for name in old.model_files() if name not in files and name in old.names]
        operations = [hub.CommitOperationDelete(path_in_repo=name) for name in stale]
        operations += [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in files]
        done = api.create_commit(repo_id, operations, commit_message=commit_message, revision=branch)
    return str(done.commit_url)


class _Remote:
    """What lies in a repository before a push."""

    def __init__(self, hub: Any, api: Any, repo_id: str, branch: str | None):
        self._hub, self._api, self._id, self._branch = hub, api, repo_id, branch
        self.facts = api.model_info(repo_id, revision=branch, files_metadata=True)
        self.names: Mapping[str, int | None] = {file.rfilename: file.size for file in self.facts.siblings or []}

    def content(self, name: str, most: int) -> bytes:
        """Return a small file; nothing if it does not exist or is larger."""
        if name not in self.names or (self.names[name] or 0) > most:
            return b""
        with TemporaryDirectory() as folder:
            revision = self.facts.sha
            path = self._api.hf_hub_download(self._id, name, revision=revision, local_dir=folder)
            return Path(path).read_bytes()

    def model_files(self) -> list[str]:
        """Return the files of the model, by its ``config.json``; none if there is no model."""
        content = self.content(CONFIG, MOST_CONFIG)
        if not content:
            return []
        with TemporaryDirectory() as folder:
            Path(folder, CONFIG).write_bytes(content)
            try:
                return named(Path(folder))
            except BadModelFile:
                return []


class _Unreachable(BadModelFile):
    """The hub cannot be reached, or is not working."""


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.utils
    except ImportError:
        raise MissingExtra("huggingface_hub", "hub", "a model on the hub") from None
    return huggingface_hub


def _api(hub: Any, token: str | bool | None) -> Any:
    return hub.HfApi(token=token, library_name="umpteen", library_version=__version__)


@contextmanager
def _explained(hub: Any, what: str) -> Iterator[None]:
    """Turn the errors of the hub's library, and of the HTTP library below it, into a sentence; show no progress."""
    was_shown = not hub.utils.are_progress_bars_disabled()
    if was_shown:
        hub.utils.disable_progress_bars()
    try:
        yield
    except UmpteenError:
        raise
    except Exception as error:  # each version has another HTTP library, and their errors have no common base
        status = getattr(getattr(error, "response", None), "status_code", None)
        is_refused = isinstance(status, int) and status < 500
        kind = BadModelFile if is_refused or isinstance(error, (ValueError, TypeError)) else _Unreachable
        raise kind(f"{what}: {_first_line(error)}") from error
    finally:
        if was_shown:
            hub.utils.enable_progress_bars()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
