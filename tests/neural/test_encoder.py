"""Encoders: tokens, batches, pooling, embeddings, and what can be wrong with one."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.utils import counters

from umpteen.config import EncoderConfig
from umpteen.data import tokens as tokens_module
from umpteen.data.locate import locate
from umpteen.data.tokens import Tokens, by_budget, training_batches
from umpteen.errors import BadConfig, BadInput, OutOfMemory
from umpteen.models import create
from umpteen.models.lazy_neural import load_encoder
from umpteen.neural import encoder as encoder_module
from umpteen.neural.compilation import compile_ahead
from umpteen.neural.encoder import Encoder, FlatTokens, explained_memory, on_threads, pick_device


def load(folder: Path, **settings: Any) -> Encoder:
    return Encoder.load(EncoderConfig(**{"name": str(folder), "max_length": 16, "device": "cpu"} | settings))


def with_pooling(encoder_folder: Path, tmp_path: Path, facts: dict[str, Any] | None) -> Path:
    """Return a copy of the encoder with the file of sentence-transformers that says how it is pooled."""
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    if facts is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(facts))
    return folder


def test_a_layer_is_compiled_into_one_graph(encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that ``transformers`` installs to record the output of attention would divide it."""
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", functools.partialmethod(compiled, backend="eager"))
    plain, encoder = load(encoder_folder), load(encoder_folder, compile="on")
    ids, mask = torch.full((2, 8), 5), torch.ones((2, 8), dtype=torch.bool)
    counters.clear()
    torch._dynamo.reset()
    with torch.inference_mode():
        found = encoder.states(ids, mask)
        for one, other in zip(found, plain.states(ids, mask), strict=True):
            torch.testing.assert_close(one, other)
    assert len(found) == encoder.n_layers + 1
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("windows", [1, 2])
def test_what_is_compiled_ahead_serves_training(
    encoder_folder: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", functools.partialmethod(compiled, backend="eager"))
    encoder = load(encoder_folder, compile="on", windows=windows)
    before = {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    counters.clear()
    torch._dynamo.reset()
    torch.manual_seed(3)
    compile_ahead(encoder)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert drawn == torch.rand(1)
    assert not encoder.model.training
    assert all(parameter.grad is None for parameter in encoder.model.parameters())
    for name, tensor in encoder.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    n_compiled = counters["stats"]["unique_graphs"]
    assert n_compiled == 4  # with and without gradients and padding
    for n_texts, length in ((3, 8), (5, 16), (2, 16 * windows)):
        ids, mask = torch.full((n_texts, length), 5), torch.ones((n_texts, length), dtype=torch.bool)
        mask[0, 4:] = False
        for some in (mask, None):
            encoder.model.train()
            encoder(ids, some).sum().backward()
            encoder.model.eval()
            with torch.inference_mode():
                encoder(ids, some)
    assert counters["stats"]["unique_graphs"] == n_compiled


def test_nothing_is_compiled_ahead_where_layers_are_not_compiled(encoder_folder: Path) -> None:
    encoder = load(encoder_folder)
    counters.clear()
    compile_ahead(encoder)
    assert not counters


# Tokens


def test_texts_are_cut_at_the_limit_with_their_special_tokens(encoder: Encoder) -> None:
    tokens = encoder.tokenize(["word1 word2", "", " ".join(["noise1"] * 100)])
    assert tokens.lengths.tolist() == [4, 2, 16]
    assert tokens.ids[:1].tolist() == [2]
    assert tokens.ids[tokens.ptr[3] - 1] == 3


@pytest.mark.parametrize("text", ["noise1 " * 500, "noise1" * 400, "word1 " + "x" * 2_000 + " word2", "a\tb\n" * 90])
def test_a_text_that_is_cut_first_has_the_same_tokens(encoder: Encoder, text: str) -> None:
    tokenizer = encoder.tokenizer.backend_tokenizer
    tokenizer.enable_truncation(16)
    assert encoder.tokenize([text]).ids.tolist() == tokenizer.encode(text).ids


def test_half_a_character_does_not_stop_the_others(encoder: Encoder) -> None:
    tokens = encoder.tokenize(["word1 \ud83d", "word2"])
    assert len(tokens) == 2
    alone = encoder.tokenize(["word2"])
    np.testing.assert_array_equal(tokens.take(np.array([1])).ids, alone.ids)


def test_some_rows_of_tokens() -> None:
    tokens = Tokens.of([[1, 2], [], [3], [4, 5, 6]])
    some = tokens.take(np.array([3, 1, 0]))
    assert some.ids.tolist() == [4, 5, 6, 1, 2]
    assert some.lengths.tolist() == [3, 0, 2]


@given(st.lists(st.lists(st.integers(1, 9), max_size=7), max_size=12), st.integers(1, 5), st.data())
def test_tokens_are_copied_in_blocks(lists: list[list[int]], limit: int, data: Any) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=9)) if lists else [], np.int64)
    tokens = Tokens.of(lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_COPIED_AT_ONCE", 2)
        some, cut = tokens.take(rows), tokens.truncated(limit)
    assert [part.tolist() for part in np.split(some.ids, some.ptr[1:-1])][: len(rows)] == [lists[i] for i in rows]
    expected = [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in lists]
    assert [part.tolist() for part in np.split(cut.ids, cut.ptr[1:-1])][: len(lists)] == expected
    joined = Tokens.joined([tokens, some])
    assert joined.ids.tolist() == [*tokens.ids.tolist(), *some.ids.tolist()]
    assert joined.lengths.tolist() == [*tokens.lengths.tolist(), *some.lengths.tolist()]


lengths_of = st.lists(st.integers(0, 50), max_size=60).map(lambda lengths: np.array(lengths, np.int64))


@settings(max_examples=60, deadline=None)
@given(lengths_of, st.integers(1, 200))
def test_batches_by_budget_hold_every_text_once(lengths: np.ndarray, budget: int) -> None:
    batches = list(by_budget(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget or lengths[batch].max() <= 1


@settings(max_examples=60, deadline=None)
@given(lengths_of, st.integers(1, 9))
def test_training_batches_hold_every_text_once(lengths: np.ndarray, size: int) -> None:
    batches = list(training_batches(lengths, size, np.random.default_rng(0)))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)


@settings(max_examples=60, deadline=None)
@given(lengths_of, st.integers(1, 200))
def test_what_is_cut_for_memory_fits_when_it_is_padded(lengths: np.ndarray, budget: int) -> None:
    flat = FlatTokens(Tokens.of([[1] * n for n in lengths]), torch.device("cpu"), pad=0)
    rows = np.arange(len(lengths))[::2]
    batches = list(flat.cut(rows, budget))
    assert sorted(i for batch in batches for i in batch) == rows.tolist()
    assert all(len(batch) == 1 or flat.batch(batch).ids.numel() <= budget for batch in batches)


def test_no_text_is_padded_beyond_what_an_encoder_can_read() -> None:
    flat = FlatTokens(Tokens.of([[1] * 37, [1] * 3]), torch.device("cpu"), pad=0, longest=37)
    assert flat.batch(np.array([0])).ids.shape == (1, 37)
    assert flat.batch(np.array([1])).ids.shape == (1, 8)


def test_threads_are_what_they_were_when_all_have_left() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, second = on_threads(1), on_threads(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
        with on_threads(3):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_padded_batch_holds_its_tokens() -> None:
    flat = FlatTokens(Tokens.of([[5, 6, 7], [8], list(range(1, 9))]), torch.device("cpu"), pad=9)
    batch = flat.batch(np.array([0, 1]))
    assert batch.ids.tolist() == [[5, 6, 7, 9, 9, 9, 9, 9], [8, 9, 9, 9, 9, 9, 9, 9]]
    assert batch.mask.sum(dim=1).tolist() == [3, 1]
    assert flat.batch(np.array([2])).mask is None  # nothing to hide


def test_very_many_tokens_stay_off_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, rows = Tokens.of([[5, 6, 7], [8]]), np.array([1, 0])
    expected = FlatTokens(tokens, torch.device("cpu"), pad=9).batch(rows)
    monkeypatch.setattr(encoder_module, "_TOKENS_ON_DEVICE", 3)
    streamed = FlatTokens(tokens, torch.device("meta"), pad=9)
    assert streamed.ids.device.type == "cpu"
    batch = streamed.batch(rows)
    assert (batch.ids.device.type, batch.mask.device.type) == ("meta", "meta")
    assert (batch.ids.shape, batch.ids.dtype) == (expected.ids.shape, expected.ids.dtype)


# Embeddings


def states(encoder: Encoder, text: str) -> tuple[np.ndarray, ...]:
    ids = torch.from_numpy(encoder.tokenize([text]).ids[None].astype(np.int64))
    with torch.no_grad():
        found = encoder.model(input_ids=ids, output_hidden_states=True).hidden_states
    return tuple(state[0].numpy() for state in found)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", lambda s: s[2].mean(axis=0)),
        ("cls", lambda s: s[2][0]),
        ("cls@1", lambda s: s[1][0]),
        ("mean@0+2", lambda s: np.concatenate([s[0].mean(axis=0), s[2].mean(axis=0)])),
        ("last5", lambda s: np.concatenate([s[0][0], s[1][0], s[2][0]])),  # it has two layers and the embeddings
    ],
)
def test_every_pooling(encoder_folder: Path, pooling: str, expected: Any) -> None:
    encoder = load(encoder_folder, pooling=pooling)
    text = "word1 topic0 noise3"
    vector = expected(states(encoder, text))
    found = encoder.embed(encoder.tokenize([text, "word2 " * 9]))  # the longer one makes padding
    assert found.shape == (2, encoder.dim)
    np.testing.assert_allclose(found[0], vector / np.linalg.norm(vector), atol=1e-5)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (None, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
    ],
)
@pytest.mark.filterwarnings("error:the encoder")
def test_the_pooling_saved_with_an_encoder(
    encoder_folder: Path, tmp_path: Path, facts: dict[str, bool] | None, expected: str
) -> None:
    folder = with_pooling(encoder_folder, tmp_path, facts)
    encoder = load(folder)
    assert (encoder.config.pooling, encoder.pooling.kind) == (expected, expected)
    assert load(folder, pooling="mean").pooling.kind == "mean"  # a choice of one's own comes first
    assert encoder.twin().config.pooling == expected


@pytest.mark.parametrize(
    ("facts", "mode", "used"),
    [
        ({"pooling_mode_max_tokens": True}, "max", "mean"),
        ({"pooling_mode_lasttoken": True}, "lasttoken", "mean"),
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean", "mean"),
        ({"pooling_mode": "max", "pooling_mode_cls_token": True}, "max", "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls+mean", "mean"),
        ({"pooling_mode": ["cls", "max"]}, "cls+max", "cls"),
        ({"pooling_mode": "\x1b[2J" * 99}, r"\x1b[2J", "mean"),
    ],
)
def test_a_pooling_that_is_not_available_is_told(
    encoder_folder: Path, tmp_path: Path, facts: dict[str, Any], mode: str, used: str
) -> None:
    folder = with_pooling(encoder_folder, tmp_path, facts)
    with pytest.warns(UserWarning, match=r"choose encoder\.pooling: mean, cls or last5") as found:
        assert load(folder).config.pooling == used
    (message,) = [str(one.message) for one in found]
    assert f"was trained with the pooling '{mode}" in message
    assert f"is used with '{used}'" in message
    assert message.isprintable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(folder, pooling="mean")
        Encoder.load(EncoderConfig(name=str(folder), max_length=16, device="cpu"), is_pooled=False)


@pytest.mark.parametrize("recipe", ["lightxml", "attentionxml"])
def test_a_pooling_that_is_not_used_is_not_told(encoder_folder: Path, tmp_path: Path, recipe: str) -> None:
    folder = with_pooling(encoder_folder, tmp_path, {"pooling_mode_lasttoken": True})
    settings = {"encoder.name": str(folder), "encoder.max_length": 16, "encoder.device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_encoder(create(recipe, settings).config)
    with pytest.warns(UserWarning, match="pooling 'lasttoken'"):
        load_encoder(create("cascadexml", settings).config)


@pytest.mark.parametrize("content", ["{", "[]", "x" * 100_000])
def test_a_damaged_file_of_pooling(encoder_folder: Path, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(content)
    with pytest.raises(BadInput, match=r"1_Pooling.config\.json"):
        load(folder)


def test_embeddings_do_not_depend_on_the_batch(encoder_folder: Path, corpus: Any) -> None:
    texts = corpus[0]
    many, few = load(encoder_folder), load(encoder_folder, batch_tokens=10)
    E = many.embed(many.tokenize(texts))
    np.testing.assert_allclose(few.embed(few.tokenize(texts)), E, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(E, axis=1), 1.0, atol=1e-5)


def test_a_text_without_words_has_an_embedding(encoder: Encoder) -> None:
    assert np.isfinite(encoder.embed(encoder.tokenize(["", "  "]))).all()
    assert encoder.embed(encoder.tokenize([])).shape == (0, 32)


def test_saved_files_give_the_same_embeddings(encoder: Encoder, tmp_path: Path, corpus: Any) -> None:
    for name, content in encoder.files().items():
        Path(tmp_path, name).write_bytes(content)
    again = load(tmp_path)
    texts = corpus[0][:20]
    np.testing.assert_array_equal(again.embed(again.tokenize(texts)), encoder.embed(encoder.tokenize(texts)))


# What can be wrong


def test_a_pooling_that_does_not_exist(encoder_folder: Path) -> None:
    with pytest.raises(BadConfig, match="must be auto, mean, cls, last5"):
        load(encoder_folder, pooling="max")
    with pytest.raises(BadConfig, match="names layer 7, but the encoder has 2 layers"):
        load(encoder_folder, pooling="cls@7")


def test_more_tokens_than_the_encoder_reads(encoder_folder: Path) -> None:
    with pytest.raises(BadConfig, match=r"encoder\.max_length is 64, but .* reads at most 40"):
        load(encoder_folder, max_length=64)


def test_an_encoder_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match=r"cannot be loaded.*Pass a folder, or be online once"):
        load(Path("no-such-organisation/no-such-model"))
    with pytest.raises(BadInput, match="is neither a folder nor a name on the hub"):
        load(tmp_path / "not" / "there")
    with pytest.raises(BadInput, match="is neither a folder nor a name on the hub"):
        locate("./not-there")
    with pytest.raises(BadInput, match=r"has no config\.json"):
        load(tmp_path)


def test_an_encoder_with_broken_weights(encoder_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(encoder_folder, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadInput, match="cannot be loaded"):
        load(folder)


def test_an_encoder_without_a_fast_tokenizer(encoder_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    import transformers

    slow = type("Slow", (), {"is_fast": False})()
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: slow)
    with pytest.raises(BadInput, match="has no fast tokenizer"):
        load(encoder_folder)


def test_a_gpu_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert pick_device("cuda") == torch.device("cuda")
    assert current == []
    assert pick_device("cuda:1") == torch.device("cuda:1") == current[0]
    with pytest.raises(BadConfig, match="is cuda:2, but torch finds no such device"):
        pick_device("cuda:2")
    for wrong in ("cuda:", "cuda:-1", "cpu:0", "gpu"):
        with pytest.raises(BadConfig, match="or a GPU by its number"):
            EncoderConfig(device=wrong)


def test_a_device_that_is_not_here(encoder_folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BadConfig, match="torch finds no such device"):
        load(encoder_folder, device="cuda")


def test_a_full_gpu_names_the_setting_to_lower() -> None:
    with pytest.raises(OutOfMemory, match=r"lower encoder\.batch_tokens"), explained_memory():
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_the_saved_folder_has_no_layer_that_was_never_trained(encoder: Encoder) -> None:
    assert "architectures" in json.loads(encoder.files()["config.json"])
    assert not any("pooler" in name for name in encoder.model.state_dict())


def test_a_length_that_is_left_open_is_that_of_the_device_and_no_more_than_is_read(encoder_folder: Path) -> None:
    assert load(encoder_folder, max_length=0).config.max_length == 40  # the encoder knows as many positions
    left_open = EncoderConfig(max_length=0)
    assert [left_open.with_length(device).max_length for device in ("cpu", "mps", "cuda")] == [128, 128, 256]
    assert EncoderConfig(max_length=77).with_length("cuda").max_length == 77


@given(st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=9), max_size=6), st.integers(1, 10))
def test_truncated_texts_keep_their_last_token(lists: list[list[int]], limit: int) -> None:
    expected = [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in lists]
    found = Tokens.of(lists).truncated(limit)
    assert [found.ids[a:b].tolist() for a, b in itertools.pairwise(found.ptr)] == expected
