"""Long texts in windows: how they are cut, padded, read and pooled, and recipes that read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

import umpteen
from umpteen.config import EncoderConfig
from umpteen.data.tokens import Tokens, set_limit, tokenize
from umpteen.errors import BadConfig
from umpteen.models import create
from umpteen.neural.encoder import Encoder, FlatTokens
from umpteen.neural.pooling import Pooling
from umpteen.neural.windows import split_windows

from .conftest import make_corpus, tiny
from .test_attention import KINDS

CLS, SEP = 2, 3
LENGTH = 16  # of a window, of which two are special tokens
POOLINGS = ("mean", "cls", "last5", "mean@0+2")


def load(folder: Path, **changes: Any) -> Encoder:
    return Encoder.load(EncoderConfig(**{"name": str(folder), "max_length": LENGTH, "device": "cpu"} | changes))


def words(n: int, first: int = 0) -> str:
    return " ".join(f"noise{number % 200}" for number in range(first, first + n))


# Cutting

WORDS = ["a", "bc", "def" * 5, "g" * 40]  # of few and of many characters
SPECIAL = [("[CLS]", CLS), ("[SEP]", SEP)]
PROCESSORS = {
    "plain": (None, [], []),
    "bert": (processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS)), [CLS], [SEP]),
    "template": (processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=SPECIAL), [CLS], [SEP]),
    "roberta": (processors.RobertaProcessing(("[SEP]", SEP), ("[CLS]", CLS)), [CLS], [SEP]),
    "xlnet": (processors.TemplateProcessing(single="$A [SEP] [CLS]", special_tokens=SPECIAL), [], [SEP, CLS]),
}


def tokenizer_with(processor: Any) -> Tokenizer:
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if processor is not None:
        tokenizer.post_processor = processor
    return tokenizer


def plain_windows(content: list[int], limit: int, windows: int, before: list[int], after: list[int]) -> list[int]:
    """Cut a text as the library does, in the plainest way."""
    room = limit - len(before) - len(after)
    parts = [content[first : first + room] for first in range(0, len(content), room)] or [[]]
    return [token for part in parts[:windows] for token in (*before, *part, *after)]


@pytest.mark.parametrize("kind", PROCESSORS)
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, len(WORDS) - 1), max_size=40), max_size=5),
    limit=st.integers(4, 9),
    windows=st.integers(1, 4),
)
def test_windows_are_those_of_the_twin(kind: str, texts: list[list[int]], limit: int, windows: int) -> None:
    processor, before, after = PROCESSORS[kind]
    tokenizer = tokenizer_with(processor)
    set_limit(tokenizer, limit)
    found = tokenize([" ".join(WORDS[word] for word in text) for text in texts], tokenizer, limit, windows=windows)
    expected = [plain_windows([word + 4 for word in text], limit, windows, before, after) for text in texts]
    assert [ids.tolist() for ids in np.split(found.ids, found.ptr[1:-1])][: len(texts)] == expected


@pytest.mark.parametrize(
    ("n_words", "length"), [(0, 2), (13, 15), (14, 16), (15, 19), (27, 31), (28, 32), (29, 32), (999, 32)]
)
def test_two_windows_at_their_boundaries(encoder_folder: Path, n_words: int, length: int) -> None:
    tokens = load(encoder_folder, windows=2).tokenize([words(n_words)])
    assert tokens.lengths.tolist() == [length]
    starts = tokens.ids[::LENGTH].tolist()
    assert starts == [CLS] * (1 if length <= LENGTH else 2)
    assert (tokens.ids == SEP).sum() == len(starts)
    assert tokens.ids[-1] == SEP


@pytest.mark.parametrize("text", ["noise1 " * 500, "noise1" * 400, "word1 " + "x" * 2_000 + " word2", "a\tb\n" * 90])
def test_a_text_that_is_cut_first_has_the_same_windows(encoder_folder: Path, text: str) -> None:
    encoder = load(encoder_folder, windows=3)
    whole = encoder.tokenizer.backend_tokenizer.encode(text)
    expected = [token for part in (whole, *whole.overflowing[:2]) for token in part.ids]
    assert encoder.tokenize([text]).ids.tolist() == expected


def test_many_texts_are_cut_in_blocks(encoder_folder: Path) -> None:
    encoder = load(encoder_folder, windows=100)  # 64 texts at a time
    texts = [words(number) for number in range(150)]
    tokens = encoder.tokenize(texts)
    for row in (0, 63, 64, 149):
        one = encoder.tokenize([texts[row]])
        np.testing.assert_array_equal(tokens.take(np.array([row])).ids, one.ids)


# Padding


def test_longer_texts_are_padded_to_whole_windows() -> None:
    lengths = [3, 10, 12, 13, 24, 25]
    flat = FlatTokens(Tokens.of([[1] * n for n in lengths]), torch.device("cpu"), pad=0, longest=40, window=12)
    widths = [flat.batch(np.array([row])).ids.shape[1] for row in range(len(lengths))]
    assert widths == [8, 12, 12, 24, 24, 36]
    assert flat.batch(np.array([2])).mask is None
    assert flat.batch(np.array([4])).mask is None
    assert flat.batch(np.array([2, 4])).mask.sum(dim=1).tolist() == [12, 24]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200), st.integers(4, 20))
def test_windows_that_are_cut_for_memory_fit_when_they_are_padded(lengths: list[int], budget: int, window: int) -> None:
    flat = FlatTokens(Tokens.of([[1] * n for n in lengths]), torch.device("cpu"), pad=0, window=window)
    batches = list(flat.cut(np.arange(len(lengths)), budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        ids = flat.batch(batch).ids
        assert len(batch) == 1 or ids.numel() <= budget
        assert ids.shape[1] <= window or ids.shape[1] % window == 0


# Embeddings


def vector_of(encoder: Encoder, ids: Sequence[int]) -> torch.Tensor:
    """Return the pooled vector of one window, before it is scaled to length one."""
    with torch.no_grad():
        return encoder(torch.tensor([list(ids)]), None)[0]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_of_one_window_has_the_same_embedding(encoder_folder: Path, pooling: str) -> None:
    one, two = (load(encoder_folder, pooling=pooling, windows=windows) for windows in (1, 2))
    texts = [words(n, n) for n in (0, 3, 13, 14)]
    expected = one.embed(one.tokenize(texts))
    np.testing.assert_array_equal(two.embed(two.tokenize(texts)), expected)
    beside = two.embed(two.tokenize([*texts, words(28)]))  # a window that is all padding
    np.testing.assert_allclose(beside[:-1], expected, atol=1e-5)


@pytest.mark.parametrize("has_cls", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_windows_are_read_apart_and_averaged(encoder_folder: Path, pooling: str, has_cls: bool) -> None:
    one, three = (load(encoder_folder, pooling=pooling, windows=windows) for windows in (1, 3))
    if not has_cls:
        one.pooling, three.pooling = (replace(encoder.pooling, cls=None) for encoder in (one, three))
    tokens = three.tokenize([words(20), words(42, 5), words(100, 9)])
    found = three.embed(tokens)
    for row in range(len(tokens)):
        ids = tokens.take(np.array([row])).ids
        parts = [ids[first : first + LENGTH] for first in range(0, len(ids), LENGTH)]
        weights = [len(part) if pooling.startswith("mean") else 1 for part in parts]
        vectors = [vector_of(one, part.tolist()) for part in parts]
        expected = sum(weight * vector for weight, vector in zip(weights, vectors, strict=True)) / sum(weights)
        np.testing.assert_allclose(found[row], F.normalize(expected, dim=0), atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_embeddings_of_windows_do_not_depend_on_the_batch(encoder_folder: Path, pooling: str) -> None:
    many, few = (load(encoder_folder, pooling=pooling, windows=4, batch_tokens=n) for n in (0, 5))
    texts = [words(n, n) for n in (0, 1, 13, 14, 15, 28, 29, 42, 55, 56, 57, 200)]
    expected = np.concatenate([few.embed(few.tokenize([text])) for text in texts])
    for encoder in (many, few):
        found = encoder.embed(encoder.tokenize(texts))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_attention_sees_a_token_in_every_window() -> None:
    """A kernel may answer NaN where it sees none."""
    ids = torch.arange(16).reshape(2, 8)
    mask = torch.arange(8) < torch.tensor([[3], [6]])
    windows, visible = split_windows(ids, mask, 2)
    assert windows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert visible.int().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert mask.sum(dim=1).tolist() == [3, 6]  # which pooling goes by
    assert split_windows(ids, None, 2)[1] is None


@pytest.mark.parametrize("pooling", POOLINGS)
def test_windows_of_padding_have_no_gradient_that_is_nan(encoder_folder: Path, pooling: str) -> None:
    encoder = load(encoder_folder, pooling=pooling, windows=3)
    batch = encoder.flat(encoder.tokenize([words(3), words(20), words(42)])).batch(np.arange(3))
    assert batch.ids.shape == (3, 3 * LENGTH)
    encoder(*batch).sum().backward()
    gradients = [parameter.grad for parameter in encoder.model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 90}


@pytest.mark.parametrize("kind", [*KINDS, "roberta", "xlnet"])
def test_every_kind_of_encoder_reads_windows_apart(kind: str, encoder: Encoder) -> None:
    torch.manual_seed(0)
    facts = {"roberta": KINDS["bert"], "xlnet": XLNET} | KINDS
    model = AutoModel.from_config(AutoConfig.for_model(kind, **facts[kind]))
    config = EncoderConfig(max_length=8, windows=3, device="cpu")
    read = Encoder(model, encoder.tokenizer, config)
    lengths = [3, 8, 13, 24]
    ids = [torch.randint(3, 90, (length,)) for length in lengths]
    with torch.no_grad():
        found = read(*read.flat(Tokens.of([one.tolist() for one in ids])).batch(np.arange(len(ids))))
        for row, one in enumerate(ids):
            states = torch.cat([model(input_ids=part[None])[0][0] for part in one.split(8)])
            torch.testing.assert_close(found[row], states.mean(dim=0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cls", [CLS, None])
def test_first_tokens_are_averaged_wherever_they_are(cls: int | None) -> None:
    """In some tokenizers the token that stands for a text is the last one."""
    n_windows, lengths = 3, [2, 4, 7, 12]
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(len(lengths), n_windows * 4, 5, generator=generator)
    mask = torch.arange(n_windows * 4) < torch.tensor(lengths)[:, None]
    ids, expected = torch.full(mask.shape, 9), []
    for row, length in enumerate(lengths):
        ends = [min(first + 4, length) - 1 for first in range(0, length, 4)]
        ids[row, ends] = CLS
        chosen = ends if cls is not None else range(0, length, 4)
        expected.append(torch.stack([state[row, at] for at in chosen]).mean(dim=0))
    found = Pooling("cls", (1,), True, cls)((state,), ids, mask, n_windows)
    torch.testing.assert_close(found, torch.stack(expected))


def test_the_limit_of_an_encoder_is_that_of_a_window(encoder_folder: Path) -> None:
    encoder = load(encoder_folder, max_length=40, windows=5)  # it reads 40 tokens
    tokens = encoder.tokenize([words(500)])
    assert tokens.lengths.tolist() == [200]
    assert np.isfinite(encoder.embed(tokens)).all()
    with pytest.raises(BadConfig, match=r"encoder\.max_length is 41, but .* reads at most 40"):
        load(encoder_folder, max_length=41, windows=5)
    with pytest.raises(BadConfig, match="windows must be at least 1, but is 0"):
        load(encoder_folder, windows=0)


# Recipes

SETTINGS = {"training.epochs": 2.0, "training.batch_size": 16, "network.hidden": 8, "encoder.windows": 2}


def late_corpus(n: int) -> tuple[list[str], list[list[str]]]:
    """Write texts whose telling words come after the first window."""
    texts, lists, _ = make_corpus(n)
    return [f"{words(14, row)} {text}" for row, text in enumerate(texts)], lists


@pytest.mark.parametrize(
    "recipe", ["xr-transformer", "lightxml", "full", "cascadexml-dismec", "attentionxml", "xml-cnn"]
)
def test_recipes_read_windows(recipe: str, encoder_folder: Path, tmp_path: Path) -> None:
    texts, lists = late_corpus(60)
    model = create(recipe, tiny(encoder_folder) | SETTINGS).fit(texts, lists)
    top = model.topk(texts, 5)
    assert np.isfinite(top.scores).all()
    model.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    assert again.config_.encoder.windows == 2
    found = again.topk(texts, 5)
    np.testing.assert_array_equal(found.labels, top.labels)
    np.testing.assert_array_equal(found.scores, top.scores)


@pytest.mark.parametrize("recipe", ["full", "xml-cnn"])
def test_what_comes_late_is_learned(recipe: str, encoder_folder: Path) -> None:
    texts, lists = late_corpus(240)
    usual = {"training.epochs": 8.0, "training.batch_size": 16, "training.learning_rate": 3e-3}
    found = {}
    for windows in (1, 2):
        model = create(recipe, tiny(encoder_folder) | usual | {"encoder.windows": windows})
        found[windows] = model.fit(texts[:200], lists[:200]).evaluate(texts[200:], lists[200:])["P@1"]
    assert found[2] > found[1] + 25


def test_a_model_without_the_setting_reads_one_window(encoder_folder: Path, tmp_path: Path) -> None:
    texts, lists = late_corpus(40)
    model = create("full", tiny(encoder_folder) | SETTINGS | {"encoder.windows": 1}).fit(texts, lists)
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    document = json.loads(path.read_text())
    del document["settings"]["encoder"]["windows"]
    path.write_text(json.dumps(document))
    again = umpteen.load(tmp_path / "model")
    assert again.config_.encoder.windows == 1
    np.testing.assert_array_equal(again.topk(texts, 3).scores, model.topk(texts, 3).scores)
