"""Models on the hub: push, load, revisions, tokens, offline, repositories of strangers, and cards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umpteen
from tests.doors.hub_server import TOKEN, Repository, serve
from umpteen.errors import BadInput, BadModelFile, MissingExtra
from umpteen.models import Ensemble, Model
from umpteen.models.card import CardFacts, card
from umpteen.models.hub import is_on_hub, local_folder

huggingface_hub = pytest.importorskip("huggingface_hub")

ROOT = Path(__file__).parents[2]
TEXTS = ["red apple", "green pear", "red cherry", "yellow lemon", "green apple", "yellow banana"]
LABELS = [["red <b>"], ["green|"], ["red <b>"], ["yellow"], ["green|"], ["yellow"]]


@pytest.fixture(scope="module")
def model():
    return umpteen.XRLinear(threads=1).fit(TEXTS, LABELS)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub at which ``huggingface_hub`` looks, with a cache of its own and no token."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with serve() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


def same(one, other) -> bool:
    a, b = one.topk(TEXTS, 3), other.topk(TEXTS, 3)
    return bool((a.labels == b.labels).all()) and np.allclose(a.scores, b.scores)


def files_in(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def put(hub, model, folder: Path, name: str = "org/name") -> dict[str, bytes]:
    """Put a model into a repository without a push; the files returned may be changed before a load."""
    model.save(folder)
    repository = hub.repositories.setdefault(name, Repository())
    repository.commit("main", files_in(folder))
    return repository.files


def test_push_and_load(hub, model):
    address = model.push_to_hub("org/name", token=TOKEN, commit_message="First")
    assert address.startswith(f"{hub.url}/org/name/commit/")
    assert {"config.json", "README.md"} <= set(hub.repositories["org/name"].files)
    assert {"PUT", "POST"} <= {method for method, _ in hub.requests}  # large files by LFS, small ones in the commit
    for opened in (
        umpteen.load("hf://org/name"),
        umpteen.load("org/name"),
        umpteen.XRLinear.from_pretrained("org/name"),
        Model.from_pretrained("org/name"),
        umpteen.XRLinear.load("org/name"),
    ):
        assert type(opened) is umpteen.XRLinear
        assert same(opened, model)


def test_what_was_downloaded_is_plain_files_and_is_not_fetched_again(hub, model, tmp_path):
    model.push_to_hub("org/name", token=TOKEN)
    folder = local_folder("org/name", cache_dir=tmp_path / "cache")
    assert folder.is_relative_to(tmp_path / "cache")
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert "README.md" not in {path.name for path in folder.iterdir()}  # no file that the model does not need
    hub.requests.clear()
    assert local_folder("org/name", cache_dir=tmp_path / "cache") == folder
    assert [method for method, _ in hub.requests] == ["GET"]  # which commit it is


def test_an_ensemble_travels_too(hub, model):
    other = umpteen.PLT(threads=1).fit(TEXTS, LABELS)
    ensemble = Ensemble([model, other])
    ensemble.push_to_hub("org/both", token=TOKEN)
    for opened in (Ensemble.from_pretrained("org/both"), Model.from_pretrained("org/both")):
        assert same(opened, ensemble)
    text = hub.repositories["org/both"].files["README.md"].decode()
    assert "of 2 models" in text
    assert "## Settings of model 2, plt" in text


def test_an_exported_encoder_travels_too(hub, encoder_folder, tmp_path):
    pytest.importorskip("onnxruntime")
    texts, labels = TEXTS * 10, LABELS * 10
    settings = {"encoder": {"name": str(encoder_folder), "max_length": 8}, "training": {"epochs": (1.0,)}}
    model = umpteen.XRTransformer(threads=1, features="both", head_weight=0.5, **settings).fit(texts, labels)
    model.export(tmp_path / "model")
    model.push_to_hub("org/deep", token=TOKEN)
    files = hub.repositories["org/deep"].files
    assert {name.split("/")[-1] for name in files} >= {"model.safetensors", "tokenizer.json", "model.onnx"}
    opened = Model.from_pretrained("org/deep", backend="onnx")
    assert opened.describe()["backends"] == ["torch", "onnx"]
    np.testing.assert_allclose(opened.topk(TEXTS, 3).scores, model.topk(TEXTS, 3).scores, atol=1e-5)
    text = files["README.md"].decode()
    assert str(encoder_folder) not in text
    assert f"`{encoder_folder.name}`" in text


def test_a_second_push_removes_the_files_of_the_first_model_alone(hub, model):
    model.push_to_hub("org/name", token=TOKEN)
    repository = hub.repositories["org/name"]
    repository.files["notes.txt"] = b"mine"
    before = set(repository.files)
    other = umpteen.PLT(threads=1, seed=5).fit(TEXTS[:4], LABELS[:4])
    other.push_to_hub("org/name", token=TOKEN)
    after = set(repository.files)
    named = {entry["file"] for entry in json.loads(repository.files["config.json"])["files"].values()}
    assert after == named | {"config.json", "README.md", "notes.txt"}
    assert not after >= before
    assert same(umpteen.load("org/name"), other)


def test_a_card_of_ones_own_is_kept(hub, model):
    model.push_to_hub("org/name", token=TOKEN)
    hub.repositories["org/name"].files["README.md"] = b"---\n---\nMy words."
    model.push_to_hub("org/name", token=TOKEN)
    assert hub.repositories["org/name"].files["README.md"] == b"---\n---\nMy words."


def test_revisions(hub, model):
    model.push_to_hub("org/name", token=TOKEN)
    first = hub.repositories["org/name"].branches["main"]
    other = umpteen.PLT(threads=1).fit(TEXTS, LABELS)
    other.push_to_hub("org/name", token=TOKEN, branch="next")
    assert umpteen.load("org/name").recipe == "xr-linear"
    assert Model.from_pretrained("org/name", revision="next").recipe == "plt"
    assert umpteen.load("hf://org/name@next").recipe == "plt"
    other.push_to_hub("org/name", token=TOKEN)
    assert umpteen.load("org/name").recipe == "plt"
    assert umpteen.load(f"hf://org/name@{first}").recipe == "xr-linear"
    with pytest.raises(BadModelFile, match="cannot be loaded from the hub"):
        umpteen.load("hf://org/name@nothing")


def test_a_private_repository_needs_the_token(hub, model):
    model.push_to_hub("org/secret", token=TOKEN, private=True)
    assert hub.repositories["org/secret"].is_private
    with pytest.raises(BadModelFile, match="cannot be loaded from the hub") as caught:
        umpteen.load("hf://org/secret")
    assert TOKEN not in str(caught.value)
    assert same(Model.from_pretrained("org/secret", token=TOKEN), model)
    with pytest.raises(BadModelFile, match="cannot be pushed") as caught:
        model.push_to_hub("org/other", token="hf_wrong")
    assert "hf_wrong" not in str(caught.value)


def test_the_token_of_the_environment(hub, model, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    model.push_to_hub("org/secret", private=True)
    assert same(umpteen.load("org/secret"), model)


def test_offline(hub, model, monkeypatch):
    with pytest.raises(BadModelFile, match="was not downloaded"):
        Model.from_pretrained("org/name", local_files_only=True)
    model.push_to_hub("org/name", token=TOKEN)
    Model.from_pretrained("org/name")
    hub.requests.clear()
    assert same(Model.from_pretrained("org/name", local_files_only=True), model)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert same(umpteen.load("hf://org/name"), model)
    assert not hub.requests


def test_a_hub_that_is_down_is_replaced_by_what_was_downloaded(hub, model):
    model.push_to_hub("org/name", token=TOKEN)
    umpteen.load("org/name")
    hub.is_down = True
    assert same(umpteen.load("org/name"), model)
    with pytest.raises(BadModelFile, match="cannot be loaded from the hub"):
        umpteen.load("hf://org/other")


def test_a_folder_wins_over_a_repository(hub, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = umpteen.PLT(threads=1).fit(TEXTS, LABELS)
    model.push_to_hub("org/name", token=TOKEN)
    other.save("org/name")
    assert umpteen.load("org/name").recipe == "plt"
    assert Model.from_pretrained("org/name").recipe == "plt"
    assert umpteen.load("hf://org/name").recipe == "xr-linear"
    assert not is_on_hub("org/name")


def test_names_that_are_neither(hub, tmp_path):
    with pytest.raises(BadModelFile, match=r"there is no folder 'no/where' here; .*hub"):
        umpteen.load("no/where")
    with pytest.raises(BadInput, match="hf://org/name"):
        umpteen.load("hf://../name")
    for path in (tmp_path / "no" / "model", "./no/model", "../no", "a/b/c"):
        with pytest.raises(BadModelFile, match="does not exist"):
            umpteen.load(path)
    assert not any(path.startswith("/no/where/resolve") for _, path in hub.requests)


def test_another_recipe_is_refused(hub, model):
    model.push_to_hub("org/name", token=TOKEN)
    with pytest.raises(BadModelFile, match="holds a xr-linear model"):
        umpteen.PLT.from_pretrained("org/name")


# Repositories of strangers


def refused(hub, tmp_path, match: str) -> None:
    """Load, expect a refusal, and expect nothing outside the cache and nothing usable in it."""
    before = set(tmp_path.rglob("*"))
    with pytest.raises(BadModelFile, match=match):
        umpteen.load("hf://org/name")
    home = tmp_path / "home"
    new = {path for path in set(tmp_path.rglob("*")) - before if not path.is_relative_to(home)}
    assert not new
    kept = home / "umpteen" / "umpteen--org--name"
    assert not kept.exists() or not [path for path in kept.iterdir() if path.name != "refs"]


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd", "a/../../outside.txt", "nul.txt", "a\\b.txt"])
def test_path_tricks_in_the_table_are_refused(hub, model, tmp_path, name):
    files = put(hub, model, tmp_path / "model")
    config = json.loads(files["config.json"])
    config["files"][name] = {"file": name, "bytes": 4}
    files["config.json"] = json.dumps(config).encode()
    files[name] = b"evil"
    refused(hub, tmp_path, "is not valid|where no save puts it")
    assert not any("outside" in path or "passwd" in path for _, path in hub.requests)


def test_files_that_the_table_does_not_name_are_not_fetched(hub, model, tmp_path):
    files = put(hub, model, tmp_path / "model")
    files["../../evil.py"] = files["evil.py"] = b"print('evil')"
    assert same(umpteen.load("hf://org/name"), model)
    assert not any("evil" in path for _, path in hub.requests)
    assert not list((tmp_path / "home").rglob("evil*"))


def test_a_wrong_digest_is_refused(hub, model, tmp_path):
    files = put(hub, model, tmp_path / "model")
    name = next(name for name in files if name.startswith("tree-0"))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    refused(hub, tmp_path, "content has changed|damaged|digest")


def test_a_wrong_size_is_refused_before_the_download(hub, model, tmp_path):
    files = put(hub, model, tmp_path / "model")
    name = next(name for name in files if name.startswith("tree-0"))
    files[name] += bytes(1000)
    refused(hub, tmp_path, "lacks its file")
    assert not any(name in path for _, path in hub.requests)


def test_a_missing_file_is_refused(hub, model, tmp_path):
    files = put(hub, model, tmp_path / "model")
    del files[next(name for name in files if name.startswith("tree-0"))]
    refused(hub, tmp_path, "lacks its file")


def test_a_link_is_a_file_with_the_wrong_content(hub, model, tmp_path):
    """Git stores a link as a file that holds its target, and the hub serves it as that."""
    files = put(hub, model, tmp_path / "model")
    name = next(name for name in files if name.startswith("tree-0"))
    size = len(files[name])
    files[name] = b"/etc/passwd".ljust(size, b" ")
    refused(hub, tmp_path, "header|changed|damaged|safetensors")


def test_no_model_is_refused(hub, tmp_path):
    hub.repositories["org/name"] = Repository()
    refused(hub, tmp_path, "no umpteen model")
    hub.repositories["org/name"].commit("main", {"config.json": b'{"model_type": "bert"}'})
    refused(hub, tmp_path, "no umpteen model")


def test_an_interrupted_download_is_resumed(hub, model, tmp_path, monkeypatch):
    put(hub, model, tmp_path / "model")
    fetch, n_calls = huggingface_hub.hf_hub_download, []

    def cut(*args, **more):
        n_calls.append(args)
        if len(n_calls) == 3:
            raise KeyboardInterrupt
        return fetch(*args, **more)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cut)
    with pytest.raises(KeyboardInterrupt):
        umpteen.load("hf://org/name")
    assert same(umpteen.load("hf://org/name"), model)


# Cards


def test_a_card_shows_the_run_and_neither_texts_nor_labels(model, tmp_path):
    metrics = model.evaluate(TEXTS, LABELS)
    model.save_pretrained(tmp_path / "m", metrics=metrics, dataset="fruit | <script>", language="en", license="mit")
    text = (tmp_path / "m" / "README.md").read_text()
    front = text.split("---\n")[1]
    yaml = pytest.importorskip("yaml")
    facts = yaml.safe_load(front)
    assert facts["library_name"] == "umpteen"
    assert facts["pipeline_tag"] == "text-classification"
    assert facts["language"] == ["en"]
    assert facts["license"] == "mit"
    found = {one["name"]: one["value"] for one in facts["model-index"][0]["results"][0]["metrics"]}
    assert found["P@1"] == round(metrics["P@1"], 4)
    body = text.split("---\n", 2)[2]
    for secret in (*TEXTS, "red <b>", "green|", "yellow"):
        assert secret not in text
    assert "<script>" not in body.replace("`fruit ¦ <script>`", "")
    assert "linear.cost" in text
    assert "training rows | 6" in text
    assert umpteen.load(tmp_path / "m").recipe == "xr-linear"  # the card is no part of the model


def test_a_card_is_written_again_but_not_over_ones_own(model, tmp_path):
    folder = tmp_path / "m"
    model.save_pretrained(folder)
    model.save_pretrained(folder, license="mit")
    assert 'license: "mit"' in (folder / "README.md").read_text()
    (folder / "README.md").write_text("My words.")
    model.save_pretrained(folder)
    assert (folder / "README.md").read_text() == "My words."


def test_values_of_a_stranger_are_escaped_in_a_card(model, monkeypatch):
    name = "x`\n| <img src=x> | ![](y)"
    about = model.describe() | {"encoder": name, "settings": {"linear.cost": 2.0}}
    monkeypatch.setattr(type(model), "describe", lambda self: about)
    text = card(model, CardFacts(repo_id="org/name"))
    line = next(line for line in text.splitlines() if line.startswith("Encoder"))
    assert line == "Encoder: `x'\\n¦ <img src=x> ¦ ![](y)`."  # in backticks nothing of it is Markdown
    assert 'umpteen.load("hf://org/name")' in text


def test_folders_of_the_author_are_not_in_a_card(model, monkeypatch):
    about = model.describe() | {"encoder": "/home/author/secret/bert"}
    monkeypatch.setattr(type(model), "describe", lambda self: about)
    text = card(model, CardFacts())
    assert "author" not in text
    assert "`bert`" in text


@pytest.mark.parametrize("facts", [{"language": "en\nx: y"}, {"license": "a b"}, {"language": ["en", ""]}])
def test_languages_and_licences_are_tags(facts):
    with pytest.raises(BadInput, match="is a tag such as"):
        CardFacts(**facts)


def test_learning_curves_are_plotted(model, tmp_path):
    pytest.importorskip("matplotlib")
    records = [{"stage": "training", "step": n, "epoch": n / 10, "loss": 1 / n, "seconds": n} for n in (1, 2, 3)]
    with_curves = umpteen.XRLinear(threads=1).fit(TEXTS, LABELS)
    with_curves.history_ = records
    with_curves.save_pretrained(tmp_path / "m")
    assert (tmp_path / "m" / "history.png").read_bytes().startswith(b"\x89PNG")
    assert "(history.png)" in (tmp_path / "m" / "README.md").read_text()
    (tmp_path / "m" / "README.md").unlink()
    (tmp_path / "m" / "history.png").write_bytes(b"mine")
    with_curves.save_pretrained(tmp_path / "m")
    assert (tmp_path / "m" / "history.png").read_bytes() == b"mine"
    assert "(history.png)" not in (tmp_path / "m" / "README.md").read_text()


def test_without_the_package_the_error_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"umpteen\[hub\]"):
        umpteen.load("hf://org/name")
    with pytest.raises(BadModelFile, match=r"does not exist.*umpteen\[hub\]"):
        umpteen.load("org/name")
    with pytest.raises(MissingExtra, match=r"umpteen\[hub\]"):
        model.push_to_hub("org/name")


# The command


def test_the_command(model, tmp_path):
    """Push and use a model with the environment alone, as in a shell."""
    model.save(tmp_path / "fruit")
    (tmp_path / "test.txt").write_text("\n".join(TEXTS) + "\n")
    with serve() as server:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        environment.pop("HF_HUB_OFFLINE", None)

        def run(*args: str, code: int = 0) -> str:
            command = [sys.executable, "-m", "umpteen", *args]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == code, done.stderr
            return done.stdout + done.stderr

        assert f"{server.url}/org/fruit/commit/" in run("push", "fruit", "org/fruit", "--private", "--license", "mit")
        assert server.repositories["org/fruit"].is_private
        answers = run("predict", "hf://org/fruit", "test.txt", "-k", "1", "-q")
        assert answers == run("predict", "fruit", "test.txt", "-k", "1", "-q")
        assert "xr-linear" in run("info", "org/fruit")
        assert "not changed there" in run("tune", "org/fruit", "demo", code=1)
        run("card", "fruit", "--language", "en")
        assert 'language: ["en"]' in (tmp_path / "fruit" / "README.md").read_text()
