"""The methods by which models are exchanged on the Hugging Face hub, named as its libraries name them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from umpteen.models.card import CardFacts, write_card


class Pretrained:
    """``save_pretrained``, ``push_to_hub`` and ``from_pretrained``, for all models and ensembles."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a folder."""
        raise NotImplementedError

    def _write(self, path: str | os.PathLike[str]) -> None:
        """Write the folder, and keep the stages of a checkpoint."""
        raise NotImplementedError

    def save_pretrained(
        self, path: str | os.PathLike[str], *, metrics: Mapping[str, float] | None = None, dataset: str = "",
        split: str = "test", language: str | Sequence[str] = (), license: str = "", repo_id: str = "",
    ) -> None:  # fmt: skip
        """Save the model as ``save`` does, with a model card, ``README.md``.

        Parameters
        ----------
        path
            The folder.
        metrics
            An evaluation, as ``evaluate`` returns it, for the card.
        dataset, split
            Name of the data that it was evaluated on, and which part of it.
        language, license
            Language of the texts and licence of the model, such as ``en`` and ``apache-2.0``.
        repo_id
            Name of the repository, for the example in the card.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> from umpteen import XRLinear
        >>> model = XRLinear().fit(["red apple", "green pear"], [["red"], ["green"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(f"{folder}/fruit", language="en")
        ...     pathlib.Path(f"{folder}/fruit/README.md").read_text().splitlines()[1]
        'library_name: "umpteen"'
        """
        facts = CardFacts(dict(metrics or {}), dataset, split, language, license, repo_id)
        self.save(path)
        write_card(self, path, facts)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | bool | None = None,
        commit_message: str = "Upload a model of umpteen", branch: str | None = None, **card: Any,
    ) -> str:  # fmt: skip
        """Upload the model with its card to the Hugging Face hub, in one commit, and return the commit's address.

        The repository is created if it does not exist. Files of the model that was there before are removed; other
        files, and a ``README.md`` that was not written by umpteen, are kept.

        Parameters
        ----------
        repo_id
            Name of the repository, ``org/name``.
        private
            Whether a new repository is private; by default as the organisation has it.
        token
            Token of the hub's user; by default the one that ``hf auth login`` or ``HF_TOKEN`` set.
        commit_message
            First line of the commit.
        branch
            Branch to commit to, ``main`` by default.
        card
            What the card says: ``metrics``, ``dataset``, ``split``, ``language`` and ``license`` as in
            ``save_pretrained``.
        """
        from umpteen.models.hub import push

        with TemporaryDirectory() as folder:
            path = Path(folder, "model")
            facts = CardFacts(repo_id=repo_id, **card)
            self._write(path)
            write_card(self, path, facts)
            options = {"private": private, "token": token, "commit_message": commit_message, "branch": branch}
            return push(path, repo_id, **options)

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, revision: str | None = None, token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None, local_files_only: bool = False, **options: Any,
    ) -> Self:  # fmt: skip
        """Open a model of the Hugging Face hub, or of a folder.

        ``umpteen.models.Model.from_pretrained`` opens models of all recipes; a recipe's class those of this recipe.

        Parameters
        ----------
        name
            A repository on the hub, ``org/name`` or ``hf://org/name``, or a folder, which takes precedence.
        revision
            Branch, tag or commit; ``main`` by default.
        token
            Token of the hub's user; by default the one that ``hf auth login`` or ``HF_TOKEN`` set.
        cache_dir
            Where downloaded models are kept, instead of ``umpteen`` in the folder of ``HF_HOME``.
        local_files_only
            Use what was downloaded before, and do not connect.
        options
            Passed to ``load``: ``mmap``, ``verify`` and ``backend``.
        """
        from umpteen.models.hub import local_folder

        source = {"revision": revision, "token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
        return cls._open(local_folder(name, **source), **options)

    @classmethod
    def _open(cls, folder: Path, **options: Any) -> Self:
        """Open a folder."""
        return cls.load(folder, **options)  # type: ignore[attr-defined]
