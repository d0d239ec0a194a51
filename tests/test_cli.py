"""The command `deepnmt`: as many lines out as in, in order; errors in one line."""

import gzip
import json

import pytest
from tiny import spread, tiny_config
from transformers import pipeline
from typer.testing import CliRunner

from hf_deepnmt.cli import app
from hf_deepnmt.models import ARCHITECTURES, DeepNMTForConditionalGeneration
from hf_deepnmt.tokenization import train_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "model"
    tokenizer = train_tokenizer(
        ["ein Hund und eine Katze"] * 9, ["a dog and a cat"] * 9, vocab_size=320, show_progress=False
    )
    model = spread(DeepNMTForConditionalGeneration(tiny_config(vocab_size=len(tokenizer), max_position_embeddings=16)))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **kwargs)


def test_list_names_every_architecture():
    result = run("list")
    assert result.exit_code == 0
    for model_type, architecture in ARCHITECTURES.items():
        assert model_type in result.stdout and architecture.paper in result.stdout
    assert "both-fnn-sa" not in result.stdout
    presets = run("list", "--presets").stdout
    for preset in ("both-fnn-sa: ", "small-72: ", "exgre-trainable: "):
        assert preset in presets


def test_translate_keeps_every_line_in_order(folder, tmp_path):
    lines = [["ein Hund", "", "eine Katze und ein Hund", "  ", "Katze"][index % 5] for index in range(203)]
    (tmp_path / "in.de").write_text("\n".join(lines) + "\n")
    result = run("translate", folder, tmp_path / "in.de", "--output", tmp_path / "out.en", "--beam", 1)
    assert result.exit_code == 0, result.output
    out = (tmp_path / "out.en").read_text().split("\n")
    assert len(out) == 204 and out[-1] == ""
    for index, line in enumerate(lines):
        assert (out[index] == "") == (not line.strip()) and out[index] == out[index % 5]


def test_translate_reads_standard_input_and_gzip(folder, tmp_path):
    piped = run("translate", folder, "--beam", 1, "--quiet", input="ein Hund\n\nKatze")
    assert piped.exit_code == 0 and piped.stdout.count("\n") == 3 and piped.stdout.split("\n")[1] == ""
    with gzip.open(tmp_path / "in.gz", "wt") as file:
        file.write("ein Hund\n\nKatze\n")
    assert run("translate", folder, tmp_path / "in.gz", "--beam", 1, "--quiet").stdout == piped.stdout


def test_translate_takes_the_form_of_the_length_penalty(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("hf_deepnmt.evaluation.translate_lines", lambda *args, **options: seen.append(options) or [])
    for form in ([], ["--length-penalty-form", "gnmt"]):
        assert run("translate", folder, *form, input="ein Hund").exit_code == 0
    assert ["length_penalty_form" in options for options in seen] == [False, True]
    assert seen[1]["length_penalty_form"] == "gnmt"
    (tmp_path / "out").write_text("kept")
    refused = run("translate", folder, "--length-penalty-form", "wu", "--output", tmp_path / "out", input="ein Hund")
    assert refused.exit_code == 2 and "choose one of fairseq, gnmt" in refused.output
    assert (tmp_path / "out").read_text() == "kept"


def test_summarize_gives_one_line_for_each_document(folder, tmp_path):
    documents = ["ein Hund und eine Katze und ein Hund", "", "eine Katze", "ein Hund " * 30]
    (tmp_path / "in.txt").write_text("".join(f"{document}\n" for document in documents))
    options = ["--output", tmp_path / "out.txt", "--beam", 2, "--max-new-tokens", 5, "--min-new-tokens", 5, "--quiet"]
    result = run("summarize", folder, tmp_path / "in.txt", *options, "--no-repeat-ngram-size", 3)
    assert result.exit_code == 0, result.output
    made = (tmp_path / "out.txt").read_text().split("\n")
    summarize = pipeline("summarization", model=str(folder))
    settings = {"num_beams": 2, "max_new_tokens": 5, "min_new_tokens": 5, "no_repeat_ngram_size": 3}
    assert made == [*(item["summary_text"] for item in summarize(documents, **settings)), ""]
    assert made[1] == "" and all(made[index] for index in (0, 2, 3))


def test_summarize_cuts_only_when_asked(folder, monkeypatch):
    seen = []
    monkeypatch.setattr("hf_deepnmt.evaluation.translate_lines", lambda *args, **options: seen.append(options) or [])
    for arguments in ([], ["--truncate"]):
        assert run("summarize", folder, *arguments, input="ein Hund").exit_code == 0
    plain, cut = seen
    assert plain.pop("progress") and plain == {
        "task": "summarization", "num_beams": 5, "length_penalty": 1.0, "max_tokens": 4096
    }  # fmt: skip
    assert cut["truncation"] is True
    refused = run("summarize", folder, "--no-repeat-ngram-size", 0, input="ein Hund")
    assert refused.exit_code == 2


def test_evaluate_scores_summaries(folder, tmp_path):
    (tmp_path / "docs").write_text("ein Hund und eine Katze\nein Hund\n")
    (tmp_path / "ref").write_text("a dog\na cat\n")
    files = ["--source", tmp_path / "docs", "--reference", tmp_path / "ref", "--output", tmp_path / "r.json"]
    options = ["--beam", 1, "--max-new-tokens", 4, "--no-repeat-ngram-size", 3, "--truncate", "--no-stem"]
    result = run("evaluate", folder, "--task", "summarization", *files, *options)
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "r.json").read_text())
    assert "stem:no" in stored["scores"]["ref"]["rougeL"]["signature"] and "rougeL " in result.stdout
    settings = {name: stored["decoding"][name] for name in ("max_new_tokens", "no_repeat_ngram_size", "truncation")}
    assert settings == {"max_new_tokens": 4, "no_repeat_ngram_size": 3, "truncation": True}
    wrong = run("evaluate", folder, "--task", "summarization", *files, "--lowercase")
    assert wrong.exit_code == 2 and "`lowercase` says nothing for summarization" in wrong.output


def test_evaluate_scores_output_without_a_model(tmp_path):
    (tmp_path / "hyp").write_text("a b c d e\n")
    (tmp_path / "ref.en").write_text("a b c d e\n")
    result = run(
        "evaluate",
        "--hypotheses",
        tmp_path / "hyp",
        "--reference",
        tmp_path / "ref.en",
        "--output",
        tmp_path / "r.json",
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "r.json").read_text().count('"signature"') >= 2


def test_average_writes_a_model(folder, tmp_path):
    result = run("average", tmp_path / "mean", folder, folder)
    assert result.exit_code == 0 and (tmp_path / "mean" / "model.safetensors").is_file()
    refused = run("average", tmp_path / "other")
    assert refused.exit_code == 2 and "--run" in refused.output


def test_errors_are_one_line_with_the_remedy(tmp_path):
    (tmp_path / "r.yaml").write_text("training: {max_stepz: 3}\n")
    result = run("train", tmp_path / "r.yaml")
    assert result.exit_code == 2 and "did you mean `max_steps`" in result.output and "Traceback" not in result.output


def test_command_is_installed():
    from importlib.metadata import PackageNotFoundError, entry_points, version

    try:
        version("hf-deepnmt")
    except PackageNotFoundError:
        pytest.skip("the package is not installed, only importable")
    assert "deepnmt" in {entry.name for entry in entry_points(group="console_scripts")}
