"""Word links: words, files, symmetrisation, error rate, aligners, and the target order that they give."""

import gzip
import importlib.util
import json
import random
import struct
import sys

import pytest
import torch
from datasets import Dataset, DatasetDict, Features, Translation, Value
from tiny import tiny_config
from typer.testing import CliRunner

from hf_deepnmt.aligners import ALIGNERS, WordTable, convert_links, write_links
from hf_deepnmt.alignment import (
    SYMMETRISATIONS,
    LinkFormat,
    alignment_error_rate,
    format_links,
    iter_links,
    parse_gold,
    parse_links,
    split_words,
    symmetrise,
    word_spans,
)
from hf_deepnmt.batching import Seq2SeqCollator
from hf_deepnmt.cli import app
from hf_deepnmt.corpora import load_corpus
from hf_deepnmt.data import (
    DataReport,
    attach_links,
    clean_pairs,
    load_pairs,
    preprocess_pairs,
    read_parallel,
    tokenize_pairs,
)
from hf_deepnmt.models import DeepNMTForConditionalGeneration
from hf_deepnmt.target_order import NO_POSITION, TargetOrder, target_positions, target_ranks
from hf_deepnmt.tokenization import train_tokenizer
from hf_deepnmt.toy_corpus import generate_pairs, toy_corpus
from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments
from hf_deepnmt.training import collator_for, load_recipe, prepare, recipe_from_dict, train


INSTALLED = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed"),
    )
    for name, module in (("eflomal", "eflomal"), ("fast_align", "systran_align"))
]


@pytest.fixture
def write(tmp_path):
    def write(name, *lines):
        path, data = tmp_path / name, "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def dataset_of(pairs, links):
    features = Features({"translation": Translation(["de", "en"]), "alignment": Value("string")})
    rows = {"translation": [{"de": source, "en": target} for source, target in pairs], "alignment": links}
    return Dataset.from_dict(rows, features=features)


# --- words ---


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("Don't go , now", "spaces", ["Don't", "go", ",", "now"]),
        (" a\u00a0b\u3000c ", "spaces", ["a", "b", "c"]),
        ("Don't go,now!", "text", ["Don", "'", "t", "go", ",", "now", "!"]),
        ("rot-weiß kostet 3.50 oder 1,000.", "text", ["rot", "-", "weiß", "kostet", "3.50", "oder", "1,000", "."]),
        ("他在2019年来到北京。", "text", ["他", "在", "2019", "年", "来", "到", "北", "京", "。"]),
        ("私はコンピュータを買った。", "text", ["私", "は", "コンピュータ", "を", "買", "っ", "た", "。"]),
        ("e\u0301te\u0301 ...", "text", ["e\u0301te\u0301", ".", ".", "."]),
        ("안녕 세상", "text", ["안녕", "세상"]),
        (" \u2028\x1c ", "text", []),
        ("", "spaces", []),
    ],
)
def test_words_by_rule(text, rule, words):
    assert split_words(text, rule) == words
    assert [text[start:end] for start, end in word_spans(text, rule)] == words


def test_unknown_word_rule_is_refused():
    for use in (lambda: word_spans("a", "moses"), lambda: LinkFormat("moses"), lambda: TargetOrder(words="moses")):
        with pytest.raises(ValueError, match="spaces, text, not by 'moses'"):
            use()


# --- links as text ---


def test_links_survive_text():
    links = [(3, 0), (0, 12), (0, 0)]
    assert parse_links(format_links(links)) == links and parse_links("  ") == []


@pytest.mark.parametrize("bad", ["0_0", "0--1", "a-b", "0-0:0.9", "1-", "0-1-2", "-1-0", "٣-0"])
def test_malformed_links_are_named_with_their_row(bad):
    with pytest.raises(ValueError, match="corpus.links, row 2") as caught:
        list(iter_links(["0-0", f"0-0 {bad}"], [("a b c d", "A B C D")] * 2, name="corpus.links"))
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "link_format", "hint"),
    [
        ("0-0 1-4", LinkFormat(), "reverse=True"),
        ("5-2", LinkFormat(), "one_based=True"),
        ("0-0", LinkFormat(one_based=True), "one_based=False"),
        ("4-1", LinkFormat(reverse=True), "reverse=False"),
        ("9-9", LinkFormat(), "is it the text that was aligned"),
    ],
)
def test_links_outside_the_pair_are_refused_with_what_would_fit(line, link_format, hint):
    with pytest.raises(ValueError, match=f"row 1: link .* 5 source and 2 target words.*{hint}") as caught:
        list(iter_links([line], [("a b c d e", "A B")], link_format))
    assert line.split()[-1] in str(caught.value)


def test_formats_of_other_tools_are_turned_into_ours():
    pair = ("a b c", "A B")
    assert LinkFormat(one_based=True).read("1-1 3-2", *pair) == [(0, 0), (2, 1)]
    assert LinkFormat(reverse=True).read("0-0 1-2", *pair) == [(0, 0), (2, 1)]
    assert LinkFormat(one_based=True, reverse=True).read("2-3", *pair) == [(2, 1)]
    assert LinkFormat("text").read("2-0", "a, b", "A") == [(2, 0)]


def test_other_numbers_of_lines_are_refused():
    pairs = [("a", "A"), ("b", "B")]
    with pytest.raises(ValueError, match="x has 1 lines, fewer than"):
        list(iter_links(["0-0"], pairs, name="x"))
    with pytest.raises(ValueError, match="x has more lines than the text, which has 2"):
        list(iter_links(["0-0"] * 3, pairs, name="x"))


# --- symmetrisation ---

# forward: 0-0 1-1 1-2 4-4; reverse: 0-0 1-1 2-2 3-3
FORWARD, REVERSE = [(0, 0), (1, 1), (1, 2), (4, 4)], [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("method", "links"),
    [
        ("forward", FORWARD),
        ("reverse", REVERSE),
        ("intersect", [(0, 0), (1, 1)]),
        ("union", [(0, 0), (1, 1), (1, 2), (2, 2), (3, 3), (4, 4)]),
        # 1-1 takes in 1-2 (target 2 is free), then 2-2 (source 2 is free), which takes in 3-3, and that 4-4
        ("grow-diag", [(0, 0), (1, 1), (1, 2), (2, 2), (3, 3), (4, 4)]),
    ],
)
def test_symmetrisation_of_a_small_example(method, links):
    assert symmetrise(FORWARD, REVERSE, method) == links


def test_final_adds_links_away_from_the_diagonal():
    # nothing touches 0-0; 3-3 links two free words, 0-5 one free word
    forward, reverse = [(0, 0), (3, 3), (0, 5)], [(0, 0)]
    assert symmetrise(forward, reverse, "grow-diag") == [(0, 0)]
    assert symmetrise(forward, reverse, "grow-diag-final-and") == [(0, 0), (3, 3)]
    assert symmetrise(forward, reverse, "grow-diag-final") == [(0, 0), (0, 5), (3, 3)]


def test_final_takes_forward_links_before_reverse_ones():
    assert symmetrise([(1, 2)], [(1, 0)]) == [(1, 2)]
    assert symmetrise([(1, 0)], [(1, 2)]) == [(1, 0)]


def test_growing_goes_back_to_links_above():
    # 1-1 is common; 0-2 touches it diagonally, and only then 0-3 touches 0-2
    assert symmetrise([(1, 1), (0, 2), (0, 3)], [(1, 1)], "grow-diag") == [(0, 2), (0, 3), (1, 1)]


def test_symmetrised_links_lie_between_intersection_and_union():
    draw = random.Random(0)
    for _ in range(200):
        sizes = draw.randint(1, 7), draw.randint(1, 7)
        forward = [(draw.randrange(sizes[0]), j) for j in range(sizes[1]) if draw.random() < 0.8]
        reverse = [(i, draw.randrange(sizes[1])) for i in range(sizes[0]) if draw.random() < 0.8]
        found = {method: set(symmetrise(forward, reverse, method)) for method in SYMMETRISATIONS}
        assert found["intersect"] == set(forward) & set(reverse) and found["union"] == {*forward, *reverse}
        chain = ["intersect", "grow-diag", "grow-diag-final-and", "union"]
        for smaller, larger in zip(chain, chain[1:], strict=False):
            assert found[smaller] <= found[larger]
        assert found["grow-diag"] <= found["grow-diag-final"] <= found["union"]


def test_unknown_symmetrisation_is_refused():
    with pytest.raises(ValueError, match="grow-diag-final-and, not 'gdfa'"):
        symmetrise([], [], "gdfa")


# --- quality ---


def test_error_rate_by_hand():
    predicted = [[(0, 0), (1, 1), (2, 1)], [(0, 1)]]
    sure = [[(0, 0), (1, 1), (3, 3)], []]
    possible = [[(2, 1)], [(1, 0)]]
    score = alignment_error_rate(predicted, sure, possible)
    # 2 of 4 links are sure, 3 of 4 possible; 3 sure links in all
    assert (score.sentences, score.links, score.sure, score.possible) == (2, 4, 3, 5)
    assert score.precision == 3 / 4 and score.recall == 2 / 3
    assert score.aer == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_sure_links_are_possible_and_repeated_links_count_once():
    assert alignment_error_rate([[(0, 0), (0, 0)]], [[(0, 0)]]).aer == 0
    assert alignment_error_rate([[(0, 1)]], [[(0, 0)]]).aer == 1
    nothing = alignment_error_rate([[]], [[(0, 0)]])
    assert (nothing.aer, nothing.precision, nothing.recall) == (1, 0, 0)


def test_error_rate_of_nothing_or_of_other_sentences_is_refused():
    with pytest.raises(ValueError, match="neither predicted nor sure"):
        alignment_error_rate([[]], [[]])
    with pytest.raises(ValueError, match="2 predicted sentences, 1 with sure"):
        alignment_error_rate([[], []], [[(0, 0)]])


def test_gold_links_are_sure_or_possible():
    assert parse_gold("1-2 3p4 2-2") == ([(0, 1), (1, 1)], [(2, 3)])
    assert parse_gold("0-1", one_based=False) == ([(0, 1)], [])
    for bad in ("0-1", "1:2", "1s2"):
        with pytest.raises(ValueError, match=bad):
            parse_gold(bad)


# --- from links to order ---


@pytest.mark.parametrize(
    ("links", "sizes", "order", "ranks"),
    [
        # verb at the end comes first
        ([(0, 0), (1, 2), (2, 3), (3, 1)], (4, 4), {}, [0, 2, 3, 1]),
        # word 0 has no link and none to its left: it takes the key of word 1, and stands before it
        ([(1, 1), (2, 0)], (3, 2), {}, [1, 2, 0]),
        # word 1 goes with word 0
        ([(0, 1), (2, 0)], (3, 2), {}, [1, 2, 0]),
        ([(0, 1), (2, 0)], (3, 2), {"unaligned": "right"}, [2, 0, 1]),
        ([(0, 0), (1, 1)], (3, 2), {"unaligned": "right"}, [0, 1, 2]),
        # halfway between 3 and 0: behind word 3, which has key 1
        ([(0, 3), (2, 0), (3, 1)], (4, 4), {"unaligned": "interpolate"}, [3, 2, 0, 1]),
        # its own place 1 x 4 / 4 = 1: behind word 2, which has key 0
        ([(0, 3), (2, 0), (3, 2)], (4, 4), {"unaligned": "keep"}, [3, 1, 0, 2]),
        # 0 is linked with 0 and 5: mean 2.5, behind word 2
        ([(0, 5), (0, 0), (1, 3), (2, 2)], (3, 6), {}, [1, 2, 0]),
        ([(0, 5), (0, 0), (1, 3), (2, 2)], (3, 6), {"multi": "min"}, [0, 2, 1]),
        ([(0, 5), (0, 0), (1, 3), (2, 2)], (3, 6), {"multi": "first"}, [2, 1, 0]),
        ([(0, 0), (0, 4), (0, 5), (1, 3)], (2, 6), {"multi": "median"}, [1, 0]),
        # two words with one translation keep their order
        ([(0, 1), (1, 1), (2, 0)], (3, 2), {}, [1, 2, 0]),
    ],
)
def test_ranks_by_hand(links, sizes, order, ranks):
    assert target_ranks(links, *sizes, TargetOrder(**order)) == ranks


def test_ranks_are_a_permutation_whatever_the_links():
    draw = random.Random(1)
    for _ in range(100):
        sizes = draw.randint(1, 8), draw.randint(1, 8)
        links = [(draw.randrange(sizes[0]), draw.randrange(sizes[1])) for _ in range(draw.randint(1, 9))]
        for multi in ("mean", "min", "median", "first"):
            for unaligned in ("left", "right", "interpolate", "keep"):
                ranks = target_ranks(links, *sizes, TargetOrder(multi=multi, unaligned=unaligned))
                assert sorted(ranks) == list(range(sizes[0]))


def test_no_links_give_no_order():
    assert target_ranks([], 3, 3) == [] and target_ranks([], 0, 2) == []


def test_unknown_rules_of_order_are_refused():
    with pytest.raises(ValueError, match="`multi` is one of mean"):
        TargetOrder(multi="last")
    with pytest.raises(ValueError, match="`unaligned` is one of left"):
        TargetOrder(unaligned="up")


def positions(text, words, links, tokens, target_words, order=None, **kwargs):
    """Tokens as pieces of the text in order, `$` the end of sentence."""
    spans, special, end = [], [], 0
    for token in tokens:
        special.append(token == "$")
        start = end if special[-1] else text.index(token, end)
        end = start if special[-1] else start + len(token)
        spans.append((0, 0) if special[-1] else (start, end))
    return target_positions(links, word_spans(text, words), spans, special, target_words, order, **kwargs)


def test_pieces_of_a_word_stay_together_and_the_end_stays_last():
    # the last word comes first: its two pieces have places 0 and 1
    tokens = ["Ich", " hab", "e", " ge", "schlafen", "$"]
    links = [(0, 1), (1, 2), (2, 0)]
    assert positions("Ich habe geschlafen", "spaces", links, tokens, 3) == [2, 3, 4, 0, 1, 5]


def test_punctuation_is_part_of_the_word_or_a_word_as_the_rule_says():
    tokens = ["Ja", ",", " gut", ".", "$"]
    assert positions("Ja, gut.", "spaces", [(0, 1), (1, 0)], tokens, 2) == [2, 3, 0, 1, 4]
    # ja - , - gut - . with the comma last but one
    assert positions("Ja, gut.", "text", [(0, 1), (1, 2), (2, 0), (3, 3)], tokens, 4) == [1, 2, 0, 3, 4]


def test_tokens_over_several_words_take_all_their_links():
    # characters are words; tokens have two characters, and 京/来 is split elsewhere
    text, tokens = "他在北京来了", ["他在", "北京", "来了", "$"]
    links = [(0, 4), (1, 5), (2, 2), (3, 3), (4, 0), (5, 1)]
    assert positions(text, "text", links, tokens, 6) == [2, 1, 0, 3]
    # token 京来 ties two words into one unit with mean key 1.5, behind 了 with key 1
    assert positions(text, "text", links, ["他", "在", "北", "京来", "了", "$"], 6) == [3, 4, 2, 1, 0, 5]
    # 在北 and 北京 share a word, so three words are one unit, with mean key 10 / 3
    spans = [(0, 1), (1, 3), (2, 4), (4, 6)]
    assert target_positions(links, word_spans(text, "text"), spans, [False] * 4, 6) == [3, 1, 2, 0]


def test_japanese_words_with_spaces_and_without():
    links = [(0, 0), (1, 3), (2, 2), (3, 1)]
    assert positions("私 本 を 読む", "spaces", links, ["私", " 本", " を", " 読", "む", "$"], 4) == [0, 4, 3, 1, 2, 5]
    # 私 は 本 を 読 む: は goes with 私, を with 本, む with 読
    links = [(0, 0), (2, 2), (4, 1)]
    tokens = ["私", "は", "本を", "読む", "$"]
    assert positions("私は本を読む", "text", links, tokens, 3) == [0, 1, 3, 2, 4]


def test_white_space_alone_goes_with_the_word_behind_it():
    assert positions("a  ☃ ", "spaces", [(0, 1), (1, 0)], ["a", " ", " ", "☃", " ", "$"], 2) == [4, 0, 1, 2, 3, 5]


def test_special_tokens_keep_their_places_wherever_they_are():
    assert positions("a b", "spaces", [(0, 1), (1, 0)], ["$", "a", " b", "$"], 2) == [0, 2, 1, 3]


def test_links_to_words_that_were_cut_are_dropped():
    links = [(0, 1), (1, 0), (2, 2)]
    assert positions("a b c", "spaces", links, ["a", " b", "$"], 3) == [1, 0, 2]
    assert positions("a b c", "spaces", [(2, 0)], ["a", " b", "$"], 3) is None
    assert positions("a b c", "spaces", links, ["a", " b", " c", "$"], 3, kept_target_words=1) == [0, 1, 2, 3]
    assert positions("a b c", "spaces", links, ["a", " b", " c", "$"], 3, kept_target_words=0) is None


# --- the column of a data set ---


@pytest.fixture(scope="module")
def corpus():
    return toy_corpus(train=300, validation=20, test=20, with_alignment=True)


def tokenizer_of(corpus, **options):
    texts = [[row[side] for row in corpus["train"]["translation"]] for side in ("de", "en")]
    return train_tokenizer(*texts, vocab_size=500, show_progress=False, **options)


@pytest.mark.parametrize(
    "options", [{}, {"joint": False}, {"algorithm": "unigram"}, {"lowercase": True, "normalizer": "nfkc"}], ids=str
)
def test_tokens_follow_the_links_with_every_tokenizer(corpus, options):
    """Checked through the decoded text: sorted by position, whole words stand in the order of their links."""
    tokenizer = tokenizer_of(corpus, **options)
    data = corpus["train"].select(range(60))
    encoded = tokenize_pairs(data, tokenizer, "de", "en", target_order=TargetOrder())
    assert encoded.features["target_positions"].feature.dtype == "float32"
    split = 0
    for row in encoded:
        ids, places = row["input_ids"], [int(place) for place in row["target_positions"]]
        assert sorted(places) == list(range(len(ids))) and places[-1] == len(ids) - 1
        words = row["translation"]["de"].split()
        ranks = target_ranks(
            parse_links(row["alignment"]), len(words), len(row["translation"]["en"].split()), TargetOrder()
        )
        expected = "".join(word for _, word in sorted(zip(ranks, words, strict=True)))
        ordered = [id for _, id in sorted(zip(places, ids, strict=True))]
        side = {"use_source_tokenizer": True} if options.get("joint") is False else {}
        text = tokenizer.decode(ordered, skip_special_tokens=True, **side).replace(" ", "")
        assert text == (expected.lower() if options.get("lowercase") else expected)
        split += len(ids) - 1 > len(words)
    assert split > 50


def test_rows_without_links_are_unsupervised_and_counted(corpus):
    tokenizer, report = tokenizer_of(corpus), DataReport()
    pairs = [("ein Hund", "a dog"), ("zwei Hunde", "two dogs"), ("Hund", "")]
    data = dataset_of(pairs, ["0-0 1-1", "", None])
    encoded = tokenize_pairs(data, tokenizer, "de", "en", target_order=TargetOrder(), report=report)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    assert encoded["target_positions"][0] == list(range(lengths[0]))
    assert encoded["target_positions"][1:] == [[NO_POSITION] * length for length in lengths[1:]]
    assert report.noticed["no word links, so no target order"] == 2 and report.kept == 3
    assert report.rows["no word links, so no target order"] == [2, 3]


def test_truncated_sentences_have_an_order_of_what_is_left(corpus):
    tokenizer, report = tokenizer_of(corpus), DataReport()
    words = ["Hund", "Katze", "Haus", "Baum", "Buch", "Tisch", "Brot", "Wein"]
    links = [format_links((i, len(words) - 1 - i) for i in range(len(words)))]
    data = dataset_of([(" ".join(words), " ".join(words))], links)
    limits = {"max_source_length": 7, "on_too_long": "truncate", "report": report}
    whole = tokenize_pairs(data, tokenizer, "de", "en", target_order=TargetOrder())[0]
    cut = tokenize_pairs(data, tokenizer, "de", "en", target_order=TargetOrder(), **limits)[0]
    assert len(cut["input_ids"]) == 7 < len(whole["input_ids"])
    assert sorted(cut["target_positions"]) == list(range(7)) and cut["target_positions"][-1] == 6
    order = whole["target_positions"][:6]
    assert cut["target_positions"][:6] == [sorted(order).index(place) for place in order]
    # of the target, two words are left: only the last two source words keep their links, and those are cut as well
    both = {**limits, "max_target_length": 2}
    gone = tokenize_pairs(data, tokenizer, "de", "en", target_order=TargetOrder(), **both)[0]
    assert gone["target_positions"] == [NO_POSITION] * 7
    assert report.noticed["no word links, so no target order"] == 1


def test_order_without_links_or_offsets_is_refused(corpus):
    tokenizer = tokenizer_of(corpus)
    plain = corpus["train"].remove_columns("alignment")
    with pytest.raises(ValueError, match="(?s)no column 'alignment'.*attach_links"):
        tokenize_pairs(plain, tokenizer, target_order=TargetOrder())
    numbers = plain.add_column("alignment", [0] * len(plain))
    with pytest.raises(ValueError, match="expected a string"):
        tokenize_pairs(numbers, tokenizer, target_order=TargetOrder())
    wrong = dataset_of([("a b", "A B"), ("a", "A")], ["0-0", "0-1"])
    with pytest.raises(ValueError, match="row 2, column 'alignment': link 0-1"):
        tokenize_pairs(wrong, tokenizer, "de", "en", target_order=TargetOrder())


def test_collator_pads_positions(corpus):
    encoded = tokenize_pairs(corpus["test"], tokenizer_of(corpus), "de", "en", target_order=TargetOrder())
    rows = [{name: encoded[i][name] for name in ("input_ids", "labels", "target_positions")} for i in range(5)]
    batch = Seq2SeqCollator(1, extra_columns={"target_positions": NO_POSITION})(rows)
    assert batch["target_positions"].dtype == torch.float32
    assert batch["target_positions"].shape == batch["input_ids"].shape
    assert torch.equal(batch["target_positions"] == NO_POSITION, batch["attention_mask"] == 0)


# --- links stay with their pairs ---


def test_file_of_links_is_checked_and_normalised(write):
    files = write("a.de", "eins zwei", "", "drei"), write("a.en", "one two", "x", "three")
    report = DataReport()
    links = write("a.links.gz", "1-1 2-2", "", "1-1")
    data = read_parallel(*files, alignment=links, link_format=LinkFormat(one_based=True), report=report)
    assert data["alignment"][:] == ["0-0 1-1", "0-0"] and report.dropped == {"blank source": 1}
    with pytest.raises(ValueError, match=r"b\.links, row 3: link 0-1"):
        read_parallel(*files, alignment=write("b.links", "0-0", "", "0-1"))
    with pytest.raises(ValueError, match=r"c\.links has 2 lines"):
        read_parallel(*files, alignment=write("c.links", "0-0", ""))


def test_links_of_a_data_set_by_row(write):
    data = Dataset.from_dict({"de": ["a b", "", "c"], "en": ["A B", "x", "C"]})
    languages = {"source_lang": "de", "target_lang": "en"}
    links = write("x.links", "0-0 1-1", "", "0-0")
    assert load_pairs(data, **languages, alignment=links)["alignment"][:] == ["0-0 1-1", "0-0"]
    pairs = load_pairs(data, **languages, on_blank="keep")
    assert attach_links(pairs, links)["alignment"][:] == ["0-0 1-1", "", "0-0"]
    with pytest.raises(ValueError, match=r"y\.links, row 3: link 1-0"):
        attach_links(pairs, write("y.links", "0-0", "", "1-0"))
    with pytest.raises(ValueError, match=r"z\.links has 4 lines but the data has 3 pairs"):
        attach_links(pairs, write("z.links", "", "", "", ""))
    with pytest.raises(ValueError, match="one of \\['train'\\]"):
        load_pairs(DatasetDict({"train": data}), **languages, alignment=links)


def test_links_of_a_corpus_folder_by_split(write, tmp_path):
    for split, lines in (("train", ["a b", "", "c"]), ("val", ["a b"]), ("test", ["c"])):
        write(f"{split}.de", *lines)
        write(f"{split}.en", *[line.upper() or "X" for line in lines])
    links = {"train": write("train.links", "1-0", "", "0-0"), "validation": write("val.links", "0-1")}
    data = load_corpus("multi30k", "de", "en", path=tmp_path, links=links)
    assert data["train"]["alignment"][:] == ["1-0", "0-0"] and data["validation"]["alignment"][:] == ["0-1"]
    assert "alignment" not in data["test"].column_names
    with pytest.raises(ValueError, match="'valid', but the data has the splits train, validation, test"):
        load_corpus("multi30k", "de", "en", path=tmp_path, links={"valid": links["validation"]})


def test_cleaning_keeps_links_with_their_pairs_and_says_which_it_lost():
    pairs = [("a b", "A B"), ("a " * 300, "A"), ("c\x01d e", "C E"), ("f  g", "F G"), ("a b", "A B")]
    data, report = dataset_of(pairs, ["0-0", "0-0", "0-0 1-1", "0-1", "0-0"]), DataReport()
    cleaned = clean_pairs(data, collapse_whitespace=True, report=report)
    assert cleaned["alignment"][:] == ["0-0", "", "0-1"]
    assert report.noticed["links lost, as cleaning changed the number of words"] == 1
    assert report.rows["links lost, as cleaning changed the number of words"] == [3]
    # by the other rule the control character was a word, and still one is gone
    other = clean_pairs(data.select([3]), collapse_whitespace=True, link_words="text")
    assert other["alignment"][:] == ["0-1"]


def test_tokenisation_that_would_move_words_is_refused():
    data = dataset_of([("a, b", "A B")], ["0-0"])
    with pytest.raises(ValueError, match="tokenise first and align the result"):
        preprocess_pairs(data, preprocess="moses")
    assert preprocess_pairs(data, preprocess=None, lowercase=True)["alignment"][:] == ["0-0"]


# --- aligners ---


def lines_of(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return lines


@pytest.mark.parametrize("aligner", INSTALLED)
def test_aligner_keeps_rows_and_finds_words(aligner, tmp_path):
    gold = list(generate_pairs(120, seed=3, with_alignment=True))
    pairs = [(source, target) for source, target, _ in gold]
    pairs[7], pairs[100], pairs[119] = ("", pairs[7][1]), (pairs[100][0], " \u3000"), ("", "")
    texts = {"train": iter(pairs), "odd": [("", "x"), *pairs[:7], ("ganz neu", "|||")], "none": [("", "")]}
    outputs = {name: tmp_path / name for name in texts}
    counts = write_links(texts, outputs, aligner=aligner, directions=True)
    assert (counts["train"].rows, counts["train"].empty) == (120, 3)
    assert counts["train"].linked + counts["train"].unlinked == 117
    found = {end: lines_of(tmp_path / f"train{end}") for end in ("", ".forward", ".reverse")}
    assert all(len(lines) == 120 and not any(lines[i] for i in (7, 100, 119)) for lines in found.values())
    for row, pair in enumerate(pairs):
        forward, reverse = (LinkFormat().read(found[end][row], *pair) for end in (".forward", ".reverse"))
        assert parse_links(found[""][row]) == symmetrise(forward, reverse)
        assert len({j for _, j in forward}) == len(forward) and len({i for i, _ in reverse}) == len(reverse)
    assert sum(len(line.split()) for line in found[""]) == counts["train"].links
    true = [parse_links(links) if all(pair) else [] for (*_, links), pair in zip(gold, pairs, strict=True)]
    score = alignment_error_rate(map(parse_links, found[""]), true)
    chance = alignment_error_rate([[(0, 0)] if line else [] for line in found[""]], true)
    assert score.aer < 0.6 < chance.aer and not list(tmp_path.glob("*.part"))
    # a held-out text is aligned with what was learned, so the same pairs get nearly the same links
    assert (counts["odd"].rows, counts["odd"].empty) == (9, 1) and lines_of(tmp_path / "none") == [""]
    again = alignment_error_rate(map(parse_links, lines_of(tmp_path / "odd")[1:8]), map(parse_links, found[""][:7]))
    assert again.aer < 0.5 if aligner == "eflomal" else again.aer == 0


def test_missing_aligner_is_one_error_with_the_remedy(monkeypatch, tmp_path):
    for aligner, module in (("eflomal", "eflomal"), ("fast_align", "systran_align")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ValueError, match=f"needs the package {module.replace('_', '-')}.*pip install"):
            write_links({"a": [("a", "A")]}, {"a": tmp_path / "x"}, aligner=aligner)
    with pytest.raises(ValueError, match="eflomal, fast_align, not 'giza'"):
        write_links({"a": [("a", "A")]}, {"a": tmp_path / "x"}, aligner="giza")


class FakeAligner:
    """Links word i with word i."""

    def __init__(self, folder, progress):
        self.learned = None

    def train(self, words):
        self.learned = list(words.pairs())

    def links(self, words):
        for source, target in words.pairs():
            links = [(i, i) for i in range(min(len(source.split()), len(target.split())))]
            yield links, links


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(ALIGNERS, "fake", FakeAligner)


def test_nothing_to_align_is_refused_and_leaves_no_file(fake, tmp_path):
    with pytest.raises(ValueError, match="no pair of train has words on both sides"):
        write_links({"train": [("a", " ")]}, {"train": tmp_path / "x"}, aligner="fake")
    with pytest.raises(ValueError, match="symmetrisation is one of"):
        write_links({"train": [("a", "A")]}, {"train": tmp_path / "x"}, aligner="fake", symmetrisation="gdfa")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rule", "warnings"), [("spaces", 1), ("text", 0)])
def test_text_without_spaces_is_not_taken_for_words_in_silence(fake, tmp_path, monkeypatch, rule, warnings):
    said = []
    monkeypatch.setattr("hf_deepnmt.aligners.logger.warning", said.append)
    pairs = [("他在2019年来到北京并且在那里工作了很多年，后来他去了上海。", "He came to Beijing in 2019.")] * 3
    counts = write_links({"train": pairs}, {"train": tmp_path / "x"}, aligner="fake", words=rule)["train"]
    assert len(said) == warnings and counts.links == (3 if rule == "spaces" else 21)


def test_fast_align_decodes_its_tables(tmp_path):
    """Probabilities made by hand, in the form that systran-align writes."""
    words = ["<eps>", "|||", "a", "b", "A", "B"]
    table = {1: {5: 0.5}, 3: {5: 0.9, 6: 0.2}, 4: {6: 0.01}}
    data = struct.pack("<ii", 2, len(words)) + b"".join(word.encode() + b"\0" for word in words) + struct.pack("<i", 5)
    for source, row in table.items():
        data += struct.pack("<ii", source, len(row)) + b"".join(struct.pack("<if", *item) for item in row.items())
    path = tmp_path / "table"
    path.write_bytes(data)
    found = list(WordTable(path).best_links([(["a", "b"], ["A", "B"]), (["a"], ["A", "new"]), (["b"], ["A"])]))
    # B: a has 0.2 exp(-2) / (1 + exp(-2)) = 0.024 of it, b 0.01 / (1 + exp(-2)) = 0.009
    # a new word prefers any word to none by 0.92 to 0.08; A comes from none with 0.08 x 0.5, from b with almost 0
    assert found == [[(0, 0), (0, 1)], [(0, 0), (0, 1)], []]
    path.write_bytes(struct.pack("<i", 3) + data[4:])
    with pytest.raises(ValueError, match="version 3, this package reads version 2"):
        WordTable(path)


# --- the command ---


def run(*arguments):
    return CliRunner().invoke(app, ["align", *map(str, arguments)])


def test_command_aligns_and_reports(fake, write, tmp_path):
    text = write("a.tok", "a b", "", "c d"), write("b.tok", "A B", "X", "C")
    result = run(*text, tmp_path / "out", "--aligner", "fake", "--quiet")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out").read_text() == "0-0 1-1\n\n0-0\n"
    assert (tmp_path / "out.forward").read_text() == (tmp_path / "out.reverse").read_text()
    assert "3 rows: 2 with 3 links, 0 without a link, 1 with an empty side" in result.stdout


def test_command_checks_and_symmetrises_links_from_elsewhere(write, tmp_path):
    text = write("a.de", "a b", "", "c"), write("a.en", "A B", "X", "C")
    one = run(*text, tmp_path / "one", "--links", write("l", "2-2 1-1", "", "1-1"), "--one-based")
    assert one.exit_code == 0 and (tmp_path / "one").read_text() == "0-0 1-1\n\n0-0\n", one.output
    forward, reverse = write("f", "0-0 0-1", "", ""), write("r", "0-0 1-0", "", "0-0")
    both = run(*text, tmp_path / "two", "--links", forward, "--links", reverse, "--symmetrise", "intersect")
    assert both.exit_code == 0 and (tmp_path / "two").read_text() == "0-0\n\n\n"
    assert "1 without a link, 1 with an empty side" in both.stdout
    for bad, message in (
        (["--links", write("x", "0-0", "", "1-0")], "row 3: link 1-0"),
        (["--links", write("y", "0-0", "")], "y has 2 lines, fewer"),
        (["--links", write("z", "0-0", "", "", "")], "z has more lines"),
        (["--links", forward] * 3, "3 files of links"),
        (["--one-based"], "give it with --links"),
        (["--aligner", "giza"], "not 'giza'"),
    ):
        result = run(*text, tmp_path / "bad", *bad)
        assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
        assert not (tmp_path / "bad").exists() and "Traceback" not in result.output
    uneven = run(text[0], write("short.en", "A"), tmp_path / "bad", "--aligner", "giza")
    assert uneven.exit_code == 2 and "differ in length" in uneven.output


def test_links_written_by_conversion_are_accepted_as_data(write, tmp_path):
    text = write("a.de", "a b"), write("a.en", "A B")
    convert_links(*text, [write("l", "1-0")], tmp_path / "out", LinkFormat(reverse=True))
    assert read_parallel(*text, alignment=tmp_path / "out")["alignment"][:] == ["0-1"]


# --- recipes ---


def recipe_of(**data):
    return recipe_from_dict({"data": data, "tokenizer": {"vocab_size": 400}})


def files_of(write, splits):
    files, links = {}, {}
    for name, rows in splits.items():
        files[name] = [str(write(f"{name}.{side}", *[row[i] for row in rows])) for i, side in enumerate(("de", "en"))]
        links[name] = str(write(f"{name}.links", *[row[2] for row in rows]))
    return files, links


@pytest.fixture
def splits():
    rows = list(generate_pairs(60, seed=1, with_alignment=True))
    rows[3] = (rows[3][0], rows[3][1], "")
    return {"train": [("", "x", ""), *rows[:50]], "validation": rows[50:]}


def test_recipe_with_files_of_links(write, splits, tmp_path):
    files, links = files_of(write, splits)
    recipe = recipe_of(**files, links=links, target_order={"unaligned": "right"}, clean={"collapse_whitespace": True})
    data, encoded, _ = prepare(recipe, tmp_path / "run", seed=0)
    assert encoded["train"]["alignment"][:2] == [row[2] for row in splits["train"][1:3]]
    assert all("target_positions" in part.column_names for part in encoded.values())
    report = json.loads((tmp_path / "run" / "data_report.json").read_text())
    assert report["train"]["noticed"]["no word links, so no target order"] == 1
    assert report["train"]["dropped"]["blank source"] == 1
    unsupervised = [set(places) == {NO_POSITION} for places in encoded["train"]["target_positions"]]
    assert sum(unsupervised) == 1


def test_files_of_links_are_looked_up_in_the_folder_of_the_data(write, splits, tmp_path):
    files_of(write, splits)
    names = {name: [f"{name}.de", f"{name}.en"] for name in splits}
    recipe = recipe_of(path=str(tmp_path), **names, links={name: f"{name}.links" for name in splits})
    data, _, _ = prepare(recipe, tmp_path / "run", seed=0)
    assert data["validation"]["alignment"][:] == [row[2] for row in splits["validation"]]


def test_recipe_with_an_aligner_runs_it_once(fake, write, splits, tmp_path, monkeypatch):
    files, _ = files_of(write, splits)
    recipe = recipe_of(**files, links="fake")
    assert recipe.data.format_of_links().words == "text"
    _, first, _ = prepare(recipe, tmp_path / "run", seed=0)
    monkeypatch.setattr(FakeAligner, "links", lambda *_: pytest.fail("aligned again"))
    _, second, _ = prepare(recipe, tmp_path / "run", seed=0)
    assert first["train"]["target_positions"][:] == second["train"]["target_positions"][:]
    assert len(list((tmp_path / "run" / "links").iterdir())) == 2
    # a changed text no longer fits the stored links
    other = recipe_of(**files, links="fake", size=20)
    with pytest.raises(ValueError, match="has 50 lines but the data has 20 pairs"):
        prepare(other, tmp_path / "run", seed=0)


def test_recipe_with_gold_links_of_the_generated_corpus(tmp_path):
    recipe = recipe_of(corpus="generated", size=40, links="gold")
    _, encoded, _ = prepare(recipe, tmp_path, seed=0)
    moved = [places != sorted(places) for places in encoded["train"]["target_positions"]]
    assert sum(moved) > 20 and not any(NO_POSITION in places for places in encoded["test"]["target_positions"])


def test_gold_links_follow_the_direction_of_translation(tmp_path):
    options = {"corpus": "generated", "size": 40, "links": "gold"}
    forward, _, _ = prepare(recipe_of(**options), tmp_path / "a", seed=0)
    backward, _, _ = prepare(recipe_of(**options, source_lang="en", target_lang="de"), tmp_path / "b", seed=0)
    for there, back in zip(forward["train"]["alignment"], backward["train"]["alignment"], strict=True):
        assert parse_links(there) == [(i, j) for j, i in parse_links(back)]


def test_links_of_a_data_set_are_read_as_the_recipe_says(tmp_path):
    pairs = [(source, target) for source, target in generate_pairs(30, seed=1)]
    parts = {"train": dataset_of(pairs, ["1-2"] * 30), "validation": dataset_of(pairs[:5], ["1-1"] * 5)}
    folders = {name: str(tmp_path / name) for name in parts}
    for name, part in parts.items():
        part.save_to_disk(folders[name])
    recipe = recipe_of(**folders, links="gold", link_format={"one_based": True, "reverse": True})
    data, encoded, _ = prepare(recipe, tmp_path / "run", seed=0)
    assert set(data["train"]["alignment"]) == {"1-0"} and set(data["validation"]["alignment"]) == {"0-0"}
    assert not any(NO_POSITION in places for places in encoded["train"]["target_positions"])


def test_recipe_without_links_is_as_before(tmp_path):
    _, encoded, _ = prepare(recipe_of(corpus="generated", size=40), tmp_path, seed=0)
    assert {"alignment", "target_positions"}.isdisjoint(encoded["train"].column_names)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"links": "train.links"}, "give a file for each split"),
        ({"links": {"train": "x"}, "link_format": {"onebased": True}}, "did you mean `one_based`"),
        ({"links": "gold", "link_format": {"reverse": True}}, "only need `words`"),
        ({"links": "gold", "link_format": {"words": "moses"}}, "spaces, text"),
        ({"links": "gold", "target_order": {"multi": "last"}}, "`multi` is one of"),
        ({"links": "gold", "target_order": {"words": "text"}}, "no field `words`"),
        ({"target_order": {"multi": "min"}}, "without `data.links`"),
    ],
)
def test_wrong_settings_are_refused_before_data_is_read(data, message):
    with pytest.raises(ValueError, match=message):
        recipe_of(corpus="generated", **data)


def test_links_that_do_not_fit_the_data_are_refused(write, splits, tmp_path):
    files, links = files_of(write, splits)
    with pytest.raises(ValueError, match="set `data.links` to `gold`"):
        prepare(recipe_of(corpus="generated", links=links), tmp_path, seed=0)
    with pytest.raises(ValueError, match="links are given for 'test'"):
        prepare(recipe_of(**files, links={"test": links["train"]}), tmp_path, seed=0)
    with pytest.raises(ValueError, match="no column 'alignment'"):
        prepare(recipe_of(**files, links="gold"), tmp_path, seed=0)
    with pytest.raises(ValueError, match="no column 'alignment'"):
        prepare(recipe_of(**files, links={"validation": links["validation"]}), tmp_path, seed=0)


def test_model_that_does_not_learn_from_links_is_refused_before_data_is_read(tmp_path):
    recipe = {"data": {"corpus": "generated", "links": "gold"}, "training": {"output_dir": str(tmp_path / "run")}}
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    assert load_recipe(tmp_path / "r.yaml").data.links == "gold"
    with pytest.raises(ValueError, match="deepnmt does not learn from word links"):
        train([str(tmp_path / "r.yaml")])
    assert not (tmp_path / "run").exists()


class Supervised(DeepNMTForConditionalGeneration):
    """Keeps the positions that reach it."""

    seen: list

    def forward(self, input_ids=None, attention_mask=None, labels=None, target_positions=None, **kwargs):
        if target_positions is not None:
            self.seen.append((input_ids, target_positions))
        return super().forward(input_ids, attention_mask, labels=labels, **kwargs)


def test_positions_reach_the_model_and_not_generation(tmp_path):
    recipe = recipe_of(corpus="generated", size=60, links="gold")
    _, encoded, tokenizer = prepare(recipe, tmp_path, seed=0)
    model = Supervised(tiny_config(vocab_size=len(tokenizer), max_position_embeddings=256))
    model.seen = []
    arguments = DeepNMTTrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=2, max_tokens=400, warmup_steps=1, use_cpu=True,
        report_to=[], disable_tqdm=True, save_strategy="no", eval_max_sentences=3, generation_max_length=9,
    )  # fmt: skip
    trainer = DeepNMTTrainer(
        model=model,
        args=arguments,
        data_collator=collator_for(encoded, model.config.pad_token_id),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"].select(range(5)),
        processing_class=tokenizer,
    )
    trainer.train()
    trained = len(model.seen)
    trainer.evaluate()
    assert trained == 2 and len(model.seen) > trained
    for ids, places in model.seen:
        assert ids.shape == places.shape and torch.equal(places == NO_POSITION, ids == model.config.pad_token_id)


@pytest.mark.parametrize("output", ["a.de", "a.en", "links"])
def test_links_are_not_written_over_what_they_are_made_from(fake, tmp_path, output):
    for name, text in (("a.de", "x y\n"), ("a.en", "u v\n"), ("links", "0-0 1-1\n")):
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in ("a.de", "a.en", "links")]
    before = [path.read_text() for path in paths]
    with pytest.raises(ValueError, match="overwrite"):
        convert_links(paths[0], paths[1], [paths[2]], tmp_path / output)
    with pytest.raises(ValueError, match=r"without \.gz"):
        convert_links(paths[0], paths[1], [paths[2]], tmp_path / "out.gz")
    with pytest.raises(ValueError, match=r"without \.gz"):
        # before any pair is read
        write_links({"text": iter([None])}, {"text": tmp_path / "out.gz"}, aligner="fake")
    assert [path.read_text() for path in paths] == before
    if output != "links":
        result = run(*paths[:2], tmp_path / output, "--aligner", "fake")
        assert result.exit_code and "overwrite" in result.output
        assert [path.read_text() for path in paths] == before
