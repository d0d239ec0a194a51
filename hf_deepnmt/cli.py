"""The command `deepnmt`."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Deep neural machine translation.")
analyse = typer.Typer(no_args_is_help=True, help="Look into a trained model.")
app.add_typer(analyse, name="analyse")
Overrides = Annotated[
    list[str] | None, typer.Argument(help="section.field=value, for instance training.max_steps=100")
]


def fail(error: Exception):
    """One line for what the user can mend, instead of a traceback."""
    typer.echo(f"deepnmt: {error}", err=True)
    raise typer.Exit(2)


@app.command("list")
def list_architectures(
    presets: Annotated[bool, typer.Option("--presets", help="also the named settings for `model.preset`")] = False,
):
    """The architectures, and where each comes from."""
    from .models import ARCHITECTURES

    width = max(map(len, ARCHITECTURES))
    for model_type, architecture in ARCHITECTURES.items():
        typer.echo(f"{model_type:{width}}  {architecture.title}; {architecture.paper}; recipe {architecture.recipe}")
        for preset, fields in architecture.config.presets.items() if presets else ():
            typer.echo(f"{'':{width}}    {preset}: " + ", ".join(f"{name}={value}" for name, value in fields.items()))


@app.command()
def prepare(recipe: Path, overrides: Overrides = None):
    """Read, clean and encode a recipe's data; say what was kept and left out."""
    from .training import load_recipe, training_arguments
    from .training import prepare as prepare_data

    try:
        settings = load_recipe(recipe, overrides or [])
        output = Path(settings.training.get("output_dir", f"runs/{recipe.stem}"))
        output.mkdir(parents=True, exist_ok=True)
        _, encoded, tokenizer = prepare_data(settings, output, training_arguments(settings, output).seed)
        encoded.save_to_disk(str(output / "encoded"))
    except (ValueError, OSError) as error:
        fail(error)
    sizes = ", ".join(f"{name} {len(part)}" for name, part in encoded.items())
    typer.echo(f"{output}: {sizes} pairs; vocabulary {len(tokenizer)}; details in {output / 'data_report.json'}")


@app.command()
def align(
    source: Annotated[Path, typer.Argument(help="one sentence a line, plain or .gz")],
    target: Annotated[Path, typer.Argument(help="its translation, line by line")],
    output: Annotated[
        Path, typer.Argument(help="the links, in Pharaoh format; OUTPUT.forward and OUTPUT.reverse too")
    ],
    aligner: Annotated[str, typer.Option(help="eflomal or fast_align")] = "eflomal",
    symmetrise: Annotated[
        str, typer.Option(help="how the two directions become one: intersect, union, grow-diag, ...")
    ] = "grow-diag-final-and",
    words: Annotated[str, typer.Option(help="split by `spaces` (tokenised text) or as raw `text`")] = "spaces",
    links: Annotated[
        list[Path] | None,
        typer.Option(help="instead of aligning: check this file of links; twice: symmetrise forward and reverse"),
    ] = None,
    one_based: Annotated[bool, typer.Option(help="with --links: words are counted from 1")] = False,
    reverse: Annotated[bool, typer.Option(help="with --links: written target-source")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress on standard error")] = False,
):
    """Link the words of sentence pairs: as many lines out as in, empty ones for pairs with an empty side."""
    from .aligners import convert_links, refuse_overwriting, write_links
    from .alignment import LinkFormat
    from .data import iter_pairs

    try:
        if links:
            link_format = LinkFormat(words, one_based, reverse)
            counts = convert_links(source, target, links, output, link_format, symmetrisation=symmetrise)
        else:
            if one_based or reverse:
                raise ValueError("--one-based and --reverse say how a file is written: give it with --links")
            refuse_overwriting((source, target), output, directions=True)
            names = {"source_lang": "source", "target_lang": "target"}
            pairs = iter_pairs(source, target, format="lines", on_blank="keep", **names)
            options = {"aligner": aligner, "words": words, "symmetrisation": symmetrise, "progress": not quiet}
            counts = write_links({"text": pairs}, {"text": output}, directions=True, **options)["text"]
    except (ValueError, OSError) as error:
        fail(error)
    typer.echo(f"{output}: {counts.summary()}")


@app.command()
def train(recipe: Path, overrides: Overrides = None):
    """Train, evaluate and save a model; continues an interrupted run."""
    from .training import train as run

    try:
        run([str(recipe), *(overrides or [])])
    except (ValueError, OSError, ImportError) as error:
        fail(error)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def evaluate(context: typer.Context):
    """Score a model or its output; the options are those of training/evaluate.py."""
    from .evaluation import main

    raise typer.Exit(main(context.args) or 0)


@app.command()
def average(
    output: Path,
    folders: Annotated[list[Path] | None, typer.Argument(help="model folders to average")] = None,
    run: Annotated[Path | None, typer.Option(help="a training run instead of folders")] = None,
    last: Annotated[int, typer.Option(help="with --run: its last checkpoints")] = 5,
    best: Annotated[int, typer.Option(help="with --run: its best checkpoints by --metric")] = 0,
    metric: Annotated[str, typer.Option(help="a score of the evaluations while training")] = "eval_bleu",
):
    """Average the weights of several checkpoints."""
    from .checkpoints import average_checkpoints, best_checkpoints, last_checkpoints

    try:
        if (run is None) == (not folders):
            raise ValueError("give either model folders or --run")
        if run is not None:
            folders = best_checkpoints(run, best, metric) if best else last_checkpoints(run, last)
        average_checkpoints(folders, output)
    except (ValueError, OSError) as error:
        fail(error)
    typer.echo(f"{output}: average of {', '.join(map(str, folders))}")


def read_lines(path: Path | None) -> Iterator[str]:
    """Lines of a file (plain or .gz) or of standard input, ends removed; only a line feed ends one."""
    if path is None:
        stream = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    elif path.suffix == ".gz":
        stream = gzip.open(path, "rt", encoding="utf-8", newline="\n")  # noqa: SIM115  (read to its end below)
    else:
        stream = path.open(encoding="utf-8", newline="\n")
    for line in stream:
        yield line.removesuffix("\n").removesuffix("\r")


@app.command()
def translate(
    model: Path,
    source: Annotated[Path | None, typer.Argument(help="a text file, plain or .gz; standard input without it")] = None,
    output: Annotated[Path | None, typer.Option(help="standard output without it")] = None,
    beam: Annotated[int, typer.Option(help="beam size")] = 5,
    length_penalty: Annotated[float, typer.Option(help="exponent of the length that scores are divided by")] = 1.0,
    length_penalty_form: Annotated[
        str | None, typer.Option(help="fairseq, length^penalty, or gnmt, ((5 + length) / 6)^penalty")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="padded source tokens a batch")] = 4096,
    quiet: Annotated[bool, typer.Option(help="no progress on standard error")] = False,
):
    """Translate line by line: as many lines out as in, in order, blank ones blank."""
    options = {"num_beams": beam, "length_penalty": length_penalty, "max_tokens": max_tokens}
    write_outputs(model, source, output, quiet, {**options, "length_penalty_form": length_penalty_form})


@app.command()
def summarize(
    model: Path,
    source: Annotated[
        Path | None, typer.Argument(help="one document a line, plain or .gz; standard input without it")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="standard output without it")] = None,
    beam: Annotated[int, typer.Option(help="beam size")] = 5,
    length_penalty: Annotated[float, typer.Option(help="exponent of the length that scores are divided by")] = 1.0,
    length_penalty_form: Annotated[
        str | None, typer.Option(help="fairseq, length^penalty, or gnmt, ((5 + length) / 6)^penalty")
    ] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="least length of a summary", min=1)] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="largest length of a summary; by default that of the document", min=1)
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="3 keeps trigrams of tokens from coming twice", min=1)
    ] = None,
    truncate: Annotated[bool, typer.Option(help="cut longer documents than the model states, and count them")] = False,
    max_tokens: Annotated[int, typer.Option(help="padded source tokens a batch")] = 4096,
    quiet: Annotated[bool, typer.Option(help="no progress on standard error")] = False,
):
    """Summarise documents, one a line: as many summaries as lines, in order, blank ones blank."""
    options = {"num_beams": beam, "length_penalty": length_penalty, "max_tokens": max_tokens}
    options |= {"length_penalty_form": length_penalty_form, "truncation": truncate or None}
    options |= {"min_new_tokens": min_new_tokens, "max_new_tokens": max_new_tokens}
    options |= {"no_repeat_ngram_size": no_repeat_ngram_size, "task": "summarization"}
    write_outputs(model, source, output, quiet, options)


def write_outputs(model: Path, source: Path | None, output: Path | None, quiet: bool, options: dict[str, Any]):
    """What `translate_lines` makes of a file or of standard input, line by line; options that are None are left out."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    import hf_deepnmt  # noqa: F401  (registers the architectures)

    from .evaluation import translate_lines
    from .models.generation_deepnmt import check_length_penalty_form

    options = {name: value for name, value in options.items() if value is not None}
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        loaded = AutoModelForSeq2SeqLM.from_pretrained(model).eval()
        if "length_penalty_form" in options:
            check_length_penalty_form(options["length_penalty_form"])
        lines = translate_lines(loaded, tokenizer, read_lines(source), progress=not quiet, **options)
        sink = sys.stdout.buffer if output is None else output.open("wb")
        for line in lines:
            sink.write(f"{line}\n".encode())
        sink.flush()
    except (ValueError, OSError) as error:
        fail(error)


@analyse.command("attention")
def analyse_attention(
    model: Path,
    text: Annotated[Path, typer.Option(help="source sentences, one a line")],
    output: Annotated[Path, typer.Option(help="picture; the figures go beside it as JSON")],
    target: Annotated[Path | None, typer.Option(help="translations to read; the model's own without it")] = None,
    sentence: Annotated[int, typer.Option(help="the line to draw, counted from 1")] = 1,
):
    """Entropy and sparsity of attention per layer over all lines, and a picture of one."""
    import hf_deepnmt  # noqa: F401  (registers the architectures)

    from .attention_statistics import report_attention

    try:
        results = report_attention(model, text, output, targets=target, sentence=sentence)
    except (ValueError, OSError, ImportError) as error:
        fail(error)
    for kind, layers in results["all_lines"].items():
        for row in layers:
            figures = f"entropy {row['entropy']:.2f} nats, sparsity {row['sparsity']:.2f}"
            typer.echo(f"{kind:12}  layer {row['layer']:2}  {figures}")


@analyse.command("fusion")
def analyse_fusion(
    model: Path,
    text: Annotated[Path, typer.Option(help="source sentences, one a line")],
    output: Annotated[Path, typer.Option(help="picture; the figures go beside it as JSON")],
    target: Annotated[Path | None, typer.Option(help="translations to read; the model's own without it")] = None,
    sentence: Annotated[int, typer.Option(help="the line to draw, counted from 1")] = 1,
):
    """Which layers each hop of layer attention reads, over all lines and in a picture of one."""
    import hf_deepnmt  # noqa: F401  (registers the architectures)

    from .fusion_weights import report_fusion

    try:
        results = report_fusion(model, text, output, targets=target, sentence=sentence)
    except (ValueError, OSError, ImportError) as error:
        fail(error)
    for side, hops in results["all_lines"].items():
        for row in hops:
            weights = ", ".join(f"{layer} {weight:.2f}" for layer, weight in row["mean"].items())
            typer.echo(f"{side:8}  hop {row['hop']:2}  {weights}")


@analyse.command("reordering")
def analyse_reordering(
    model: Path,
    text: Annotated[Path, typer.Option(help="source sentences, one a line")],
    output: Annotated[Path, typer.Option(help="picture; the figures go beside it as JSON")],
    target: Annotated[Path | None, typer.Option(help="their translations, with --links")] = None,
    links: Annotated[Path | None, typer.Option(help="their word links, for the reference order")] = None,
    words: Annotated[str, typer.Option(help="the words that the links count: split by `spaces` or as raw `text`")] = (
        "spaces"
    ),
    one_based: Annotated[bool, typer.Option(help="in the links, words are counted from 1")] = False,
    reverse: Annotated[bool, typer.Option(help="the links are written target-source")] = False,
    sentence: Annotated[int, typer.Option(help="the line to draw, counted from 1")] = 1,
):
    """The predicted target order of one line in a picture, and over all lines how close it is to that of word links."""
    import hf_deepnmt  # noqa: F401  (registers the architectures)

    from .alignment import LinkFormat
    from .reordering_analysis import report_reordering

    try:
        link_format = LinkFormat(words, one_based, reverse)
        given = {"targets": target, "links": links, "link_format": link_format, "sentence": sentence}
        results = report_reordering(model, text, output, **given)
    except (ValueError, OSError, ImportError) as error:
        fail(error)
    drawn = results["drawn_line"]
    typer.echo(f"{'source':12}  {' '.join(drawn['words'])}")
    for name in ("predicted", "reference"):
        if drawn[f"{name}_order"] is not None:
            typer.echo(f"{name:12}  {' '.join(drawn['words'][word] for word in drawn[f'{name}_order'])}")
    measured = results.get("all_lines")
    if measured is None:
        return
    rows = [("source order", measured["source_order"])]
    rows += [(f"layer {row['layer']:2}", row) for row in measured["layers"]]
    for name, row in rows:
        figures = (
            f"cosine similarity {row['cosine_similarity']:.4f}, position error {row['position_error']:.2f} tokens"
        )
        typer.echo(f"{name:12}  {figures}")
    typer.echo(f"{measured['sentences']} sentences; {measured['sentences_without_order']} without links left out")


@analyse.command("difficulty")
def analyse_difficulty(
    run: Annotated[Path, typer.Argument(help="output folder of the run whose last checkpoints judge the sentences")],
    source: Annotated[Path, typer.Option(help="test sentences, one a line")],
    reference: Annotated[Path, typer.Option(help="their translations")],
    system: Annotated[
        list[str], typer.Option(help="NAME=MODEL or NAME=FILE with translations; repeat it, the baseline first")
    ],
    output: Annotated[Path, typer.Option(help="picture; the figures go beside it as JSON")],
    last: Annotated[int, typer.Option(help="checkpoints that judge")] = 20,
    parts: Annotated[int, typer.Option(help="parts of equal size")] = 4,
    per_token: Annotated[bool, typer.Option("--per-token", help="losses per target token, not per sentence")] = False,
    target_lang: Annotated[str | None, typer.Option(help="chooses the tokeniser of BLEU")] = None,
):
    """BLEU of systems on parts of a test set, from the easiest to the hardest sentences for a reference run."""
    import hf_deepnmt  # noqa: F401  (registers the architectures)

    from .difficulty import report_difficulty

    try:
        named = [item.partition("=") for item in system]
        for item, (name, equals, path) in zip(system, named, strict=True):
            if not (name and equals and path):
                raise ValueError(f"--system {item!r} is not NAME=PATH")
        systems = {name: Path(path) for name, _, path in named}
        if len(systems) < len(named):
            raise ValueError("two systems have one name")
        given = {"last": last, "parts": parts, "per_token": per_token, "target_lang": target_lang}
        results = report_difficulty(run, source, reference, systems, output, **given)
    except (ValueError, OSError, ImportError) as error:
        fail(error)
    for row in results["parts"]:
        scores = ", ".join(f"{name} {score['score']:.1f}" for name, score in row["bleu"].items())
        typer.echo(f"{row['part']:12}  {row['sentences']} sentences, BLEU: {scores}")
    if results["lines_left_out"]:
        typer.echo(f"{results['lines_left_out']} of {results['lines']} lines have a blank side and are left out")


@analyse.command("gradients")
def analyse_gradients(
    runs: Annotated[list[Path], typer.Argument(help="output folders of runs trained with training.gradient_norms=N")],
    output: Annotated[Path, typer.Option(help="picture; the figures go beside it as JSON")],
    last_step: Annotated[int | None, typer.Option(help="leave out later updates")] = None,
):
    """Gradient norms of every encoder layer over the updates, runs side by side."""
    from .gradient_norms import report_gradients

    try:
        results = report_gradients(runs, output, last_step=last_step)
    except (ValueError, OSError, ImportError) as error:
        fail(error)
    for name, row in results.items():
        typer.echo(
            f"{name}: {row['encoder_layers']} layers, bottom quarter {row['bottom_to_top']:.3g} times the top one"
        )


@app.command()
def export(
    model: Path,
    output: Path,
    check: Annotated[bool, typer.Option(help="load the result in a process without this package")] = True,
):
    """Write a folder that loads with `trust_remote_code=True` where this package is not installed."""
    from .export import export_folder

    try:
        export_folder(model, output, check=check)
    except (ValueError, OSError, RuntimeError) as error:
        fail(error)
    typer.echo(f"{output} loads without this package" if check else f"{output} written")


if __name__ == "__main__":
    app()
