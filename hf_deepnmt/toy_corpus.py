"""Generated German-English corpus: an endless supply of small, grammatical sentence pairs for tests and tutorials.

Every sentence is composed from the word tables and clause builders below, all written for this package. The text
holds no third-party material and may be used under the package's own licence.

Grammar. German: verb-second main clauses with the subject, a time, a place, an object or a sentence adverb in front;
verb-final clauses after weil, dass, ob, wenn, falls, obwohl, bevor, sobald, solange, als, nachdem, damit and question
words; relative clauses, also extraposed; separable, reflexive and dative verbs and verbs with a prepositional object;
present, Perfekt, Präteritum, Plusquamperfekt, Futur, passive and modals; infinitives with zu, um, ohne and anstatt;
commands; yes/no and wh-questions; four cases, three genders, plurals, weak nouns, three adjective declensions,
contractions (im, ins, am, zum, zur, vom, beim); nicht and kein; comparatives; numerals in words and digits, prices,
dates and clock times. English: agreement, do-support, irregular verbs, progressive and perfect, a/an, possessive 's,
phrasal verbs.

One source sentence has one translation. A German word has one English rendering in its context. Tense follows from
the verb group and the time adverb: Perfekt and Präteritum give the simple past, "gerade" the progressive, "seit" the
present perfect, a present with a future adverb "will". What German leaves open is settled by rule: the possessives
"sein" and "ihr" refer to the subject of their clause, accusative "sie" is "her", sentence-initial "Sie" with a plural
verb is "they" (the polite "Sie" appears only inside a sentence, where the capital shows it), and of two noun phrases
without a case mark the first is the subject. A perfect translator therefore reaches the reference exactly.
Lower-casing the source loses the difference between "sie" and "Sie".

Sizes. 378 nouns, 61 names, 220 verbs and 90 adjectives; 20,000 pairs show about 3,900 German and 2,100 English word
forms. Sentences have 3 to 25 words; in about 80% of them the word alignment has a crossing, so a monotone
translation would be wrong.

Determinism. The only source of chance is `random.Random(seed).random()`, whose sequence Python keeps stable, so a
seed gives the same text on every platform and Python version.
"""

# Long word lists are easier to read and to extend as one string than as a list of literals.
# ruff: noqa: SIM905

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from datasets import DatasetDict

# A word and its link key: words of the two sides that share a non-zero key are aligned.
Token = tuple[str, int]
Tokens = list[Token]

MIN_WORDS, MAX_WORDS = 3, 25
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
ICH, DU, ER, WIR, IHR, SIE = range(6)
# English agreement: I / you, we, they / he, she, it.
FIRST, OTHER, THIRD = range(3)

# One letter per meaning class; verbs name the classes of the objects they take. German gender (w: weak masculine),
# plural ("=" as singular, "-" none), English singular and, where irregular, plural.
_NOUNS = {
    "P": """Mann m Männer man men; Frau f Frauen woman women; Kind n Kinder child children; Junge w Jungen boy;
        Mädchen n = girl; Freund m Freunde friend; Freundin f Freundinnen friend; Nachbar w Nachbarn neighbor;
        Nachbarin f Nachbarinnen neighbor; Gast m Gäste guest; Kunde w Kunden customer; Kundin f Kundinnen customer;
        Kollege w Kollegen colleague; Kollegin f Kolleginnen colleague; Chef m Chefs boss; Chefin f Chefinnen boss;
        König m Könige king; Königin f Königinnen queen; Tourist w Touristen tourist;
        Touristin f Touristinnen tourist; Zeuge w Zeugen witness; Patient w Patienten patient;
        Patientin f Patientinnen patient; Baby n Babys baby; Dieb m Diebe thief thieves; Prinz w Prinzen prince;
        Zwilling m Zwillinge twin; Gegner m = opponent; Held w Helden hero heroes;
        Besucher m = visitor; Besucherin f Besucherinnen visitor; Mieter m = tenant; Einbrecher m = burglar""",
    "Pk": """Vater m Väter father; Mutter f Mütter mother; Bruder m Brüder brother; Schwester f Schwestern sister;
        Sohn m Söhne son; Tochter f Töchter daughter; Großvater m Großväter grandfather;
        Großmutter f Großmütter grandmother; Onkel m = uncle; Tante f Tanten aunt; Enkel m = grandson;
        Enkelin f Enkelinnen granddaughter; Neffe w Neffen nephew; Nichte f Nichten niece;
        Cousine f Cousinen cousin""",
    "Pj": """Lehrer m = teacher; Lehrerin f Lehrerinnen teacher; Schüler m = pupil; Schülerin f Schülerinnen pupil;
        Student w Studenten student; Studentin f Studentinnen student; Arzt m Ärzte doctor; Ärztin f Ärztinnen doctor;
        Koch m Köche cook; Köchin f Köchinnen cook; Bäcker m = baker; Bäckerin f Bäckerinnen baker;
        Verkäufer m = salesman salesmen; Verkäuferin f Verkäuferinnen saleswoman saleswomen; Fahrer m = driver;
        Polizist w Polizisten police_officer; Polizistin f Polizistinnen police_officer; Richter m = judge;
        Richterin f Richterinnen judge; Künstler m = artist; Künstlerin f Künstlerinnen artist; Sänger m = singer;
        Sängerin f Sängerinnen singer; Musiker m = musician; Maler m = painter; Malerin f Malerinnen painter;
        Autor m Autoren author; Autorin f Autorinnen author; Bauer w Bauern farmer; Bäuerin f Bäuerinnen farmer;
        Ingenieur m Ingenieure engineer; Ingenieurin f Ingenieurinnen engineer; Pilot w Piloten pilot;
        Pilotin f Pilotinnen pilot; Anwalt m Anwälte lawyer; Anwältin f Anwältinnen lawyer; Gärtner m = gardener;
        Gärtnerin f Gärtnerinnen gardener; Kellner m = waiter; Kellnerin f Kellnerinnen waitress;
        Tänzer m = dancer; Tänzerin f Tänzerinnen dancer; Journalist w Journalisten journalist;
        Journalistin f Journalistinnen journalist; Zahnarzt m Zahnärzte dentist; Zahnärztin f Zahnärztinnen dentist;
        Mechaniker m = mechanic; Fotograf w Fotografen photographer; Fotografin f Fotografinnen photographer;
        Schneider m = tailor; Fischer m = fisherman fishermen; Jäger m = hunter; Schauspieler m = actor;
        Schauspielerin f Schauspielerinnen actress""",
    "A": """Hund m Hunde dog; Katze f Katzen cat; Pferd n Pferde horse; Vogel m Vögel bird; Kuh f Kühe cow;
        Schaf n Schafe sheep sheep; Maus f Mäuse mouse mice; Bär w Bären bear; Hase w Hasen rabbit;
        Fuchs m Füchse fox; Wolf m Wölfe wolf wolves; Löwe w Löwen lion; Elefant w Elefanten elephant;
        Affe w Affen monkey; Esel m = donkey; Huhn n Hühner chicken; Ente f Enten duck; Schwein n Schweine pig;
        Ziege f Ziegen goat; Papagei m Papageien parrot; Igel m = hedgehog; Eule f Eulen owl; Frosch m Frösche frog;
        Schildkröte f Schildkröten turtle; Gans f Gänse goose geese""",
    "F": """Apfel m Äpfel apple; Birne f Birnen pear; Banane f Bananen banana; Orange f Orangen orange;
        Erdbeere f Erdbeeren strawberry; Kirsche f Kirschen cherry; Salat m Salate salad; Gurke f Gurken cucumber;
        Zitrone f Zitronen lemon; Pfirsich m Pfirsiche peach; Pflaume f Pflaumen plum""",
    "FK": """Ei n Eier egg; Kartoffel f Kartoffeln potato; Suppe f Suppen soup; Wurst f Würste sausage;
        Karotte f Karotten carrot""",
    "Ft": "Tomate f Tomaten tomato; Zwiebel f Zwiebeln onion",
    "Fz": """Kuchen m = cake; Brötchen n = roll; Keks m Kekse cookie; Pfannkuchen m = pancake; Torte f Torten tart""",
    "M": """Käse m - cheese; Butter f - butter; Zucker m - sugar; Salz n - salt; Honig m - honey; Obst n - fruit;
        Schokolade f - chocolate; Marmelade f - jam; Spinat m - spinach""",
    "MK": "Fleisch n - meat; Reis m - rice; Fisch m - fish",
    "Mz": "Brot n - bread",
    "D": """Wasser n - water; Milch f - milk; Kaffee m - coffee; Tee m - tea; Wein m - wine; Bier n - beer;
        Saft m - juice; Limonade f - lemonade""",
    "T": """Löffel m = spoon; Gabel f Gabeln fork; Messer n = knife knives; Tasse f Tassen cup; Ball m Bälle ball;
        Decke f Decken blanket; Kissen n = pillow; Seil n Seile rope; Kerze f Kerzen candle; Korb m Körbe basket;
        Landkarte f Landkarten map; Bleistift m Bleistifte pencil; Kugelschreiber m = pen; Vase f Vasen vase;
        Puppe f Puppen doll; Gitarre f Gitarren guitar; Geige f Geigen violin; Regenschirm m Regenschirme umbrella;
        Werkzeug n Werkzeuge tool; Nagel m Nägel nail; Leiter f Leitern ladder; Seife f Seifen soap;
        Kamm m Kämme comb; Schlüssel m = key; Teppich m Teppiche carpet; Bett n Betten bed; Sofa n Sofas sofa;
        Stuhl m Stühle chair; Eimer m = bucket; Besen m = broom; Nadel f Nadeln needle; Zelt n Zelte tent;
        Topf m Töpfe pot; Pfanne f Pfannen pan""",
    "Ty": "Teller m = plate; Spiegel m = mirror; Glas n Gläser glass",
    "Tu": """Uhr f Uhren watch; Maschine f Maschinen machine; Waage f Waagen scale; Spielzeug n Spielzeuge toy""",
    "Tue": """Lampe f Lampen lamp; Computer m = computer; Kamera f Kameras camera; Radio n Radios radio;
        Fernseher m = television; Drucker m = printer""",
    "Tb": "Tisch m Tische table; Regal n Regale shelf shelves",
    "To": "Geschenk n Geschenke gift; Paket n Pakete package",
    "Toq": "Koffer m = suitcase; Flasche f Flaschen bottle; Schachtel f Schachteln box; Tasche f Taschen bag",
    "oqyu": "Tür f Türen door; Fenster n = window; Tor n Tore gate",
    "Tc": "Stein m Steine stone; Münze f Münzen coin; Briefmarke f Briefmarken stamp; Muschel f Muscheln shell",
    "Tt": "Blume f Blumen flower; Rose f Rosen rose",
    "t": "Baum m Bäume tree; Pflanze f Pflanzen plant; Strauch m Sträucher shrub",
    "C": """Hemd n Hemden shirt; Rock m Röcke skirt; Kleid n Kleider dress; Mantel m Mäntel coat;
        Jacke f Jacken jacket; Hut m Hüte hat; Schal m Schals scarf scarves; Mütze f Mützen cap;
        Pullover m = sweater; Anzug m Anzüge suit;
        Krawatte f Krawatten tie; Gürtel m = belt; Bluse f Blusen blouse; Schürze f Schürzen apron""",
    "R": """Zeitung f Zeitungen newspaper; Zeitschrift f Zeitschriften magazine; Wörterbuch n Wörterbücher dictionary;
        Buch n Bücher book; Tagebuch n Tagebücher diary""",
    "Rm": "Rechnung f Rechnungen bill",
    "Rf": "Vertrag m Verträge contract; Formular n Formulare form; Fragebogen m Fragebögen questionnaire",
    "W": """Gedicht n Gedichte poem; Artikel m = article; Roman m Romane novel; Aufsatz m Aufsätze essay;
        Rezept n Rezepte recipe; Bericht m Berichte report; Märchen n = fairy_tale""",
    "Wp": "Brief m Briefe letter; Postkarte f Postkarten postcard; Nachricht f Nachrichten message",
    "Ww": "Geschichte f Geschichten story",
    "V": """Auto n Autos car; Fahrrad n Fahrräder bicycle; Boot n Boote boat; Motorrad n Motorräder motorcycle;
        Lastwagen m = truck; Traktor m Traktoren tractor; Wohnwagen m = trailer""",
    "Vv": """Zug m Züge train; Bus m Busse bus; Flugzeug n Flugzeuge airplane; Schiff n Schiffe ship;
        Straßenbahn f Straßenbahnen tram; Taxi n Taxis taxi; Fähre f Fähren ferry""",
    "X": """Idee f Ideen idea; Plan m Pläne plan; Fehler m = mistake; Grund m Gründe reason;
        Lösung f Lösungen solution; Regel f Regeln rule; Entscheidung f Entscheidungen decision;
        Traum m Träume dream; Ergebnis n Ergebnisse result; Projekt n Projekte project;
        Meinung f Meinungen opinion; Gesetz n Gesetze law""",
    "Xs": "Problem n Probleme problem; Aufgabe f Aufgaben task; Rätsel n = riddle",
    "XJ": "Frage f Fragen question",
    "Xg": "Vorschlag m Vorschläge proposal; Angebot n Angebote offer; Einladung f Einladungen invitation",
    "w": "Geheimnis n Geheimnisse secret; Witz m Witze joke",
    "h": "Sprache f Sprachen language; Tanz m Tänze dance",
    "hl": "Lied n Lieder song; Melodie f Melodien melody",
    "E": """Konzert n Konzerte concert; Prüfung f Prüfungen exam; Besprechung f Besprechungen meeting;
        Kurs m Kurse course; Hochzeit f Hochzeiten wedding; Ausstellung f Ausstellungen exhibition;
        Fest n Feste festival; Spiel n Spiele game; Vorlesung f Vorlesungen lecture;
        Wettbewerb m Wettbewerbe competition;
        Feier f Feiern celebration; Wahl f Wahlen election""",
}

# Places: class, place preposition and goal preposition (+a: accusative, +d: dative) and English place preposition.
_PLACES = {
    "in zu+d at B": """Schule f Schulen school; Apotheke f Apotheken pharmacy; Bäckerei f Bäckereien bakery;
        Bibliothek f Bibliotheken library; Universität f Universitäten university; Fabrik f Fabriken factory""",
    "in in+a in B": """Garten m Gärten garden; Park m Parks park; Wald m Wälder forest; Stadt f Städte city;
        Kirche f Kirchen church; Museum n Museen museum; Restaurant n Restaurants restaurant; Hotel n Hotels hotel;
        Café n Cafés café; Theater n = theater; Krankenhaus n Krankenhäuser hospital; Dorf n Dörfer village;
        Schloss n Schlösser castle; Kino n Kinos movie_theater; Supermarkt m Supermärkte supermarket;
        Haus n Häuser house; Laden m Läden store; Höhle f Höhlen cave; Stall m Ställe stable;
        Gefängnis n Gefängnisse prison; Werkstatt f Werkstätten workshop""",
    "in in+a in Br": """Küche f Küchen kitchen; Wohnzimmer n = living_room; Zimmer n = room; Keller m = basement;
        Büro n Büros office; Garage f Garagen garage; Badezimmer n = bathroom; Schlafzimmer n = bedroom""",
    "an zu+d at N": """Bahnhof m Bahnhöfe train_station; Flughafen m Flughäfen airport; Hafen m Häfen harbor;
        See m Seen lake; Fluss m Flüsse river; Strand m Strände beach; Brunnen m = fountain""",
    "auf auf+a on N": """Insel f Inseln island; Berg m Berge mountain; Wiese f Wiesen meadow; Straße f Straßen street;
        Brücke f Brücken bridge; Turm m Türme tower; Bauernhof m Bauernhöfe farm; Dach n Dächer roof;
        Hügel m = hill; Terrasse f Terrassen terrace; Spielplatz m Spielplätze playground""",
    "auf zu+d at N": "Markt m Märkte market; Marktplatz m Marktplätze market_square",
}

_CITIES = (
    "Berlin Hamburg Bremen Dresden Leipzig Potsdam Kiel Rostock Weimar Paris London Oslo Madrid Dublin Boston".split()
)
_COUNTRIES = """Deutschland Germany; Frankreich France; Italien Italy; Spanien Spain; Norwegen Norway; Schweden Sweden;
    Polen Poland; Kanada Canada; Japan Japan; Griechenland Greece; Österreich Austria; Irland Ireland;
    Ungarn Hungary"""
_MEN = "Peter Paul Martin Stefan Karl Anton Emil Jan Oskar Simon David Daniel Michael Julian Robert"
_WOMEN = "Anna Maria Laura Julia Lena Sophie Emma Clara Helga Nina Eva Lisa Hanna Katrin Sabine Martha Petra Monika"

# German base (and stem before endings), comparative ("-": none); English and comparative; noun classes it suits.
_ADJECTIVES = """alt älter|old older|PATCRVB; jung jünger|young younger|PA; groß größer|big bigger|PATCVB;
    klein kleiner|small smaller|PATCVB; klug klüger|smart smarter|PA; stark stärker|strong stronger|PA;
    reich reicher|rich richer|P; arm ärmer|poor poorer|P; freundlich freundlicher|friendly friendlier|P;
    nett netter|nice nicer|P; müde -|tired|PA; krank -|sick|PA; glücklich glücklicher|happy happier|P;
    traurig trauriger|sad sadder|P; faul fauler|lazy lazier|PA; fleißig fleißiger|hard-working|P;
    höflich höflicher|polite politer|P; mutig mutiger|brave braver|PA; berühmt berühmter|famous|PRWB;
    hungrig hungriger|hungry hungrier|PA; neugierig neugieriger|curious|PA; ehrlich ehrlicher|honest|P;
    nervös nervöser|nervous|P; schüchtern schüchterner|shy shyer|P;
    wütend -|angry angrier|P; dumm dümmer|stupid|PA; vorsichtig vorsichtiger|careful|P; zufrieden -|content|P;
    wild wilder|wild wilder|A; treu treuer|loyal|A; schön schöner|beautiful|ATCVBW; neu neuer|new newer|TCRVB;
    teuer teurer|expensive|TCV; billig billiger|cheap cheaper|TCV; schwer schwerer|heavy heavier|T;
    sauber sauberer|clean cleaner|TCBV; schmutzig schmutziger|dirty dirtier|TCBV; nützlich nützlicher|useful|TRX;
    rot -|red|TCVt; blau -|blue|TCV; grün -|green|TCVt; gelb -|yellow|TCVt; schwarz -|black|TCVA; weiß -|white|TCVA;
    braun -|brown|TCA; grau -|gray|TCA; warm wärmer|warm warmer|CF; kalt kälter|cold colder|DB; frisch -|fresh|FM;
    süß süßer|sweet sweeter|F; lecker leckerer|delicious|FMD; gesund gesünder|healthy healthier|FM; reif -|ripe|F;
    lang länger|long longer|RWE; kurz kürzer|short shorter|WE; spannend spannender|exciting|WE;
    interessant interessanter|interesting|RWXE; langweilig langweiliger|boring|RWXE; wichtig wichtiger|important|RXE;
    schwierig schwieriger|difficult|X; einfach einfacher|simple simpler|X; gut besser|good better|RWXE;
    schlecht schlechter|bad worse|RWXE; kompliziert komplizierter|complicated|X; seltsam seltsamer|strange stranger|XW;
    gefährlich gefährlicher|dangerous|AX; schnell schneller|fast faster|VA; langsam langsamer|slow slower|VA;
    bequem bequemer|comfortable|CV; modern moderner|modern|VB; ruhig ruhiger|quiet quieter|B;
    dunkel dunkler|dark darker|B; hell heller|bright brighter|B; leer -|empty|B; elegant eleganter|elegant|C;
    praktisch praktischer|practical|TX;
    merkwürdig merkwürdiger|odd odder|XW; lustig lustiger|funny funnier|W; unbekannt -|unknown|W;
    bekannt -|well-known|WP; deutlich -|clear clearer|X; vernünftig vernünftiger|reasonable|X;
    zerbrechlich zerbrechlicher|fragile|T;
    wertvoll wertvoller|valuable|TR; verrückt -|crazy crazier|X; zuverlässig zuverlässiger|reliable|PV;
    hilfsbereit -|helpful|P; stolz -|proud prouder|P; einsam -|lonely lonelier|P; blind -|blind|PA"""

# German infinitive (hyphen after a separable prefix), du/er forms, Präteritum, participle ("=": regular), auxiliary;
# English base, past, participle ("~" before a particle that follows a pronoun); frame; flags after a space
# (s: no progressive, a capital after "by": class of the subject, persons by default).
_VERBS = """
kaufen = = = h|buy bought bought|acc TCVRF
verkaufen = = = h|sell sold sold|acc TCVR
suchen = = = h|look_for|acc TCRPAV
finden = fand gefunden h|find found found|acc TCRA s
sehen siehst/sieht sah gesehen h|see saw seen|acc PATV s
lesen liest/liest las gelesen h|read read read|acc RW
schreiben = schrieb geschrieben h|write wrote written|acc W
essen isst/isst aß gegessen h|eat ate eaten|acc FM
trinken = trank getrunken h|drink drank drunk|acc D
kochen = = = h|cook|acc K
backen = backte gebacken h|bake|acc z
öffnen = = = h|open|acc o
auf-machen = = = h|open|acc o
zu-machen = = = h|close|acc q
schließen = schloss geschlossen h|close|acc q
an-rufen = rief angerufen h|call|acc P
besuchen = = = h|visit|acc PB
kennen = kannte gekannt h|know knew known|acc P s
treffen triffst/trifft traf getroffen h|meet met met|acc P
lieben = = = h|love|acc P s
bewundern = = = h|admire|acc P s
brauchen = = = h|need|acc TCRV s
benutzen = = = h|use|acc T
tragen trägst/trägt trug getragen h|wear wore worn|acc C
an-ziehen = zog angezogen h|put_~on put put|acc C
aus-ziehen = zog ausgezogen h|take_~off took taken|acc C
waschen wäschst/wäscht wusch gewaschen h|wash|acc CV
putzen = = = h|clean|acc y
reparieren = = = h|repair|acc uV
verlieren = verlor verloren h|lose lost lost|acc TC
vergessen vergisst/vergisst vergaß vergessen h|forget forgot forgotten|acc TCX s
verstehen = verstand verstanden h|understand understood understood|acc XP s
lösen = = = h|solve|acc s
beantworten = = = h|answer|acc Jp
lernen = = = h|learn|acc h
singen = sang gesungen h|sing sang sung|acc l
hören = = = h|hear heard heard|acc lA s
malen = = = h|paint|acc ABN
zeichnen = = = h|draw drew drawn|acc ABNV
fotografieren = = = h|photograph|acc APBN
bauen = = = h|build built built|acc b
beobachten = = = h|watch|acc APV
füttern = = = h|feed fed fed|acc A
streicheln = = = h|stroke|acc A
sammeln = = = h|collect|acc c
ein-laden lädst/lädt lud eingeladen h|invite|acc P
ab-holen = = = h|pick_~up|acc P
mit-bringen = brachte mitgebracht h|bring_~along brought brought|acc TRF
mit-nehmen nimmst/nimmt nahm mitgenommen h|take_~along took taken|acc TRC
nehmen nimmst/nimmt nahm genommen h|take took taken|acc TCF
weg-werfen wirfst/wirft warf weggeworfen h|throw_~away threw thrown|acc TCF
auf-räumen = = = h|tidy_~up|acc r
ein-schalten = = = h|turn_~on|acc e
aus-schalten = = = h|turn_~off|acc e
an-schauen = = = h|look_at|acc ATRC
vor-bereiten = = vorbereitet h|prepare|acc E
ab-schicken = = = h|send_~off sent sent|acc p
aus-füllen = = = h|fill_~out|acc f
an-nehmen nimmst/nimmt nahm angenommen h|accept|acc g
ab-lehnen = = = h|reject|acc gX
zurück-geben gibst/gibt gab zurückgegeben h|give_~back gave given|acc TR
aus-wählen = = = h|choose chose chosen|acc TCRF
aus-leihen = lieh ausgeliehen h|borrow|acc TRV
unterschreiben = unterschrieb unterschrieben h|sign|acc fp
übersetzen = = übersetzt h|translate|acc WR
drucken = = = h|print|acc W
bestellen = = = h|order|acc FTCD
bezahlen = = = h|pay paid paid|acc m
zerstören = = = h|destroy|acc BV s
verstecken = = = h|hide hid hidden|acc TR
organisieren = = = h|organize|acc E
planen = = = h|plan|acc EX
verpassen = = = h|miss|acc vE s
betreten betrittst/betritt betrat betreten h|enter|acc B
verlassen verlässt/verlässt verließ verlassen h|leave left left|acc B
pflanzen = = = h|plant|acc t
gießen = goss gegossen h|water|acc t
schneiden = schnitt geschnitten h|cut cut cut|acc FM
probieren = = = h|taste|acc FMD s
genießen = genoss genossen h|enjoy|acc EFD
mieten = = = h|rent|acc V
fragen = = = h|ask|acc P
begrüßen = = = h|greet|acc P
wecken = = = h|wake_~up woke woken|acc P
retten = = = h|rescue|acc PA
verfolgen = = = h|pursue|acc PA
umarmen = = umarmt h|hug|acc P
heiraten = = = h|marry|acc P
stören = = = h|disturb|acc P
überzeugen = = überzeugt h|convince|acc P
aus-lachen = = = h|make_fun_of made made|acc P
kennen-lernen = = = h|get_to_know got gotten|acc P
fangen fängst/fängt fing gefangen h|catch caught caught|acc A
jagen = = = h|chase|acc A byA
fressen frisst/frisst fraß gefressen h|eat ate eaten|acc M byA
ändern = = = h|change|acc X
erfinden = erfand erfunden h|invent|acc w
verraten verrätst/verrät verriet verraten h|reveal|acc w
schlafen schläfst/schläft schlief geschlafen h|sleep slept slept|none byPA
arbeiten = = = h|work|none
lachen = = = h|laugh|none
weinen = = = h|cry|none
tanzen = = = h|dance|none
schwimmen = schwamm geschwommen s|swim swam swum|none byPA
spielen = = = h|play|none byPA
auf-stehen = stand aufgestanden s|get_up got gotten|none
ein-schlafen schläfst/schläft schlief eingeschlafen s|fall_asleep fell fallen|none byPA
auf-wachen = = = s|wake_up woke woken|none byPA
an-kommen = kam angekommen s|arrive|none byPv
ab-fahren fährst/fährt fuhr abgefahren s|depart|none byv
ab-reisen = = = s|set_off set set|none
ein-kaufen = = = h|go_shopping went gone|none
fern-sehen siehst/sieht sah ferngesehen h|watch_television|none
zurück-kommen = kam zurückgekommen s|come_back came come|none
weg-laufen läufst/läuft lief weggelaufen s|run_away ran run|none byPA
mit-kommen = kam mitgekommen s|come_along came come|none
aus-gehen = ging ausgegangen s|go_out went gone|none
um-ziehen = zog umgezogen s|move|none
ab-waschen wäschst/wäscht wusch abgewaschen h|do_the_dishes did done|none
lächeln = = = h|smile|none
joggen = = = s|jog|none
frühstücken = = = h|have_breakfast had had|none
rauchen = = = h|smoke|none
träumen = = = h|dream|none
beginnen = begann begonnen h|begin began begun|none byE
an-fangen fängst/fängt fing angefangen h|start|none byE
enden = = = h|end|none byE
statt-finden = fand stattgefunden h|take_place took taken|none byE
regnen = = = h|rain|none by*
schneien = = = h|snow|none by*
bleiben = blieb geblieben s|stay|place
wohnen = = = h|live|place s
sitzen = saß gesessen h|sit sat sat|place byPA
stehen = stand gestanden h|stand stood stood|place byPA
liegen = lag gelegen h|lie lay lain|place byT s
helfen hilfst/hilft half geholfen h|help|dat P
danken = = = h|thank|dat P
folgen = = = s|follow|dat PA
gehören = = = h|belong_to|dat P s byTCV
glauben = = = h|believe|dat P s
vertrauen = = = h|trust|dat P s
antworten = = = h|reply_to|dat P
gratulieren = = = h|congratulate|dat P
zu-hören = = = h|listen_to|dat P
zu-schauen = = = h|watch|dat P
begegnen = = = s|encounter|dat P s
widersprechen widersprichst/widerspricht widersprach widersprochen h|contradict|dat P
verzeihen = verzieh verziehen h|forgive forgave forgiven|dat P s
zu-stimmen = = = h|agree_with|dat P s
drohen = = = h|threaten|dat P
nach-laufen läufst/läuft lief nachgelaufen s|run_after ran run|dat PA
aus-weichen = wich ausgewichen s|avoid|dat P
geben gibst/gibt gab gegeben h|give gave given|both TRF
zeigen = = = h|show showed shown|both TRV
schicken = = = h|send sent sent|both pTR
bringen = brachte gebracht h|bring brought brought|both TRFD
leihen = lieh geliehen h|lend lent lent|both TRV
erzählen = = = h|tell told told|both w
vor-lesen liest/liest las vorgelesen h|read_out read read|both-to W
erklären = = = h|explain|both-to X
empfehlen empfiehlst/empfiehlt empfahl empfohlen h|recommend|both-to RBF
an-bieten = bot angeboten h|offer|both TFD
zurück-bringen = brachte zurückgebracht h|return|both-to TR
beschreiben = beschrieb beschrieben h|describe|both-to BNPV
vor-stellen = = = h|introduce|both-to X
warten = = = h|wait|auf+a for PV
denken = dachte gedacht h|think thought thought|an+a of PX
sprechen sprichst/spricht sprach gesprochen h|speak spoke spoken|mit+d with P
reden = = = h|talk|über+a about XVP
träumen = = = h|dream|von+d of VTP
nach-denken = dachte nachgedacht h|think thought thought|über+a about X
teil-nehmen nimmst/nimmt nahm teilgenommen h|take_part took taken|an+d in E
auf-passen = = = h|look|auf+a after PA
bitten = bat gebeten h|ask|um+a for TFD
hoffen = = = h|hope|auf+a for X s
streiten = stritt gestritten h|argue|mit+d with P
arbeiten = = = h|work|an+d on XW
sich_freuen = = = h|look_forward|auf+a to E
sich_erinnern = = = h|remember|an+a - PX s
sich_kümmern = = = h|take_care took taken|um+a of PAX
sich_verabschieden = = = h|say_goodbye said said|von+d to P
sich_beschweren = = = h|complain|über+a about XE
sich_verlieben = = = h|fall_in_love fell fallen|in+a with P
sich_entscheiden = entschied entschieden h|decide|für+a on TCV
sich_entschuldigen = = = h|apologize|bei+d to P
sich_gewöhnen = = = h|get_used got gotten|an+a to X
sich_vor-bereiten = = vorbereitet h|prepare|auf+a for E
sich_verstecken = = = h|hide hid hidden|vor+d from P
sich_beeilen = = = h|hurry|none
sich_aus-ruhen = = = h|rest|none byPA
sich_an-ziehen = zog angezogen h|get_dressed got gotten|none
sich_hin-setzen = = = h|sit_down sat sat|none byPA
sich_hin-legen = = = h|lie_down lay lain|none byPA
sich_erkälten = = = h|catch_a_cold caught caught|none
sich_um-drehen = = = h|turn_around|none
sich_verlaufen verläufst/verläuft verlief verlaufen h|get_lost got gotten|none
sich_rasieren = = = h|shave|none
gehen = ging gegangen s|go went gone|goal
fahren fährst/fährt fuhr gefahren s|travel|goal
laufen läufst/läuft lief gelaufen s|run ran run|goal byPA
rennen = rannte gerannt s|rush|goal byPA
fliegen = flog geflogen s|fly flew flown|city
zurück-fahren fährst/fährt fuhr zurückgefahren s|drive_back drove driven|city
zurück-kehren = = = s|return|city
"""

# Sentence adverbs that open a main clause; the comma belongs to the English one.
_OPENERS = """leider|unfortunately,; zum Glück|fortunately,; deshalb|therefore,; trotzdem|nevertheless,;
    danach|afterwards,; vielleicht|maybe; natürlich|of course; endlich|finally,; wahrscheinlich|probably;
    außerdem|besides,"""
_FREQUENCIES = "immer|always; oft|often; nie|never; manchmal|sometimes; selten|rarely; meistens|usually; auch|also"
_MANNERS = """schnell|quickly; langsam|slowly; vorsichtig|carefully; leise|quietly; allein|alone; laut|loudly;
    geduldig|patiently; ungern|reluctantly; heimlich|secretly; freiwillig|voluntarily"""
_DEGREES = "sehr|very; zu|too; ziemlich|rather; wirklich|really; nicht|not; so|so"
# Tense a time adverb allows: past, future or any.
_TIMES = """gestern|yesterday|past; vorgestern|the day before yesterday|past; letzte Woche|last week|past;
    letztes Jahr|last year|past; letzten Sommer|last summer|past; letzten Monat|last month|past;
    gestern Abend|yesterday evening|past; damals|back then|past; heute Morgen|this morning|any; heute|today|any;
    heute Abend|tonight|any; jeden Tag|every day|any; jeden Morgen|every morning|any; jede Woche|every week|any;
    am Morgen|in the morning|any; am Abend|in the evening|any; am Nachmittag|in the afternoon|any;
    in der Nacht|at night|any; am Wochenende|on the weekend|any; im Sommer|in the summer|any;
    im Winter|in the winter|any; im Frühling|in the spring|any; im Herbst|in the fall|any;
    vor dem Frühstück|before breakfast|any; nach dem Abendessen|after dinner|any; um Mitternacht|at midnight|any;
    zu Weihnachten|at Christmas|any; mittags|at noon|any; nach der Arbeit|after work|any; morgen|tomorrow|future;
    übermorgen|the day after tomorrow|future; nächste Woche|next week|future; nächstes Jahr|next year|future;
    nächsten Monat|next month|future; bald|soon|future; später|later|future; morgen früh|tomorrow morning|future"""
_WEEKDAYS = """Montag Monday; Dienstag Tuesday; Mittwoch Wednesday; Donnerstag Thursday; Freitag Friday;
    Samstag Saturday; Sonntag Sunday"""
_MONTHS = """Januar January; Februar February; März March; April April; Mai May; Juni June; Juli July; August August;
    September September; Oktober October; November November; Dezember December"""

_SMALL_GERMAN = """null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn
    sechzehn siebzehn achtzehn neunzehn""".split()
_SMALL_ENGLISH = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen""".split()
_TENS_GERMAN = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_TENS_ENGLISH = "twenty thirty forty fifty sixty seventy eighty ninety".split()

_HABEN = ("habe", "hast", "hat", "haben", "habt", "haben")
_SEIN = ("bin", "bist", "ist", "sind", "seid", "sind")
_HATTEN = ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten")
_WAREN = ("war", "warst", "war", "waren", "wart", "waren")
_WERDEN = ("werde", "wirst", "wird", "werden", "werdet", "werden")

# German forms by person; English auxiliary by agreement or, without one, finite and plain form; words before the verb.
_MODALS = {
    "can": (("kann", "kannst", "kann", "können", "könnt", "können"), ("can", "can", "can"), None, ""),
    "must": (("muss", "musst", "muss", "müssen", "müsst", "müssen"), None, ("have", "have", "has"), "to"),
    "want": (("will", "willst", "will", "wollen", "wollt", "wollen"), None, ("want", "want", "wants"), "to"),
    "may": (("darf", "darfst", "darf", "dürfen", "dürft", "dürfen"), ("am", "are", "is"), None, "allowed to"),
    "should": (("soll", "sollst", "soll", "sollen", "sollt", "sollen"), ("should",) * 3, None, ""),
    "would": (("möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten"), ("would",) * 3, None, "like to"),
    "could": (("konnte", "konntest", "konnte", "konnten", "konntet", "konnten"), ("could",) * 3, None, ""),
    "had to": (("musste", "musstest", "musste", "mussten", "musstet", "mussten"), None, ("had",) * 3, "to"),
    "wanted": (("wollte", "wolltest", "wollte", "wollten", "wolltet", "wollten"), None, ("wanted",) * 3, "to"),
    "might": (
        ("durfte", "durftest", "durfte", "durften", "durftet", "durften"),
        ("was", "were", "was"),
        None,
        "allowed to",
    ),
}
_PLAIN = {"has": "have", "wants": "want", "had": "have", "wanted": "want"}
_PAST_MODALS = ("could", "had to", "wanted", "might")

# Conjunction, English, modes of its clause: "all" for any tense, which the main clause then shares.
_CONJUNCTIONS = """weil|because|all; weil|because|all; obwohl|although|all; wenn|when|habit; falls|if|habit modal;
    bevor|before|habit; sobald|as soon as|habit; damit|so that|habit; solange|as long as|habit"""

# Verbs with an infinitive clause (to / ing), a dass clause (that) or an indirect question (whether), as in _VERBS.
_MATRIX_VERBS = """
versuchen = = = h|try|to
vergessen vergisst/vergisst vergaß vergessen h|forget forgot forgotten|to
an-fangen fängst/fängt fing angefangen h|start|to
auf-hören = = = h|stop|ing
beschließen = beschloss beschlossen h|decide|to
hoffen = = = h|hope|to
planen = = = h|plan|to
versprechen versprichst/verspricht versprach versprochen h|promise|to
sich_weigern = = = h|refuse|to
vor-haben hast/hat hatte vorgehabt h|intend|to
vermeiden = vermied vermieden h|avoid|ing
wagen = = = h|dare|to
riskieren = = = h|risk|ing
wissen weiß/weißt/weiß wusste gewusst h|know knew known|that
glauben = = = h|believe|that
sagen = = = h|say said said|that
denken = dachte gedacht h|think thought thought|that
hoffen = = = h|hope|that
hören = = = h|hear heard heard|that
behaupten = = = h|claim|that
fürchten = = = h|fear|that
bemerken = = = h|notice|that
vergessen vergisst/vergisst vergaß vergessen h|forget forgot forgotten|that
vermuten = = = h|suspect|that
erwarten = = = h|expect|that
zu-geben gibst/gibt gab zugegeben h|admit|that
fest-stellen = = = h|find_out found found|that
sich_fragen = = = h|wonder|whether
überlegen = = überlegt h|consider|whether
heraus-finden = fand herausgefunden h|find_out found found|whether
prüfen = = = h|check|whether
"""
_COPULAS = """wichtig|important; schwierig|difficult; einfach|simple; gefährlich|dangerous; verboten|forbidden;
    möglich|possible; unmöglich|impossible; vernünftig|reasonable; notwendig|necessary; langweilig|boring"""


def _entries(text: str) -> list[str]:
    return [" ".join(entry.split()) for entry in text.split(";")]


def _pairs(text: str) -> list[list[str]]:
    return [entry.split("|") for entry in _entries(text)]


def german_number(value: int) -> str:
    """`value` (0 to 999) in words, units before tens: 21 is "einundzwanzig"."""
    if value >= 100:
        rest = german_number(value % 100) if value % 100 else ""
        return _SMALL_GERMAN[value // 100] + "hundert" + ("eins" if rest == "ein" else rest)
    if value < 20:
        return _SMALL_GERMAN[value]
    tens, unit = _TENS_GERMAN[value // 10 - 2], value % 10
    return f"{_SMALL_GERMAN[unit]}und{tens}" if unit else tens


def english_number(value: int) -> str:
    """`value` (0 to 999) in words: 121 is "one hundred twenty-one"."""
    if value >= 100:
        rest = f" {english_number(value % 100)}" if value % 100 else ""
        return f"{_SMALL_ENGLISH[value // 100]} hundred{rest}"
    if value < 20:
        return _SMALL_ENGLISH[value]
    tens, unit = _TENS_ENGLISH[value // 10 - 2], value % 10
    return f"{tens}-{_SMALL_ENGLISH[unit]}" if unit else tens


class Noun(NamedTuple):
    """A noun: German forms by case, English singular and plural, and its meaning classes."""

    singular: tuple[str, ...]
    plural: tuple[str, ...] | None
    gender: int
    english: tuple[str, str]
    classes: str


class Place(NamedTuple):
    noun: Noun
    location: str
    goal: str
    goal_case: int
    english: str


class Adjective(NamedTuple):
    german: str
    comparative: str | None
    english: str
    english_comparative: str
    classes: str


class Determiner(NamedTuple):
    """Article-like word: forms by case and gender, the adjective declension it calls for, English forms by number."""

    forms: tuple[tuple[str, ...], ...]
    declension: tuple[tuple[str, ...], ...]
    english: tuple[str, str]


class EnglishVerb(NamedTuple):
    base: str
    third: str
    past: str
    participle: str
    gerund: str
    tail: str
    separable: bool


class Verb(NamedTuple):
    """A verb with all its forms, the frame it opens and the nouns that can fill it."""

    infinitive: str
    prefix: str
    present: tuple[str, ...]
    past: tuple[str, ...]
    participle: str
    auxiliary: str
    imperative: str
    reflexive: bool
    english: EnglishVerb
    frame: str
    preposition: tuple[str, int, str] | None
    objects: tuple[Noun, ...]
    progressive: bool
    subject: str
    takes_place: bool

    @property
    def full_infinitive(self) -> str:
        return self.prefix + self.infinitive

    @property
    def zu_infinitive(self) -> str:
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


class Subject(NamedTuple):
    """A subject; `owner` names its possessive ("sein", ...), `marked` says that its form shows the nominative."""

    german: Tokens
    english: Tokens
    person: int
    agreement: int
    owner: str | None
    pronoun: bool
    marked: bool


class VerbGroup(NamedTuple):
    """German finite, clause-final and verb-last forms; English with an auxiliary, or a finite form plus do-support."""

    finite: Tokens
    right: Tokens
    last: Tokens
    auxiliary: Tokens
    main: Tokens
    support: Tokens
    plain: Tokens


# Verbs that double their last consonant: getting, planned.
_DOUBLING = "get sit swim run put cut stop plan begin forget let set jog hug admit".split()


def _regular_past(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ied"
    return word + (word[-1] if word in _DOUBLING else "") + "ed"


def _third_person(word: str) -> str:
    if word == "have":
        return "has"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "o")) else "s")


def _gerund(word: str) -> str:
    if word.endswith("ie"):
        return word[:-2] + "ying"
    if word.endswith("e") and not word.endswith("ee"):
        return word[:-1] + "ing"
    return word + (word[-1] if word in _DOUBLING else "") + "ing"


def _english_plural(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "ato")) else "s")


def _english_verb(text: str) -> EnglishVerb:
    base, *irregular = text.split()
    word, _, tail = base.partition("_")
    past = irregular[0] if irregular else _regular_past(word)
    return EnglishVerb(
        word,
        _third_person(word),
        past,
        irregular[1] if len(irregular) > 1 else past,
        _gerund(word),
        tail.replace("~", "").replace("_", " "),
        "~" in tail,
    )


def _needs_e(stem: str) -> bool:
    """Whether an ending that begins with a consonant takes a linking e, as in arbeitet, öffnet."""
    return stem[-1] in "dt" or stem.endswith("chn") or (stem[-1] in "mn" and stem[-2] not in "aeiouäöülrhmn")


def _present(infinitive: str, changed: str) -> tuple[str, ...]:
    short = infinitive.endswith(("eln", "ern"))
    stem = infinitive[:-1] if short else infinitive[:-2]
    link = "e" if _needs_e(stem) else ""
    first = stem[:-2] + "le" if stem.endswith("el") and short else stem + "e"
    second = stem + ("t" if stem[-1] in "sßzx" else link + "st")
    third = stem + link + "t"
    if changed != "=":
        forms = changed.split("/")
        second, third = forms[-2:]
        first = forms[0] if len(forms) == 3 else first
    return first, second, third, infinitive, stem + link + "t", infinitive


def _past(infinitive: str, irregular: str) -> tuple[str, ...]:
    stem = infinitive[:-1] if infinitive.endswith(("eln", "ern")) else infinitive[:-2]
    first = stem + ("ete" if _needs_e(stem) else "te") if irregular == "=" else irregular
    plural = first + ("n" if first.endswith("e") else "en")
    return first, "", first, plural, "", plural


def _participle(infinitive: str, prefix: str) -> str:
    stem = infinitive[:-1] if infinitive.endswith(("eln", "ern")) else infinitive[:-2]
    inseparable = infinitive.startswith(("be", "ver", "er", "ent", "zer", "gehö", "gewö")) or infinitive.endswith(
        "ieren"
    )
    return prefix + ("" if inseparable else "ge") + stem + ("et" if _needs_e(stem) else "t")


def _imperative(infinitive: str, present: tuple[str, ...]) -> str:
    third = present[2]
    stem = infinitive[:-1] if infinitive.endswith(("eln", "ern")) else infinitive[:-2]
    if "i" in third and "i" not in stem:
        return third if third.endswith("tt") else third[:-1]
    return present[0] if _needs_e(stem) or stem.endswith(("ig", "el", "er")) else stem


def _verb(line: str) -> Verb:
    forms, english, frame = line.split("|")
    name, changed, past, participle, auxiliary = forms.split()
    reflexive, name = name.startswith("sich_"), name.removeprefix("sich_")
    prefix, _, infinitive = name.rpartition("-")
    present = _present(infinitive, changed)
    kind, *details = frame.split()
    preposition = None
    if "+" in kind:
        german, case = kind.split("+")
        target = details.pop(0)
        preposition = german, ACCUSATIVE if case == "a" else DATIVE, "" if target == "-" else target
        kind = "preposition"
    filled = kind in ("acc", "dat", "both", "both-to", "preposition")
    classes = details.pop(0) if filled else ""
    return Verb(
        infinitive,
        prefix,
        present,
        _past(infinitive, past),
        participle if participle != "=" else _participle(infinitive, prefix),
        "haben" if auxiliary == "h" else "sein",
        _imperative(infinitive, present),
        reflexive,
        _english_verb(english),
        kind,
        preposition,
        _nouns_of(classes),
        "s" not in details,
        next((detail[2:] for detail in details if detail.startswith("by")), "P"),
        any(letter in classes for letter in "BNr"),
    )


def _genitive(german: str, gender: int) -> str:
    if gender == FEMININE:
        return german
    if german.endswith(("nis", "Bus")):
        return german + "ses"
    if german.endswith(("s", "ß", "z", "ch", "zt")):
        return german + "es"
    vowels = "aeiouäöüyé"
    syllables = sum(a in vowels and b not in vowels for a, b in zip(german.lower(), german[1:] + "-", strict=True))
    return german + ("s" if syllables > 1 or german in ("Chef", "Park", "See") else "es")


def _noun(entry: str, classes: str) -> Noun:
    german, gender, plural, english, *irregular = entry.split()
    column = {"m": MASCULINE, "w": MASCULINE, "f": FEMININE, "n": NEUTER}[gender]
    oblique = german + ("n" if german.endswith(("e", "r")) else "en") if gender == "w" else german
    genitive = oblique if gender == "w" else _genitive(german, column)
    plural = german if plural == "=" else plural
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    singular_english = english.replace("_", " ")
    plural_english = irregular[0] if irregular else _english_plural(singular_english)
    forms = None if plural == "-" else (plural, plural, dative_plural, plural)
    return Noun((german, oblique, oblique, genitive), forms, column, (singular_english, plural_english), classes)


def _place(entry: str, description: str) -> Place:
    location, goal, english, classes = description.split()
    preposition, case = goal.split("+")
    return Place(_noun(entry, classes), location, preposition, ACCUSATIVE if case == "a" else DATIVE, english)


def _adjective(entry: str) -> Adjective:
    german, english, classes = entry.split("|")
    base, comparative = german.split()
    plain, *irregular = english.split()
    return Adjective(
        base,
        None if comparative == "-" else comparative,
        plain,
        irregular[0] if irregular else f"more {plain}",
        classes,
    )


_PLACE_LIST = tuple(_place(entry, key) for key, text in _PLACES.items() for entry in _entries(text))
_NOUN_LIST = tuple(_noun(entry, key) for key, text in _NOUNS.items() for entry in _entries(text))
_ALL_NOUNS = _NOUN_LIST + tuple(place.noun for place in _PLACE_LIST)


def _nouns_of(classes: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in _ALL_NOUNS if any(letter in noun.classes for letter in classes))


_ADJECTIVE_LIST = tuple(_adjective(entry) for entry in _entries(_ADJECTIVES))
_FITTING = {
    classes: tuple(
        adjective
        for adjective in _ADJECTIVE_LIST
        if any(letter in adjective.classes for letter in classes.replace("N", "B"))
    )
    for classes in dict.fromkeys(noun.classes for noun in _ALL_NOUNS)
}
_VERB_LIST = tuple(_verb(line) for line in _VERBS.strip().splitlines())
_MATRIX_LIST = tuple(_verb(line) for line in _MATRIX_VERBS.strip().splitlines())

_WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en",) * 4, ("en",) * 4)
_MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en",) * 4, ("en",) * 4)
_STRONG = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"), ("en", "er", "en", "er"))
_EIN_ENDINGS = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
_DIES_ENDINGS = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
_DER = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
_RELATIVE = (*_DER[:2], ("dem", "der", "dem", "denen"))
_BARE = (("",) * 4,) * 4


def _determiner(
    stem: str, endings: tuple[tuple[str, ...], ...], english: tuple[str, str], stemmed: str = ""
) -> Determiner:
    forms = tuple(tuple((stemmed or stem) + end if end else stem for end in row) for row in endings)
    return Determiner(forms, _MIXED if endings is _EIN_ENDINGS else _WEAK, english)


_DETERMINERS = {
    "der": Determiner(_DER, _WEAK, ("the", "the")),
    "ein": _determiner("ein", _EIN_ENDINGS, ("a", "")),
    "kein": _determiner("kein", _EIN_ENDINGS, ("a", "any")),
    "no": _determiner("kein", _EIN_ENDINGS, ("no", "no")),
    "dieser": _determiner("dies", _DIES_ENDINGS, ("this", "these")),
    "jeder": _determiner("jed", _DIES_ENDINGS, ("every", "every")),
    "welcher": _determiner("welch", _DIES_ENDINGS, ("which", "which")),
    "bare": Determiner(_BARE, _STRONG, ("", "")),
    "mein": _determiner("mein", _EIN_ENDINGS, ("my", "my")),
    "dein": _determiner("dein", _EIN_ENDINGS, ("your", "your")),
    "his": _determiner("sein", _EIN_ENDINGS, ("his", "his")),
    "her": _determiner("ihr", _EIN_ENDINGS, ("her", "her")),
    "unser": _determiner("unser", _EIN_ENDINGS, ("our", "our")),
    "euer": _determiner("euer", _EIN_ENDINGS, ("your", "your"), "eur"),
    "their": _determiner("ihr", _EIN_ENDINGS, ("their", "their")),
    "polite": _determiner("Ihr", _EIN_ENDINGS, ("your", "your")),
    "many": Determiner(
        (("viele", "", "", "viele"), ("viele",) * 4, ("vielen",) * 4, ("vieler",) * 4), _STRONG, ("many", "many")
    ),
    "some": Determiner(
        (("einige",) * 4, ("einige",) * 4, ("einigen",) * 4, ("einiger",) * 4), _STRONG, ("some", "some")
    ),
}

# German nominative, accusative, dative, reflexive; English subject and object; person, agreement, possessive.
_PRONOUNS = (
    ("ich", "mich", "mir", "mich", "I", "me", ICH, FIRST, "mein"),
    ("du", "dich", "dir", "dich", "you", "you", DU, OTHER, "dein"),
    ("er", "ihn", "ihm", "sich", "he", "him", ER, THIRD, "his"),
    ("sie", "sie", "ihr", "sich", "she", "her", ER, THIRD, "her"),
    ("wir", "uns", "uns", "uns", "we", "us", WIR, OTHER, "unser"),
    ("ihr", "euch", "euch", "euch", "you", "you", IHR, OTHER, "euer"),
    ("sie", "", "ihnen", "sich", "they", "them", SIE, OTHER, "their"),
    ("Sie", "", "", "sich", "you", "", SIE, OTHER, "polite"),
)
_REFLEXIVES = ("mich", "dich", "sich", "uns", "euch", "sich")
# Objects that a subject of each person may not take because they would have to be reflexive.
_SAME_GROUP = {ICH: (0, 4), DU: (1, 5), ER: (), WIR: (0, 4), IHR: (1, 5), SIE: (1, 5, 6)}
_CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
    "in das": "ins",
    "an das": "ans",
}
_BE, _WAS, _HAVE, _DO = ("am", "are", "is"), ("was", "were", "was"), ("have", "have", "has"), ("do", "do", "does")

_PEOPLE = _nouns_of("P")
_RELATIONS = _nouns_of("k")
_JOBS = tuple(noun for noun in _PEOPLE if noun.classes == "Pj")
_NAMES = tuple((name, "his") for name in _MEN.split()) + tuple((name, "her") for name in _WOMEN.split())
_TOWNS = tuple((city, city) for city in _CITIES) + tuple(tuple(entry.split()) for entry in _entries(_COUNTRIES))
_BY_FRAME = {
    frame: tuple(verb for verb in _VERB_LIST if verb.frame == frame and verb.subject != "*")
    for frame in dict.fromkeys(verb.frame for verb in _VERB_LIST)
}
_WEATHER = tuple(verb for verb in _VERB_LIST if verb.subject == "*")
_SUBJECTS = {kind: _nouns_of(kind) for kind in dict.fromkeys(verb.subject for verb in _VERB_LIST)}
_TIME_LIST = tuple(tuple(entry) for entry in _pairs(_TIMES))
_TIME_KINDS = {
    kinds: tuple(entry for entry in _TIME_LIST if entry[2] in kinds)
    for kinds in (("past", "any"), ("any", "future"), ("future",), ("any",))
}
_PAIR_LISTS = {
    name: tuple(tuple(entry) for entry in _pairs(text))
    for name, text in (
        ("opener", _OPENERS), ("frequency", _FREQUENCIES), ("manner", _MANNERS), ("degree", _DEGREES),
        ("conjunction", _CONJUNCTIONS), ("copula", _COPULAS),
    )
}  # fmt: skip
_DAYS, _MONTH_NAMES = ([entry.split() for entry in _entries(text)] for text in (_WEEKDAYS, _MONTHS))

_KEYS_PER_CLAUSE = 100
# Link keys within a clause.
_SUBJECT, _VERB, _AUXILIARY, _OBJECT, _SECOND, _TIME, _PLACE, _MANNER, _FRONT, _NOT, _LINK = range(1, 100, 9)
_OBJECT_DETERMINERS = "der der ein ein dieser bare number many some mein dein unser euer".split()
_SUBJECT_DETERMINERS = "der der der ein dieser mein unser jeder plural plural number dein no".split()
# Kinds of time adverbs that go with a tense; the others take none.
_TENSES = {
    "present": ("any", "future"),
    "modal": ("any", "future"),
    "future": ("future",),
    "perfect": ("past", "any"),
    "past": ("past", "any"),
    "pastmodal": ("past", "any"),
}
_PRESENT_MODES = ["present"] * 6 + ["modal"] * 3 + ["future", "progressive", "gern"]
_TIMELESS_MODES = ["present"] * 5 + ["modal"] * 2 + ["future"]
_PAST_MODES = ["perfect"] * 5 + ["past"] * 2 + ["pastmodal"] * 2
_MAIN_MODES = _PRESENT_MODES + _PAST_MODES + ["present", "since"]
_QUESTION_MODES = "present present perfect perfect modal future progressive".split()
_TIME_UNITS = (("Jahren", "years"), ("Monaten", "months"), ("Wochen", "weeks"), ("Tagen", "days"))
_SINCE_VERBS = "wohnen arbeiten kennen lernen sammeln warten suchen".split()
_SINCE_LIST = tuple(verb for verb in _VERB_LIST if verb.infinitive in _SINCE_VERBS and not verb.prefix)
_FRAMES = ["acc"] * 9 + ["none"] * 3 + "dat dat both both both-to preposition preposition goal city place".split()


class Clause:
    """One clause in both languages, kept in pieces so that it can be put in any word order."""

    __slots__ = (
        "companion", "english_manner", "english_negation", "english_object", "english_place", "english_time",
        "frequency", "front", "group", "key", "lead", "negation", "nouns", "object_frontable", "particle_last",
        "place", "post", "pronoun", "reflexive", "subject", "tail", "time", "verb",
    )  # fmt: skip

    def __init__(self, subject: Subject, verb: Verb, group: VerbGroup, key: int):
        self.subject, self.verb, self.group, self.key = subject, verb, group, key
        self.time: Tokens = []
        self.nouns: Tokens = []
        self.negation: Tokens = []
        self.post: Tokens = []
        self.place: Tokens = []
        self.pronoun: Tokens = []
        self.front: Tokens = []
        self.lead: Tokens = []
        self.english_object: Tokens = []
        self.english_manner: Tokens = []
        self.english_place: Tokens = []
        self.companion: Tokens = []
        self.english_time: Tokens = []
        self.english_negation: Tokens = []
        self.frequency: Tokens = []
        self.object_frontable = False
        self.particle_last = False
        person = subject.person
        self.reflexive = [(_REFLEXIVES[person], key + _VERB)] if verb.reflexive else []
        self.tail = [(word, key + _VERB) for word in verb.english.tail.split()]

    def field(self) -> Tokens:
        """The German words between subject and clause-final verbs."""
        return self.pronoun + self.time + self.nouns + self.negation + self.post + self.place

    def _subject_field(self) -> Tokens:
        german = self.subject.german
        return (german + self.reflexive if self.subject.pronoun else self.reflexive + german) + self.field()

    def german_main(self) -> Tokens:
        """Verb second, after the fronted constituent or the subject."""
        group, subject = self.group, self.subject
        if not self.front:
            return subject.german + group.finite + self.reflexive + self.field() + group.right
        return self.front + self.german_first()

    def german_first(self) -> Tokens:
        """Verb first, as in questions and after a fronted clause."""
        return self.group.finite + self._subject_field() + self.group.right

    def german_last(self) -> Tokens:
        """Verb last, as after a conjunction."""
        return self._subject_field() + self.group.last

    def german_infinitive(self) -> Tokens:
        zu = [(word, self.key + _VERB) for word in self.verb.zu_infinitive.split()]
        return self.reflexive + self.field() + zu

    def _complements(self) -> Tokens:
        first, second = self.tail, self.english_object
        objects = second + first if self.particle_last else first + second
        return objects + self.english_manner + self.english_place + self.companion + self.english_time

    def english_main(self) -> Tokens:
        group = self.group
        lead = self.lead + self.subject.english
        if group.auxiliary and group.auxiliary[0][0] == "can" and self.english_negation:
            verbs = [("cannot", group.auxiliary[0][1]), *group.main]
        elif group.auxiliary:
            verbs = group.auxiliary + self.english_negation + self.frequency + group.main
        elif self.english_negation:
            verbs = group.support + self.english_negation + group.plain
        else:
            verbs = self.frequency + group.main
        return lead + verbs + self._complements()

    def english_question(self) -> Tokens:
        group = self.group
        helper, main = (group.auxiliary, group.main) if group.auxiliary else (group.support, group.plain)
        verbs = helper + self.subject.english + self.english_negation + self.frequency + main
        return verbs + self._complements()

    def english_plain(self, form: str = "base") -> Tokens:
        """The clause without subject and tense: "call her tomorrow" or "calling her tomorrow"."""
        word = getattr(self.verb.english, form)
        return [(word, self.key + _VERB), *self._complements()]


def _glue(tokens: Tokens) -> str:
    text = " ".join([word for word, _ in tokens if word]).replace(" ,", ",").replace(",,", ",")
    return text[0].upper() + text[1:]


def _links(german: Tokens, english: Tokens) -> str:
    """Pharaoh links between the whitespace-separated words, "0-0 1-2"; marks belong to the word before them."""
    columns: dict[int, list[int]] = {}
    for column, (_, key) in enumerate(token for token in english if token[0] not in ("", ",")):
        columns.setdefault(key, []).append(column)
    words = (token for token in german if token[0] not in ("", ","))
    pairs = [(row, column) for row, (_, key) in enumerate(words) if key for column in columns.get(key, ())]
    return " ".join(f"{row}-{column}" for row, column in pairs)


def _article(following: str) -> str:
    return (
        "an"
        if following[0] in "aeio"
        or following.startswith(("um", "un", "hon"))
        and not following.startswith(("uni", "honey"))
        else "a"
    )


def _words(text: str, key: int) -> Tokens:
    return [(word, key) for word in text.split(" ")]


class _Composer:
    """Draws clauses and sentences from one random stream."""

    def __init__(self, seed: int | str):
        self.random = Random(seed).random
        self.key = 0

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    # Noun phrases

    def noun_phrase(
        self, noun: Noun, case: int, key: int, determiner: str, plural: bool = False, adjective: float = 0.25
    ) -> tuple[Tokens, Tokens]:
        """German and English words of `determiner` (+ adjective) + `noun`; `adjective` is the chance of having one."""
        german: Tokens = []
        english: Tokens = []
        if determiner == "number":
            value = 2 + int(self.random() * (11 if self.chance(0.6) else 98))
            german.append((german_number(value), key))
            english.append((english_number(value), key))
            determiner, plural = "bare", True
        entry = _DETERMINERS[determiner]
        column = PLURAL if plural else noun.gender
        if article := entry.forms[case][column]:
            german.append((article, key))
        following = noun.english[plural]
        fitting = _FITTING[noun.classes]
        if fitting and self.random() < adjective:
            chosen = self.pick(fitting)
            german.append((_attributive(chosen.german) + entry.declension[case][column], key + 1))
            english.append((chosen.english, key + 1))
            following = chosen.english
        word = entry.english[plural]
        if word:
            english.insert(0, (_article(following) if word == "a" else word, key))
        german.append(((noun.plural if plural else noun.singular)[case], key + 2))
        english += _words(noun.english[plural], key + 2)
        return german, english

    def owned_phrase(self, noun: Noun, case: int, key: int) -> tuple[Tokens, Tokens]:
        """A definite noun with a possessor: "das Haus meines Vaters", "my father's house", or "Annas Haus"."""
        # without an article, nouns like Lehrer would not show their number
        if noun.plural and noun.singular[case] != noun.plural[case] and self.chance(0.3):
            name = self.pick(_NAMES)[0]
            own = [(noun.singular[case], key + 2)], _words(noun.english[0], key + 2)
            return [(f"{name}s", key), *own[0]], [(f"{name}'s", key), *own[1]]
        head, english_head = self.noun_phrase(noun, case, key, "der")
        owner = self.pick(_RELATIONS)
        german, english = self.noun_phrase(
            owner, GENITIVE, key + 3, self.pick(("mein", "dein", "unser", "der")), adjective=0
        )
        last, last_key = english[-1]
        return head + german, [*english[:-1], (f"{last}'s", last_key), *english_head[1:]]

    def _object_determiner(self, noun: Noun, owner: str | None, negated: bool) -> tuple[str, bool]:
        mass = noun.plural is None
        if noun.classes[0] in "BN" and not negated:
            return self.pick(("der", "der", "der", "ein", "dieser")), False
        if negated:
            if self.chance(0.5):
                return "kein", not mass and self.chance(0.25)
            return ("der" if "k" not in noun.classes else "mein"), False
        if mass:
            return self.pick(("bare", "bare", "bare", "der", "der", "dieser")), False
        if owner and self.chance(0.45 if noun.classes == "Pk" else 0.12):
            return owner, self.chance(0.15)
        determiner = self.pick(_OBJECT_DETERMINERS)
        return determiner, determiner in ("bare", "many", "some") or self.chance(0.12) and determiner != "ein"

    def object_phrase(
        self, noun: Noun, case: int, key: int, owner: str | None, negated: bool = False
    ) -> tuple[Tokens, Tokens, str, bool]:
        """An object with its determiner and number."""
        if not negated and noun.plural and noun.classes[0] in "TVBPAR" and self.chance(0.06):
            return *self.owned_phrase(noun, case, key), "der", False
        if not negated and noun.classes[0] == "P" and self.chance(0.12):
            name = self.pick(_NAMES)[0]
            return [(name, key)], [(name, key)], "name", False
        determiner, plural = self._object_determiner(noun, owner, negated)
        return *self.noun_phrase(noun, case, key, determiner, plural), determiner, plural

    # Subjects

    def subject(self, kind: str = "P", polite: bool = False) -> Subject:
        """A subject of one of the classes `kind`; the polite pronoun only where it cannot open the sentence."""
        roll = self.random()
        if kind[0] == "P" and roll < 0.42:
            return self.pronoun_subject(int(self.random() * (8 if polite else 7)))
        if kind[0] == "P" and roll < 0.54:
            return self.name_subject()
        return self.noun_subject(
            self.pick(_SUBJECTS[kind]), _SUBJECT_DETERMINERS[:-1] if polite else _SUBJECT_DETERMINERS
        )

    def pronoun_subject(self, index: int) -> Subject:
        nominative, _, _, _, english, _, person, agreement, owner = _PRONOUNS[index]
        key = self.key + _SUBJECT
        return Subject([(nominative, key)], [(english, key)], person, agreement, owner, True, index in (0, 1, 2, 4))

    def name_subject(self) -> Subject:
        key = self.key + _SUBJECT
        name, owner = self.pick(_NAMES)
        if self.chance(0.75):
            return Subject([(name, key)], [(name, key)], ER, THIRD, owner, False, False)
        other = self.pick(_NAMES)[0]
        if other == name:
            return self.name_subject()
        german = [(name, key), ("und", key + 1), (other, key + 2)]
        english = [(name, key), ("and", key + 1), (other, key + 2)]
        return Subject(german, english, SIE, OTHER, "their", False, False)

    def noun_subject(self, noun: Noun, determiners: Sequence[str] = _SUBJECT_DETERMINERS) -> Subject:
        determiner, plural = self.pick(determiners), False
        if determiner == "plural":
            determiner, plural = self.pick(("der", "der", "dieser", "mein", "many", "some")), True
        if noun.classes == "Pk" and determiner in ("der", "ein", "dieser", "jeder", "no"):
            determiner = "mein"
        plural = plural or determiner == "number"
        german, english = self.noun_phrase(noun, NOMINATIVE, self.key + _SUBJECT, determiner, plural)
        if plural:
            return Subject(german, english, SIE, OTHER, "their" if "P" in noun.classes else None, False, False)
        owner = (("his", "her", None)[noun.gender]) if "P" in noun.classes else None
        return Subject(german, english, ER, THIRD, owner, False, noun.gender == MASCULINE)

    # Verbs

    def verb_group(self, verb: Verb, mode: str, subject: Subject, will: bool = False) -> VerbGroup:
        """The verb forms of both languages in `mode`; `will` marks a German present about the future."""
        if mode in ("modal", "pastmodal"):
            return self.modal_group(verb, mode, subject.person, subject.agreement)
        german = self.german_verbs(verb, mode, subject.person)
        return VerbGroup(
            *german, *self.english_verbs(verb.english, "future" if will else mode, subject.agreement, verb)
        )

    def german_verbs(self, verb: Verb, mode: str, person: int) -> tuple[Tokens, Tokens, Tokens]:
        """Finite verb, clause-final rest, and both in verb-last order."""
        main_key, helper_key = self.key + _VERB, self.key + _AUXILIARY
        if mode in ("perfect", "pluperfect", "future"):
            if mode == "future":
                table, main = _WERDEN, verb.full_infinitive
            else:
                tables = (_HABEN, _HATTEN) if verb.auxiliary == "haben" else (_SEIN, _WAREN)
                table, main = tables[mode == "pluperfect"], verb.participle
            finite, right = [(table[person], helper_key)], [(main, main_key)]
            return finite, right, right + finite
        form = (verb.past if mode == "past" else verb.present)[person]
        right = [(verb.prefix, main_key)] if verb.prefix else []
        return [(form, main_key)], right, [(verb.prefix + form, main_key)]

    def english_verbs(self, english: EnglishVerb, mode: str, agreement: int, verb: Verb) -> tuple[Tokens, ...]:
        """Auxiliary, main verb, do-support and plain form."""
        main_key, helper_key = self.key + _VERB, self.key + _AUXILIARY
        base = [(english.base, main_key)]
        if mode == "future":
            return [("will", helper_key)], base, [], []
        if mode == "progressive":
            return [(_BE[agreement], helper_key)], [(english.gerund, main_key)], [], []
        if mode == "since" and verb.progressive:
            return [(_HAVE[agreement], helper_key)], [("been", helper_key), (english.gerund, main_key)], [], []
        if mode in ("since", "pluperfect"):
            helper = "had" if mode == "pluperfect" else _HAVE[agreement]
            return [(helper, helper_key)], [(english.participle, main_key)], [], []
        if mode == "gern":
            likes = "likes" if agreement == THIRD else "like"
            main = [(likes, helper_key), ("to", helper_key), *base]
            return [], main, [(_DO[agreement], main_key)], [("like", helper_key), ("to", helper_key), *base]
        if mode in ("perfect", "past"):
            support_key = helper_key if mode == "perfect" else main_key
            return [], [(english.past, main_key)], [("did", support_key)], base
        main_form = english.third if agreement == THIRD else english.base
        return [], [(main_form, main_key)], [(_DO[agreement], main_key)], base

    def modal_group(self, verb: Verb, mode: str, person: int, agreement: int) -> VerbGroup:
        names = _PAST_MODALS if mode == "pastmodal" else ("can", "must", "want", "may", "should", "would")
        german, auxiliary, finite_english, link = _MODALS[self.pick(names)]
        main_key, helper_key = self.key + _VERB, self.key + _AUXILIARY
        finite, right = [(german[person], helper_key)], [(verb.full_infinitive, main_key)]
        linked = _words(link, helper_key) if link else []
        base = [*linked, (verb.english.base, main_key)]
        if auxiliary:
            return VerbGroup(finite, right, right + finite, [(auxiliary[agreement], helper_key)], base, [], [])
        word = finite_english[agreement]
        support = "did" if mode == "pastmodal" else _DO[agreement]
        plain = [(_PLAIN.get(word, word), helper_key), *base]
        return VerbGroup(
            finite, right, right + finite, [], [(word, helper_key), *base], [(support, helper_key)], plain
        )

    # Clauses

    def clause(
        self,
        modes: Sequence[str] = _MAIN_MODES,
        *,
        subject: Subject | None = None,
        verb: Verb | None = None,
        polite: bool = False,
        gap: bool = False,
        negation: float = 0.13,
        extras: bool = True,
        weather: bool = True,
    ) -> Clause:
        """A clause in one of `modes`; `gap` leaves its accusative, dative or prepositional object out."""
        self.key += _KEYS_PER_CLAUSE
        mode = self.pick(modes)
        verb = verb or self.verb_for(mode, subject is not None, weather and mode == "habit")
        subject = self.subject_for(verb, subject, polite)
        mode = self._possible_mode(mode, verb, subject)
        time = self.draw_time(mode, extras)
        will = mode == "present" and time is not None and time[2] == "future"
        clause = Clause(subject, verb, self.verb_group(verb, mode, subject, will), self.key)
        plain = mode in ("progressive", "gern", "since")
        negative = not plain and self.chance(negation) and not self._quantified(subject)
        self.add_time(clause, mode, time, extras and not negative and not time)
        if not gap:
            self.add_objects(clause, negative)
        elif negative:
            self.negate(clause)
        self.add_adjuncts(clause, extras and not gap)
        return clause

    def subject_for(self, verb: Verb, given: Subject | None, polite: bool) -> Subject:
        if verb.subject == "*":
            key = self.key + _SUBJECT
            return Subject([("es", key)], [("it", key)], ER, THIRD, None, True, False)
        return given or self.subject(verb.subject, polite)

    @staticmethod
    def _possible_mode(mode: str, verb: Verb, subject: Subject) -> str:
        """`mode`, or its neighbour where verb or person does not allow it."""
        if mode == "progressive" and not verb.progressive:
            return "present"
        if mode == "gern" and not (verb.progressive and verb.subject[0] == "P"):
            return "present"
        return "perfect" if mode == "past" and subject.person in (DU, IHR) else mode

    @staticmethod
    def _quantified(subject: Subject) -> bool:
        """Subjects that a negated verb would make ambiguous or ungrammatical."""
        return subject.english[0][0] in ("no", "every", "many", "some", "who")

    def verb_for(self, mode: str, person_only: bool = False, weather: bool = False) -> Verb:
        if mode == "since":
            return self.pick(_SINCE_LIST)
        if weather and not person_only and self.chance(0.15):
            return self.pick(_WEATHER)
        while True:
            verb = self.pick(_BY_FRAME[self.pick(_FRAMES)])
            if not person_only or verb.subject[0] == "P":
                return verb

    def draw_time(self, mode: str, extras: bool) -> tuple[Tokens, Tokens, str] | None:
        key = self.key + _TIME
        if mode == "since":
            return self.since(key)
        kinds = _TENSES.get(mode)
        if not extras or not kinds or not self.chance(0.48):
            return None
        if "any" in kinds and self.chance(0.35):
            return *self.calendar_time(key), "any"
        if mode in ("perfect", "past") and self.chance(0.3):
            return self.ago(key)
        german, english, kind = self.pick(_TIME_KINDS[kinds])
        return _words(german, key), _words(english, key), kind

    def since(self, key: int) -> tuple[Tokens, Tokens, str]:
        value = 2 + int(self.random() * 29)
        german, english = self.pick(_TIME_UNITS)
        return (
            [("seit", key), (german_number(value), key + 1), (german, key + 2)],
            [("for", key), (english_number(value), key + 1), (english, key + 2)],
            "since",
        )

    def ago(self, key: int) -> tuple[Tokens, Tokens, str]:
        if self.chance(0.3):
            year = str(1900 + int(self.random() * 125))
            return [*_words("im Jahr", key), (year, key + 1)], [("in", key), (year, key + 1)], "past"
        value = 2 + int(self.random() * 29)
        german, english = self.pick((*_TIME_UNITS, ("Stunden", "hours")))
        return (
            [("vor", key), (german_number(value), key + 1), (german, key + 2)],
            [(english_number(value), key + 1), (english, key + 2), ("ago", key)],
            "past",
        )

    def calendar_time(self, key: int) -> tuple[Tokens, Tokens]:
        """A weekday, month, date or clock time."""
        roll = self.random()
        if roll < 0.25:
            german, english = self.pick(_DAYS)
            return [("am", key), (german, key + 1)], [("on", key), (english, key + 1)]
        if roll < 0.35:
            german, english = self.pick(_MONTH_NAMES)
            return [("im", key), (german, key + 1)], [("in", key), (english, key + 1)]
        if roll < 0.55:
            german, english = self.pick(_MONTH_NAMES)
            day = 1 + int(self.random() * 28)
            return [("am", key), (f"{day}.", key + 2), (german, key + 1)], [
                ("on", key),
                (english, key + 1),
                (str(day), key + 2),
            ]
        german, english = self.clock(key + 1)
        return [("um", key), *german], [("at", key), *english]

    def clock(self, key: int) -> tuple[Tokens, Tokens]:
        """A time of day in words ("halb vier" is half past three) or digits ("14.30 Uhr" is 2:30 p.m.)."""
        roll, hour = self.random(), 1 + int(self.random() * 12)
        if roll < 0.35:
            word = "ein" if hour == 1 else german_number(hour)
            return [(word, key), ("Uhr", key + 1)], [(english_number(hour), key), ("o'clock", key + 1)]
        if roll < 0.6:
            following = german_number(hour % 12 + 1)
            german = "eins" if following == "ein" else following
            return [("halb", key), (german, key + 1)], [*_words("half past", key), (english_number(hour), key + 1)]
        if roll < 0.75:
            german, english = self.pick((("nach", "past"), ("vor", "to")))
            word = "eins" if hour == 1 else german_number(hour)
            return (
                [("Viertel", key), (german, key + 1), (word, key + 2)],
                [*_words("a quarter", key), (english, key + 1), (english_number(hour), key + 2)],
            )
        hour, minute = 1 + int(self.random() * 23), int(self.random() * 12) * 5
        half = "a.m." if hour < 12 else "p.m."
        return (
            [(f"{hour}:{minute:02d}", key), ("Uhr", key + 1)],
            [(f"{(hour - 1) % 12 + 1}:{minute:02d}", key), (half, key + 1)],
        )

    def add_time(self, clause: Clause, mode: str, time: tuple[Tokens, Tokens, str] | None, frequency: bool) -> None:
        if time:
            clause.time, clause.english_time = time[0], time[1]
        elif mode == "progressive":
            clause.time = [("gerade", self.key + _AUXILIARY)]
        elif mode == "gern":
            clause.time = [("gern", self.key + _AUXILIARY)]
        elif frequency and mode in ("present", "perfect", "modal", "past") and self.chance(0.15):
            german, english = self.pick(_PAIR_LISTS["frequency"])
            if not (self._quantified(clause.subject) and german == "nie"):
                clause.time, clause.frequency = [(german, self.key + _TIME)], [(english, self.key + _TIME)]

    def negate(self, clause: Clause, german: bool = True) -> None:
        key = self.key + (_NOT if german else _OBJECT)
        clause.english_negation = [("not", key)]
        if german:
            clause.negation = [("nicht", key)]

    def add_objects(self, clause: Clause, negative: bool) -> None:
        frame = clause.verb.frame
        if frame == "acc":
            self.add_accusative(clause, negative)
        elif frame == "dat":
            self.add_dative(clause, negative)
        elif frame in ("both", "both-to"):
            self.add_both(clause, negative)
        elif frame == "preposition":
            self.add_preposition(clause, negative)
        elif negative:
            self.negate(clause)

    def add_accusative(self, clause: Clause, negative: bool) -> None:
        key, verb, subject = self.key + _OBJECT, clause.verb, clause.subject
        noun = self.pick(verb.objects)
        if "P" in noun.classes and subject.english[0][0] != "who" and self.chance(0.3):
            index = self.pronoun_object(subject)
            pronoun = _PRONOUNS[index]
            if pronoun[1]:
                clause.pronoun, clause.english_object = [(pronoun[1], key)], [(pronoun[5], key)]
                clause.particle_last = verb.english.separable
                if negative:
                    self.negate(clause)
                return
        german, english, determiner, plural = self.object_phrase(noun, ACCUSATIVE, key, subject.owner, negative)
        clause.nouns, clause.english_object = german, english
        if negative:
            self.negate(clause, german=determiner != "kein")
        shown = noun.gender == MASCULINE and not plural and determiner not in ("name", "bare")
        clause.object_frontable = (
            determiner in ("der", "dieser", "mein", "unser") and noun.plural is not None and (shown or subject.marked)
        )

    def pronoun_object(self, subject: Subject) -> int:
        index = int(self.random() * 7)
        while index in _SAME_GROUP[subject.person]:
            index = int(self.random() * 7)
        return index

    def person_dative(
        self, clause: Clause, key: int, nouns: Sequence[Noun], negative: bool
    ) -> tuple[Tokens, Tokens, bool]:
        """A dative person: the words and whether they are a pronoun."""
        if not negative and self.chance(0.35):
            pronoun = _PRONOUNS[self.pronoun_object(clause.subject)]
            return [(pronoun[2], key)], [(pronoun[5], key)], True
        noun = self.pick(nouns)
        owner = clause.subject.owner
        determiner = (
            owner if owner and noun.classes == "Pk" else self.pick(("der", "der", "dieser", "mein", "unser", "ein"))
        )
        if negative and determiner == "ein":
            determiner = "der"
        german, english = self.noun_phrase(noun, DATIVE, key, determiner, determiner != "ein" and self.chance(0.25))
        return german, english, False

    def add_dative(self, clause: Clause, negative: bool) -> None:
        german, english, pronoun = self.person_dative(clause, self.key + _OBJECT, clause.verb.objects, negative)
        if pronoun:
            clause.pronoun = german
        else:
            clause.nouns = german
            clause.object_frontable = german[0][0] in (
                "dem",
                "der",
                "den",
                "diesem",
                "dieser",
                "diesen",
                "meinem",
                "meiner",
            )
        clause.english_object = english
        if negative:
            self.negate(clause)

    def add_both(self, clause: Clause, negative: bool) -> None:
        person, english_person, pronoun = self.person_dative(clause, self.key + _SECOND, _PEOPLE, negative)
        noun = self.pick(clause.verb.objects)
        german, english, determiner, _ = self.object_phrase(
            noun, ACCUSATIVE, self.key + _OBJECT, clause.subject.owner, negative
        )
        if pronoun:
            clause.pronoun, clause.nouns = person, german
        else:
            clause.nouns = person + german
        if clause.verb.frame == "both":
            clause.english_object = english_person + english
        else:
            clause.english_object = [*english, ("to", 0), *english_person]
        if negative:
            self.negate(clause, german=determiner != "kein")

    def _preposition(self, verb: Verb) -> Tokens:
        word = verb.preposition[2] if verb.preposition else ""
        return _words(word, self.key + _SECOND) if word else []

    def add_preposition(self, clause: Clause, negative: bool) -> None:
        preposition, case, _ = clause.verb.preposition
        noun = self.pick(clause.verb.objects)
        german, english, _, _ = self.object_phrase(noun, case, self.key + _OBJECT, clause.subject.owner)
        key = self.key + _SECOND
        clause.place = _contract(preposition, german, key)
        clause.english_object = self._preposition(clause.verb) + english
        if negative:
            self.negate(clause)

    @staticmethod
    def _may_name_place(verb: Verb) -> bool:
        return verb.frame in ("none", "acc") and verb.progressive and not verb.takes_place

    def add_adjuncts(self, clause: Clause, extras: bool) -> None:
        frame, verb = clause.verb.frame, clause.verb
        person = verb.subject[0] == "P"
        if frame == "goal":
            self.add_goal(clause)
        elif frame == "city":
            self.add_town(clause)
        elif frame == "place" or (self._may_name_place(verb) and extras and self.chance(0.22)):
            self.add_place(clause)
        if extras and person and frame in ("none", "goal") and self.chance(0.1):
            german, english, _ = self.person_dative(clause, self.key + _SECOND, _PEOPLE, True)
            clause.post = [("mit", self.key + _MANNER), *german]
            clause.companion = [("with", self.key + _MANNER), *english]
        elif (
            extras
            and person
            and frame in ("none", "acc", "goal")
            and verb.progressive
            and not clause.frequency
            and self.chance(0.08)
        ):
            german, english = self.pick(_PAIR_LISTS["manner"])
            clause.post = [(german, self.key + _MANNER)]
            clause.english_manner = [(english, self.key + _MANNER)]

    def add_goal(self, clause: Clause) -> None:
        key = self.key + _PLACE
        if self.chance(0.15):
            clause.place, clause.english_place = _words("nach Hause", key), [("home", key)]
            return
        place = self.pick(_PLACE_LIST)
        german, english = self.noun_phrase(
            place.noun, place.goal_case, key + 1, self.pick(("der",) * 5 + ("dieser", "ein")), adjective=0.15
        )
        clause.place, clause.english_place = _contract(place.goal, german, key), [("to", key), *english]

    def add_town(self, clause: Clause) -> None:
        key = self.key + _PLACE
        german, english = self.pick(_TOWNS)
        clause.place = [("nach", key), (german, key + 1)]
        clause.english_place = [("to", key), (english, key + 1)]

    def add_place(self, clause: Clause) -> None:
        german, english = self.place_phrase(self.key + _PLACE)
        clause.place, clause.english_place = german, english

    def place_phrase(self, key: int) -> tuple[Tokens, Tokens]:
        roll = self.random()
        if roll < 0.1:
            return _words("zu Hause", key), _words("at home", key)
        if roll < 0.2:
            german, english = self.pick(
                (("hier", "here"), ("dort", "there"), ("draußen", "outside"), ("oben", "upstairs"))
            )
            return [(german, key)], [(english, key)]
        if roll < 0.35:
            german, english = self.pick(_TOWNS)
            return [("in", key), (german, key + 1)], [("in", key), (english, key + 1)]
        place = self.pick(_PLACE_LIST)
        determiner = self.pick(("der",) * 6 + ("dieser", "ein", "unser"))
        german, english = self.noun_phrase(place.noun, DATIVE, key + 1, determiner, adjective=0.15)
        return _contract(place.location, german, key), [(place.english, key), *english]


def _attributive(adjective: str) -> str:
    """The stem before an ending: teures, dunkles and müdes lose an e."""
    if adjective in ("teuer", "dunkel"):
        return adjective[:-2] + adjective[-1]
    return adjective.removesuffix("e")


def _contract(preposition: str, phrase: Tokens, key: int) -> Tokens:
    contracted = _CONTRACTIONS.get(f"{preposition} {phrase[0][0]}")
    if contracted:
        return [(contracted, key), *phrase[1:]]
    return [(preposition, key), *phrase]


Sentence = tuple[Tokens, Tokens, str]
_COMMA: Token = (",", 0)
_WH = (("wann", "when"), ("wo", "where"), ("warum", "why"))
_QUESTION_OBJECTS = {"acc": ("wen", "whom", "was", "what"), "dat": ("wem", "whom", "", "")}
_ACCUSATIVE_VERBS = {
    classes: tuple(v for v in _BY_FRAME["acc"] if v.subject == "P" and any(n.classes == classes for n in v.objects))
    for classes in _FITTING
}
_PASSIVE_VERBS = tuple(
    verb for verb in _BY_FRAME["acc"]
    if verb.progressive and verb.subject == "P" and (verb.english.separable or not verb.english.tail)
)  # fmt: skip
_ASKED = {
    frame: tuple(v for v in _BY_FRAME[frame] if v.subject == "P" and not v.english.tail.endswith("of"))
    for frame in ("acc", "dat")
}
_MATRIX = {kind: tuple(v for v in _MATRIX_LIST if v.frame == kind) for kind in ("to", "ing", "that", "whether")}
_WISSEN = next(verb for verb in _MATRIX_LIST if verb.infinitive == "wissen")
_ORDERS = tuple(
    verb for verb in _VERB_LIST
    if verb.progressive and verb.subject[0] == "P"
    and verb.infinitive not in ("erkälten", "verlaufen", "gewöhnen", "verlieben")
)  # fmt: skip
_HEADS = ("der", "der", "der", "ein", "dieser")
_THINGS = tuple(noun for noun in _ALL_NOUNS if noun.plural and noun.classes[0] in "TCRWVF")
_DESCRIBED = tuple(noun for noun in _ALL_NOUNS if noun.plural and len(_FITTING[noun.classes]) > 2)
_LISTED = tuple(noun for noun in _ALL_NOUNS if noun.plural and noun.classes[0] in "TAV")


class _SentenceComposer(_Composer):
    """Sentence patterns; each method returns German words, English words and the final mark."""

    def front(self, clause: Clause, force: bool = False) -> None:
        """Moves one constituent before the verb; `force` falls back on a sentence adverb."""
        choices = []
        if clause.english_time:
            choices += ["time"] * 3
        if clause.english_place and clause.verb.frame in ("none", "acc", "place"):
            choices.append("place")
        if clause.object_frontable:
            choices.append("object")
        choice = self.pick(choices) if choices and self.chance(0.85) else "opener" if force else ""
        if choice == "time":
            clause.front, clause.lead = clause.time, clause.english_time
            clause.time, clause.english_time = [], []
        elif choice == "place":
            clause.front, clause.place = clause.place, []
        elif choice == "object":
            clause.front, clause.nouns = clause.nouns, []
        elif choice:
            german, english = self.pick(_PAIR_LISTS["opener"])
            clause.front = _words(german, self.key + _FRONT)
            clause.lead = _words(english.rstrip(","), self.key + _FRONT) + ([_COMMA] if english.endswith(",") else [])

    def main(self, modes: Sequence[str] = _MAIN_MODES, **options) -> Clause:
        """A main clause, half of the time with something other than the subject in front."""
        fronted = self.chance(0.5)
        clause = self.clause(modes, polite=fronted, **options)
        if fronted:
            self.front(
                clause,
                force=clause.subject.english[0][0] == "you"
                and clause.subject.german[0][0] == "Sie"
                or self.chance(0.4),
            )
        return clause

    def simple(self) -> Sentence:
        clause = self.main()
        return clause.german_main(), clause.english_main(), "."

    def question(self) -> Sentence:
        clause = self.clause(_QUESTION_MODES, polite=True, negation=0)
        return clause.german_first(), clause.english_question(), "?"

    def who_question(self) -> Sentence:
        clause = self.clause(_QUESTION_MODES, subject=self.who(), negation=0)
        return clause.german_main(), clause.english_main(), "?"

    def who(self) -> Subject:
        key = self.key + _KEYS_PER_CLAUSE + _SUBJECT
        return Subject([("wer", key)], [("who", key)], ER, THIRD, None, True, True)

    def object_question(self) -> Sentence:
        opener, clause = self.asked_clause()
        return [opener[0], *clause.german_first()], [opener[1], *clause.english_question()], "?"

    def asked_clause(self, modes: Sequence[str] = _QUESTION_MODES) -> tuple[tuple[Token, Token], Clause]:
        """A clause that lacks the object a question word asks for."""
        frame = "acc" if self.chance(0.75) else "dat"
        verb = self.pick(_ASKED[frame])
        person, english_person, thing, english_thing = _QUESTION_OBJECTS[frame]
        personal = "P" in self.pick(verb.objects).classes
        german, english = (person, english_person) if personal or not thing else (thing, english_thing)
        clause = self.clause(modes, verb=verb, polite=True, negation=0, gap=True)
        key = self.key + _OBJECT
        return ((german, key), (english, key)), clause

    def which_question(self) -> Sentence:
        """ "Welches Buch ...", "Wie viele Bücher ..."."""
        verb = self.pick(_ASKED["acc"])
        noun = self.pick(verb.objects)
        clause = self.clause(_QUESTION_MODES, verb=verb, polite=True, negation=0, gap=True)
        key = self.key + _OBJECT
        if noun.plural is None or self.chance(0.6):
            german, english = self.noun_phrase(noun, ACCUSATIVE, key, "welcher")
        else:
            own, english_own = self.noun_phrase(noun, ACCUSATIVE, key, "bare", plural=True)
            german, english = [*_words("wie viele", key), *own], [*_words("how many", key), *english_own]
        return german + clause.german_first(), english + clause.english_question(), "?"

    def adverb_question(self) -> Sentence:
        german, english = self.pick(_WH)
        clause = self.clause(
            _QUESTION_MODES, polite=True, negation=0.2 if german == "warum" else 0, extras=german == "warum"
        )
        key = self.key + _FRONT
        german = self._place_word(clause, german)
        return [(german, key), *clause.german_first()], [(english, key), *clause.english_question()], "?"

    @staticmethod
    def _place_word(clause: Clause, word: str) -> str:
        """ "Wo", or "wohin" with a verb of motion, asks for the place, which the clause then does not name."""
        if word != "wo" or not clause.english_place:
            return word
        clause.place, clause.english_place = [], []
        return "wohin" if clause.verb.frame in ("goal", "city") else word

    def subordinate(self) -> tuple[Tokens, Tokens, Sequence[str]]:
        """A clause with its conjunction, and the modes of a main clause that agrees with it in time."""
        german, english, names = self.pick(_PAIR_LISTS["conjunction"])
        if names == "all":
            main_modes = modes = self.pick((_PAST_MODES, _PRESENT_MODES))
        else:
            main_modes, modes = _TIMELESS_MODES, names.split()
        negation = 0 if german in ("bevor", "sobald") else 0.13
        clause = self.clause(modes, polite=True, negation=negation, weather=german != "damit")
        key = self.key + _LINK
        return [(german, key), *clause.german_last()], [*_words(english, key), *clause.english_main()], main_modes

    def clause_after(self) -> Sentence:
        german, english, modes = self.subordinate()
        clause = self.main(modes)
        return [*clause.german_main(), _COMMA, *german], [*clause.english_main(), *english], "."

    def clause_before(self) -> Sentence:
        german, english, modes = self.subordinate()
        clause = self.clause(modes, polite=True)
        return [*german, _COMMA, *clause.german_first()], [*english, _COMMA, *clause.english_main()], "."

    def past_sequence(self) -> Sentence:
        """ "Als" or "nachdem" with Plusquamperfekt before a past main clause."""
        word, english, modes = self.pick((("als", "when", ("past",)), ("nachdem", "after", ("pluperfect",))))
        first = self.clause(modes, negation=0, extras=False)
        german_first = [(word, self.key + _LINK), *first.german_last(), _COMMA]
        english_first = [(english, self.key + _LINK), *first.english_main(), _COMMA]
        second = self.clause(("past", "perfect"), polite=True, extras=False)
        return german_first + second.german_first(), english_first + second.english_main(), "."

    def reported(self) -> Sentence:
        """A verb of saying or thinking with a dass clause."""
        past = self.chance(0.5)
        modes = ("perfect", "past") if past else ("present",)
        matrix = self.main(modes, verb=self.pick(_MATRIX["that"]), extras=False)
        german, english = matrix.german_main(), matrix.english_main()
        clause = self.clause(_PAST_MODES if past else _MAIN_MODES, polite=True)
        key = self.key + _LINK
        return (
            [*german, _COMMA, ("dass", key), *clause.german_last()],
            [*english, ("that", key), *clause.english_main()],
            ".",
        )

    def indirect_question(self) -> Sentence:
        past = self.chance(0.3)
        modes, mark = ("perfect", "past") if past else ("present", "present", "modal"), "."
        if self.chance(0.4):
            matrix = self.clause(("past",) if past else ("present",), verb=_WISSEN, extras=False, negation=1)
        elif self.chance(0.3):
            past, mark = False, "?"
            matrix = self.clause(("present",), subject=self.addressee(), verb=_WISSEN, extras=False, negation=0)
        else:
            matrix = self.main(modes, verb=self.pick(_MATRIX["whether"]), extras=False, negation=0)
        if mark == "?":
            german, english = matrix.german_first(), matrix.english_question()
        else:
            german, english = matrix.german_main(), matrix.english_main()
        asked, english_asked = self.embedded_question(_PAST_MODES if past else _QUESTION_MODES)
        return [*german, _COMMA, *asked], english + english_asked, mark

    def addressee(self) -> Subject:
        self.key += _KEYS_PER_CLAUSE
        return self.pronoun_subject(self.pick((1, 5, 7)))

    def embedded_question(self, modes: Sequence[str]) -> tuple[Tokens, Tokens]:
        roll = self.random()
        if roll < 0.25:
            opener, clause = self.asked_clause(modes)
            return [opener[0], *clause.german_last()], [opener[1], *clause.english_main()]
        word, english = ("ob", "whether") if roll < 0.55 else self.pick(_WH)
        clause = self.clause(modes, polite=True, extras=word in ("ob", "warum"))
        word = self._place_word(clause, word)
        key = self.key + _LINK
        return [(word, key), *clause.german_last()], [(english, key), *clause.english_main()]

    # Relative clauses

    def head(self, noun: Noun, case: int, plural: bool) -> tuple[Tokens, Tokens]:
        self.key += _KEYS_PER_CLAUSE
        determiner = self.pick(("der", "der", "dieser", "some", "many", "number")) if plural else self.pick(_HEADS)
        return self.noun_phrase(noun, case, self.key + _SUBJECT, determiner, plural, adjective=0.15)

    def relative_subject(self, noun: Noun, plural: bool) -> tuple[Tokens, Tokens]:
        """A relative clause whose pronoun is the subject: "der das Buch liest", "who reads the book"."""
        key = self.key + _KEYS_PER_CLAUSE + _SUBJECT
        pronoun = _RELATIVE[NOMINATIVE][PLURAL if plural else noun.gender]
        person, agreement = (SIE, OTHER) if plural else (ER, THIRD)
        owner = "their" if plural else ("his", "her", None)[noun.gender]
        who = Subject([(pronoun, key)], [("who", key)], person, agreement, owner, True, False)
        clause = self.clause(("present", "perfect", "past", "modal"), subject=who, negation=0, extras=self.chance(0.3))
        return clause.german_last(), clause.english_main()

    def relative_object(self, noun: Noun, plural: bool) -> tuple[Tokens, Tokens]:
        """A relative clause whose pronoun is the object and whose subject shows its case: "den ich kenne"."""
        verb = self.pick(_ACCUSATIVE_VERBS[noun.classes])
        column = PLURAL if plural else noun.gender
        self.key += _KEYS_PER_CLAUSE
        if column == MASCULINE and self.chance(0.4):
            subject = self.name_subject() if self.chance(0.3) else self.noun_subject(self.pick(_PEOPLE))
        else:
            subject = self.pronoun_subject(self.pick((0, 1, 2, 4)))
        clause = self.clause(
            ("present", "perfect", "perfect", "past", "modal"), verb=verb, subject=subject, gap=True, negation=0.05
        )
        key = self.key + _OBJECT
        english = "whom" if "P" in noun.classes else "that"
        return [(_RELATIVE[ACCUSATIVE][column], key), *clause.german_last()], [(english, key), *clause.english_main()]

    def relative_dative(self, noun: Noun, plural: bool) -> tuple[Tokens, Tokens]:
        """ "dem die Frau hilft", "whom the woman helps"."""
        clause = self.clause(("present", "perfect", "past"), verb=self.pick(_ASKED["dat"]), gap=True, negation=0)
        key = self.key + _OBJECT
        pronoun = _RELATIVE[DATIVE][PLURAL if plural else noun.gender]
        return [(pronoun, key), *clause.german_last()], [("whom", key), *clause.english_main()]

    def relative_in_subject(self) -> Sentence:
        """The relative clause stands inside the main clause."""
        plural, noun = self.chance(0.25), self.pick(_PEOPLE)
        head, english_head = self.head(noun, NOMINATIVE, plural)
        relative = self.pick(
            (self.relative_subject, self.relative_subject, self.relative_object, self.relative_dative)
        )
        german, english = relative(noun, plural)
        person, agreement = (SIE, OTHER) if plural else (ER, THIRD)
        owner = "their" if plural else ("his", "her", None)[noun.gender]
        subject = Subject(
            [*head, _COMMA, *german, _COMMA], english_head + english, person, agreement, owner, False, False
        )
        clause = self.main(("present", "perfect", "past", "modal"), subject=subject, negation=0.05)
        return clause.german_main(), clause.english_main(), "."

    def relative_in_description(self) -> Sentence:
        """ "Das Buch, das ich gelesen habe, war spannend."""
        noun, plural = self.pick(_DESCRIBED), self.chance(0.2)
        while not _ACCUSATIVE_VERBS[noun.classes]:
            noun = self.pick(_DESCRIBED)
        head, english_head = self.head(noun, NOMINATIVE, plural)
        german, english = self.relative_object(noun, plural)
        predicate, english_predicate = self.predicate(noun, plural)
        return [*head, _COMMA, *german, _COMMA, *predicate], [*english_head, *english, *english_predicate], "."

    def relative_extraposed(self) -> Sentence:
        """The relative clause follows the whole main clause although its head is the object."""
        verb = self.pick(_BY_FRAME["acc"])
        while verb.subject != "P":
            verb = self.pick(_BY_FRAME["acc"])
        noun = self.pick(verb.objects)
        if noun.plural is None:
            return self.relative_extraposed()
        plural = self.chance(0.25)
        head, english_head = self.head(noun, ACCUSATIVE, plural)
        main = self.clause(
            ("present", "perfect", "perfect", "modal", "future"), verb=verb, gap=True, negation=0, extras=False
        )
        main.nouns, main.english_object = head, english_head
        german, english = main.german_main(), main.english_main()
        if "P" in noun.classes and self.chance(0.55):
            relative = self.relative_subject(noun, plural)
        else:
            relative = self.relative_object(noun, plural)
        return [*german, _COMMA, *relative[0]], english + relative[1], "."

    # Infinitives and commands

    def controlled(self, owner: Subject) -> Clause:
        """A clause for an infinitive with the subject of the clause above it."""
        return self.clause(("habit",), subject=owner, negation=0, extras=self.chance(0.3))

    def purpose(self) -> Sentence:
        """um, ohne, anstatt with zu."""
        subject = self.subject_ahead()
        main = self.main(("present", "perfect", "past", "modal"), subject=subject, negation=0.05)
        german, english = main.german_main(), main.english_main()
        clause = self.controlled(subject)
        key = self.key + _LINK
        word, link, form = self.pick(
            (
                ("um", "in order to", "base"),
                ("um", "in order to", "base"),
                ("ohne", "without", "gerund"),
                ("anstatt", "instead of", "gerund"),
            )
        )
        return (
            [*german, _COMMA, (word, key), *clause.german_infinitive()],
            [*english, *_words(link, key), *clause.english_plain(form)],
            ".",
        )

    def subject_ahead(self) -> Subject:
        self.key += _KEYS_PER_CLAUSE
        return self.subject()

    def wish(self) -> Sentence:
        """A verb with an infinitive clause: "Er versucht, sie anzurufen", "He tries to call her"."""
        subject = self.subject_ahead()
        kind = self.pick(("to", "to", "to", "ing"))
        main = self.main(
            ("present", "present", "perfect", "past", "future"),
            subject=subject,
            verb=self.pick(_MATRIX[kind]),
            negation=0.05,
            extras=False,
        )
        german, english = main.german_main(), main.english_main()
        clause = self.controlled(subject)
        tail = [("to", 0), *clause.english_plain()] if kind == "to" else clause.english_plain("gerund")
        return [*german, _COMMA, *clause.german_infinitive()], english + tail, "."

    def judgement(self) -> Sentence:
        """ "Es ist wichtig, die Regeln zu verstehen", "It is important to understand the rules"."""
        self.key += _KEYS_PER_CLAUSE
        key = self.key + _SUBJECT
        german, english = self.pick(_PAIR_LISTS["copula"])
        past = self.chance(0.3)
        start = [("es", key), ("war" if past else "ist", key + 1), (german, key + 2), _COMMA]
        english_start = [("it", key), ("was" if past else "is", key + 1), (english, key + 2), ("to", 0)]
        nobody = Subject([], [("", 0)], ER, THIRD, None, True, False)
        clause = self.controlled(nobody)
        return start + clause.german_infinitive(), english_start + clause.english_plain(), "."

    def command(self) -> Sentence:
        index = self.pick((1, 1, 5, 7))
        self.key += _KEYS_PER_CLAUSE
        subject, verb = self.pronoun_subject(index), self.pick(_ORDERS)
        clause = self.clause(("habit",), subject=subject, verb=verb, negation=0.15)
        key = self.key + _VERB
        form = {1: verb.imperative, 5: verb.present[IHR], 7: verb.infinitive}[index]
        polite = subject.german if index == 7 else []
        right = [(verb.prefix, key)] if verb.prefix else []
        german = [(form, key), *polite, *clause.reflexive, *clause.field(), *right]
        english = clause.english_plain()
        if clause.english_negation:
            english = [("do", key), *clause.english_negation, *english]
        if self.chance(0.4):
            german, english = [("bitte", key + 3), *german], [("please", key + 3), *english]
        return german, english, "!"

    def coordination(self) -> Sentence:
        modes = self.pick((_PRESENT_MODES, _PAST_MODES))
        first, (word, english) = self.main(modes), self.pick((("und", "and"), ("aber", "but")))
        comma = [_COMMA] if word == "aber" else []
        start, english_start = first.german_main() + comma, first.english_main() + comma
        second = self.main(modes)
        key = self.key + _LINK
        return (
            [*start, (word, key), *second.german_main()],
            [*english_start, (english, key), *second.english_main()],
            ".",
        )

    # Descriptions

    def predicate(self, noun: Noun, plural: bool) -> tuple[Tokens, Tokens]:
        """ "ist sehr alt", "is very old"."""
        key, past = self.key + _FRONT, self.chance(0.35)
        adjective = self.pick(_FITTING[noun.classes])
        finite = (_WAREN if past else _SEIN)[SIE if plural else ER]
        english = (_WAS if past else _BE)[OTHER if plural else THIRD]
        german_degree, english_degree = self.pick(_PAIR_LISTS["degree"]) if self.chance(0.5) else ("", "")
        return (
            [(finite, key), (german_degree, key + 1), (adjective.german, key + 2)],
            [(english, key), (english_degree, key + 1), (adjective.english, key + 2)],
        )

    def described(self, noun: Noun, plural: bool) -> tuple[Tokens, Tokens]:
        self.key += _KEYS_PER_CLAUSE
        mine = ("mein", "dein", "unser") if noun.classes[0] in "PTCVRA" else ()
        determiner = self.pick(mine if noun.classes == "Pk" else ("der", "der", "dieser", *mine))
        if not plural and noun.classes[0] in "TVBPA" and self.chance(0.12):
            return self.owned_phrase(noun, NOMINATIVE, self.key + _SUBJECT)
        return self.noun_phrase(noun, NOMINATIVE, self.key + _SUBJECT, determiner, plural, adjective=0)

    def description(self) -> Sentence:
        noun, plural = self.pick(_DESCRIBED), self.chance(0.25)
        german, english = self.described(noun, plural)
        predicate, english_predicate = self.predicate(noun, plural)
        if self.chance(0.25):
            return (
                [predicate[0], *german, *predicate[1:]],
                [english_predicate[0], *english, *english_predicate[1:]],
                "?",
            )
        return german + predicate, english + english_predicate, "."

    def comparison(self) -> Sentence:
        noun = self.pick(_DESCRIBED)
        adjective = self.pick(_FITTING[noun.classes])
        german, english = self.described(noun, False)
        key = self.key + _FRONT
        other = self.pick(_DESCRIBED)
        while other is noun or other.classes[0] != noun.classes[0]:
            other = self.pick(_DESCRIBED)
        rest, english_rest = self.described(other, False)
        finite, english_finite = self.pick((("ist", "is"), ("ist", "is"), ("war", "was")))
        if adjective.comparative is None or self.chance(0.35):
            middle = [(word, key + 1 + n) for n, word in enumerate(("so", adjective.german, "wie"))]
            english_middle = [(word, key + 1 + n) for n, word in enumerate(("as", adjective.english, "as"))]
        else:
            middle = [(adjective.comparative, key + 2), ("als", key + 3)]
            english_middle = [*_words(adjective.english_comparative, key + 2), ("than", key + 3)]
        return (
            [*german, (finite, key), *middle, *rest],
            [*english, (english_finite, key), *english_middle, *english_rest],
            ".",
        )

    def existence(self) -> Sentence:
        """ "Im Garten gibt es drei Bäume.", "There are three trees in the garden."""
        self.key += _KEYS_PER_CLAUSE
        place, english_place = self.place_phrase(self.key + _PLACE)
        determiner = self.pick(("ein", "number", "number", "many", "some", "no"))
        plural = determiner not in ("ein", "no") or determiner == "no" and self.chance(0.5)
        german, english = self.noun_phrase(self.pick(_LISTED), ACCUSATIVE, self.key + _OBJECT, determiner, plural)
        past, key = self.chance(0.3), self.key + _VERB
        verb = ("gab" if past else "gibt", key), ("es", key)
        english_verb = ("there", key), ((_WAS if past else _BE)[OTHER if plural else THIRD], key)
        start = (
            [*place, *verb, *german] if len(place) == 1 or self.chance(0.6) else [verb[1], verb[0], *german, *place]
        )
        return start, [*english_verb, *english, *english_place], "."

    def price(self) -> Sentence:
        noun, plural = self.pick(_THINGS), self.chance(0.2)
        german, english = self.described(noun, plural)
        key = self.key + _FRONT
        amount, english_amount = self.amount()
        value, english_value = (
            [(amount, key + 1), ("Euro", key + 2)],
            [*_words(english_amount, key + 1), ("euros", key + 2)],
        )
        if self.chance(0.3):
            finite = "haben" if plural else "hat"
            return [*german, (finite, 0), *value, ("gekostet", key)], [*english, ("cost", key), *english_value], "."
        finite, english_finite = ("kosten", "cost") if plural else ("kostet", "costs")
        return [*german, (finite, key), *value], [*english, (english_finite, key), *english_value], "."

    def amount(self) -> tuple[str, str]:
        roll = self.random()
        if roll < 0.4:
            value = 2 + int(self.random() * 998)
            return german_number(value), english_number(value)
        if roll < 0.75:
            whole, cents = 2 + int(self.random() * 98), int(self.random() * 100)
            return f"{whole},{cents:02d}", f"{whole}.{cents:02d}"
        thousands, rest = 1 + int(self.random() * 40), int(self.random() * 100) * 10
        return f"{thousands}.{rest:03d}", f"{thousands},{rest:03d}"

    def age(self) -> Sentence:
        self.key += _KEYS_PER_CLAUSE
        subject = (
            self.noun_subject(self.pick(_RELATIONS), ("mein", "dein", "unser")) if self.chance(0.5) else self.subject()
        )
        key, value, past = self.key + _FRONT, 2 + int(self.random() * 97), self.chance(0.2)
        finite = (_WAREN if past else _SEIN)[subject.person]
        english = (_WAS if past else _BE)[subject.agreement]
        words = ((finite, english), (german_number(value), english_number(value)), ("Jahre", "years"), ("alt", "old"))
        return (
            subject.german + [(word, key + n) for n, (word, _) in enumerate(words)],
            subject.english + [(word, key + n) for n, (_, word) in enumerate(words)],
            ".",
        )

    def profession(self) -> Sentence:
        """German has no article here: "Sie ist Ärztin", "She is a doctor"."""
        self.key += _KEYS_PER_CLAUSE
        job = self.pick(_JOBS)
        relation = self.pick(_RELATIONS)
        while relation.gender != job.gender:
            relation = self.pick(_RELATIONS)
        if self.chance(0.35):
            subject = self.pronoun_subject(2 if job.gender == MASCULINE else 3)
        else:
            subject = self.noun_subject(relation, ("mein", "mein", "dein", "unser"))
            job_plural = subject.person == SIE
            if job_plural:
                return self.profession()
        key = self.key + _FRONT
        word = job.english[0]
        named = [(_article(word), key + 1), *_words(word, key + 1)]
        if self.chance(0.3):
            german, english = self.pick((("möchte", "would like to"), ("will", "wants to"), ("wollte", "wanted to")))
            return (
                [*subject.german, (german, key), (job.singular[0], key + 1), ("werden", key + 2)],
                [*subject.english, *_words(english, key), ("become", key + 2), *named],
                ".",
            )
        finite, english = self.pick((("ist", "is"), ("war", "was")))
        return (
            [*subject.german, (finite, key), (job.singular[0], key + 1)],
            [*subject.english, (english, key), *named],
            ".",
        )

    def liking(self) -> Sentence:
        """gefallen turns subject and object round: "Das Buch gefällt mir", "I like the book"."""
        noun, plural = self.pick(_THINGS), self.chance(0.25)
        thing, english_thing = self.described(noun, plural)
        key, past, negative = self.key + _FRONT, self.chance(0.35), self.chance(0.2)
        pronoun = _PRONOUNS[int(self.random() * 7)]
        person, english_person, third = [(pronoun[2], key + 5)], [(pronoun[4], key + 5)], pronoun[7] == THIRD
        if self.chance(0.4):
            relation, own = self.pick(_PEOPLE), self.pick(("der", "mein", "unser"))
            person, english_person = self.noun_phrase(relation, DATIVE, key + 5, own)
            third = True
        negation = [("nicht", key + 1)] if negative else []
        english = ("liked" if past else "likes" if third else "like"), key
        verbs = (
            [("did" if past else "does" if third else "do", key), ("not", key + 1), ("like", key)]
            if negative
            else [english]
        )
        english_words = [*english_person, *verbs, *english_thing]
        if past and self.chance(0.6):
            finite, right = ("haben" if plural else "hat", key), [("gefallen", key)]
        else:
            finite, right = ((("gefiel", "gefielen"), ("gefällt", "gefallen"))[not past][plural], key), []
        if self.chance(0.3):
            return [*person, finite, *thing, *negation, *right], english_words, "."
        return [*thing, finite, *person, *negation, *right], english_words, "."

    def passive(self) -> Sentence:
        verb = self.pick(_PASSIVE_VERBS)
        noun, plural = self.pick(verb.objects), self.chance(0.25)
        plural = plural and noun.plural is not None
        self.key += _KEYS_PER_CLAUSE
        key = self.key
        determiner = self.pick(("der", "der", "dieser"))
        german, english = self.noun_phrase(noun, NOMINATIVE, key + _SUBJECT, determiner, plural)
        time = self.draw_time("past", True) or ([], [], "")
        agent: tuple[Tokens, Tokens] = [], []
        if self.chance(0.6):
            person, english_person = self.noun_phrase(
                self.pick(_PEOPLE), DATIVE, key + _OBJECT, self.pick(("der", "ein", "mein"))
            )
            agent = _contract("von", person, key + _SECOND), [("by", key + _SECOND), *english_person]
        verbs = [(verb.english.participle, key + _VERB), *[(word, key + _VERB) for word in verb.english.tail.split()]]
        finite = ("wurden" if plural else "wurde", key + _AUXILIARY)
        front = bool(time[0]) and self.chance(0.35)
        words = [*time[0], finite, *german] if front else [*german, finite, *time[0]]
        helper = ("were" if plural else "was", key + _AUXILIARY)
        core = [*english, helper, *verbs, *agent[1]]
        return (
            [*words, *agent[0], (verb.participle, key + _VERB)],
            [*time[1], *core] if front else [*core, *time[1]],
            ".",
        )

    def compose(self) -> Sentence:
        self.key = 0
        return _PATTERN_TABLE[int(self.random() * len(_PATTERN_TABLE))](self)


_PATTERNS: tuple[tuple[Callable[[_SentenceComposer], Sentence], int], ...] = (
    (_SentenceComposer.simple, 26), (_SentenceComposer.question, 7), (_SentenceComposer.who_question, 2),
    (_SentenceComposer.object_question, 3), (_SentenceComposer.which_question, 3),
    (_SentenceComposer.adverb_question, 3),
    (_SentenceComposer.clause_after, 9), (_SentenceComposer.clause_before, 7), (_SentenceComposer.past_sequence, 3),
    (_SentenceComposer.reported, 6), (_SentenceComposer.indirect_question, 5),
    (_SentenceComposer.relative_in_subject, 4), (_SentenceComposer.relative_in_description, 3),
    (_SentenceComposer.relative_extraposed, 4), (_SentenceComposer.purpose, 4), (_SentenceComposer.wish, 4),
    (_SentenceComposer.judgement, 2), (_SentenceComposer.command, 4), (_SentenceComposer.coordination, 5),
    (_SentenceComposer.description, 4), (_SentenceComposer.comparison, 3), (_SentenceComposer.existence, 3),
    (_SentenceComposer.price, 2), (_SentenceComposer.age, 1), (_SentenceComposer.profession, 1),
    (_SentenceComposer.liking, 3), (_SentenceComposer.passive, 4),
)  # fmt: skip
_PATTERN_TABLE = tuple(pattern for pattern, weight in _PATTERNS for _ in range(weight))


def _generate(
    seed: int | str, exclude: Container[str], seen: set[str] | None, with_alignment: bool
) -> Iterator[tuple[str, ...]]:
    composer = _SentenceComposer(seed)
    while True:
        german, english, mark = composer.compose()
        while german[-1] == _COMMA:
            german = german[:-1]
        source = _glue(german) + mark
        if (
            not MIN_WORDS <= source.count(" ") + 1 <= MAX_WORDS
            or source in exclude
            or (seen is not None and source in seen)
        ):
            continue
        target = _glue(english)
        target += "" if target.endswith(".") and mark == "." else mark
        if not MIN_WORDS <= target.count(" ") + 1 <= MAX_WORDS:
            continue
        if seen is not None:
            seen.add(source)
        yield (source, target, _links(german, english)) if with_alignment else (source, target)


def generate_pairs(
    count: int | None = None,
    seed: int = 0,
    *,
    exclude: Container[str] = (),
    distinct: bool = True,
    with_alignment: bool = False,
) -> Iterator[tuple[str, ...]]:
    """Yields `count` (German, English) pairs, or pairs without end when `count` is None.

    Args:
        exclude: German sentences that must not be generated; a set keeps this fast.
        distinct: leaves out repeated German sentences, which takes memory for every sentence generated so far.
        with_alignment: adds word links in Pharaoh format ("0-0 1-2") between the whitespace-separated words.

    Raises:
        ValueError: for a negative `count` or `seed`.

    >>> next(generate_pairs(1, seed=7))[0].endswith((".", "?", "!"))
    True
    """
    if count is not None and count < 0:
        raise ValueError(f"count must be 0 or more, or None for an endless stream, got {count}")
    _check_seed(seed)
    pairs = _generate(seed, exclude, set() if distinct else None, with_alignment)
    return pairs if count is None else islice(pairs, count)


def _check_seed(seed: int) -> None:
    # random.Random drops the sign, so -1 would silently repeat 1
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")


def _splits(
    train: int, validation: int, test: int, seed: int, with_alignment: bool
) -> dict[str, list[tuple[str, ...]]]:
    """The splits, each from its own stream, so that `train` can change without touching the held-out sentences."""
    _check_seed(seed)
    sizes = {"test": test, "validation": validation, "train": train}
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{name} must be 0 or more sentences, got {size}")
    seen: set[str] = set()
    splits = {
        name: list(islice(_generate(f"{seed}/{name}", (), seen, with_alignment), size)) for name, size in sizes.items()
    }
    return {name: splits[name] for name in ("train", "validation", "test")}


def toy_corpus(
    train: int = 20000, validation: int = 500, test: int = 500, seed: int = 0, *, with_alignment: bool = False
) -> DatasetDict:
    """The corpus as a `DatasetDict` with a column `translation` of {"de", "en"}; no German sentence occurs twice.

    The test split depends on `seed` and `test` alone, the validation split also on nothing about `train`.

    Args:
        with_alignment: adds the string column `alignment`, the true links as in `generate_pairs`.
    """
    from datasets import Dataset, DatasetDict, Features, Value

    # A plain struct keeps the order of the languages that Dataset.from_list would sort.
    features = {"translation": {"de": Value("string"), "en": Value("string")}}
    if with_alignment:
        features["alignment"] = Value("string")
    corpus = DatasetDict()
    for name, pairs in _splits(train, validation, test, seed, with_alignment).items():
        columns = {"translation": [{"de": pair[0], "en": pair[1]} for pair in pairs]}
        if with_alignment:
            columns["alignment"] = [pair[2] for pair in pairs]
        corpus[name] = Dataset.from_dict(columns, features=Features(features))
    return corpus


def write_toy_corpus(
    folder: str | Path,
    train: int = 20000,
    validation: int = 500,
    test: int = 500,
    seed: int = 0,
    links: bool = False,
) -> dict[str, int]:
    """Writes line-aligned UTF-8 files train.de, train.en, ... into `folder`; returns the number of pairs by split.

    Args:
        links: also train.links, ..., the true word links in Pharaoh format.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder to write the corpus to")
    splits = _splits(train, validation, test, seed, links)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        for column, ending in enumerate(("de", "en", "links")[: 3 if links else 2]):
            lines = "".join(f"{pair[column]}\n" for pair in pairs)
            (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8", newline="\n")
    return {name: len(pairs) for name, pairs in splits.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: python -m hf_deepnmt.toy_corpus FOLDER --train 20000 --seed 0."""
    parser = argparse.ArgumentParser(
        prog="python -m hf_deepnmt.toy_corpus", description="Write a German-English toy corpus."
    )
    parser.add_argument("folder", type=Path, help="folder for train.de, train.en, validation.de, ...")
    for name, size in (("train", 20000), ("validation", 500), ("test", 500)):
        parser.add_argument(f"--{name}", type=int, default=size, help=f"number of {name} pairs ({size})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generator (0)")
    parser.add_argument("--links", action="store_true", help="also write the true word links, train.links, ...")
    options = vars(parser.parse_args(arguments))
    try:
        sizes = write_toy_corpus(**options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{options['folder']}: " + ", ".join(f"{size} {name} pairs" for name, size in sizes.items()))


__all__ = ["english_number", "generate_pairs", "german_number", "main", "toy_corpus", "write_toy_corpus"]


if __name__ == "__main__":
    main()
