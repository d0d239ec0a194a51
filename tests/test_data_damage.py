"""Damaged and odd files: each is named, and nothing is dropped or merged in silence."""

import gzip

import numpy as np
import pytest
from datasets import Dataset

from hf_deepnmt.data import DataReport, every_nth, iter_pairs, load_pairs


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.csv.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("size", [5, 60])
def test_gzip_cut_near_its_start_is_named(tmp_path, name, size):
    lines = {"jsonl": '{"de": "a%d", "en": "b"}\n', "csv": "a%d,b\n", "tsv": "a%d\tb\n"}[name.split(".")[1]]
    packed = gzip.compress("".join(lines % i for i in range(1000)).encode())
    with pytest.raises(ValueError, match=name + ".*gzip"):
        list(iter_pairs(write(tmp_path, name, packed[:size])))


def test_compressed_empty_table_is_called_empty(tmp_path):
    with pytest.raises(ValueError, match="holds no row"):
        list(iter_pairs(write(tmp_path, "a.tsv.gz", gzip.compress(b""))))


def test_column_named_twice_is_refused(tmp_path):
    path = write(tmp_path, "a.tsv", "de\ten\tde\na\tb\tc\n")
    with pytest.raises(ValueError, match="'de'"):
        list(iter_pairs(path, source_lang="de", target_lang="en"))


@pytest.mark.parametrize("text", ['{"de": "a", "en": "b", "de": "c"}\n', '[{"de": "a", "en": "b", "de": "c"}]'])
def test_json_key_given_twice_is_refused_with_its_row(tmp_path, text):
    with pytest.raises(ValueError, match="1: 'de' stands twice"):
        list(iter_pairs(write(tmp_path, "a.json", text)))


def test_text_after_a_json_array_is_not_dropped(tmp_path):
    with pytest.raises(ValueError, match="after the end of the array"):
        list(iter_pairs(write(tmp_path, "a.json", '[{"de": "a", "en": "b"}]\n[{"de": "c", "en": "d"}]')))


def test_batch_of_blank_rows_only_is_dropped_and_counted():
    data = Dataset.from_dict({"de": [""] * 10_000 + ["a"], "en": ["x"] * 10_001, "note": ["n"] * 10_001})
    report = DataReport()
    assert len(load_pairs(data, source_lang="de", target_lang="en", report=report)) == 1
    assert report.dropped == {"blank source": 10_000}


def test_column_called_source_survives_beside_translation():
    data = Dataset.from_dict({"translation": [{"de": "a", "en": "b"}], "source": ["web"]})
    assert load_pairs(data, source_lang="de", target_lang="en")["source"][:] == ["web"]


def test_third_language_left_out_is_reported():
    data = Dataset.from_dict({"translation": [{"de": "a", "en": "b", "fr": "c"}]})
    report = DataReport()
    load_pairs(data, source_lang="de", target_lang="en", report=report)
    assert "fr" in report.summary()


def test_lone_carriage_return_in_csv_gets_a_remedy(tmp_path):
    with pytest.raises(ValueError, match="line 2.*quote") as error:
        list(iter_pairs(write(tmp_path, "a.csv", "src,tgt\na\rb,c\n")))
    assert "universal-newline" not in str(error.value)


def test_first_row_of_language_codes_is_noticed(tmp_path):
    report = DataReport()
    assert list(iter_pairs(write(tmp_path, "a.tsv", "de\ten\nja\tyes\n"), report=report))[0] == ("de", "en")
    assert "header=True" in report.summary()


def test_every_nth_needs_no_list_of_all_row_numbers():
    """Peak growth in bytes per row, measured by the allocator of Python objects."""
    import tracemalloc

    data = Dataset.from_dict({"x": np.zeros(400_000, np.int8)})
    tracemalloc.start()
    every_nth(data, 23)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / len(data) < 32
