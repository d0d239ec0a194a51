"""The generated German-English corpus: determinism, disjoint splits, and grammar seen from outside the generator."""

import hashlib
import re
from collections import Counter
from itertools import combinations

import pytest

from hf_deepnmt.toy_corpus import (
    english_number,
    generate_pairs,
    german_number,
    main,
    toy_corpus,
    write_toy_corpus,
)


FIRST_THOUSAND = "ea10382d6e53c037bbb13a06b5c599ed7d4e60fb9e3147d617ef54d474f2cf68"

# Sentences of seed 0 with the one translation a reader of both languages accepts.
GOLDEN = {
    "Meine Köchin hat den Löffel gekauft, den ich am 16. Juni verloren habe.": (
        "My cook bought the spoon that I lost on June 16."
    ),
    "Zu Hause holt er einige Fischer ab, wenn sie über die Idee nachdenkt.": (
        "He picks up some fishermen at home when she thinks about the idea."
    ),
    "Weil sie sich auf einige Prüfungen freut, werde ich nach Weimar fliegen.": (
        "Because she looks forward to some exams, I will fly to Weimar."
    ),
    "Den Tisch deines Vaters bestellt jede Studentin nächste Woche, um an den gefährlichen Vorschlag zu denken.": (
        "Every student will order your father's table next week in order to think of the dangerous proposal."
    ),
    "Dein Topf gefällt mir.": "I like your pot.",
    "Um Mitternacht hat sie mir das Buch gegeben, um dir zuzuhören.": (
        "At midnight she gave me the book in order to listen to you."
    ),
    "Bitte schlaf ein!": "Please fall asleep!",
    "Sie müssen nicht im kleinen Wald sitzen.": "They do not have to sit in the small forest.",
    "Er hofft, dass Stefan im Februar ankommt.": "He hopes that Stefan arrives in February.",
    "Nachdem meine Tochter aufgewacht war, habt ihr unseren blauen Koffer zugemacht.": (
        "After my daughter had woken up, you closed our blue suitcase."
    ),
    "Die Zeitschrift wurde vor zwölf Monaten von einem Nachbarn gelesen.": (
        "The magazine was read by a neighbor twelve months ago."
    ),
    "Unser Löwe ist älter als mein Esel.": "Our lion is older than my donkey.",
    "Wem dankst du um Mitternacht?": "Whom do you thank at midnight?",
    "Draußen gibt es keinen Ball.": "There is no ball outside.",
    "Mein Sänger zieht gern um.": "My singer likes to move.",
    "Wie viele Lastwagen sucht deine Bäuerin gerade?": "How many trucks is your farmer looking for?",
    "Lena und Katrin leihen der Journalistin keinen Computer.": (
        "Lena and Katrin do not lend the journalist a computer."
    ),
    "Deine Tante ist Lehrerin.": "Your aunt is a teacher.",
    "Natürlich haben sie bemerkt, dass sie ihre Geschichte im hellen Schloss erfunden hat.": (
        "Of course they noticed that she invented her story in the bright castle."
    ),
}


@pytest.fixture(scope="module")
def pairs():
    return list(generate_pairs(25000, seed=3))


@pytest.fixture(scope="module")
def aligned():
    return list(generate_pairs(5000, seed=4, with_alignment=True))


def words(sentence):
    return [word.strip(".,!?") for word in sentence.split()]


def links_of(alignment):
    return [tuple(int(index) for index in link.split("-")) for link in alignment.split()]


def found(pairs, pattern):
    """Matches of a pattern on the German side with their pair; a pattern that no longer occurs is an error."""
    matches = [(match, pair) for pair in pairs if (match := re.search(pattern, pair[0]))]
    assert len(matches) >= 20, f"{pattern} occurs only {len(matches)} times"
    return matches


def test_first_thousand_pairs_of_seed_zero_never_change():
    text = "".join(f"{german}\t{english}\n" for german, english in generate_pairs(1000, seed=0))
    assert hashlib.sha256(text.encode()).hexdigest() == FIRST_THOUSAND


def test_seeds_repeat_and_differ():
    assert list(generate_pairs(50, seed=5)) == list(generate_pairs(50, seed=5))
    assert list(generate_pairs(50, seed=5)) != list(generate_pairs(50, seed=6))


def test_alignment_does_not_change_the_text():
    assert [pair[:2] for pair in generate_pairs(200, seed=5, with_alignment=True)] == list(generate_pairs(200, seed=5))


def test_stream_is_endless_without_count():
    stream = generate_pairs(seed=1)
    assert len({next(stream)[0] for _ in range(300)}) == 300


def test_excluded_sources_never_appear():
    first = {german for german, _ in generate_pairs(300, seed=8)}
    assert not first & {german for german, _ in generate_pairs(300, seed=8, exclude=first)}


def test_repeated_sources_can_be_kept():
    repeated = [german for german, _ in generate_pairs(20000, seed=2, distinct=False)]
    assert len(set(repeated)) < len(repeated)


@pytest.mark.parametrize("arguments", [{"count": -1}, {"count": 1, "seed": -1}])
def test_negative_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match="must be 0 or more"):
        generate_pairs(**arguments)


def test_negative_split_size_is_refused():
    with pytest.raises(ValueError, match="validation must be 0 or more"):
        toy_corpus(10, -1, 10)


def test_splits_are_disjoint_and_without_duplicates():
    corpus = toy_corpus(train=3000, validation=200, test=200)
    sources = {name: [row["de"] for row in split["translation"]] for name, split in corpus.items()}
    assert {name: len(lines) for name, lines in sources.items()} == {"train": 3000, "validation": 200, "test": 200}
    assert len({line for lines in sources.values() for line in lines}) == 3400


def test_held_out_sentences_do_not_depend_on_the_size_of_train():
    small, large = toy_corpus(train=10, validation=50, test=50), toy_corpus(train=500, validation=50, test=50)
    for name in ("validation", "test"):
        assert small[name]["translation"][:] == large[name]["translation"][:]
    assert list(large["train"][0]["translation"]) == ["de", "en"]


def test_written_files_are_line_aligned(tmp_path):
    sizes = write_toy_corpus(tmp_path / "corpus", train=40, validation=7, test=1, seed=2)
    assert sizes == {"train": 40, "validation": 7, "test": 1}
    corpus = toy_corpus(train=40, validation=7, test=1, seed=2)
    for name in sizes:
        for language in ("de", "en"):
            lines = (tmp_path / "corpus" / f"{name}.{language}").read_text(encoding="utf-8").splitlines()
            assert lines == [row[language] for row in corpus[name]["translation"]]


def test_links_come_with_the_corpus_and_leave_its_text_alone(tmp_path):
    sizes = {"train": 30, "validation": 4, "test": 3}
    plain, linked = toy_corpus(**sizes, seed=2), toy_corpus(**sizes, seed=2, with_alignment=True)
    write_toy_corpus(tmp_path, **sizes, seed=2, links=True)
    for name in sizes:
        assert plain[name]["translation"][:] == linked[name]["translation"][:]
        assert plain[name].column_names == ["translation"]
        written = (tmp_path / f"{name}.links").read_text(encoding="utf-8")
        assert written == "".join(f"{links}\n" for links in linked[name]["alignment"])
        for row in linked[name]:
            sides = row["translation"]["de"].split(), row["translation"]["en"].split()
            assert all(i < len(sides[0]) and j < len(sides[1]) for i, j in links_of(row["alignment"]))


def test_command_line_writes_and_refuses(tmp_path, capsys):
    main([str(tmp_path), "--train", "5", "--validation", "1", "--test", "1", "--seed", "4", "--links"])
    assert len((tmp_path / "train.links").read_text(encoding="utf-8").splitlines()) == 5
    assert len((tmp_path / "train.de").read_text(encoding="utf-8").splitlines()) == 5
    with pytest.raises(SystemExit):
        main([str(tmp_path / "train.de")])
    assert "is a file" in capsys.readouterr().err


def test_one_source_has_one_translation():
    targets = {}
    for german, english in generate_pairs(60000, seed=9, distinct=False):
        assert targets.setdefault(german, english) == english


def test_sentences_are_clean(pairs):
    for sentence in (sentence for pair in pairs for sentence in pair):
        assert sentence == " ".join(sentence.split())
        assert re.fullmatch(r"[A-ZÄÖÜ].*[.!?]", sentence), sentence
        assert not re.search(r" [,.!?]|,[,.!?]|(?<![ap]\.m)[.!?]{2}", sentence), sentence


def test_marks_agree_in_both_languages(pairs):
    for german, english in pairs:
        assert german[-1] == english[-1] or english.endswith(".m.")


def test_lengths_are_mixed(pairs):
    for column in (0, 1):
        lengths = Counter(len(pair[column].split()) for pair in pairs)
        assert min(lengths) == 3
        assert 20 <= max(lengths) <= 25
        assert 7 < sum(length * count for length, count in lengths.items()) / len(pairs) < 11
        assert max(lengths.values()) < 0.2 * len(pairs)


def test_vocabulary_is_large(pairs):
    german, english = ({w for pair in pairs for w in words(pair[column]) if w.isalpha()} for column in (0, 1))
    assert len(german) > 3000
    assert len(english) > 1500


SUBORDINATE = r"(?:^|, )(?:[Ww]eil|[Oo]bwohl|dass|ob|[Ww]enn|[Ff]alls|[Bb]evor|[Ss]obald|[Dd]amit) ([^,]+?)[,.!?]"


def test_helping_verbs_end_their_subordinate_clause(pairs):
    helping = r"(?:hat|habe|hast|habt|haben|kann|kannst|könnt|muss|musst|müsst|darf|darfst|dürft|wird|werdet)"
    checked = 0
    for german, _ in pairs:
        for clause in re.findall(SUBORDINATE, german):
            if re.search(rf"\b{helping}\b", clause) and " und " not in clause and " aber " not in clause:
                assert re.search(rf" {helping}$", clause), german
                checked += 1
    assert checked > 500


def test_separable_verbs_are_joined_at_the_end_of_subordinate_clauses(pairs):
    joined = r"(?:anruft|anrufe|aufräumt|abholt|wegwirft|einlädt|zuhört|ankommt|aufsteht|zurückkehrt|mitnimmt)"
    for match, (german, _) in found(pairs, rf"\b{joined}\b(.)"):
        assert match[1] in ",.?", german
    for german, _ in pairs:
        for clause in re.findall(SUBORDINATE, german):
            separated = re.search(r" (?:an|auf|ab|aus|ein|zu|weg|zurück|mit|teil)$", clause)
            assert not separated or re.search(r" (?:und|aber) ", clause), german


def test_fronted_adverbs_are_followed_by_the_finite_verb(pairs):
    verb_second = r"(?:hat|habe|haben|ist|sind|bin|wird|werde|kann|will|muss|darf|soll|möchte)"
    for match, (german, _) in found(pairs, r"^(?:Gestern|Leider|Deshalb|Bald|Übermorgen) (?!Abend)(\w+) (\w+)"):
        assert not re.fullmatch(r"ich|du|er|wir|ihr|der|die|das", match[1]), german
        assert not re.fullmatch(verb_second, match[2]), german


@pytest.mark.parametrize(
    ("finite", "prefix"),
    [("ruf(?:e|st|t)", "an"), ("räum(?:e|st|t)", "auf"), ("hol(?:e|st|t)", "ab"), ("w(?:e|i)rf(?:e|st|t)", "weg")],
)
def test_separable_prefix_closes_the_main_clause(pairs, finite, prefix):
    single = [german for german, _ in pairs if not re.search(r",| und | aber |!", german)]
    clauses = [german for german in single if re.search(rf"(?:^| ){finite} ", german, re.IGNORECASE)]
    assert len(clauses) >= 5
    for german in clauses:
        assert re.search(rf" {prefix}[.?]$", german), german


@pytest.mark.parametrize("prefix", ["an", "auf", "aus", "ein", "zu", "ab", "mit", "weg", "zurück"])
def test_zu_stands_inside_separable_infinitives(pairs, prefix):
    assert not [
        german
        for german, _ in pairs
        if re.search(rf" zu {prefix}(?:rufen|machen|laden|holen|nehmen|kaufen)\b", german)
    ]


def test_article_a_or_an_fits_the_sound(pairs):
    silent_or_glide = ("honest", "hour", "university", "uniform", "unique", "useful")
    seen = Counter()
    for _, english in pairs:
        for article, word in re.findall(r"\b([Aa]n?) (\S+)", english):
            vowel = word[0] in "aeiou"
            if word.startswith(silent_or_glide):
                vowel = word.startswith(("honest", "hour"))
            assert (article.lower() == "an") == vowel, english
            seen[article.lower()] += 1
    assert min(seen.values()) > 50


@pytest.mark.parametrize(
    "wrong",
    [
        r"\b(?:mit|von|bei|seit|nach|zu|vor) (?:der|den|dem)? ?\w+ (?:Mann|Hund)e? (?:den|das)\b",
        r"\b(?:mit|von|bei|zu) (?:das|die|den Mann|den Hund|den Tisch)\b",
        r"\bfür (?:dem|der Mann|der Hund)\b",
        r"\bzu dem\b|\bin dem\b|\ban dem\b|\bvon dem\b|\bbei dem\b|\bzu der\b",
        r"\b(?:den|dem|des) (?:Frau|Katze|Tür|Lampe|Schule)\b",
        r"\bdas (?:Mann|Frau|Hund|Katze|Lampe|Tisch|Vater|Mutter)\b",
        r"\b(?:ein|kein|mein|dein) (?:Frau|Katze|Tür|Lampe|Mutter|Schwester)\b",
        r"\beine (?:Mann|Kind|Haus|Auto|Buch|Hund)\b",
        r"\b(?:den|dem|einen|einem|diesen|diesem) (?:Student|Junge|Kunde|Bär|Löwe|Polizist|Tourist)\b",
        r"\bden (?:Männer|Kinder|Hunde|Vätern? Kind|Bücher)\b",
        r"\bnicht (?:ein|eine|einen|einem) (?:\w+ )?(?:\w+)\.$",
    ],
)
def test_wrong_german_forms_never_occur(pairs, wrong):
    assert not [german for german, _ in pairs if re.search(wrong, german)]


@pytest.mark.parametrize(
    "wrong",
    [
        r"(?:^|that |because |although |when )(?:[Hh]e|[Ss]he|[Ii]t) (?:have|do|are|were|go|want|like)\b",
        r"(?:^|that |because |although |when )(?:I|[Ww]e|[Tt]hey|[Yy]ou) (?:has|does|is|goes|wants|likes)\b",
        r"\b(?:did|does|do|will|can|should) not (?:(?!feed|need)\w+ed|went|saw|has|had)\b",
        r"\b(?:childs|mans|womans|mouses|gooses|sheeps|thiefs|knifes|buyed|eated|goed|runned|writed)\b",
        r"\b(?:a|an) (?:\w+ )?(?:children|men|women|mice|geese)\b",
        r"\b(the|a|an|to|of|is|did|does|not|and|in|he|she|it|we|they) \1\b",
        r"\bcan not\b",
    ],
)
def test_wrong_english_forms_never_occur(pairs, wrong):
    assert not [english for _, english in pairs if re.search(wrong, english)]


def test_kein_makes_the_english_sentence_negative(pairs):
    for _, (german, english) in found(pairs, r"\b[Kk]ein(?:e|en|em|er)?\b"):
        assert re.search(r"\b(?:not|cannot|no|No)\b", english), (german, english)


def test_perfekt_becomes_simple_past(pairs):
    for match, (german, english) in found(
        pairs, r"^[^,]*\b(?:hat|habe|haben) [^,]*\b(gekauft|gegessen|gelesen|gefunden|gesehen)\.$"
    ):
        past = {"gekauft": "bought", "gegessen": "ate", "gelesen": "read", "gefunden": "found", "gesehen": "saw"}[
            match[1]
        ]
        assert re.search(rf"\b{past}\b|\bdid not\b", english), (german, english)


def test_gerade_becomes_progressive(pairs):
    for _, (german, english) in found(pairs, r"\bgerade\b"):
        assert re.search(r"\b(?:am|is|are|Am|Is|Are)\b.*ing\b", english), (german, english)


def test_numbers_invert_tens_and_units():
    samples = {2: "zwei two", 12: "zwölf twelve", 21: "einundzwanzig twenty-one", 76: "sechsundsiebzig seventy-six"}
    for value, text in samples.items():
        assert f"{german_number(value)} {english_number(value)}" == text
    assert german_number(345) == "dreihundertfünfundvierzig"
    assert english_number(345) == "three hundred forty-five"
    assert german_number(101) == "einhunderteins"


def test_clock_times_are_translated_by_meaning(pairs):
    order = [german_number(hour) for hour in range(1, 13)]
    for match, (_, english) in found(pairs, r"\bum halb (\w+)"):
        hour = 1 if match[1] == "eins" else order.index(match[1]) + 1
        assert f"half past {english_number((hour - 2) % 12 + 1)}" in english
    for match, (_, english) in found(pairs, r"\bum (\d+):(\d\d) Uhr"):
        hour = int(match[1])
        assert f"{(hour - 1) % 12 + 1}:{match[2]} {'a' if hour < 12 else 'p'}.m." in english


def test_decimal_and_thousands_marks_are_exchanged(pairs):
    for match, (_, english) in found(pairs, r"\b(\d+),(\d\d) Euro"):
        assert f"{match[1]}.{match[2]} euros" in english
    for match, (_, english) in found(pairs, r"\b(\d+)\.(\d{3}) Euro"):
        assert f"{match[1]},{match[2]} euros" in english


def test_hand_written_translations_are_reproduced():
    wanted = dict(GOLDEN)
    for german, english in generate_pairs(3000, seed=0):
        if german in wanted:
            assert wanted.pop(german) == english
    assert not wanted, f"never generated: {list(wanted)}"


def test_alignment_links_point_at_words(aligned):
    for german, english, alignment in aligned:
        links = links_of(alignment)
        assert links == sorted(set(links))
        assert all(row < len(german.split()) and column < len(english.split()) for row, column in links)
        assert len({row for row, _ in links}) > 0.5 * len(german.split())


def test_alignment_links_equal_names_and_digits(aligned):
    shared = {"Anna", "Peter", "Paul", "Clara", "Laura", "Berlin", "London", "Hamburg", "Kiel", "Simon", "Emma"}
    checked = 0
    for german, english, alignment in aligned:
        source, target = words(german), words(english)
        links = set(links_of(alignment))
        for name in shared & set(source) & set(target):
            if source.count(name) == target.count(name) == 1:
                assert (source.index(name), target.index(name)) in links, (german, english)
                checked += 1
    assert checked > 100


def test_most_sentences_need_reordering(aligned):
    crossed = 0
    for *_, alignment in aligned:
        links = links_of(alignment)
        crossed += any(a < c and b > d for (a, b), (c, d) in combinations(links, 2))
    assert crossed > 0.6 * len(aligned)
