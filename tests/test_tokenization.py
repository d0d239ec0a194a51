"""Vocabularies: end tokens, exact round trips, separate vocabularies, saved choices."""

import copy
import os
import pickle
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from hf_deepnmt.models import DeepNMTTokenizer
from hf_deepnmt.tokenization import moses_detokenize, moses_tokenize, target_size, train_tokenizer, unknown_rate


SOURCE = ["der alte Hund schläft", "die Katze ist 21 Jahre alt.", "ich rufe dich morgen an"] * 20
TARGET = ["the old dog sleeps", "the cat is 21 years old.", "I will call you tomorrow"] * 20
ODD_TEXTS = [
    "", " ", "  lead", "trail  ", "a  b", "tab\tnew\nline\r\n", "nbsp\u00a0x", "▁under▁", "go 🦙 👩‍👩‍👧 ok", "ⲁⲃ 𐌰𐌱",
    "\u0301lone", "e\u0301", "\ue000private", "nul\x00l", "</s> <pad> <s><unk>", "<0x41><0x0A>", "２０…", "ﬁ",
    "\n", "\r", "\u2028\u2029", "\ufeffbom", "\u200bzero", " \u0301", "हिन्दी में", "\U0010ffff\ufffe", "a</s>b", "�",
]  # fmt: skip
LOADER = """
import sys
sys.modules["hf_deepnmt"] = None
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
assert type(tok).__module__.startswith("transformers_modules"), type(tok)
ids = tok(text_target="tomorrow </s> 🦙").input_ids
print(ids, tok.decode(ids, skip_special_tokens=True) == "tomorrow </s> 🦙")
try:
    AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)
except ValueError:
    print("refused")
"""


def make(joint=True, source=SOURCE, target=TARGET, **options):
    sizes = {"vocab_size": 330} if joint else {"vocab_size": 300, "target_vocab_size": 310}
    return train_tokenizer(source, target, joint=joint, show_progress=False, **{**sizes, **options})


def made_up_sentences(count=400, seed=0):
    generator = random.Random(seed)
    words = [
        "".join(generator.choices("abcdefghijklmnopqrstuvwxyzäöü", k=generator.randint(2, 9))) for _ in range(300)
    ]
    return [" ".join(generator.choices(words, k=8)) for _ in range(count)]


def fuzz(count, seed=0):
    generator = random.Random(seed)
    points = [*range(0xD800), *range(0xE000, 0x110000)]
    blocks = [points, points[:0x3000], list(range(0x80)), [ord(c) for c in " \t\n<>/s0x41ABunkpad"]]
    texts = []
    for _ in range(count):
        block = generator.choice(blocks)
        texts.append("".join(map(chr, generator.choices(block, k=generator.randint(1, 12)))))
    return texts


def kept(tok, text, **sides):
    ids = tok(text_target=text).input_ids if sides else tok(text).input_ids
    return tok.decode(ids, skip_special_tokens=True, use_source_tokenizer=not sides) == text


def reloaded(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def copies(tokenizer, folder):
    return [tokenizer, reloaded(tokenizer, folder), copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return make(algorithm=request.param)


@pytest.fixture(scope="module")
def separate():
    return make(joint=False)


def test_both_sides_end_in_the_end_token_before_and_after_saving(tokenizer, separate, tmp_path):
    for tok in (*copies(tokenizer, tmp_path / "joint"), *copies(separate, tmp_path / "separate")):
        assert tok("").input_ids == [2] == tok(text_target="").input_ids
        assert tok("a").input_ids[-1] == 2 == tok(text_target="a").input_ids[-1]
        assert tok(["a", "b c"]).input_ids[1].count(2) == 1
        assert (tok.bos_token_id, tok.pad_token_id, tok.eos_token_id, tok.unk_token_id) == (0, 1, 2, 3)


def test_any_text_round_trips_before_and_after_saving(tokenizer, tmp_path):
    for tok in copies(tokenizer, tmp_path):
        for text in ODD_TEXTS + fuzz(300):
            ids = tok(text).input_ids
            assert 3 not in ids
            assert tok.decode(ids, skip_special_tokens=True) == text


def test_both_separate_vocabularies_round_trip_any_text(separate, tmp_path):
    for tok in copies(separate, tmp_path):
        for text in ODD_TEXTS + fuzz(100):
            assert kept(tok, text)
            assert kept(tok, text, target=True)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_text_that_spells_special_tokens_never_becomes_one(algorithm, tmp_path):
    texts = ["</s> <pad> <s> <unk> <0x41>", "a</s>b <0x41><0x42>"] * 50
    for tok in copies(make(source=texts, target=texts, algorithm=algorithm), tmp_path):
        for text in texts:
            ids = tok(text).input_ids
            assert min(ids[:-1]) > 3
            assert tok.decode(ids, skip_special_tokens=True) == text


def test_words_are_found_by_word_ids(tokenizer):
    text = "der alte Hund, 21"
    encoded = tokenizer(text)
    words = encoded.word_ids()
    assert words[-1] is None
    assert words[:-1] == sorted(words[:-1])
    spans = [encoded.word_to_chars(word) for word in sorted(set(words[:-1]))]
    assert [text[span.start : span.end].strip() for span in spans] == ["der", "alte", "Hund", ",", "21"]


def test_first_words_have_the_pieces_of_later_ones(tokenizer):
    assert tokenizer.tokenize("Hund") == tokenizer.tokenize("alte Hund")[-len(tokenizer.tokenize("Hund")) :]


def test_batches_are_padded_right_and_nothing_is_cut(tokenizer):
    batch = tokenizer(["a", "der Hund " * 2000], padding=True)
    assert len(batch.input_ids[1]) > 4000
    assert batch.input_ids[0][-1] == 1
    assert batch.attention_mask[0][-1] == 0
    assert tokenizer.model_max_length > 10**9


def test_normalisation_is_a_stated_and_saved_choice(tmp_path):
    texts = ["２０…"] * 50
    assert kept(make(source=texts, target=texts), "２０…")
    for tok in copies(make(source=texts, target=texts, normalizer="nfkc"), tmp_path):
        assert tok.decode(tok("２０…").input_ids, skip_special_tokens=True) == "20..."


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_lower_casing_is_saved(algorithm, tmp_path):
    tok = reloaded(make(lowercase=True, algorithm=algorithm), tmp_path)
    assert tok.decode(tok("Der Hund").input_ids, skip_special_tokens=True) == "der hund"


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_without_byte_fallback_unknown_characters_are_counted(algorithm):
    tok = make(byte_fallback=False, vocab_size=80, algorithm=algorithm)
    rate = unknown_rate(tok, (text for text in ["go 🦙"]))
    assert rate["unknown"] == 1
    assert rate["share"] == 1 / rate["tokens"]
    assert unknown_rate(make(algorithm=algorithm), ["go 🦙"])["unknown"] == 0
    assert unknown_rate(tok, []) == {"tokens": 0, "unknown": 0, "share": 0}


def test_unknown_tokens_are_counted_on_the_side_asked_for():
    tok = make(joint=False, byte_fallback=False, vocab_size=60, target_vocab_size=60)
    assert unknown_rate(tok, ["schläft"])["unknown"] == 0
    assert unknown_rate(tok, ["schläft"], target=True)["unknown"] == len("äf")


def test_training_bpe_twice_writes_the_same_bytes(tmp_path):
    texts = made_up_sentences()
    for name in ("a", "b"):
        make(source=texts, target=texts, vocab_size=500).save_pretrained(tmp_path / name)
    for file in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_training_bpe_keeps_the_same_characters_where_many_are_equally_frequent(tmp_path):
    texts = [chr(0x4E00 + 3 * row) * 3 for row in range(300)]
    for name in ("a", "b", "c"):
        make(source=texts, target=texts, vocab_size=400, byte_fallback=True).save_pretrained(tmp_path / name)
    files = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("a", "b", "c")]
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_vocabulary_has_exactly_the_size_asked_for(algorithm, byte_fallback):
    many = [chr(0x4E00 + 7 * row + column) * 3 for row in range(90) for column in range(7)]
    for texts, learned in ((made_up_sentences(), 80), (many + made_up_sentences(), 240), (many, 40)):
        size = learned + (260 if byte_fallback else 4)
        tok = make(source=texts, target=texts, vocab_size=size, algorithm=algorithm, byte_fallback=byte_fallback)
        assert len(tok) == size
        assert sorted(tok.get_vocab().values()) == list(range(size))


def test_a_smaller_vocabulary_than_asked_for_is_reported(monkeypatch):
    messages = []
    monkeypatch.setattr("hf_deepnmt.tokenization.logger.warning", messages.append)
    tok = make(vocab_size=5000)
    assert len(tok) < 5000
    assert len(messages) == 1
    assert f"{len(tok)} pieces" in messages[0]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_rare_characters_are_left_out_of_a_limited_alphabet(algorithm):
    texts = ["aaa aab baa"] * 20 + ["ж"]
    limited = make(source=texts, target=texts, algorithm=algorithm, limit_alphabet=3)
    assert "ж" not in limited.get_vocab()
    assert "ж" in make(source=texts, target=texts, algorithm=algorithm).get_vocab()
    assert kept(limited, "ж a")


def test_pairs_rarer_than_the_minimum_are_not_merged():
    texts = ["abc"]
    assert len(make(source=texts, target=texts, min_frequency=2)) > len(
        make(source=texts, target=texts, min_frequency=3)
    )


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_lists_iterators_and_functions_give_the_same_pieces(algorithm):
    expected = set(make(algorithm=algorithm).get_vocab())
    assert set(make(source=iter(SOURCE), target=lambda: iter(TARGET), algorithm=algorithm).get_vocab()) == expected


def test_joint_vocabulary_needs_no_code_of_ours(tmp_path):
    make().save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["tokenizer.json", "tokenizer_config.json"]


def test_separate_vocabularies_encode_and_decode_their_own_side(separate, tmp_path):
    for tok in copies(separate, tmp_path):
        assert isinstance(tok, DeepNMTTokenizer)
        assert (len(tok), tok.target_vocab_size, target_size(tok)) == (300, 310, 310)
        source, target = tok("schläft").input_ids, tok(text_target="tomorrow").input_ids
        assert target != tok("tomorrow").input_ids
        assert tok.decode(target, skip_special_tokens=True) == "tomorrow"
        assert tok.batch_decode([target, target], skip_special_tokens=True) == ["tomorrow"] * 2
        assert tok.decode(source, skip_special_tokens=True, use_source_tokenizer=True) == "schläft"
        assert tok.batch_decode([source], skip_special_tokens=True, use_source_tokenizer=True) == ["schläft"]
        both = tok("schläft", text_target="tomorrow")
        assert (both["input_ids"], both["labels"]) == (source, target)


def test_separate_vocabularies_load_without_the_package(separate, tmp_path):
    separate.save_pretrained(tmp_path / "written")
    shutil.move(tmp_path / "written", tmp_path / "moved")
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "PYTHONPATH": ""}
    command = [sys.executable, "-c", LOADER, str(tmp_path / "moved")]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    expected = separate(text_target="tomorrow </s> 🦙").input_ids
    assert run.stdout.splitlines() == [f"{expected} True", "refused"]


def test_separate_vocabularies_outlive_their_folder_and_can_be_saved_again(separate, tmp_path):
    expected = separate(text_target="tomorrow").input_ids
    tok = reloaded(separate, tmp_path / "first")
    files = {file: (tmp_path / "first" / file).read_bytes() for file in ("tokenizer.json", "target_tokenizer.json")}
    shutil.rmtree(tmp_path / "first")
    assert tok(text_target="tomorrow").input_ids == expected
    tok.save_pretrained(tmp_path / "second")
    assert files == {file: (tmp_path / "second" / file).read_bytes() for file in files}
    assert str(tmp_path) not in (tmp_path / "second" / "tokenizer_config.json").read_text()


def test_a_folder_without_target_vocabulary_is_refused(separate, tmp_path):
    separate.save_pretrained(tmp_path)
    (tmp_path / "target_tokenizer.json").unlink()
    with pytest.raises(OSError, match="no target_tokenizer.json"):
        DeepNMTTokenizer.from_pretrained(tmp_path)


def test_saving_in_target_mode_keeps_the_source_vocabulary(tmp_path):
    tok = make(joint=False)
    tok._switch_to_target_mode()
    loaded = reloaded(tok, tmp_path)
    assert (len(loaded), loaded.target_vocab_size) == (300, 310)


def test_target_backend_reads_special_tokens_in_text_as_text(separate, tmp_path):
    for tok in copies(separate, tmp_path):
        assert min(tok.target_backend.encode("</s> a", add_special_tokens=False).ids) > 3


def test_settings_of_a_call_are_not_saved(tmp_path):
    tok = make(joint=False)
    before = [backend.to_str() for backend in (tok.backend_tokenizer, tok.target_backend)]
    tok(SOURCE, text_target=TARGET, truncation=True, max_length=3, padding=True)
    tok.save_pretrained(tmp_path)
    saved = [(tmp_path / file).read_text() for file in ("tokenizer.json", "target_tokenizer.json")]
    assert [Tokenizer.from_str(text).to_str() for text in saved] == before


def test_separate_vocabularies_are_on_the_source_side_after_an_error(separate):
    source, target = separate("schläft").input_ids, separate(text_target="tomorrow").input_ids
    with pytest.raises((TypeError, ValueError)):
        separate(text_target=[3])
    assert separate("schläft").input_ids == source == separate.encode("schläft")
    with pytest.raises((TypeError, ValueError, OverflowError)):
        separate.decode([-5])
    assert separate.encode("schläft") == source
    assert separate.decode(target, skip_special_tokens=True) == "tomorrow"


def test_threads_do_not_change_each_others_side(separate):
    expected = separate(SOURCE[:3]).input_ids, separate(text_target=TARGET[:3]).input_ids

    def both_sides(_):
        labels = separate(text_target=TARGET[:3]).input_ids
        separate.batch_decode(labels)
        return separate(SOURCE[:3]).input_ids, labels

    with ThreadPoolExecutor(4) as pool:
        assert all(result == expected for result in pool.map(both_sides, range(100)))


def test_separate_vocabularies_must_agree_on_special_tokens():
    source, target = (Tokenizer(models.WordLevel({"</s>": place, "<unk>": 3}, unk_token="<unk>")) for place in (2, 0))
    with pytest.raises(ValueError, match="eos_token '</s>' has id 2 in the source vocabulary and 0 in the target"):
        DeepNMTTokenizer.from_pair(source, target, eos_token="</s>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "wordpiece"}, "bpe, unigram"),
        ({"normalizer": "x"}, "identity, nfkc"),
        ({"vocab_size": 200}, "`vocab_size` 200 is too small: the least is 276"),
        ({"vocab_size": 19, "byte_fallback": False}, "the least is 20"),
        ({"joint": False, "target_vocab_size": 0}, "`target_vocab_size` 0 is too small"),
        ({"target_vocab_size": 400}, "joint=False"),
        ({"limit_alphabet": 0}, "limit_alphabet"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
@pytest.mark.parametrize(
    ("source", "target", "error", "message"),
    [
        (["a", 3], ["b"], TypeError, "source text 1 is int"),
        (["a"], ["b", "c", None], TypeError, "target text 2 is NoneType"),
        ("a b", ["b"], TypeError, "source texts are one str"),
        (["a"], ["b", "c\ud800"], ValueError, "target text 1 is not valid Unicode"),
        ([], ["b"], ValueError, "source texts hold no text"),
        (["a"], ["", " "], ValueError, "target texts hold no text"),
    ],
)
def test_bad_text_is_refused(source, target, error, message, algorithm, joint):
    with pytest.raises(error, match=message):
        make(joint, source, target, algorithm=algorithm)


def test_an_iterator_given_for_both_sides_is_refused():
    texts = iter(SOURCE)
    with pytest.raises(ValueError, match="read only once"):
        make(source=texts, target=texts)


def test_moses_tokenises_and_lower_cases():
    assert list(moses_tokenize(["Don't go, Hund!"], "en", lowercase=True)) == ["don 't go , hund !"]
    assert list(moses_tokenize(["x-ray & <b>"], "en")) == ["x-ray & < b >"]
    assert list(moses_tokenize(["a & b"], "en", escape=True)) == ["a &amp; b"]


def test_moses_falls_back_on_english_with_a_warning(monkeypatch):
    messages = []
    monkeypatch.setattr("hf_deepnmt.tokenization.logger.warning", messages.append)
    assert list(moses_tokenize(["Dr. Who"], "en")) == list(moses_tokenize(["Dr. Who"], "xx"))
    assert len(messages) == 1
    assert "'xx'" in messages[0]


def test_unknown_rate_refuses_one_string():
    with pytest.raises(TypeError, match="one str"):
        unknown_rate(make(), "der Hund")


def test_moses_detokenises_what_it_tokenised():
    lines = ["Hello, old dog!", "It isn't &amp; here."]
    assert list(moses_detokenize(moses_tokenize(lines[:1], "en"), "en")) == lines[:1]
    escaped = moses_tokenize(["a & b"], "en", escape=True)
    assert list(moses_detokenize(escaped, "en", unescape=True)) == ["a & b"]
    assert list(moses_detokenize(["a &amp; b"], "en")) == ["a &amp; b"]
