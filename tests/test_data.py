"""Text in: what is read, refused, dropped, cleaned, split and tokenised, and that the counts say so."""

import gzip
import json

import datasets
import numpy as np
import pytest
from datasets import Dataset, DatasetDict, Features, Translation, Value

from hf_deepnmt.data import (
    DataReport,
    clean_pairs,
    count_lines,
    every_nth,
    iter_lines,
    iter_pairs,
    light_normalise,
    load_pairs,
    pair_languages,
    preprocess_pairs,
    read_parallel,
    split_pairs,
    tokenize_pairs,
    write_pairs,
)


EOS = 2


@pytest.fixture
def write(tmp_path):
    """Writes bytes or text exactly as given and returns the path."""

    def write(name, content):
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def pairs_of(dataset, source="de", target="en"):
    return [(row["translation"][source], row["translation"][target]) for row in dataset]


def dataset_of(pairs, **columns):
    rows = {"translation": [{"de": source, "en": target} for source, target in pairs], **columns}
    features = {"translation": Translation(["de", "en"]), **{name: Value("string") for name in columns}}
    return Dataset.from_dict(rows, features=Features(features))


# Line-aligned files


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_line_aligned_files_become_a_translation_column(write, ending):
    source, target = write(f"a.de{ending}", "eins\nzwei\n"), write(f"a.en{ending}", "one\ntwo")
    report = DataReport()
    dataset = read_parallel(source, target, report=report)
    assert pairs_of(dataset) == [("eins", "one"), ("zwei", "two")]
    assert dataset.features["translation"].languages == ["de", "en"]
    assert (report.read, report.kept, report.dropped) == (2, 2, {})


def test_column_order_follows_source_and_target_not_the_alphabet(write):
    dataset = read_parallel(write("a.en", "one\n"), write("a.de", "eins\n"))
    assert pair_languages(dataset) == ("en", "de")
    assert pair_languages(dataset, target_lang="en") == ("de", "en")


def test_gzip_is_recognised_without_its_ending(write, tmp_path):
    packed = tmp_path / "a.de"
    packed.write_bytes(gzip.compress(b"eins\n"))
    assert list(iter_pairs(packed, write("a.en", "one\n"))) == [("eins", "one")]


def test_unequal_line_counts_name_both_files_and_counts(write):
    source, target = write("a.src", "x\ny\nz\n"), write("a.tgt", "u\nv\n")
    with pytest.raises(ValueError, match=r"a\.src has 3 lines, .*a\.tgt has 2 lines"):
        iter_pairs(source, target)


def test_blank_sides_are_dropped_jointly_and_counted_by_row(write):
    source, target = write("b.src", "a\n\nc\nd\n \n"), write("b.tgt", "A\nB\nC\n\t\n\n")
    report = DataReport()
    assert list(iter_pairs(source, target, report=report)) == [("a", "A"), ("c", "C")]
    assert report.dropped == {"blank source": 1, "blank target": 1, "blank pair": 1}
    assert report.rows == {"blank source": [2], "blank target": [4], "blank pair": [5]}
    assert report.read == 5


def test_blank_sides_can_be_kept_or_refused(write):
    source, target = write("b.src", "a\n\n"), write("b.tgt", "A\nB\n")
    report = DataReport()
    assert list(iter_pairs(source, target, on_blank="keep", report=report)) == [("a", "A"), ("", "B")]
    assert report.noticed == {"blank source": 1}
    with pytest.raises(ValueError, match="row 2: blank source"):
        read_parallel(source, target, on_blank="error")


@pytest.mark.parametrize("character", ["\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_newline_ends_a_line(write, character):
    source, target = write("a.src", f"x{character}y\nz\r\n"), write("a.tgt", "u\r\nv\r\n")
    report = DataReport()
    assert list(iter_pairs(source, target, report=report)) == [(f"x{character}y", "u"), ("z", "v")]
    assert report.noticed == {"line-break character inside a sentence": 1}


def test_text_is_kept_character_for_character(write):
    lines = ["  lead", "trail \u00a0", "tab\there", "\u2581 \U0001f469\u200d\U0001f4bb", "e\u0301 \u00e9", "null", '"']
    source, target = write("a.src", "\n".join(lines) + "\n"), write("a.tgt", "\n".join(lines[::-1]))
    assert list(iter_pairs(source, target)) == list(zip(lines, lines[::-1], strict=True))


def test_byte_order_mark_is_stripped_and_reported(write):
    report = DataReport()
    source, target = write("a.src", b"\xef\xbb\xbfx\n"), write("a.tgt", "u\n")
    assert list(iter_pairs(source, target, report=report)) == [("x", "u")]
    assert report.notes == [f"{source}: byte-order mark stripped"]


def test_text_across_block_borders_is_intact(write, monkeypatch):
    monkeypatch.setattr("hf_deepnmt.data._BLOCK_BYTES", 3)
    lines = ["äöü\u20ac", "\U0001f600\U0001f600", "", "abc\r", "x"]
    path = write("a.src", "\n".join(lines))
    assert list(iter_lines(path)) == ["äöü\u20ac", "\U0001f600\U0001f600", "", "abc", "x"]
    assert count_lines(path) == 5


def test_alignment_file_is_a_third_side(write):
    files = write("a.de", "eins\nzwei\n"), write("a.en", "one\nno two\n")
    dataset = read_parallel(*files, alignment=write("a.align", "0-0\n0-0 0-1\n"))
    assert dataset["alignment"][:] == ["0-0", "0-0 0-1"]
    with pytest.raises(ValueError, match=r"a\.far, row 1: link 0-1"):
        read_parallel(*files, alignment=write("a.far", "0-1\n0-0 0-1\n"))
    with pytest.raises(ValueError, match=r"a\.short has 1 lines"):
        read_parallel(*files, alignment=write("a.short", "0-0\n"))


# Damaged and wrong files


def test_wrong_encoding_names_file_line_and_byte(write):
    source, target = write("a.src", b"gut\nsch\xf6n\n"), write("a.tgt", "good\nfine\n")
    with pytest.raises(ValueError, match=r"a\.src, line 2, byte offset 7: not UTF-8 .*iconv"):
        read_parallel(source, target)


def test_byte_offset_counts_the_byte_order_mark_and_earlier_blocks(write, monkeypatch):
    monkeypatch.setattr("hf_deepnmt.data._BLOCK_BYTES", 4)
    content = b"\xef\xbb\xbf" + "ääää\n".encode() + b"ab\xffc\n"
    with pytest.raises(ValueError, match=f"line 2, byte offset {content.index(0xFF)}:"):
        list(iter_lines(write("a.src", content)))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf16_is_refused_with_the_remedy(write, encoding):
    with pytest.raises(ValueError, match="UTF-16"):
        list(iter_lines(write("a.src", "hallo\n".encode(encoding))))


def test_unfinished_character_at_the_end_is_refused(write):
    with pytest.raises(ValueError, match="line 2, byte offset 2: not UTF-8"):
        list(iter_lines(write("a.src", b"x\n\xc3")))


def test_truncated_gzip_is_refused(tmp_path, write):
    data = gzip.compress(np.random.default_rng(0).bytes(5000).hex().encode())
    path = tmp_path / "a.de.gz"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"a\.de\.gz: truncated or damaged gzip"):
        read_parallel(path, write("a.en", "x\n"))


def test_missing_empty_directory_and_misnamed_files_are_named(tmp_path, write):
    good = write("a.en", "x\n")
    with pytest.raises(FileNotFoundError, match="none.de"):
        read_parallel(tmp_path / "none.de", good)
    with pytest.raises(IsADirectoryError, match="directory"):
        read_parallel(tmp_path, good)
    with pytest.raises(ValueError, match=r"e\.de: the file is empty"):
        read_parallel(write("e.de", b""), good)
    (tmp_path / "plain.de.gz").write_text("x\n")
    with pytest.raises(ValueError, match="not compressed with gzip"):
        read_parallel(tmp_path / "plain.de.gz", good)


def test_nothing_left_is_an_error_with_the_counts(write):
    with pytest.raises(ValueError, match="no pair is left.*2 blank source"):
        read_parallel(write("a.de", "\n\n"), write("a.en", "x\ny\n"))


def test_unknown_ending_single_file_and_same_language_are_refused(write):
    with pytest.raises(ValueError, match="cannot tell how to read"):
        read_parallel(write("a.txt", "x\n"))
    with pytest.raises(ValueError, match="both sides are named 'de'"):
        read_parallel(write("a.de", "x\n"), write("b.de", "x\n"))
    with pytest.raises(ValueError, match="both 'de'"):
        read_parallel(write("a.de", "x\n"), write("a.en", "x\n"), source_lang="de", target_lang="de")


def test_a_failed_read_leaves_no_file_behind(write, tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match="not UTF-8"):
        read_parallel(write("a.de", b"x\n\xff\n"), write("a.en", "x\ny\n"), cache_dir=cache)
    assert list(cache.iterdir()) == []


# TSV and CSV


def test_tsv_knows_no_quoting(write):
    path = write("e.tsv", 'src\ttgt\n"He said\tEr sagte\ngood\tgut\nbye"\ttschuess\n')
    assert list(iter_pairs(path)) == [('"He said', "Er sagte"), ("good", "gut"), ('bye"', "tschuess")]


def test_tsv_without_header_keeps_its_first_row(write):
    assert list(iter_pairs(write("a.tsv", "no\tnein\nyes\tja\n"))) == [("no", "nein"), ("yes", "ja")]
    assert list(iter_pairs(write("b.tsv", "src\ttgt\na\tb\n"), header=False)) == [("src", "tgt"), ("a", "b")]


def test_header_chooses_columns_by_language(write):
    path = write("a.tsv", "score\tEN\tde\n0.5\tone\teins\n")
    report = DataReport()
    dataset = read_parallel(path, source_lang="de", target_lang="en", report=report)
    assert pairs_of(dataset) == [("eins", "one")]
    assert report.notes == [f"{path}: columns not read: score"]


def test_columns_by_position_and_extra_columns(write):
    path = write("a.tsv", "one\teins\tCC-BY\ntwo\tzwei\tCC-BY\n")
    assert list(iter_pairs(path, columns=(1, 0))) == [("eins", "one"), ("zwei", "two")]
    with pytest.raises(ValueError, match="row 1: 3 columns"):
        iter_pairs(path)
    headed = write("b.tsv", "source\ttarget\talignment\na\tb\t0-0\n")
    assert read_parallel(headed, extra_columns=["alignment"])["alignment"][:] == ["0-0"]


def test_rows_of_wrong_width_are_named(write):
    with pytest.raises(ValueError, match=r"a\.tsv, row at line 3: 3 columns, expected 2"):
        read_parallel(write("a.tsv", "src\ttgt\na\tb\nc\td\te\n"))
    with pytest.raises(ValueError, match=r"a\.csv, row at line 2: 1 columns, expected 2"):
        read_parallel(write("a.csv", "src,tgt\na;b\n"))


def test_blank_table_row_is_counted(write):
    report = DataReport()
    assert list(iter_pairs(write("a.tsv", "a\tb\n\nc\td\n"), report=report)) == [("a", "b"), ("c", "d")]
    assert report.dropped == {"blank pair": 1}


def test_csv_cells_stay_literal_strings(write):
    words = "src,tgt\nNA,null\nNone,nan\n007,007\n1e5,True\n"
    expected = [("NA", "null"), ("None", "nan"), ("007", "007"), ("1e5", "True")]
    assert pairs_of(read_parallel(write("d.csv", words)), "src", "tgt") == expected


def test_csv_quoting_is_understood(write):
    path = write("a.csv", 'src,tgt\r\n"a, ""b""","c\nd"\r\ne,f\r\n')
    assert list(iter_pairs(path)) == [('a, "b"', "c\nd"), ("e", "f")]
    assert list(iter_pairs(write("b.csv", "src;tgt\na;b\n"), delimiter=";")) == [("a", "b")]


def test_unbalanced_csv_quote_is_an_error_not_a_long_cell(write):
    with pytest.raises(ValueError, match="not valid CSV"):
        list(iter_pairs(write("a.csv", 'src,tgt\n"a,b\nc,d\n')))


# JSON


ROWS = [{"de": "eins", "en": "one"}, {"de": "zwei", "en": "two"}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("nested", [True, False], ids=["translation", "flat"])
@pytest.mark.parametrize("array", [True, False], ids=["array", "lines"])
def test_json_forms_and_endings(write, name, nested, array):
    rows = [{"translation": row} for row in ROWS] if nested else ROWS
    text = json.dumps(rows, indent=1) if array else "\n".join(map(json.dumps, rows)) + "\n\n"
    assert pairs_of(read_parallel(write(name, text))) == [("eins", "one"), ("zwei", "two")]
    assert list(iter_pairs(write(name, text), source_lang="en", target_lang="de"))[1] == ("two", "zwei")


def test_json_array_is_read_across_block_borders(write, monkeypatch):
    monkeypatch.setattr("hf_deepnmt.data._BLOCK_BYTES", 7)
    path = write("a.json", json.dumps([{"de": f"w{i}", "en": f"v{i}"} for i in range(20)]))
    assert list(iter_pairs(path)) == [(f"w{i}", f"v{i}") for i in range(20)]


INCOMPLETE = (
    '{"translation": {"en": "a", "de": "b"}}\n{"translation": {"en": "c"}}\n'
    '{"translation": {"en": null, "de": "x"}}\n{"translation": null}\n{"translation": {"en": 7, "de": "x"}}\n'
)


def test_incomplete_json_row_is_named(write):
    with pytest.raises(ValueError, match=r"h\.jsonl, row 2: 'de' is missing or null"):
        read_parallel(write("h.jsonl", INCOMPLETE), source_lang="en", target_lang="de")


def test_incomplete_json_rows_can_be_skipped_with_a_count(write):
    report = DataReport()
    options = {"source_lang": "en", "target_lang": "de", "on_incomplete": "skip"}
    assert list(iter_pairs(write("h.jsonl", INCOMPLETE), **options, report=report)) == [("a", "b")]
    assert report.dropped == {"'de' is missing or null": 1, "'en' is missing or null": 2, "'en' is not a string": 1}
    assert report.read == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"de": "a", "en": "b"}\n{"de": \n', "line 2: not valid JSON"),
        ('[{"de": "a", "en": "b"}, {"de": "c"', "item 2: not valid JSON"),
        ('["a", "b"]', "expected an object, got str"),
        ("[]", "no row"),
        ('[{"de": "a", "en": "b"}]\n[{"de": "c", "en": "d"}]\n', "text after the end of the array"),
        ('{"de": "a", "en": "b"}\n' + "[" * 100_000, "line 2: not valid JSON"),
        ('{"de": "a", "en": "b", "fr": "c"}\n', "cannot tell the sides among"),
        ('{"de": "\\ud800", "en": "b"}\n', "row 1: half of a surrogate pair"),
    ],
)
def test_malformed_json_is_one_clear_error(write, text, message):
    with pytest.raises(ValueError, match=message):
        read_parallel(write("a.jsonl", text))


def test_several_tables_are_read_one_after_the_other(write):
    report = DataReport()
    first, second = (
        write("a.tsv", "de\ten\na\tb\n"),
        write("b.jsonl", '{"de": "c", "en": "d"}\n{"de": "", "en": "e"}\n'),
    )
    dataset = read_parallel(first, second, source_lang="de", target_lang="en", report=report)
    assert pairs_of(dataset) == [("a", "b"), ("c", "d")]
    assert (report.read, report.kept) == (3, 2)


# Report


def test_report_adds_up_over_steps_and_survives_json():
    first = DataReport(kept=8, dropped={"x": 2}, rows={"x": [1, 4]})
    first.then(DataReport(kept=5, dropped={"x": 1, "y": 2}, rows={"x": [9], "y": [3, 4]}))
    assert (first.read, first.kept, first.dropped) == (10, 5, {"x": 3, "y": 2})
    assert json.loads(json.dumps(first.as_dict()))["read"] == 10
    assert "10 pairs read, 5 kept, 5 dropped" in first.summary()
    assert "3 x (rows 1, 4, 9)" in first.summary()


def test_report_refuses_a_step_over_other_data():
    with pytest.raises(ValueError, match="belongs to another data set"):
        DataReport(kept=8).then(DataReport(kept=7))


# Data sets


def test_data_set_forms_are_brought_into_the_standard_form(tmp_path):
    nested = Dataset.from_dict({"translation": ROWS, "id": ["x", "y"]})
    flat = Dataset.from_dict({"source": ["eins", "zwei"], "en": ["one", "two"]})
    folder = tmp_path / "saved"
    DatasetDict({"train": flat, "test": flat}).save_to_disk(folder)
    sides = {"source_lang": "de", "target_lang": "en"}
    expected = [("eins", "one"), ("zwei", "two")]
    loaded = load_pairs(nested, **sides)
    assert pairs_of(loaded) == expected
    assert loaded["id"][:] == ["x", "y"]
    assert pairs_of(load_pairs(flat, **sides)) == expected
    reports = {}
    data = load_pairs(folder, **sides, report=reports)
    assert pairs_of(data["test"]) == expected
    assert reports["train"].kept == 2
    assert pairs_of(load_pairs(str(folder), split="train", **sides)) == expected


def test_null_side_of_a_data_set_is_named_or_skipped():
    data = Dataset.from_dict({"de": ["a", None, " "], "en": ["A", "B", "C"]})
    with pytest.raises(ValueError, match="row 2: 'de' is missing or null"):
        load_pairs(data, source_lang="de", target_lang="en")
    report = DataReport()
    loaded = load_pairs(data, source_lang="de", target_lang="en", on_incomplete="skip", report=report)
    assert pairs_of(loaded) == [("a", "A")]
    assert report.dropped == {"'de' is missing or null": 1, "blank source": 1}
    with pytest.raises(ValueError, match="row 2: 'de' is null"):
        clean_pairs(Dataset.from_dict({"translation": [{"de": "a", "en": "A"}, {"de": None, "en": "B"}]}))


def test_languages_left_out_are_noted_and_further_columns_stay():
    report = DataReport()
    data = Dataset.from_dict({"translation": [{"de": "a", "en": "b", "fr": "c"}], "source": ["web"]})
    loaded = load_pairs(data, source_lang="fr", target_lang="de", report=report)
    assert loaded[0] == {"translation": {"fr": "c", "de": "a"}, "source": "web"}
    assert report.notes == ["data set: languages not read: en"]


def test_wrong_languages_columns_types_and_names_are_refused(tmp_path):
    sides = {"source_lang": "de", "target_lang": "en"}
    with pytest.raises(ValueError, match=r"must be two of \['de', 'en'\]"):
        load_pairs(Dataset.from_dict({"translation": ROWS}), source_lang="de", target_lang="fr")
    with pytest.raises(ValueError, match="not found in columns"):
        load_pairs(Dataset.from_dict({"text": ["a"]}), **sides)
    with pytest.raises(ValueError, match="'de' is Value.*int64.*expected string"):
        load_pairs(Dataset.from_dict({"de": [1], "en": ["a"]}), **sides)
    with pytest.raises(ValueError, match="save_to_disk"):
        load_pairs(tmp_path, **sides)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_pairs(tmp_path / "none", **sides)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_pairs("train.jsonl", **sides)
    with pytest.raises(ValueError, match="expected one string per language"):
        clean_pairs(Dataset.from_dict({"translation": ["a"]}))


def test_hub_name_is_loaded_and_its_failure_explained(monkeypatch):
    calls = []

    def load(name, config, **options):
        calls.append((name, config, options))
        return Dataset.from_dict({"translation": ROWS})

    monkeypatch.setattr(datasets, "load_dataset", load)
    sides = {"source_lang": "de", "target_lang": "en"}
    assert len(load_pairs("owner/name", config="de-en", split="train", **sides)) == 2
    assert calls == [("owner/name", "de-en", {"split": "train", "revision": None})]

    def fail(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(ValueError, match="'owner/name'.*offline.*path="):
        load_pairs("owner/name", **sides)


def test_pairs_written_from_an_iterator_equal_those_read_back():
    pairs = [(f"w{i}", f"v{i}") for i in range(4_500)]
    assert pairs_of(write_pairs(iter(pairs), "de", "en")) == pairs


# Cleaning


def test_lengths_and_ratio_are_counted_apart():
    data = dataset_of([("a b", "c d"), ("a", "b c"), ("a " * 9, "b " * 9), ("a b", "c d e"), ("a b c", "d")])
    report = DataReport()
    cleaned = clean_pairs(data, max_length=8, max_ratio=1.5, report=report)
    assert pairs_of(cleaned) == [("a b", "c d"), ("a b", "c d e")]
    assert report.dropped == {"length ratio above 1.5": 2, "longer than 8": 1}
    assert report.rows == {"length ratio above 1.5": [2, 5], "longer than 8": [3]}


def test_lengths_in_characters_serve_languages_without_spaces():
    data = dataset_of([("\u6211\u5011\u8d70", "we go"), ("\u6211" * 40, "we go")])
    assert len(clean_pairs(data, length_unit="characters", max_length=30, max_ratio=2.0)) == 1
    assert len(clean_pairs(data, length_unit=("characters", "words"), max_length=30, max_ratio=None)) == 1
    with pytest.raises(ValueError, match="max_ratio=None"):
        clean_pairs(data, length_unit=("characters", "words"))


@pytest.mark.parametrize(
    ("deduplicate", "expected"),
    [
        ("pairs", [0, 1, 2, 4]),
        ("source", [0, 2, 4]),
        ("target", [0, 1, 4]),
        (None, [0, 1, 2, 3, 4]),
    ],
)
def test_first_of_repeated_pairs_stays(deduplicate, expected):
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("c", "z")]
    report = DataReport()
    cleaned = clean_pairs(dataset_of(pairs), deduplicate=deduplicate, report=report)
    assert pairs_of(cleaned) == [pairs[i] for i in expected]
    assert report.read == 5
    assert report.kept == len(cleaned) == len(expected)


def test_repeated_rows_are_named_by_their_row_in_the_input():
    report = DataReport()
    pairs = [("a b c", "x"), ("a", "y"), ("a", "y")] + [(f"u{i}", f"v{i}") for i in range(5_000)] + [("u7", "v7")]
    clean_pairs(dataset_of(pairs), report=report)
    assert report.rows["repeated pair"] == [3, 5_004]


def test_sides_of_a_pair_do_not_run_together_in_the_hash():
    assert len(clean_pairs(dataset_of([("a b", "c"), ("a", "b c")]), max_ratio=None)) == 2


@pytest.mark.parametrize(
    ("exclude_by", "kept"), [("either", ["b", "f"]), ("source", ["b", "c", "f"]), ("target", ["a", "b", "f"])]
)
def test_held_out_sentences_are_removed_from_training(exclude_by, kept):
    train = dataset_of([("a", "new 1"), ("b", "new 2"), ("c", "HELD out"), ("f", "new 3")])
    valid, test = dataset_of([("A!", "other")]), dataset_of([("other", "Held-out.")])
    report = DataReport()
    cleaned = clean_pairs(
        train, max_ratio=None, exclude=DatasetDict(a=valid, b=test), exclude_by=exclude_by, report=report
    )
    assert [source for source, _ in pairs_of(cleaned)] == kept
    assert sum(count for reason, count in report.dropped.items() if "held-out" in reason) == 4 - len(kept)


def test_light_normalisation_keeps_letters_marks_and_digits():
    assert light_normalise("\u201eStra\u00dfe\u201c, Nr.\u00a0\uff12!") == "strassenr2"
    assert light_normalise("\u0915\u093f") != light_normalise("\u0915")
    assert light_normalise(" ... ") == "..."


def test_control_characters_replacement_and_identical_sides():
    data = dataset_of([("a\u2028b", "c\td"), ("x\ufffd", "y"), ("Tom", "Tom "), ("p", "q")])
    report = DataReport()
    cleaned = clean_pairs(data, drop_identical=True, report=report)
    assert pairs_of(cleaned) == [("a b", "c d"), ("p", "q")]
    assert report.noticed == {"text changed by cleaning": 1}
    assert report.dropped == {"replacement character U+FFFD": 1, "source equals target": 1}
    assert len(clean_pairs(data, control="drop", drop_replacement=False)) == 3
    kept = clean_pairs(data, control="keep", drop_replacement=False)
    assert pairs_of(kept)[0] == ("a\u2028b", "c\td")


def test_unicode_normalisation_and_white_space_are_options():
    data = dataset_of([("e\u0301", "\uff12  x "), ("a", "b")])
    assert pairs_of(clean_pairs(data, max_ratio=None))[0] == ("e\u0301", "\uff12  x ")
    changed = clean_pairs(data, max_ratio=None, normalization="NFKC", collapse_whitespace=True)
    assert pairs_of(changed)[0] == ("\u00e9", "2 x")


def test_other_columns_stay_with_their_pairs():
    pairs = [("a", "b"), ("a " * 200, "c"), ("d", "e\t"), ("a", "b"), ("f", "g")]
    cleaned = clean_pairs(dataset_of(pairs, alignment=["0", "1", "2", "3", "4"]))
    assert cleaned["alignment"][:] == ["0", "2", "4"]


def test_cleaning_a_selection_sees_only_its_rows():
    data = read_back(dataset_of([(f"w{i}", f"v{i}") for i in range(6_000)]))
    chosen = data.select([5_999, 3, 3, 4_000])
    assert [source for source, _ in pairs_of(clean_pairs(chosen))] == ["w5999", "w3", "w4000"]


def read_back(data):
    return write_pairs(pairs_of(data), "de", "en")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deduplicate": "both"}, "deduplicate must be one of"),
        ({"max_ratio": 0.5}, "max_ratio"),
        ({"max_length": 0}, "max_length=0"),
        ({"normalization": "NFD"}, "normalization must be one of"),
        ({"length_unit": "bytes"}, "length_unit must be one of"),
        ({"source_lang": "fr"}, "must be two of"),
        ({"min_length": 5}, "no pair is left"),
    ],
)
def test_wrong_cleaning_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        clean_pairs(dataset_of([("a", "b")]), **options)


# Preprocessing and splits


def test_moses_tokenisation_and_lower_casing():
    data = dataset_of([("Das ist gut, oder?", "That's good, isn't it?")])
    assert pairs_of(preprocess_pairs(data, lowercase=True)) == [("das ist gut , oder ?", "that 's good , isn 't it ?")]
    assert pairs_of(preprocess_pairs(data, preprocess=None, lowercase=True))[0][0] == "das ist gut, oder?"


def test_random_split_is_deterministic_disjoint_and_complete():
    data = dataset_of([(f"w{i}", f"v{i}") for i in range(100)])
    first, second = (split_pairs(data, valid=10, test=0.2, seed=3) for _ in range(2))
    assert {name: len(part) for name, part in first.items()} == {"train": 70, "validation": 10, "test": 20}
    assert all(pairs_of(first[name]) == pairs_of(second[name]) for name in first)
    assert sorted(pair for part in first.values() for pair in pairs_of(part)) == sorted(pairs_of(data))
    assert pairs_of(split_pairs(data, valid=10, seed=4)["validation"]) != pairs_of(first["validation"])
    with pytest.raises(ValueError, match="leave no training pair"):
        split_pairs(data, valid=0.5, test=50)


def test_every_nth_row_becomes_validation():
    split = every_nth(dataset_of([(str(i), "x") for i in range(1, 8)]), 3)
    assert [source for source, _ in pairs_of(split["validation"])] == ["3", "6"]
    assert [source for source, _ in pairs_of(split["train"])] == ["1", "2", "4", "5", "7"]


# Tokenising


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c", "d"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def test_ids_lengths_and_unknown_share(tokenizer):
    report = DataReport()
    data = dataset_of([("a b", "c"), ("a x y", "d d")], alignment=["0-0", "1-1"])
    tokens = tokenize_pairs(data, tokenizer, "de", "en", report=report)
    assert tokens["input_ids"][:] == [[4, 5, EOS], [4, 3, 3, EOS]]
    assert tokens["labels"][:] == [[6, EOS], [7, 7, EOS]]
    assert (tokens["source_length"][:], tokens["target_length"][:]) == ([3, 4], [2, 3])
    assert tokens["alignment"][:] == ["0-0", "1-1"]
    assert tokens.features["input_ids"].feature.dtype == "int32"
    assert report.counts["unknown source tokens"] == 2
    assert report.share_unknown("source") == pytest.approx(2 / 7)
    assert report.share_unknown("target") == 0


def test_direction_can_be_turned(tokenizer):
    assert tokenize_pairs(dataset_of([("a", "b")]), tokenizer, "en", "de")["labels"][:] == [[4, EOS]]


def test_over_long_pairs_are_skipped_with_a_count(tokenizer):
    report = DataReport()
    data = dataset_of([("a " * 500, "b " * 500), ("a", "b"), ("a", "b b b")])
    tokens = tokenize_pairs(data, tokenizer, max_source_length=16, max_target_length=3, report=report)
    assert tokens["input_ids"][:] == [[4, EOS]]
    assert report.dropped == {"source longer than 16 tokens": 1, "target longer than 3 tokens": 1}
    assert report.rows["target longer than 3 tokens"] == [3]
    with pytest.raises(ValueError, match="row 1: the source has 501 tokens"):
        tokenize_pairs(data, tokenizer, max_source_length=16, on_too_long="error")


def test_truncation_keeps_end_of_source_and_adds_none_to_target(tokenizer):
    report = DataReport()
    data = dataset_of([("a " * 500, "b " * 500), ("a", "b")])
    limits = {"max_source_length": 16, "max_target_length": 8}
    tokens = tokenize_pairs(data, tokenizer, on_too_long="truncate", **limits, report=report)
    assert tokens[0]["input_ids"] == [4] * 15 + [EOS]
    assert tokens[0]["labels"] == [5] * 8
    assert tokens[1]["labels"] == [5, EOS]
    assert report.noticed == {"source truncated to 16 tokens": 1, "target truncated to 8 tokens": 1}


def test_source_and_target_may_be_treated_differently(tokenizer):
    report = DataReport()
    data = dataset_of([("a " * 50, "b"), ("a", "b " * 50), ("a " * 50, "b " * 50), ("a", "b")])
    limits = {"max_source_length": 16, "max_target_length": 8, "on_too_long": ("truncate", "skip")}
    tokens = tokenize_pairs(data, tokenizer, **limits, report=report)
    assert tokens["input_ids"][:] == [[4] * 15 + [EOS], [4, EOS]]
    assert report.noticed == {"source truncated to 16 tokens": 1}
    assert report.counts["cut source tokens"] == 51 - 16
    assert report.dropped == {"target longer than 8 tokens": 2}
    with pytest.raises(ValueError, match="row 2: the target has 51 tokens"):
        tokenize_pairs(data, tokenizer, **{**limits, "on_too_long": ("truncate", "error")})
    for wrong, message in ((("truncate", "cut"), "'cut'"), (("skip",), "two for source and target")):
        with pytest.raises(ValueError, match=message):
            tokenize_pairs(data, tokenizer, on_too_long=wrong)


def test_workers_give_the_same_rows_and_report(tokenizer):
    data = dataset_of([("a " * (i % 7 + 1), "b x") for i in range(9_000)])
    one, two = DataReport(), DataReport()
    first = tokenize_pairs(data, tokenizer, max_source_length=6, report=one)
    second = tokenize_pairs(data, tokenizer, max_source_length=6, num_proc=2, report=two)
    assert first["input_ids"][:] == second["input_ids"][:]
    assert one == two


def test_tokenizer_without_end_of_sentence_is_refused(tokenizer):
    from copy import deepcopy

    from tokenizers import processors

    bare = deepcopy(tokenizer)
    bare.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A")
    with pytest.raises(ValueError, match="does not end the source"):
        tokenize_pairs(dataset_of([("a", "b")]), bare)


def test_columns_in_the_way_or_missing_are_refused(tokenizer):
    data = dataset_of([("a", "b")], labels=["x"])
    with pytest.raises(ValueError, match="there already"):
        tokenize_pairs(data, tokenizer)
    assert "translation" not in tokenize_pairs(data, tokenizer, remove_columns=["labels", "translation"]).column_names
    with pytest.raises(ValueError, match="not in the data set"):
        tokenize_pairs(data, tokenizer, remove_columns=["score"])


def test_two_vocabulary_tokenizer_encodes_each_side_with_its_own():
    from hf_deepnmt.tokenization import train_tokenizer

    source, target = ["aa bb"] * 4, ["xx yy zz"] * 4
    options = {"joint": False, "vocab_size": 300, "show_progress": False}
    tokens = train_tokenizer(source, target, **options)
    row = tokenize_pairs(dataset_of([("aa bb", "xx yy zz")]), tokens)[0]
    assert row["labels"] == tokens(text_target="xx yy zz")["input_ids"]
    assert row["input_ids"] == tokens("aa bb")["input_ids"]


def test_memory_of_reading_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    import tracemalloc

    # blocks far smaller than the files, so that both sizes fill them
    monkeypatch.setattr("hf_deepnmt.data._BLOCK_BYTES", 1 << 15)
    peaks = []
    for size in (20_000, 80_000):
        for language in ("de", "en"):
            with gzip.open(tmp_path / f"{size}.{language}.gz", "wt", compresslevel=1) as stream:
                stream.writelines(f"{language} word number {i}\n" for i in range(size))
        tracemalloc.start()
        data = read_parallel(tmp_path / f"{size}.de.gz", tmp_path / f"{size}.en.gz")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(data) == size
    assert peaks[1] < 1.5 * peaks[0]
