"""``umpteen export``, ``card`` and ``push``: a model for other machines, with a card, and on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from umpteen.cli.options import data_path
from umpteen.cli.terminal import Terminal


def export(folder: Path, output: Path, *, to: str, int8: bool, terminal: Terminal) -> None:
    """Export the encoder of a saved model, and save the model with it."""
    import umpteen
    from umpteen.models.hub import own_folder
    from umpteen.store import check_output

    check_output(output)
    model = umpteen.load(own_folder(folder), backend="torch")
    model.export(output, to=to, int8=int8)
    terminal.note(f"Exported to {output}; umpteen predict {output} uses it")


def card(
    folder: Path, *, terminal: Terminal, data: str | None, split: str, language: str | None, license: str | None
) -> None:
    """Write the card of a saved model into its folder."""
    import umpteen
    from umpteen.models.card import CardFacts, is_generated, write_card
    from umpteen.models.hub import own_folder

    model = umpteen.load(own_folder(folder))
    facts = CardFacts(**_facts(model, data, split, language, license, terminal))
    path = write_card(model, folder, facts)
    is_kept = not is_generated(path.read_bytes())
    terminal.note(f"{path} is your own and was left as it is" if is_kept else f"Wrote {path}")


def push(
    folder: Path,
    repository: str,
    *,
    terminal: Terminal,
    private: bool | None,
    message: str,
    branch: str | None,
    data: str | None,
    split: str,
    language: str | None,
    license: str | None,
) -> None:
    """Upload a saved model; print the address of the commit."""
    import umpteen

    model = umpteen.load(folder)
    facts = _facts(model, data, split, language, license, terminal)
    options = {"private": private, "commit_message": message, "branch": branch}
    terminal.say(model.push_to_hub(repository, **options, **facts))
    terminal.note(f"Next: umpteen predict hf://{repository}")


def _facts(
    model: Any, data: str | None, split: str, language: str | None, license: str | None, terminal: Terminal
) -> dict[str, Any]:
    """Return what the card says beside what the model knows, with an evaluation if there is data for it."""
    facts: dict[str, Any] = {"language": language or (), "license": license or ""}
    if data is None:
        return facts
    from umpteen.evaluation import evaluate_model, read_for

    dataset = read_for(model, data_path(data), split)
    with terminal.progress() as progress:
        found = evaluate_model(model, dataset, progress=progress)
    name = dataset.name or Path(data).name
    return facts | {"metrics": found.metrics, "dataset": name, "split": split}
