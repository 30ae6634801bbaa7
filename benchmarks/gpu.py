"""Measure XR-Transformer on a GPU: ``python -m benchmarks.gpu rates`` and ``… data FOLDER --encoder FOLDER``.

``rates`` compares the training loop with the matrix rate of the same GPU and with the loop of ``transformers``.
``data`` trains on a dataset from raw text and prints the time of every stage, memory and quality.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import transformers
from tokenizers import Tokenizer, models

import umpteen
from benchmarks.calibration import decide
from umpteen.config import EncoderConfig
from umpteen.data.tokens import Tokens
from umpteen.models import create
from umpteen.neural.encoder import Encoder
from umpteen.neural.resolutions import Finetuning
from umpteen.tree import LabelTree

SHAPES = {  # layers, width, heads, tokens, texts a step
    "bert-base, 128 tokens": (12, 768, 12, 128, 256),
    "bert-base, 512 tokens": (12, 768, 12, 512, 64),
    "12 x 384, 128 tokens": (12, 384, 12, 128, 64),
    "12 x 384, 512 tokens": (12, 384, 12, 512, 64),
}
N_LABELS = 1_000


class NoTokenizer:
    """Stands in for a tokenizer: the tokens of these texts are drawn at random."""

    pad_token_id, cls_token_id = 0, 1

    @property
    def backend_tokenizer(self) -> Any:
        return Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    rates = commands.add_parser("rates")
    rates.add_argument("--steps", type=int, default=150)
    rates.add_argument("--compile", default="auto")
    rates.add_argument("--record", default=True, action=argparse.BooleanOptionalAction)
    data = commands.add_parser("data")
    data.add_argument("folder", type=Path)
    data.add_argument("--encoder", required=True)
    data.add_argument("--splits", default="test")
    data.add_argument("--rows", type=int)
    data.add_argument("--test-rows", type=int)
    data.add_argument("--config", type=Path, help="a JSON file of settings")
    data.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    data.add_argument("--json", type=Path)
    data.add_argument("--save", type=Path, help="keep the model in this folder")
    options = parser.parse_args(arguments)
    if options.command == "rates":
        show_rates(options.steps, compile_=options.compile, record=options.record)
    else:
        show_data(options)


# Rates


def show_rates(n_steps: int, *, compile_: str, record: bool) -> None:
    """Print the rates of training and encoding for a few shapes."""
    peak = matrix_rate()
    print(f"bf16 matrix product: {peak / 1e12:.0f} TFLOP/s ({torch.cuda.get_device_name()})", flush=True)
    print(
        "| shape | training, tokens/s | TFLOP/s | share | encoding, tokens/s | memory GB |\n|---|---|---|---|---|---|"
    )
    for name, shape in SHAPES.items():
        row = loop_rate(*shape, n_steps=n_steps, compile_=compile_, record=record)
        share = row["flops"] / peak
        print(
            f"| {name} | {row['tokens'] / 1e6:.2f} M | {row['flops'] / 1e12:.0f} | {share:.0%} | "
            f"{row['encoding'] / 1e6:.2f} M | {row['memory']:.1f} |",
            flush=True,
        )
    shape = SHAPES["12 x 384, 128 tokens"]
    ours, theirs = (
        loop_rate(*shape, n_steps=n_steps, compile_=compile_, record=record)["tokens"],
        trainer_rate(*shape, n_steps=n_steps),
    )
    print(f"12 x 384 at 128 tokens, 64 texts a step: {ours / 1e6:.2f} M tokens/s, transformers' Trainer "
          f"{theirs / 1e6:.2f} M: {ours / theirs:.1f} times as fast", flush=True)  # fmt: skip


def matrix_rate(size: int = 8_192) -> float:
    """Return the FLOP/s of a large bf16 matrix product on random data."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    begun = now()
    for _ in range(20):
        a @ b
    return 20 * 2 * size**3 / (now() - begun)


def loop_rate(
    layers: int, width: int, heads: int, length: int, batch: int, *, n_steps: int, compile_: str, record: bool
) -> dict[str, float]:
    """Fine-tune an encoder of random weights on random texts; return its rates once it is under way."""
    has_gpu = torch.cuda.is_available()  # tests run the loop without one
    if has_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    model = random_bert(layers, width, heads)
    encoder = Encoder(model, NoTokenizer(), EncoderConfig(max_length=length, compile=compile_))
    n_texts = 8 * batch
    rng = np.random.default_rng(0)
    tokens = Tokens(np.arange(n_texts + 1) * length, rng.integers(2, 30_000, n_texts * length).astype(np.int32))
    Y = sp.random(n_texts, N_LABELS, 0.005, format="csr", random_state=0, dtype=np.float32)
    marks: list[tuple[int, float]] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("fine-tuning"):
            marks.append((done, now()))

    settings = {
        "training.epochs": n_steps / 8, "training.batch_size": batch, "training.learning_rate": 1e-4,
        "training.init": "random",
        "training.negatives": "all", "training.cuda_graphs": record, "training.validation_fraction": 0.0,
        "training.length_warmup": 0.0,
    }  # fmt: skip
    config = create("xr-transformer", settings).config
    Finetuning(encoder, LabelTree.flat(N_LABELS), config).train(tokens, Y, progress=progress)
    (first, begun), (last, ended) = marks[1], marks[-1]
    rate = (last - first) * batch * length / (ended - begun)
    encoder.embed(tokens)
    begun = now()
    encoder.embed(tokens)
    per_token = 3 * layers * (2 * 12 * width * width + 4 * length * width)
    return {
        "tokens": rate,
        "flops": rate * per_token,
        "encoding": n_texts * length / (now() - begun),
        "memory": torch.cuda.max_memory_allocated() / 1e9 if has_gpu else 0.0,
    }


def trainer_rate(layers: int, width: int, heads: int, length: int, batch: int, *, n_steps: int) -> float:
    """Return the tokens per second of ``transformers.Trainer`` on the same work, in bf16."""
    config = _config(layers, width, heads, num_labels=N_LABELS, problem_type="multi_label_classification")
    model = transformers.BertForSequenceClassification(config)
    rng = np.random.default_rng(0)
    rows = [
        {
            "input_ids": torch.from_numpy(rng.integers(2, 30_000, length)),
            "labels": torch.from_numpy((rng.random(N_LABELS) < 0.005).astype(np.float32)),
        }
        for _ in range(8 * batch)
    ]
    times: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (20, n_steps):
                times.append(now())

    arguments = transformers.TrainingArguments(
        output_dir="/tmp/umpteen-trainer", per_device_train_batch_size=batch, max_steps=n_steps, bf16=True,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_num_workers=2,
    )  # fmt: skip
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Clock()]).train()
    return (n_steps - 20) * batch * length / (times[1] - times[0])


def _config(layers: int, width: int, heads: int, **more: Any) -> Any:
    return transformers.BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width, **more
    )


def random_bert(layers: int, width: int, heads: int) -> Any:
    """Return an encoder of random weights."""
    return transformers.BertModel(_config(layers, width, heads), add_pooling_layer=False)


def now() -> float:
    """Return the time at which the device has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


# A dataset


class Stages:
    """Collect the time of every stage that a long job reports."""

    def __init__(self) -> None:
        self.begun = self.before = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.before
        self.before = now

    def mark(self, stage: str) -> None:
        """End a stage that reports nothing itself."""
        self(stage, 1, 1)


def show_data(options: argparse.Namespace) -> None:
    """Train on a dataset from raw text and print stages and quality."""
    settings = json.loads(options.config.read_text()) if options.config else {}
    settings |= dict(pair.split("=", 1) for pair in options.set)
    model = create("xr-transformer", {"encoder.name": options.encoder, **settings})
    stages = Stages()
    train = umpteen.read(options.folder, "train", n_rows=options.rows)
    stages.mark("reading")
    model.fit(train.texts, train.Y, label_names=train.labels, progress=stages)
    stages.mark("packing")
    total = time.perf_counter() - stages.begun
    for stage, seconds in stages.seconds.items():
        if seconds >= 0.05:
            print(f"{stage:45} {seconds:8.1f} s", flush=True)
    for step in model.training_:
        rate = step.tokens / max(step.seconds, 1e-9) / 1e6
        print(f"{step.nodes:,} nodes: {step.steps:,} steps, {rate:.2f} M tokens/s", flush=True)
    chosen = model.config_
    print(f"fusion {chosen.fusion}, {chosen.encoder.max_length} tokens, {chosen.training.epochs} epochs, "
          f"{chosen.training.batch_size} texts per step, C {chosen.linear.cost}", flush=True)  # fmt: skip
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    if options.save:
        model.save(options.save)
    print(f"{'all, from raw text to a trained model':45} {total:8.1f} s; GPU memory {memory:.1f} GB", flush=True)
    record = {"stages": stages.seconds, "seconds": total, "gpu_memory_gb": memory, "settings": settings}
    for split in options.splits.split(","):
        test = umpteen.read(options.folder, split, labels=model.labels_, n_rows=options.test_rows)
        begun = time.perf_counter()
        figures = model.evaluate(test.texts, test.Y)
        record[split] = figures | {"texts_per_s": len(test.texts) / (time.perf_counter() - begun)}
        shown = ("P@1", "P@3", "P@5", "RP@5", "nDCG@5", "texts_per_s")
        print(split, {key: round(record[split][key], 2) for key in shown}, flush=True)
        error, stored, best, nothing = decide(model, test)
        record[split] |= {"ECE@5": error, "micro-F1": stored, "best micro-F1": best, "without a label": nothing}
        print(f"{split}: ECE@5 {error:.4f}, micro-F1 {stored:.2f} at the stored threshold, {best:.2f} at the best one, "
              f"{nothing:.1f} % of the texts without a label", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
