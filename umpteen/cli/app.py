"""The commands and their flags. The other modules of this package are imported on use, so that ``--help`` is fast.

Exit codes: 0 success, 1 failure, 2 wrong usage, settings or input, 130 interrupted.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from umpteen import __version__
from umpteen.cli import streams
from umpteen.errors import BadConfig, BadInput, NotFitted, UmpteenError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class _Commands(TyperGroup):
    """Turn exceptions into an error message on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        ctx.meta["umpteen.debug"] = "--debug" in words or os.environ.get("UMPTEEN_DEBUG", "") not in ("", "0")
        kept = [word for word in words if word != "--debug"]  # accepted at any position
        return super().parse_args(ctx, kept + args[len(words) :])

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt as interrupt:
            _terminal().note(str(interrupt) or "Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            streams.discard(sys.stdout)
            raise typer.Exit(0) from None
        except (UmpteenError, OSError, MemoryError) as error:
            if ctx.meta["umpteen.debug"]:
                raise
            _terminal().error(_rank() + _message(error, ctx.invoked_subcommand))
            is_misuse = isinstance(error, (BadConfig, BadInput, NotFitted))
            raise typer.Exit(MISUSED if is_misuse else FAILED) from None


class _WithSettings(TyperCommand):
    """A command that accepts every setting as a flag: ``--tree.branching 16``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from umpteen.cli.options import spell_out

        own = {flag for param in self.params for flag in param.opts}
        return super().parse_args(ctx, spell_out(args, own | {"--help"}))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tag text with labels from a vocabulary of thousands to tens of millions.",
    epilog="Start with: umpteen demo",
)

Data = Annotated[str, typer.Argument(metavar="DATA", help="A folder or file of data, or demo.")]
ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The folder of a saved model, or org/name on the hub.")
]
OwnFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a saved model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random number generators.")]
Threads = Annotated[int | None, typer.Option(help="Number of threads; 0 means all cores.", min=0)]
Split = Annotated[str, typer.Option(metavar="NAME", help="Split of the data.")]
Rows = Annotated[int | None, typer.Option(help="Use the first rows only.", min=1)]
Encoder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Encoder, if the recipe has one: minilm, a name on the hub, or a folder."),
]
Device = Annotated[str | None, typer.Option(help="Where an encoder runs: auto, cpu, cuda, cuda:1 or mps.")]
Backend = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What an encoder runs on: torch, onnx or onnx-int8; see: umpteen export."),
]
Config = Annotated[Path | None, typer.Option(help="A JSON file of settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; see: umpteen settings. May be repeated."),
]
TextColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of the texts in a table, or its number with --no-header.")
]
LabelColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the labels in a table.")]
LabelSeparator = Annotated[str | None, typer.Option(metavar="TEXT", help="What separates labels, such as ; or |.")]
NoHeader = Annotated[bool, typer.Option("--no-header", help="A CSV or TSV file has no header; columns are 0, 1, …")]
Vocab = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Names of the labels by key: key<TAB>name, CSV of Annif, or SKOS.")
]
Language = Annotated[str | None, typer.Option(metavar="TAG", help="Language of the names in it, such as sv.")]

EngineName = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="What runs the work: local, processes or ray.")
]
Workers = Annotated[int, typer.Option(help="Number of processes; 0 means one for each core.", min=0)]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of a Ray cluster.")]

CardData = Annotated[
    str | None, typer.Option("--data", metavar="DATA", help="Evaluate the model on this data for its card.")
]
CardLanguage = Annotated[
    str | None, typer.Option("--language", metavar="TAG", help="Language of the texts, such as en.")
]
CardLicense = Annotated[
    str | None, typer.Option("--license", metavar="TAG", help="Licence of the model, such as apache-2.0.")
]


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"umpteen {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    pass


@app.command(cls=_WithSettings)
def train(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Folder to save the model in.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="See: umpteen recipes. Default: xr-linear. NAME*3 and NAME+NAME train an ensemble."),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="How the models of an ensemble are merged. Default: average.")
    ] = None,
    weights: Annotated[str | None, typer.Option(metavar="W,W", help="How much each model of it counts.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="The settings of the recipe's paper for a dataset, such as wiki10-31k.")
    ] = None,
    all_encoders: Annotated[
        bool, typer.Option("--all-encoders", help="Train the paper's ensemble: a model per encoder of the preset.")
    ] = False,
    encoder: Encoder = None,
    device: Device = None,
    config: Config = None,
    set_: Set = None,
    seed: Seed = None,
    threads: Threads = None,
    rows: Rows = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    vocab: Vocab = None,
    language: Language = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep finished stages here; the same command resumes.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bound the memory, such as 8GB: arrays are in files then.")
    ] = None,
    engine: EngineName = None,
    workers: Workers = 0,
    address: Address = None,
    storage: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of these files, shared by all nodes. Default: MODEL.stages."),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND:PATH", help="Log loss and precision: jsonl:FILE, tensorboard:DIR. May be repeated."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a model and save it. Settings may also be flags: --tree.branching 16."""
    from umpteen.cli.options import (
        check_all_encoders,
        check_language,
        collect,
        data_path,
        numbers,
        of_recipes,
        table_options,
    )
    from umpteen.cli.training import Resources, build
    from umpteen.cli.training import train as run

    check_language(vocab, language)
    direct = {"seed": seed, "threads": threads, "encoder.name": encoder, "encoder.device": device}
    common, own = of_recipes(set_ or [])
    recipe, settings = collect(config, common, recipe, preset=preset, **direct)
    if all_encoders:
        check_all_encoders(preset, recipe, settings)
    shares = None if weights is None else numbers(weights, float, "--weights")
    model = build(recipe, settings, own, rule=rule, weights=shares, preset=preset if all_encoders else None)
    given = {*settings, *(key for some in own.values() for key in some)}
    options = {"terminal": _terminal(quiet), "n_rows": rows, "checkpoint": checkpoint, "logs": log or []}
    options |= {"vocab": vocab, "language": language}
    options["columns"] = table_options(text_column, label_column, label_separator, no_header)
    options["resources"] = Resources.of(memory, engine, workers, threads or 0, address, storage)
    run(data_path(data), output, model, given, **options)


@app.command(cls=_WithSettings)
def plan(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A folder or file of data, or demo. Default: none yet.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="See: umpteen recipes.")] = "xr-linear",
    labels: Annotated[
        str | None, typer.Option(metavar="N", help="Plan for so many labels, such as 10M, of the same kind.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="N", help="Plan for so many rows, such as 100M, of the same kind.")
    ] = None,
    labels_per_row: Annotated[float, typer.Option(help="Labels of a row, if there is no DATA.")] = 4.0,
    features_per_row: Annotated[float, typer.Option(help="Features of a row, if there is no DATA.")] = 64.0,
    characters: Annotated[
        float | None, typer.Option(help="Rows are texts of so many characters, if there is no DATA.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of machines.", min=1)] = 1,
    cores: Annotated[int, typer.Option(help="Cores of each machine; 0 means those of this one.", min=0)] = 0,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Limit of memory, such as 8GB.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the rates of this machine, in a few seconds.")
    ] = False,
    encoder: Encoder = None,
    device: Device = None,
    config: Config = None,
    set_: Set = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print the time, memory and disk that a training would take, on one machine and on several."""
    from umpteen.cli.options import collect, data_path, table_options
    from umpteen.cli.planning import Rows, Wanted
    from umpteen.cli.planning import plan as run

    recipe, settings = collect(config, set_ or [], recipe, **{"encoder.name": encoder, "encoder.device": device})
    wanted = Wanted(labels, rows, nodes, cores, memory)
    kind = Rows(labels_per_row, features_per_row, characters)
    columns = table_options(text_column, label_column, label_separator, no_header)
    options = {"terminal": _terminal(quiet), "measure": measure, "as_json": as_json, "columns": columns}
    run(None if data is None else data_path(data), recipe, settings, wanted, kind, **options)


@app.command()
def predict(
    model: ModelFolder,
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts, one a line or JSON lines; a folder of .txt files; - is stdin.")
    ] = "-",
    k: Annotated[
        int | None,
        typer.Option("-k", help="Number of labels per text. Default: those that reach the threshold.", min=1),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Minimum probability of a label, instead of the model's threshold.")
    ] = None,
    as_json: AsJson = False,
    beam: Annotated[int | None, typer.Option(help="Nodes of the tree kept above the labels.", min=1)] = None,
    allowed: Annotated[Path | None, typer.Option(help="File of the labels to choose from, one a line.")] = None,
    whole_file: Annotated[
        bool, typer.Option("--whole-file", help="Take a file as one text, not a text per line.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write to a .parquet, .jsonl or .jsonl.gz file; resumable."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="With -o: column of a table that is copied to the output.")
    ] = None,
    block_rows: Annotated[
        int | None, typer.Option(metavar="N", help="With -o: rows that are predicted and kept at a time.", min=1)
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="With -o: what predicts: local, processes or ray.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="With -o: number of processes. Default: one per core.", min=1)
    ] = None,
    address: Address = None,
    text_column: TextColumn = None,
    no_header: NoHeader = False,
    vocab: Vocab = None,
    language: Language = None,
    backend: Backend = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print the best labels of every text, as texts arrive, or write them to a file."""
    import umpteen
    from umpteen.cli.options import check_language, check_output_flags, table_options
    from umpteen.cli.prediction import predict as run

    check_language(vocab, language)
    terminal = _terminal(quiet)
    options = {"threshold": threshold, "beam": beam, "allowed": allowed, "threads": threads}
    options |= {"whole_file": whole_file, "vocab": vocab, "language": language}
    options["columns"] = table_options(text_column, no_header=no_header)
    to_file = {"--id-column": id_column, "--block-rows": block_rows, "--engine": engine, "--workers": workers}
    to_file["--address"] = address
    if output is not None:
        from umpteen.cli.batch_prediction import predict as write

        options |= {"id_column": id_column, "block_rows": block_rows, "backend": backend, "workers": workers}
        options["address"] = address
        write(model, source, output, k=k, engine=engine or "local", terminal=terminal, **options)
        return
    check_output_flags(to_file)
    options["as_json"] = as_json
    with terminal.compiling():
        loaded = umpteen.load(model, backend=backend)
        if source == "-" and sys.stdin is not None and sys.stdin.isatty():
            terminal.note("Type a text; Ctrl-D ends." if whole_file else "Type a text and press Enter; Ctrl-D ends.")
        run(loaded, source, k=k, terminal=terminal, **options)


@app.command()
def explain(
    model: ModelFolder,
    text: Annotated[str, typer.Option(help="The text.")],
    label: Annotated[str | None, typer.Option(help="Explain this label (name or key); default: the best one.")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of labels that count as suggested.", min=1)] = 5,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page for a browser.")] = None,
    max_words: Annotated[
        int, typer.Option(help="Maximum number of words left out one by one, if the model has an encoder.", min=1)
    ] = 200,
    backend: Backend = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print why a label is suggested for a text, or why not."""
    import umpteen
    from umpteen.cli.explanation import explain as run

    terminal = _terminal(quiet)
    options = {"as_json": as_json, "html": html, "max_words": max_words, "threads": threads}
    with terminal.compiling():
        run(umpteen.load(model, backend=backend), text, label=label, k=k, terminal=terminal, **options)


@app.command()
def evaluate(
    model: ModelFolder,
    data: Data,
    split: Annotated[str, typer.Option(help="Split of the data.")] = "test",
    as_json: AsJson = False,
    ks: Annotated[str, typer.Option("-k", metavar="K,K", help="Depths of the metrics @k.")] = "1,3,5",
    propensity: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Add PSP@k: two numbers, or a dataset such as amazon-670k."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Minimum probability of labels in micro-F1 and macro-F1.")
    ] = None,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Add metrics by frequency of labels and by labels per text.")
    ] = False,
    per_text: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a row per text: .tsv or .jsonl.")] = None,
    reliability: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw probabilities against frequencies: .png or .svg.")
    ] = None,
    pr_curve: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw precision against recall: .png or .svg.")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    backend: Backend = None,
    engine: EngineName = None,
    workers: Workers = 0,
    address: Address = None,
    storage: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that an engine shares with all its processes.")
    ] = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print the metrics of a model on labelled data, in per cent."""
    import umpteen
    from umpteen.cli.evaluation import evaluate as run
    from umpteen.cli.evaluation_output import Requests
    from umpteen.cli.options import data_path, numbers, table_options
    from umpteen.cli.training import Resources

    options = {"propensity": propensity, "threshold": threshold, "threads": threads, "as_json": as_json}
    options["columns"] = table_options(text_column, label_column, label_separator, no_header)
    depths, terminal = numbers(ks, int, "-k"), _terminal(quiet)
    requests = Requests(breakdown, per_text, reliability, pr_curve)
    loaded = umpteen.load(model, backend=backend)
    options["resources"] = Resources.of(None, engine, workers, threads or 0, address, storage)
    options |= {"folder": model, "backend": backend}
    run(loaded, data_path(data), split=split, terminal=terminal, ks=depths, requests=requests, **options)


@app.command()
def compare(
    model_a: Annotated[Path, typer.Argument(metavar="MODEL_A", help="The folder of a saved model, or org/name.")],
    model_b: Annotated[Path, typer.Argument(metavar="MODEL_B", help="The folder of another one, or org/name.")],
    data: Data,
    split: Annotated[str, typer.Option(help="Split of the data.")] = "test",
    as_json: AsJson = False,
    ks: Annotated[str, typer.Option("-k", metavar="K,K", help="Depths of the metrics @k.")] = "1,3,5",
    seed: Annotated[int, typer.Option(help="Seed of the resampling of texts.", min=0)] = 0,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print the metrics of two models on the same data, and which differences are significant."""
    import umpteen
    from umpteen.cli.comparison import compare as run
    from umpteen.cli.options import data_path, numbers, table_options

    models, names = [umpteen.load(model_a), umpteen.load(model_b)], [str(model_a), str(model_b)]
    options = {"ks": numbers(ks, int, "-k"), "seed": seed, "threads": threads, "as_json": as_json}
    options["columns"] = table_options(text_column, label_column, label_separator, no_header)
    run(models, names, data_path(data), split=split, terminal=_terminal(quiet), **options)


@app.command()
def info(
    model: ModelFolder,
    as_json: AsJson = False,
    tree: Annotated[bool, typer.Option("--tree", help="Show the label tree: its levels, its nodes by name.")] = False,
    depth: Annotated[
        int | None, typer.Option(help="With --tree, the number of levels whose nodes are shown.", min=1)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every byte with the digest saved with it.")] = False,
) -> None:
    """Print the properties of a saved model."""
    from umpteen.cli.inspection import info as run

    if depth is not None and not tree:
        raise BadConfig("--depth is the depth of the label tree that --tree shows; add --tree")
    run(model, terminal=_terminal(), as_json=as_json, with_tree=tree, depth=depth, verify=verify)


@app.command()
def calibrate(
    model: OwnFolder,
    data: Data,
    split: Split = "test",
    rows: Rows = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
) -> None:
    """Fit probabilities and the threshold of a model on labelled texts, and store them in its folder."""
    from umpteen.cli.decision import calibrate as run
    from umpteen.cli.options import data_path, table_options

    columns = table_options(text_column, label_column, label_separator, no_header)
    run(model, data_path(data), split, terminal=_terminal(quiet), n_rows=rows, **columns)


@app.command()
def tune(
    model: OwnFolder,
    data: Data,
    goal: Annotated[
        str, typer.Option("--for", metavar="GOAL", help="f1, f1@K, precision=P, recall=R or labels=N.")
    ] = "f1",
    split: Split = "test",
    rows: Rows = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
) -> None:
    """Choose which labels predict returns, by a goal on labelled texts, and store it in the model's folder."""
    from umpteen.cli.decision import tune as run
    from umpteen.cli.options import data_path, table_options

    columns = table_options(text_column, label_column, label_separator, no_header)
    run(model, data_path(data), goal, split, terminal=_terminal(quiet), n_rows=rows, **columns)


@app.command()
def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL…", help="Folders of saved models, or NAME=FOLDER; the first is the default."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 is any free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Number of processes.", min=1, max=512)] = 1,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of the key that requests must send; else UMPTEEN_API_KEY.")
    ] = None,
    max_body: Annotated[int | None, typer.Option(help="Bytes of a request.", min=1)] = None,
    max_texts: Annotated[int | None, typer.Option(help="Texts of a request.", min=1)] = None,
    max_characters: Annotated[int | None, typer.Option(help="Characters of a text.", min=1)] = None,
    max_k: Annotated[int | None, typer.Option(help="Labels per text.", min=1)] = None,
    max_queue: Annotated[int | None, typer.Option(help="Texts that may wait; then requests get 429.", min=1)] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until a request is given up.")] = None,
    threads: Threads = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change another limit; docs/serve.md lists them."),
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of requests, too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP: an API, Annif's API and a page."""
    from umpteen.cli.options import by_key
    from umpteen.cli.serving import serve as run

    given = {"max_body": max_body, "max_texts": max_texts, "max_characters": max_characters, "max_k": max_k}
    given |= {"max_queue": max_queue, "request_timeout": timeout, "threads": threads or None}
    given |= {"log_texts": log_texts or None}
    settings = by_key(set_ or []) | {name: value for name, value in given.items() if value is not None}
    where = {"host": host, "port": port, "workers": workers, "key_file": api_key_file}
    run(models, settings, **where, terminal=_terminal(quiet))


@app.command()
def export(
    model: OwnFolder,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="onnx, for ONNX Runtime.")] = "onnx",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Save the model here. Default: in MODEL.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights of 8 bits: smaller, faster, less accurate.")] = False,
    quiet: Quiet = False,
) -> None:
    """Export the encoder of a saved model for faster prediction on a CPU."""
    from umpteen.cli.exchange import export as run

    run(model, output or model, to=to, int8=int8, terminal=_terminal(quiet))


@app.command()
def card(
    model: OwnFolder,
    data: CardData = None,
    split: Split = "test",
    language: CardLanguage = None,
    license_: CardLicense = None,
    quiet: Quiet = False,
) -> None:
    """Write a model card, README.md, into the folder of a saved model."""
    from umpteen.cli.exchange import card as run

    facts = {"data": data, "split": split, "language": language, "license": license_}
    run(model, terminal=_terminal(quiet), **facts)


@app.command()
def push(
    model: OwnFolder,
    repository: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The repository; it is created if missing.")],
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="Message of the commit.")
    ] = "Upload a model of umpteen",
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Branch to commit to. Default: main.")] = None,
    data: CardData = None,
    split: Split = "test",
    language: CardLanguage = None,
    license_: CardLicense = None,
    quiet: Quiet = False,
) -> None:
    """Upload a saved model with its card to the Hugging Face hub. The token is that of HF_TOKEN or hf auth login."""
    from umpteen.cli.exchange import push as run

    facts = {"data": data, "split": split, "language": language, "license": license_}
    options = {"private": private or None, "message": message, "branch": branch}
    run(model, repository, terminal=_terminal(quiet), **options, **facts)


@app.command()
def history(
    model: ModelFolder,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot it: .png, .svg or .pdf.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print the learning curves of a saved model: loss, learning rate and held-out precision."""
    from umpteen.cli.history import history as run

    run(model, terminal=_terminal(quiet), plot=plot, as_json=as_json)


@app.command()
def recipes(as_json: AsJson = False) -> None:
    """List the recipes."""
    from umpteen.cli.inspection import recipes as run

    run(terminal=_terminal(), as_json=as_json)


@app.command()
def settings(
    recipe: Annotated[str | None, typer.Option(help="Show this recipe's defaults.")] = None,
    as_json: AsJson = False,
) -> None:
    """List every setting with its default."""
    from umpteen.cli.inspection import settings as run

    run(recipe, terminal=_terminal(), as_json=as_json)


@app.command()
def warmup(
    purpose: Annotated[
        str, typer.Option("--for", metavar="PURPOSE", help="all, or predict: only the kernels of prediction.")
    ] = "all",
    quiet: Quiet = False,
) -> None:
    """Compile the kernels ahead of the first use."""
    from umpteen.models import warmup as run

    terminal = _terminal(quiet)
    with terminal.progress() as progress:
        run(progress, purpose=purpose)
    terminal.note("The kernels are compiled.")


@app.command(cls=_WithSettings)
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to save the model.")] = Path(
        "demo-model"
    ),
    config: Config = None,
    set_: Set = None,
    seed: Seed = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train on the data that comes with the package, evaluate, and tag three sentences."""
    from umpteen.cli.demo import demo as run
    from umpteen.cli.options import collect

    _, changed = collect(config, set_ or [], seed=seed, threads=threads)
    run(output, changed, terminal=_terminal(quiet))


@app.command(cls=_WithSettings)
def bench(
    data: Data,
    recipes: Annotated[str | None, typer.Option(metavar="A,B", help="Which recipes; default: all linear ones.")] = None,
    encoder: Encoder = None,
    device: Device = None,
    rows: Rows = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="Split of the data to test on.")] = "test",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Train with N seeds each; show mean ± standard deviation.", min=1)
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(metavar="A,B", help="Constants of PSP: two numbers, or a dataset such as amazon-670k.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File of results; those in it are reused.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    no_header: NoHeader = False,
    as_json: AsJson = False,
    config: Config = None,
    set_: Set = None,
    seed: Seed = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train recipes on one dataset and compare quality, time, memory and size."""
    from umpteen.cli.benchmark import bench as run
    from umpteen.cli.evaluation import propensity_constants
    from umpteen.cli.inspection import recipe_names
    from umpteen.cli.options import collect, data_path, of_recipes, table_options

    direct = {"seed": seed, "threads": threads, "encoder.name": encoder, "encoder.device": device}
    common, own = of_recipes(set_ or [])
    _, changed = collect(config, common, **direct)
    options = {"terminal": _terminal(quiet), "n_rows": rows, "as_json": as_json, "split": split, "out": out, "own": own}
    options["columns"] = table_options(text_column, label_column, label_separator, no_header)
    constants = None if propensity is None else propensity_constants(propensity)
    run(data_path(data), recipe_names(recipes), changed, seeds=seeds, propensity=constants, **options)


def main() -> None:
    """Entry point of the ``umpteen`` script."""
    streams.prepare()
    app(prog_name="umpteen")


def _terminal(quiet: bool = False) -> Any:
    from umpteen.cli.terminal import Terminal

    return Terminal(quiet)


def _rank() -> str:
    """Return which of several processes reports an error; nothing for the first, or the only one."""
    rank = os.environ.get("RANK", "0")
    return f"rank {rank}: " if rank.isdecimal() and int(rank) else ""


def _message(error: BaseException, command: str | None) -> str:
    if isinstance(error, MemoryError):
        return _out_of_memory(error, command)
    return " ".join(str(error).splitlines()).strip() or type(error).__name__


def _out_of_memory(error: MemoryError, command: str | None) -> str:
    """Return a message that names the options of the command that may help."""
    if command in ("train", "bench", "demo"):
        if isinstance(error, UmpteenError):
            return str(error)
        fewer = "" if command == "demo" else "use fewer rows (--rows), or "
        return f"out of memory; {fewer}bound it with --memory 8GB"
    if isinstance(error, UmpteenError):
        return "the GPU is out of memory; end other processes on it, or set CUDA_VISIBLE_DEVICES to nothing"
    return "out of memory; ask for fewer labels (-k) or use fewer threads (--threads)"
