"""The generated documents: the same on every machine, the sizes promised, and summaries that a document supports."""

import hashlib
import re

import pytest

from hf_deepnmt.toy_summaries import (
    _MEN,
    _SURNAMES,
    _WOMEN,
    MAX_SENTENCES,
    MIN_SENTENCES,
    generate_documents,
    main,
    toy_summaries,
    write_toy_summaries,
)


PAIRS = list(generate_documents(1500, seed=1))


def sentences(text):
    return re.split(r'(?<=[.!?]) (?=[A-Z0-9"])', text)


def test_a_seed_gives_the_same_text_everywhere():
    text = "".join(f"{document}\t{summary}\n" for document, summary in PAIRS[:200])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "d1450aa5d9d34b45c36525f714319c33fc43d9cbf7405d04b9b17c55516cc9d1"
    )
    assert list(generate_documents(50, seed=1)) == PAIRS[:50]
    assert next(generate_documents(1, seed=2)) != PAIRS[0]


def test_documents_are_distinct_and_of_all_lengths():
    assert len({document for document, _ in PAIRS}) == len(PAIRS)
    assert {len(sentences(document)) for document, _ in PAIRS} == set(range(MIN_SENTENCES, MAX_SENTENCES + 1))
    assert {len(sentences(summary)) for _, summary in PAIRS} == {2}


def test_text_is_whole_and_plain():
    for text in (text for pair in PAIRS for text in pair):
        assert text.isascii() and not re.search(r"[{}\n]|  ", text), text
        assert all(re.match(r'["A-Z0-9]', sentence) for sentence in sentences(text)), text


def test_names_and_numbers_of_a_summary_are_those_of_the_document():
    for document, summary in PAIRS:
        facts = re.findall(r"[0-9]+|(?<!^)(?<!\. )[A-Z][a-z]+", summary)
        words = set(re.findall(r"\w+", document))
        assert set(facts) <= words, (document, summary)


def test_a_summary_is_no_part_of_its_document():
    copied = [summary for document, summary in PAIRS if set(sentences(summary)) & set(sentences(document))]
    assert not copied


def test_a_surname_is_one_person():
    person = re.compile(rf"({'|'.join(_WOMEN + _MEN)}) ({'|'.join(_SURNAMES)})")
    for document, _ in PAIRS:
        people = set(person.findall(document))
        assert len({surname for _, surname in people}) == len(people), document


def test_splits_do_not_share_documents_and_held_out_ones_do_not_depend_on_the_training_size():
    small, large = toy_summaries(train=40, validation=20, test=30, seed=3), toy_summaries(80, 20, 30, seed=3)
    assert {name: len(part) for name, part in small.items()} == {"train": 40, "validation": 20, "test": 30}
    for name in ("validation", "test"):
        assert small[name].to_list() == large[name].to_list()
    assert small["train"].to_list() == large["train"].to_list()[:40]
    documents = [row["translation"]["document"] for part in large.values() for row in part]
    assert len(set(documents)) == len(documents)
    assert list(small["train"][0]["translation"]) == ["document", "summary"]


def test_files_hold_what_the_data_set_holds(tmp_path):
    sizes = {"train": 12, "validation": 3, "test": 4}
    assert write_toy_summaries(tmp_path, **sizes, seed=5) == sizes
    data = toy_summaries(**sizes, seed=5)
    for name, part in data.items():
        for side in ("document", "summary"):
            lines = (tmp_path / f"{name}.{side}").read_text(encoding="utf-8").splitlines()
            assert lines == [row["translation"][side] for row in part]


def test_the_module_is_a_command(tmp_path, capsys):
    arguments = [str(tmp_path / "out"), "--train", "5", "--validation", "0", "--test", "2"]
    main(arguments)
    assert "5 train documents, 0 validation documents, 2 test documents" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--seed", "-1"])
    assert stop.value.code == 2 and "seed must be 0 or more, got -1" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [((-1,), "count"), ((1, -1), "seed")])
def test_negative_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"{message} must be 0 or more, got -1"):
        generate_documents(*arguments)
