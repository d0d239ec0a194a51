import json
import os
import random
import subprocess
import sys
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch
from datasets import Dataset
from tiny import spread, tiny_model
from transformers import MarianConfig, MarianMTModel, pipeline
from transformers.utils import logging

from hf_deepnmt import provenance
from hf_deepnmt.evaluation import (
    budget_batches,
    evaluate_hypotheses,
    evaluate_model,
    evaluate_translations,
    main,
    paired_bootstrap,
    translate_lines,
)
from hf_deepnmt.evaluator import register_evaluator
from hf_deepnmt.metrics import SacreBLEU, bleu, chrf, compute_metrics_factory, tokenized_bleu
from hf_deepnmt.models.pipeline_seq2seq import CallReport
from hf_deepnmt.pipelines import register_pipelines
from hf_deepnmt.provenance import portable_argument, run_info, write_results
from hf_deepnmt.tokenization import train_tokenizer


WORDS = ["der", "hund", "läuft", "schnell", "und", "die", "katze", "schläft", "auf", "dem", "sofa"]
REFERENCES = [" ".join(WORDS[i % 5 : i % 5 + 5]) for i in range(40)]
GOOD = [text if i % 4 else "die katze läuft" for i, text in enumerate(REFERENCES)]
BAD = [text.replace("und", "oder") if i % 2 else "sofa" for i, text in enumerate(REFERENCES)]


def sentences(count, seed=0):
    generator = random.Random(seed)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(count)]
    lines[3], lines[11] = "", "  \t"
    return lines


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(60), sentences(60), vocab_size=59, byte_fallback=False, show_progress=False)


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model(vocab_size=len(tokenizer), tie="none")


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "tiny-de-en"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def files(tmp_path):
    def write(name, lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def translations(model, tokenizer, lines, **options):
    return list(translate_lines(model, tokenizer, lines, **{"num_beams": 2, "progress": False, **options}))


# --- translate_lines ---


def test_every_line_is_translated_once_in_order_whatever_the_batches(model, tokenizer):
    lines = sentences(16)
    alone = [translations(model, tokenizer, [line])[0] for line in lines]
    assert len(set(alone)) > 8
    assert translations(model, tokenizer, lines, max_tokens=23) == alone
    assert translations(model, tokenizer, lines, chunk_size=7, max_tokens=1) == alone
    assert translations(model, tokenizer, iter(lines)) == alone


def test_translations_are_those_of_the_pipeline(model, tokenizer):
    register_pipelines()
    lines = sentences(14)
    pipe = pipeline("translation", model=model, tokenizer=tokenizer)
    expected = [record["translation_text"] for record in pipe(lines, num_beams=3, length_penalty=0.6)]
    assert translations(model, tokenizer, lines, num_beams=3, length_penalty=0.6) == expected


def test_foreign_models_are_decoded_too(tokenizer):
    sizes = {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    foreign = spread(MarianMTModel(MarianConfig(vocab_size=len(tokenizer), **sizes, **heads, **ids))).eval()
    lines = sentences(12)
    together = translations(foreign, tokenizer, lines, max_new_tokens=9)
    assert together == [translations(foreign, tokenizer, [line], max_new_tokens=9)[0] for line in lines]
    assert len(set(together)) > 3


def test_blank_lines_give_blank_translations(model, tokenizer):
    result = translations(model, tokenizer, ["", "hund", " \t ", "katze"])
    assert [bool(text) for text in result] == [False, True, False, True]
    assert translations(model, tokenizer, ["", " "]) == ["", ""]
    assert translations(model, tokenizer, []) == []


def test_line_breaks_in_a_translation_become_spaces(model, tokenizer, monkeypatch):
    monkeypatch.setattr(type(tokenizer), "decode", lambda *args, **kwargs: "a\nb\r\nc")
    assert translations(model, tokenizer, ["hund"]) == ["a b c"]


def test_hypotheses_and_scores_come_best_first(model, tokenizer):
    lines = ["der hund", "", "die katze schläft"]
    options = {"num_beams": 4, "num_return_sequences": 3, "return_scores": True}
    results = translations(model, tokenizer, lines, **options)
    assert [len(records) for records in results] == [3, 3, 3]
    scores = [record["score"] for record in results[2]]
    assert scores == sorted(scores, reverse=True)
    assert results[1] == [{"translation_text": "", "score": 0.0}] * 3
    assert [records[0]["translation_text"] for records in results] == translations(
        model, tokenizer, lines, num_beams=4
    )


def test_lines_are_read_in_chunks(model, tokenizer):
    read = []

    def source():
        for line in sentences(30):
            read.append(line)
            yield line

    stream = translate_lines(model, tokenizer, source(), num_beams=1, progress=False, chunk_size=10)
    next(stream)
    assert len(read) == 10
    assert len(list(stream)) == 29


def test_bad_input_is_named_before_decoding(model, tokenizer):
    with pytest.raises(TypeError, match="Input 2 "):
        translations(model, tokenizer, ["hund", "katze", None])
    with pytest.raises(TypeError, match="Input 5 "):
        translations(model, tokenizer, ["hund"] * 5 + [3], chunk_size=2)
    with pytest.raises(ValueError, match="num_beams"):
        translations(model, tokenizer, ["hund"], num_beams=0)
    with pytest.raises(ValueError, match="max_tokens"):
        translations(model, tokenizer, ["hund"], max_tokens=0)
    with pytest.raises(ValueError, match="num_return_sequences=3"):
        translations(model, tokenizer, ["hund"], num_return_sequences=3)


def test_decoding_leaves_mode_and_generation_config_alone(model, tokenizer):
    before = model.generation_config.to_dict()
    model.train()
    first = translations(model, tokenizer, ["hund und katze"])
    assert model.training
    model.eval()
    assert translations(model, tokenizer, ["hund und katze"]) == first
    assert model.generation_config.to_dict() == before


def test_translations_that_hit_the_limit_are_counted(model, tokenizer, caplog):
    report = CallReport(streaming=False)
    translations(model, tokenizer, ["hund", "", "katze"], max_length=3, report=report)
    assert (report.inputs, report.unfinished) == (2, 2)
    logging.enable_propagation()
    try:
        translations(model, tokenizer, ["hund", "", "katze"], max_length=3)
    finally:
        logging.disable_propagation()
    assert "2 of 2 translations stopped at the length limit" in caplog.text


def test_batches_hold_all_positions_within_the_budget():
    lengths = [int(length) for length in np.random.default_rng(0).integers(1, 40, size=200)] + [99]
    batches = list(budget_batches(lengths, 64))
    assert sorted(position for batch in batches for position in batch) == list(range(201))
    costs = [len(batch) * max(lengths[position] for position in batch) for batch in batches]
    assert [cost for cost in costs if cost > 64] == [99]
    assert len(batches) < 100


# --- scores ---


def test_results_hold_scores_with_signatures_and_sizes():
    result = evaluate_translations(GOOD, REFERENCES, ["x"] * 39 + [GOOD[39]], target_lang="de")
    assert result["bleu"] == bleu(GOOD, REFERENCES)
    assert result["chrf"] == chrf(GOOD, REFERENCES)
    assert result["tokenized_bleu"] == tokenized_bleu(GOOD, REFERENCES, target_lang="de")
    assert (result["sentences"], result["copied_lines"], result["blank_hypothesis_lines"]) == (40, 1, 0)
    assert result["reference_words"] == 200
    assert result["length_ratio"] == pytest.approx((30 * 5 + 10 * 3) / 200)


def test_no_tokenised_score_where_words_have_no_spaces():
    assert "tokenized_bleu" not in evaluate_translations(["你好"], ["你好"], target_lang="zh")
    assert "tokenized_bleu" in evaluate_translations(["你 好"], ["你 好"], target_lang="zh", tokenized=True)


def test_blank_references_and_hypotheses_have_no_ratio_but_scores():
    result = evaluate_translations(["", ""], ["", ""])
    assert (result["length_ratio"], result["blank_reference_lines"], result["bleu"]["score"]) == (None, 2, 0)


def test_sources_must_be_as_many():
    with pytest.raises(ValueError, match="39 source sentences but 40 hypotheses"):
        evaluate_translations(GOOD, REFERENCES, REFERENCES[:39])


def test_training_and_offline_scores_agree(model, tokenizer):
    lines = sentences(12)
    offline = bleu(translations(model, tokenizer, lines, num_beams=1, max_length=9), REFERENCES[:12])["score"]
    rows = []
    for line in lines:
        ids = torch.tensor([tokenizer(line)["input_ids"]])
        rows.append(model.generate(input_ids=ids, num_beams=1, max_length=9)[0].tolist() if line.strip() else [2])
    ids = np.array([row + [-100] * (9 - len(row)) for row in rows])
    training = compute_metrics_factory(tokenizer, REFERENCES[:12])((ids, ids))
    assert training["bleu"] == pytest.approx(offline, abs=1e-6)


# --- significance ---


def test_bootstrap_tells_a_clear_difference_from_none():
    result = paired_bootstrap(GOOD, BAD, REFERENCES, n=200)
    better = result["metrics"]["bleu"]
    assert better["delta"] == pytest.approx(bleu(GOOD, REFERENCES)["score"] - bleu(BAD, REFERENCES)["score"])
    assert better["delta"] > 0
    assert better["p_value"] < 0.05
    assert better["system"]["low"] < better["system"]["mean"] < better["system"]["high"]
    assert "bs:200|seed:12345" in better["signature"]
    swapped = paired_bootstrap(BAD, GOOD, REFERENCES, n=200)["metrics"]["bleu"]
    assert swapped["delta"] == -better["delta"]
    close = [GOOD[0] + " x", *GOOD[1:]]
    assert paired_bootstrap(GOOD, close, REFERENCES, n=200)["metrics"]["bleu"]["p_value"] > 0.05


def test_equal_hypotheses_do_not_differ():
    for result in paired_bootstrap(GOOD, list(GOOD), REFERENCES, n=20)["metrics"].values():
        assert (result["delta"], result["p_value"]) == (0.0, 1.0)


def test_bootstrap_depends_on_its_seed_only(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "777")
    first = paired_bootstrap(GOOD, BAD, REFERENCES, n=20, seed=1)
    assert paired_bootstrap(GOOD, BAD, REFERENCES, n=20, seed=1) == first
    other = paired_bootstrap(GOOD, BAD, REFERENCES, n=20, seed=2)
    assert other["metrics"]["bleu"]["system"]["mean"] != first["metrics"]["bleu"]["system"]["mean"]
    assert os.environ["SACREBLEU_SEED"] == "777"
    with pytest.raises(ValueError, match="seed"):
        paired_bootstrap(GOOD, BAD, REFERENCES, seed=0)


# --- evaluate_model, evaluate_hypotheses ---


def test_model_folder_is_evaluated_on_files(folder, model, tokenizer, files, tmp_path):
    lines = sentences(20)
    source, reference = files("flickr.de", lines), files("flickr.en", REFERENCES[:20])
    hypotheses, results = tmp_path / "out" / "hypotheses.en", tmp_path / "results.json"
    options = {"num_beams": 2, "device": "cpu", "dtype": "float32", "attn_implementation": "eager", "progress": False}
    options |= {"hypotheses_path": hypotheses, "results_path": results, "baseline": reference, "n_bootstrap": 10}
    result = evaluate_model(folder, source, reference, **options)
    expected = translations(model, tokenizer, lines)
    assert hypotheses.read_text(encoding="utf-8").split("\n") == [*expected, ""]
    assert json.loads(results.read_text(encoding="utf-8")) == json.loads(json.dumps(result))
    assert result["scores"]["flickr"] == evaluate_translations(expected, REFERENCES[:20], lines, target_lang="en")
    assert result["data"]["flickr"]["source"] == ["flickr.de"]
    assert (result["data"]["flickr"]["source_lang"], result["data"]["flickr"]["target_lang"]) == ("de", "en")
    assert result["decoding"]["num_beams"] == 2
    assert result["decoding"]["max_new_tokens"] == "2n+50"
    assert result["model"]["name"] == "tiny-de-en"
    assert result["model"]["attn_implementation"] == "eager"
    assert result["model"]["parameters"] == model.num_parameters()
    assert result["significance"]["flickr"]["metrics"]["bleu"]["delta"] < 0
    assert {"commit", "versions", "hardware", "seed"} <= set(result["run"])
    assert str(tmp_path) not in results.read_text(encoding="utf-8")


def test_model_object_is_evaluated_on_a_dataset(model, tokenizer):
    lines = sentences(15)
    pairs = [{"de": line, "en": text} for line, text in zip(lines, REFERENCES, strict=False)]
    data = Dataset.from_dict({"translation": pairs})
    options = {"source_lang": "de", "target_lang": "en", "num_beams": 1, "max_length": 9, "progress": False}
    result = evaluate_model(model, data, tokenizer=tokenizer, **options)
    expected = translations(model, tokenizer, lines, num_beams=1, max_length=9)
    assert result["scores"]["test"]["bleu"] == bleu(expected, REFERENCES[:15])
    assert result["decoding"]["max_new_tokens"] == 8
    with pytest.raises(ValueError, match="own references"):
        evaluate_model(model, data, REFERENCES, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="no reference"):
        evaluate_model(model, lines, tokenizer=tokenizer)


def test_unequal_files_are_refused_before_the_model_is_loaded(files, tmp_path):
    source, reference = files("a.de", ["x", "y", "z"]), files("a.en", ["x", "y"])
    with pytest.raises(ValueError, match=r"a\.de has 3, reference .*a\.en has 2"):
        evaluate_model(tmp_path / "no_model_here", source, reference)
    with pytest.raises(ValueError, match="baseline .*has 2"):
        evaluate_model(tmp_path / "no_model_here", source, source, baseline=reference)
    with pytest.raises(FileNotFoundError, match="missing.en"):
        evaluate_model(tmp_path / "no_model_here", source, tmp_path / "missing.en")


def test_missing_tokeniser_is_found_out_before_decoding(files, tmp_path):
    source = files("a.de", ["x"])
    with pytest.raises(ValueError, match="13b"):
        evaluate_model(tmp_path / "no_model_here", source, source, tokenize="13b")


def test_existing_hypotheses_are_scored_against_several_references(files):
    paths = {name: files(f"{name}.en", lines) for name, lines in (("good", GOOD), ("bad", BAD), ("ref", REFERENCES))}
    other = files("other.en", BAD)
    result = evaluate_hypotheses(paths["good"], [paths["ref"], other], baseline=paths["bad"], n_bootstrap=10)
    nested = [list(texts) for texts in zip(REFERENCES, BAD, strict=True)]
    assert result["scores"]["ref"]["bleu"] == bleu(GOOD, nested)
    assert (result["hypotheses"], result["decoding"]) == ("good.en", None)
    assert result["significance"]["ref"]["baseline"] == "bad.en"
    with pytest.raises(ValueError, match="hypotheses has 39"):
        evaluate_hypotheses(GOOD[:39], paths["ref"])


def test_blank_and_odd_lines_of_files_stay_lines(files):
    lines = ["a b c d", "", "e\u2028f g h", "\x85x y z w"]
    result = evaluate_hypotheses(files("h.en", lines), files("r.en", lines))
    assert result["scores"]["r"]["sentences"] == 4
    assert result["scores"]["r"]["bleu"]["score"] == pytest.approx(100)


def test_main_prints_scores_and_refuses_bad_input_with_one_message(files, folder, tmp_path, capsys):
    good, reference, short = files("g.en", GOOD), files("r.en", REFERENCES), files("s.de", ["x"])
    output = tmp_path / "r.json"
    arguments = ["--hypotheses", str(good), "--reference", str(reference)]
    assert main([*arguments, "--output", str(output), "--name", "mine", "--baseline", str(good)]) == 0
    printed = capsys.readouterr().out
    assert bleu(GOOD, REFERENCES)["signature"] in printed
    assert "mine: 40 sentences" in printed
    assert json.loads(output.read_text(encoding="utf-8"))["scores"]["mine"]["bleu"] == bleu(GOOD, REFERENCES)
    bad = [
        ([*arguments, str(folder)], "either MODEL_DIR or --hypotheses"),
        ([str(folder), "--reference", str(reference)], "needs --source"),
        ([str(folder), "--reference", str(reference), "--source", str(short)], "s.de has 1"),
        ([str(tmp_path / "none"), "--reference", str(reference), "--source", str(short)], "no such folder"),
        ([*arguments[:2], "--reference", str(tmp_path / "none.en")], "no such file"),
    ]
    for case, message in bad:
        with pytest.raises(SystemExit) as stop:
            main(case)
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_script_evaluates_a_model(folder, files, tmp_path):
    script = Path(__file__).parents[1] / "training" / "evaluate.py"
    source, reference, output = files("t.de", sentences(12)), files("t.en", REFERENCES[:12]), tmp_path / "r.json"
    arguments = ["--source", source, "--reference", reference, "--output", output, "--beam", "1", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[1])}
    command = [sys.executable, script, folder, *arguments, "--max-new-tokens", "4", "--length-penalty-form", "gnmt"]
    subprocess.run(list(map(str, command)), check=True, env=environment, capture_output=True, timeout=120)
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["scores"]["t"]["sentences"] == 12
    assert (result["decoding"]["max_new_tokens"], result["decoding"]["length_penalty_form"]) == (4, "gnmt")
    assert "evaluate.py" in result["run"]["command"]
    assert str(tmp_path) not in json.dumps(result)


def test_script_does_not_hide_the_library_of_its_name():
    folder = Path(__file__).parents[1] / "training"
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import evaluate; print(evaluate.combine.__module__)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "evaluate.module"


def test_evaluator_runs_the_real_pipeline(model, tokenizer):
    register_pipelines()
    register_evaluator()
    lines = sentences(14)
    data = Dataset.from_dict({"text": lines, "label": REFERENCES[:14]})
    pipe = pipeline("translation", model=model, tokenizer=tokenizer)
    options = {"generation_kwargs": {"num_beams": 2, "max_length": 9}, "metric": SacreBLEU()}
    expected = bleu(translations(model, tokenizer, lines, max_length=9), REFERENCES[:14])
    for given in ({"model_or_pipeline": pipe}, {"model_or_pipeline": model, "tokenizer": tokenizer}):
        result = evaluate.evaluator("translation").compute(data=data, **given, **options)
        assert {key: result[key] for key in expected} == expected


# --- provenance ---


def test_run_info_names_code_versions_and_hardware(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/somewhere/train.py", "--output=/data/run", "--steps", "3"])
    info = run_info(seed=7)
    assert info["seed"] == 7
    assert info["command"] == "train.py --output=run --steps 3"
    assert set(info["versions"]) >= {"python", "torch", "transformers", "datasets", "sacrebleu", "hf_deepnmt"}
    assert all(info["versions"].values())
    assert info["hardware"]["cores"] >= 1
    assert info["hardware"]["cpu"]
    assert info["commit"] is None or len(info["commit"]) == 40
    assert json.loads(json.dumps(info)) == info


@pytest.mark.parametrize(
    "argument, portable",
    [
        ('training.output_dir="/data/runs/a.1"', 'training.output_dir="a.1"'),
        ('data.train=["/data/train.de", "train.en"]', 'data.train=["train.de", "train.en"]'),
        ('restart_adam={"max_steps": 400}', 'restart_adam={"max_steps": 400}'),
    ],
)
def test_commands_name_no_folders_in_json_values(argument, portable):
    assert provenance.command_line(["train.py", argument]) == f"train.py {portable}"


def test_commit_of_another_repository_is_not_taken(monkeypatch):
    answers = {"rev-parse --show-toplevel": "/another/tree"}
    monkeypatch.setattr(provenance, "git", lambda *arguments: answers.get(" ".join(arguments), "c0"))
    assert provenance.source_state() == {"commit": None, "dirty": None}


def test_new_results_do_not_make_a_tree_dirty(monkeypatch, tmp_path):
    package, results = tmp_path / "hf_deepnmt", tmp_path / "benchmarks" / "results" / "new.json"
    for file in (package / "provenance.py", results):
        file.parent.mkdir(parents=True)
        file.write_text("")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "hf_deepnmt"], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "-qm", "first"], check=True)
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    assert provenance.source_state()["dirty"] is False
    (package / "other.py").write_text("")
    assert provenance.source_state()["dirty"] is True


def test_a_tree_without_git_has_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance.source_state() == {"commit": None, "dirty": None}


def test_cpu_model_has_a_fallback(tmp_path):
    listing = tmp_path / "cpuinfo"
    listing.write_text("processor : 0\nmodel name\t: Fast CPU @ 3 GHz\n", encoding="utf-8")
    assert provenance.cpu_model(listing) == "Fast CPU @ 3 GHz"
    assert provenance.cpu_model(tmp_path / "missing")


def test_arguments_hold_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert portable_argument(str(tmp_path / "runs" / "a.json")) == "runs/a.json"
    assert portable_argument("/data/corpora/train.de") == "train.de"
    assert portable_argument("~/train.de") == "train.de"
    assert portable_argument("--out=/data/run") == "--out=run"
    assert portable_argument("C:\\data\\train.de") == "train.de"
    assert [portable_argument(text) for text in ("relative/x.de", "--beam", "5")] == ["relative/x.de", "--beam", "5"]


def test_results_are_sorted_and_whole(tmp_path):
    path = tmp_path / "deep" / "results.json"
    write_results(path, {"b": np.float32(0.5), "a": {"z": torch.tensor(2), "ü": [1]}})
    assert path.read_text(encoding="utf-8").index('"a"') < path.read_text(encoding="utf-8").index('"b"')
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": {"z": 2, "ü": [1]}, "b": 0.5}
    for bad in (float("nan"), np.float64("inf"), torch.tensor(float("nan"))):
        with pytest.raises(ValueError, match=r"results\.json.*scores\.bleu\[1\]"):
            write_results(path, {"scores": {"bleu": [1.0, bad]}})
    with pytest.raises(TypeError, match="object"):
        write_results(path, {"a": object()})
    assert json.loads(path.read_text(encoding="utf-8"))["b"] == 0.5
    assert [item.name for item in path.parent.iterdir()] == ["results.json"]
