"""Shared data: a small corpus whose structure is known, and a tiny encoder with random weights."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.tree import LabelTree

os.environ["UMPTEEN_COMPILE_AHEAD"] = "0"  # tests run side by side already

N_TOPICS, LABELS_PER_TOPIC, WORDS_PER_LABEL, WORDS_PER_TOPIC = 6, 10, 3, 5


class Tiny(NamedTuple):
    """Texts about one topic each; a label belongs to one topic and has words of its own."""

    texts: list[str]
    X: sp.csr_matrix  # (texts, words), rows of length one
    Y: sp.csr_matrix  # (texts, labels)
    label_names: list[str]
    topic_of: np.ndarray  # topic of each label
    tree: LabelTree  # topics above labels


def make_tiny(n_texts: int = 200, seed: int = 0) -> Tiny:
    """Make the corpus: labels are scattered over topics, so that their numbers tell nothing."""
    rng = np.random.default_rng(seed)
    n_labels = N_TOPICS * LABELS_PER_TOPIC
    topic_of = rng.permutation(np.repeat(np.arange(N_TOPICS), LABELS_PER_TOPIC))
    words = [f"topic{t}word{w}" for t in range(N_TOPICS) for w in range(WORDS_PER_TOPIC)]
    words += [f"label{label}word{w}" for label in range(n_labels) for w in range(WORDS_PER_LABEL)]
    counts = np.zeros((n_texts, len(words)), np.float32)
    targets = np.zeros((n_texts, n_labels), np.float32)
    for i in range(n_texts):
        topic = i % N_TOPICS
        mine = rng.choice(np.flatnonzero(topic_of == topic), 1 + i % 3, replace=False)
        targets[i, mine] = 1
        first = N_TOPICS * WORDS_PER_TOPIC + mine[:, None] * WORDS_PER_LABEL + np.arange(WORDS_PER_LABEL)
        counts[i, first.ravel()] = 1
        counts[i, topic * WORDS_PER_TOPIC + rng.choice(WORDS_PER_TOPIC, 3, replace=False)] = 1
    texts = [" ".join(words[w] for w in np.flatnonzero(row)) for row in counts]
    X = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    tree = LabelTree.from_groups([np.flatnonzero(topic_of == t).tolist() for t in range(N_TOPICS)])
    names = [f"label {label} of topic {topic}" for label, topic in enumerate(topic_of)]
    return Tiny(texts, sp.csr_matrix(X), sp.csr_matrix(targets), names, topic_of, tree)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """200 texts, 60 labels in 6 topics."""
    return make_tiny()


# Words of the corpora in tests/neural and tests/contract; anything else is spelled letter by letter.
_WORDS = {"word": 20, "topic": 6, "noise": 200}
_KEYWORDS = [f"key{label}x{part}" for label in range(60) for part in range(3)]


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a tiny encoder in Hugging Face layout."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return make_encoder(tmp_path_factory.mktemp("encoder"))


def make_encoder(folder: Path) -> Path:
    """Save a two-layer BERT with random weights and a tokenizer of words and letters in a folder, and return it."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.set_num_threads(1)  # threads that wait for each other on a busy machine are far slower than one
    letters = [*string.ascii_letters, *string.digits]
    words = [f"{kind}{i}" for kind, n in _WORDS.items() for i in range(n)] + _KEYWORDS
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(known), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder
