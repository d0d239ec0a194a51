"""Vocabularies: end tokens, exact round trips, separate vocabularies, saved choices."""

import copy
import pickle
import random

import pytest
from transformers import AutoTokenizer

from hf_deepnmt.models import DeepNMTTokenizer
from hf_deepnmt.tokenization import moses_tokenize, train_tokenizer, unknown_rate


SOURCE = ["der alte Hund schläft", "die Katze ist 21 Jahre alt.", "ich rufe dich morgen an"] * 20
TARGET = ["the old dog sleeps", "the cat is 21 years old.", "I will call you tomorrow"] * 20
ODD_TEXTS = [
    "", " ", "  lead", "trail  ", "a  b", "tab\tnew\nline\r\n", "nbsp\u00a0x", "▁under▁", "go 🦙 👩‍👩‍👧 ok", "ⲁⲃ 𐌰𐌱",
    "\u0301lone", "e\u0301", "\ue000private", "nul\x00l", "</s> <pad> <s><unk>", "<0x41><0x0A>", "２０…", "ﬁ",
]  # fmt: skip


def make(joint=True, **options):
    sizes = {"vocab_size": 380, "target_vocab_size": None if joint else 420}
    return train_tokenizer(SOURCE, TARGET, joint=joint, show_progress=False, **{**sizes, **options})


def fuzz(count, seed=0):
    generator = random.Random(seed)
    points = [p for p in range(0x2FFFF) if not 0xD800 <= p < 0xE000]
    return ["".join(chr(generator.choice(points)) for _ in range(generator.randint(1, 12))) for _ in range(count)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return make(algorithm=request.param)


def reloaded(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_both_sides_end_in_the_end_token_before_and_after_saving(tokenizer, tmp_path):
    for tok in (tokenizer, reloaded(tokenizer, tmp_path)):
        assert tok("").input_ids == [2]
        assert tok("a").input_ids[-1] == 2 == tok(text_target="a").input_ids[-1]
        assert (tok.bos_token_id, tok.pad_token_id, tok.eos_token_id, tok.unk_token_id) == (0, 1, 2, 3)


def test_any_text_round_trips_before_and_after_saving(tokenizer, tmp_path):
    for tok in (tokenizer, reloaded(tokenizer, tmp_path)):
        for text in ODD_TEXTS + fuzz(300):
            assert tok.decode(tok(text).input_ids, skip_special_tokens=True) == text


def test_words_are_found_by_word_ids(tokenizer):
    words = tokenizer("der alte Hund").word_ids()
    assert words[-1] is None and words[:-1] == sorted(words[:-1]) and set(words[:-1]) == {0, 1, 2}


def test_normalisation_is_a_stated_and_saved_choice(tmp_path):
    tok = reloaded(make(normalizer="nfkc"), tmp_path)
    assert tok.decode(tok("２０…").input_ids, skip_special_tokens=True) == "20..."


def test_lower_casing_is_saved(tmp_path):
    tok = reloaded(make(lowercase=True), tmp_path)
    assert tok.decode(tok("Der Hund").input_ids, skip_special_tokens=True) == "der hund"


def test_without_byte_fallback_unknown_characters_are_counted():
    tok = make(byte_fallback=False, vocab_size=120)
    rate = unknown_rate(tok, ["go 🦙"])
    assert rate["unknown"] >= 1 and 0 < rate["share"] < 1
    assert unknown_rate(make(), ["go 🦙"])["unknown"] == 0


def test_training_twice_gives_the_same_vocabulary():
    assert make().backend_tokenizer.to_str() == make().backend_tokenizer.to_str()


def test_vocabulary_has_the_size_asked_for():
    assert len(make(vocab_size=330)) == 330


def test_separate_vocabularies_encode_and_decode_their_own_side(tmp_path):
    tok = make(joint=False)
    tok.save_pretrained(tmp_path)
    variants = [tok, AutoTokenizer.from_pretrained(tmp_path), copy.deepcopy(tok), pickle.loads(pickle.dumps(tok))]
    for variant in variants:
        assert isinstance(variant, DeepNMTTokenizer)
        assert variant.target_vocab_size != len(variant)
        target = variant(text_target="tomorrow").input_ids
        assert target != variant("tomorrow").input_ids
        assert variant.decode(target, skip_special_tokens=True) == "tomorrow"
        source = variant("schläft").input_ids
        assert variant.decode(source, skip_special_tokens=True, use_source_tokenizer=True) == "schläft"
        both = variant("schläft", text_target="tomorrow")
        assert both["input_ids"] == source and both["labels"] == target


def test_separate_vocabularies_come_back_to_source_mode_after_an_error():
    tok = make(joint=False)
    source = tok("schläft").input_ids
    with pytest.raises((TypeError, ValueError)):
        tok(text_target=[3])
    assert tok("schläft").input_ids == source


def test_separate_vocabularies_round_trip_any_text(tmp_path):
    tok = reloaded(make(joint=False), tmp_path)
    for text in ODD_TEXTS:
        assert tok.decode(tok(text_target=text).input_ids, skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [({"algorithm": "wordpiece"}, "bpe, unigram"), ({"normalizer": "x"}, "identity, nfkc"), ({"vocab_size": 200}, "276")],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_bad_text_is_refused():
    with pytest.raises(TypeError, match="source text 1 is int"):
        train_tokenizer(["a", 3], ["b"], show_progress=False)
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(["", " "], [""], show_progress=False)


def test_moses_tokenises_and_lower_cases():
    assert list(moses_tokenize(["Don't go, Hund!"], "en", lowercase=True)) == ["don 't go , hund !"]
