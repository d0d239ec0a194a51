"""Known corpora: local folders, raw IWSLT14 files, and what is said when something is missing."""

import gzip
import os

import datasets
import pytest
from datasets import Dataset, DatasetDict

from hf_deepnmt import corpora
from hf_deepnmt.corpora import CORPORA, load_corpus, load_folder, prepare_iwslt14, segments, strip_training_tags


def write_side(path, lines, packed=False):
    text = "".join(line + "\n" for line in lines).encode()
    path = path.with_name(path.name + ".gz") if packed else path
    path.write_bytes(gzip.compress(text) if packed else text)


@pytest.fixture
def folder(tmp_path):
    """Four training pairs, one of them blank on one side, and a validation and a test set."""
    for language, train in (("de", ["a", "b", "", "d"]), ("en", ["A", "B", "C", "D"])):
        write_side(tmp_path / f"train.{language}", train, packed=language == "de")
        write_side(tmp_path / f"val.{language}", [f"v {language}"])
        write_side(tmp_path / f"test_2016_flickr.{language}", [f"t {language}", ""])
    return tmp_path


def sides(dataset, language):
    return [row["translation"][language] for row in dataset]


def test_folder_layout_gives_the_three_splits_with_reports(folder):
    reports = {}
    data = load_corpus("multi30k", "de", "en", path=folder, reports=reports)
    assert list(data) == ["train", "validation", "test"]
    assert sides(data["train"], "de") == ["a", "b", "d"]
    assert sides(data["validation"], "en") == ["v en"]
    assert reports["train"].dropped == {"blank source": 1}


def test_blank_test_lines_stay_so_that_scores_are_comparable(folder):
    reports = {}
    data = load_folder(folder, "en", "de", reports=reports)
    assert sides(data["test"], "de") == ["t de", ""]
    assert reports["test"].noticed == {"blank pair": 1}


def test_several_test_sets_keep_their_names_beside_the_default(folder):
    for language in ("de", "en"):
        write_side(folder / f"test_2017_flickr.{language}", ["u"])
    write_side(folder / "test_2018_flickr.en", ["one side only"])
    assert list(load_corpus("multi30k", "de", "en", path=folder)) == [
        "train",
        "validation",
        "test",
        "test_2017_flickr",
    ]
    names = list(load_folder(folder, "de", "en"))
    assert names == ["train", "validation", "test_2016_flickr", "test_2017_flickr"]


def test_ambiguous_or_missing_local_files_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.fr: no such file"):
        load_folder(folder, "de", "fr")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_folder(folder / "none", "de", "en")
    (folder / "sub").mkdir()
    with pytest.raises(FileNotFoundError, match=r"such as train\.de"):
        load_folder(folder / "sub", "de", "en")
    write_side(folder / "dev.de", ["x"])
    with pytest.raises(ValueError, match="several validation sets"):
        load_folder(folder, "de", "en")
    (folder / "dev.de").unlink()
    write_side(folder / "train.de", ["x"])
    with pytest.raises(ValueError, match=r"train\.de\.gz exist; remove one"):
        load_folder(folder, "de", "en")


def test_unequal_sides_of_a_folder_are_refused(folder):
    write_side(folder / "val.en", ["one", "two"])
    with pytest.raises(ValueError, match=r"val\.de has 1 lines, .*val\.en has 2 lines"):
        load_folder(folder, "de", "en")


def test_unknown_corpus_and_pair_are_refused():
    with pytest.raises(ValueError, match="unknown corpus 'wmt99'; known: iwslt14"):
        load_corpus("wmt99", "de", "en")
    with pytest.raises(ValueError, match="iwslt14 has no pair de-fr; it has: de-en"):
        load_corpus("iwslt14", "de", "fr")


def test_corpus_without_hub_asks_for_a_path():
    with pytest.raises(ValueError, match=r"path= with train\.de"):
        load_corpus("iwslt14", "de", "en")


def test_failing_hub_asks_for_a_path(monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(ValueError, match="'wmt/wmt14'.*offline.*path="):
        load_corpus("wmt14", "en", "de")


@pytest.mark.parametrize(
    ("name", "source", "target", "config"),
    [
        ("wmt14", "en", "de", "de-en"),
        ("wmt17", "zh", "en", "zh-en"),
        ("iwslt17", "fr", "en", "iwslt2017-en-fr"),
        ("opus-100", "fr", "en", "en-fr"),
        ("multi30k", "en", "de", None),
    ],
)
def test_hub_configuration_does_not_depend_on_the_direction(monkeypatch, name, source, target, config):
    calls = []

    def load(hub_id, configuration, **_):
        calls.append((hub_id, configuration))
        part = Dataset.from_dict({source: ["a", " "], target: ["A", "B"]})
        return DatasetDict({"train": part, "validation": part, "test": part})

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = load_corpus(name, source, target)
    assert calls == [(CORPORA[name].hub_id, config)]
    assert data["train"].features["translation"].languages == [source, target]
    assert [len(part) for part in data.values()] == [1, 2, 2]


def test_training_tags_are_stripped_and_headings_kept():
    lines = [
        "<url>http://www.ted.com/x</url>",
        "<keywords>a, b</keywords>",
        "<talkid>1</talkid>",
        "<title>A &amp; B</title>",
        "<description>About it.</description>",
        " It's <b>bold</b>. ",
    ]
    assert list(strip_training_tags(lines)) == ["A &amp; B", "About it.", "It's <b>bold</b>."]


def test_segments_are_taken_and_apostrophes_straightened():
    lines = ["<doc docid='1'>", "<title>No</title>", '<seg id="1"> It\u2019s so. </seg>', '  <seg id="12">x</seg>']
    assert list(segments(lines)) == ["It's so.", "x"]
    with pytest.raises(ValueError, match="does not end on its line"):
        list(segments(['<seg id="1"> open']))


@pytest.fixture
def raw_iwslt14(tmp_path):
    for language in ("de", "en"):
        head = [f"<url>{language}</url>", f"<title>Title {language}</title>"]
        write_side(tmp_path / f"train.tags.de-en.{language}", head + [f"Satz, {i} {language}." for i in range(2, 48)])
        for name in ("tst2010", "dev2010"):
            lines = ["<doc>", f'<seg id="1"> {name} {language} </seg>', "</doc>"]
            write_side(tmp_path / f"IWSLT14.TED.{name}.de-en.{language}.xml", lines)
    return tmp_path


def test_raw_iwslt14_is_split_as_published(raw_iwslt14):
    reports = {}
    data = prepare_iwslt14(raw_iwslt14, "en", "de", reports=reports)
    assert [len(data[name]) for name in ("train", "validation", "test")] == [45, 2, 2]
    assert sides(data["train"], "de")[0] == "Title de"
    assert sides(data["validation"], "de") == ["Satz, 23 de.", "Satz, 46 de."]
    assert sides(data["test"], "en") == ["dev2010 en", "tst2010 en"]
    assert (reports["train"].read, reports["train"].kept) == (47, 45)


def test_preprocessing_of_the_literature_is_applied_on_request(raw_iwslt14):
    reports = {}
    data = load_corpus("iwslt14", "de", "en", path=raw_iwslt14, preprocess=True, reports=reports)
    assert sides(data["validation"], "de")[0] == "satz , 23 de ."
    assert reports["train"].kept == len(data["train"]) == 45
    assert sides(load_corpus("iwslt14", "de", "en", path=raw_iwslt14)["validation"], "de")[0] == "Satz, 23 de."


def test_raw_files_that_are_not_parallel_are_refused(raw_iwslt14):
    write_side(raw_iwslt14 / "train.tags.de-en.en", ["only one"])
    with pytest.raises(ValueError, match="47 sentences but .* has 1"):
        prepare_iwslt14(raw_iwslt14)


def test_languages_without_spaces_are_measured_in_characters():
    cleaning = corpora._cleaning(CORPORA["iwslt17"], ("en", "ja"))
    assert (cleaning["length_unit"], cleaning["max_ratio"]) == ("characters", None)
    assert corpora._cleaning(CORPORA["iwslt17"], ("en", "fr")) == CORPORA["iwslt17"].clean


@pytest.mark.skipif(
    "DEEPNMT_DATA" not in os.environ, reason="DEEPNMT_DATA names no folder with train.de, train.en, ..."
)
def test_real_folder_loads_without_loss_of_held_out_lines():
    reports = {}
    data = load_folder(os.environ["DEEPNMT_DATA"], "de", "en", reports=reports)
    assert reports["validation"].dropped == {}
    assert all(len(part) == reports[name].kept for name, part in data.items())
