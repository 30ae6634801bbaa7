"""``umpteen train``: read data, estimate the cost, fit and save a model."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.filesize import decimal

from umpteen.cli.logs import open_logs, parse_logs
from umpteen.cli.options import check_own
from umpteen.cli.terminal import Terminal, duration, figures_of
from umpteen.data import Vocabulary, read
from umpteen.engine import Engine, LocalEngine, Memory
from umpteen.engine.ranks import Place, given_place
from umpteen.engine.select import make_engine
from umpteen.engine.tasks import SharesFiles
from umpteen.errors import BadConfig
from umpteen.store import Run
from umpteen.store.mapped import resident_limit

_LONG = 900  # seconds on a CPU after which faster recipes are named


class Resources(NamedTuple):
    """Memory and processes of a training; without any of them it is done in memory by this process."""

    memory: str | None = None
    engine: Engine | None = None
    storage: Path | None = None

    @classmethod
    def of(
        cls, memory: str | None, engine: str | None, workers: int, threads: int, address: str | None,
        storage: Path | None,
    ) -> Resources:  # fmt: skip
        """Check the flags of the command."""
        if (workers or address is not None) and engine is None:
            raise BadConfig("--workers and --address are for other processes; name an --engine, such as processes")
        Memory.of(memory)
        if engine is None:
            return cls(memory, LocalEngine(threads) if storage is not None else None, storage)
        return cls(memory, make_engine(engine, workers=workers, threads=threads, address=address), storage)

    @property
    def are_given(self) -> bool:
        """Whether arrays are to be in files."""
        return self.memory is not None or self.engine is not None

    def close(self) -> None:
        """End the processes of the engine."""
        if self.engine is not None:
            self.engine.close()

    def traffic(self) -> str | None:
        """Return what was sent to the nodes of a cluster and back, in words; None without a cluster."""
        from umpteen.engine.cluster import RayEngine

        if not isinstance(self.engine, RayEngine):
            return None
        report = self.engine.object_store_report()
        nodes = "1 node" if report.n_nodes == 1 else f"{report.n_nodes} nodes"
        lost = f", {report.n_lost} of which ended" if report.n_lost else ""
        return (
            f"Tasks and answers had {decimal(report.message_bytes)}; "
            f"{decimal(report.store_bytes)} went through Ray's object stores on {nodes}{lost}"
        )

    def check_storage(self, folder: Path | None) -> None:
        """Let an engine that uses other machines check that they see the folder of the stages."""
        if isinstance(self.engine, SharesFiles) and folder is not None:
            self.engine.check_storage(folder)

    def folder(self, checkpoint: Path | None, output: Path) -> Path | None:
        """Return the folder of the stages of a training."""
        if self.storage is not None and checkpoint is not None:
            raise BadConfig("--storage and --checkpoint are the same folder of stages; give one of them")
        if checkpoint is not None or not self.are_given:
            return checkpoint
        return self.storage or output.absolute().with_name(f"{output.absolute().name}.stages")


_PLAIN = Resources()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a message about the checkpoint and how to resume."""


def train(
    data: str,
    output: Path,
    model: Any,
    settings: Collection[str],
    *,
    terminal: Terminal,
    n_rows: int | None = None,
    checkpoint: Path | None = None,
    columns: Mapping[str, Any] | None = None,
    vocab: Path | None = None,
    language: str | None = None,
    logs: Sequence[str] = (),
    resources: Resources = _PLAIN,
) -> None:
    """Train a model or an ensemble on the train split of ``data`` and save it in ``output``.

    ``settings`` are the names of the given settings; those without effect are reported. The names of the labels come
    from ``vocab``, if that is given. ``logs`` say where the records of the training are written, ``KIND:PATH``. Of
    several processes that torchrun has started, rank 0 prints and writes; the others only take part in the training.
    """
    given = {"n_rows": n_rows, "language": language, **(columns or {})}
    with _taking_part(model, resources) as place:
        if place.is_main:
            _train_and_save(data, output, model, settings, terminal, checkpoint, vocab, logs, given, resources)
            return
        vocabulary = None if vocab is None else Vocabulary.read(vocab)
        dataset = read(data, "train", vocab=vocabulary, **given)
        where = None if checkpoint is None else str(checkpoint)
        model.fit(dataset.inputs, dataset.Y, label_names=dataset.labels, checkpoint=where)


@contextmanager
def _taking_part(model: Any, resources: Resources) -> Iterator[Place]:
    """Take the place that torchrun has given to this process, if it was started by torchrun."""
    if given_place() is None:
        yield Place()
        return
    for member in getattr(model, "models", [model]):
        if not hasattr(member, "encoder"):
            raise BadConfig(
                f"{member.recipe} has no network, so torchrun cannot divide its training; run it without torchrun, "
                "which uses all cores, or with --engine processes or ray"
            )
    if resources.are_given:
        raise BadConfig(
            "--memory, --engine and --storage are for trainings of one process; leave them out with torchrun"
        )
    from umpteen.models.lazy_neural import encoder_module

    encoder_module()  # says what to install if torch is missing
    from umpteen.neural.distributed import joined

    with joined() as ranks:
        yield ranks.place


def _train_and_save(
    data: str, output: Path, model: Any, settings: Collection[str], terminal: Terminal, checkpoint: Path | None,
    vocab: Path | None, logs: Sequence[str], given: Mapping[str, Any], resources: Resources,
) -> None:  # fmt: skip
    from umpteen.models.rescue import save_or_rescue
    from umpteen.models.runs import TEXTS, check_places

    configs = [member.config for member in getattr(model, "models", [model])]
    for key, when in {key: when for config in configs for key, when in config.unused.items()}.items():
        if any(f"{name}.".startswith(f"{key}.") for name in settings):
            terminal.note(f"{key} has no effect here, only where {when}")
    checkpoint = resources.folder(checkpoint, output)
    check_places(configs, checkpoint, output)
    resources.check_storage(checkpoint)
    parsed = parse_logs(logs)
    terminal.note(f"Reading {data}")
    vocabulary = None if vocab is None else Vocabulary.read(vocab)
    reading = Run(checkpoint) if resources.are_given else None
    storage = None if reading is None else partial(reading.part, TEXTS)
    with resident_limit(Memory.of(resources.memory).maps):
        dataset = read(data, "train", vocab=vocabulary, storage=storage, **given)
    if vocabulary is not None:
        terminal.note(str(vocabulary.coverage(dataset.labels, given["language"])))
    X = dataset.inputs
    estimate = model.estimate(X, dataset.Y)
    terminal.note(str(estimate))
    if estimate.device == "cpu" and estimate.seconds > _LONG:
        terminal.note(_faster(model, X, dataset.Y, estimate.seconds))
    begun = time.perf_counter()
    try:
        with terminal.progress() as progress, open_logs(parsed) as callbacks:
            where, callbacks = None if checkpoint is None else str(checkpoint), [*callbacks, *figures_of(progress)]
            options = {"label_names": dataset.labels, "progress": progress, "checkpoint": where}
            if resources.are_given:
                options |= {"memory": resources.memory, "engine": resources.engine}
            model.fit(X, dataset.Y, **options, callbacks=callbacks)
            resources.close()
        save_or_rescue(model, output, checkpoint)
        if reading is not None:
            reading.clear()
    except KeyboardInterrupt as error:
        raise Interrupted(_interrupted(checkpoint)) from error
    if (traffic := resources.traffic()) is not None:
        terminal.note(traffic)
    seconds, size = duration(time.perf_counter() - begun), decimal(size_of(output))
    terminal.note(f"Trained in {seconds}, saved in {output} ({size})\nNext: umpteen predict {output}")


def _faster(model: Any, X: Any, Y: Any, seconds: float) -> str:
    """Say which recipes would take at most half the time."""
    from umpteen.models import create

    others = [create("xr-linear")]
    if hasattr(model, "encoder") and model.recipe != "xr-transformer":
        others.append(create("xr-transformer", {"encoder.name": model.config.encoder.name, "encoder.device": "cpu"}))
    times = {other.recipe: other.estimate(X, Y).seconds for other in others}
    faster = [f"{name} takes about {duration(time)}" for name, time in times.items() if time < seconds / 2]
    return f"An encoder is slow without a GPU; on this data {', '.join(faster)} (--recipe)."


def build(
    recipe: str,
    settings: dict[str, Any],
    own: Mapping[str, dict[str, Any]] | None = None,
    *,
    rule: str | None = None,
    weights: Sequence[float] | None = None,
    preset: str | None = None,
) -> Any:
    """Return an unfitted model; an ensemble if the recipe names several models, or for a preset."""
    from umpteen.models import Ensemble
    from umpteen.models.presets import preset_ensemble
    from umpteen.models.recipes import create_members, member_names

    check_own(own or {}, member_names(recipe))
    if preset is not None:
        return preset_ensemble(preset, settings, recipe=recipe, rule=rule, weights=weights)
    models = create_members(recipe, settings, own)
    if len(models) > 1:
        return Ensemble(models, rule or "average", weights)
    if rule is not None or weights is not None:
        raise BadConfig(
            f"--rule and --weights merge models, but {recipe} is one; write --recipe '{recipe}*3' for three"
        )
    return models[0]


def size_of(folder: Path) -> int:
    """Return the total size of all files in a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _interrupted(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "Interrupted; nothing was saved. With --checkpoint DIR a run can be resumed."
    if not Run(checkpoint).is_begun:
        return "Interrupted before a stage or an epoch was finished; the same command starts again."
    return f"Interrupted; finished stages are kept in {checkpoint}: the same command resumes from there."
