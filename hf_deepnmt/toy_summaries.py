"""Generated documents with summaries: short news stories for tests and tutorials of summarization.

Every sentence comes from the tables below, all written for this package. The text holds no third-party material and may
be used under the package's own licence.

A story is one event: its lead says what happened, where and when; a sentence soon after says how it ended; the others,
mixed with what people said and what is true of the town on any day, add details. Documents have 5 to 12 sentences. The
summary has two: the lead and the end, in other words than the document's and without day, hour, age and profession. It
follows from the facts alone and each fact has one wording in it, so that a perfect summariser reaches the reference
exactly, whereas the first two sentences do not: the words differ, and the end may stand behind a detail. Every detail has
names and numbers too, so that picking any name will not do.

The only source of chance is `random.Random(seed).random()`, whose sequence Python keeps stable, so a seed gives the same
text on every platform and Python version.
"""

# Word lists are easier to read and to extend as one string than as a list of literals.
# ruff: noqa: SIM905

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from datasets import DatasetDict

MIN_SENTENCES, MAX_SENTENCES = 5, 12
DOCUMENT, SUMMARY = "document", "summary"


class Person(NamedTuple):
    full: str
    last: str
    she: str
    her: str


class Story(NamedTuple):
    """
    One kind of event. A `{slot}` is a fact, the same wherever it comes again; `{slot_2}` is another.

    Args:
        leads: wordings of what happened.
        ends: how it may have ended, each as wordings in documents and the one in the summary.
        summary: the lead in other words.
        details: sentences of this kind of event only.
    """

    leads: tuple[str, ...]
    summary: str
    ends: tuple[tuple[tuple[str, ...], str], ...]
    details: tuple[str, ...]


_WOMEN = "Anna Clara Emma Helen Ida Julia Karen Laura Maria Nina Olga Paula Rosa Sarah Vera".split()
_MEN = "Adam Ben Carlos David Eric Frank Hugo Ivan Jack Leon Martin Oscar Peter Simon Victor".split()
_SURNAMES = """Adler Baker Costa Duran Ericson Fischer Grant Hansen Ivanov Jensen Keller Lopez Moreno Novak Olsen Parker
    Quinn Rossi Silva Turner Unger Vogel Weber Young Zeller""".split()
_SLOTS: dict[str, tuple[str, ...]] = {
    slot: tuple(value.strip() for value in values.split(","))
    for slot, values in {
        "city": """Arden, Brookfield, Carlow, Dunmore, Eastport, Fairview, Glenwood, Harbor Hill, Ironside, Kingsbury,
            Lakeside, Milltown, Northgate, Oakdale, Pinecrest, Redford, Stonebridge, Treville, Upton, Westbrook""",
        "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
        "hour": "at night, in the morning, at noon, in the afternoon, in the evening, before sunrise, shortly after six",
        "building": """the library, the town hall, the old mill, the station, the school, the hotel, the theater,
            the market hall""",
        "work": "bridge, swimming pool, hospital, stadium, museum, tram line, park, harbor, concert hall, airport",
        "team": "the Bears, the Eagles, the Foxes, the Hawks, the Lions, the Sharks, the Tigers, the Wolves",
        "shop": "a jeweler's shop, a bank, a gallery, a bakery, a bookshop, a bicycle store, a pharmacy, a warehouse",
        "loot": "watches, paintings, rings, bicycles, coins, cameras, computers, old books",
        "animal": "a lion, a wolf, an elephant, a monkey, a bear, a parrot, a tiger, an owl, a zebra",
        "hiding": "in a garage, behind a school, on a roof, in a garden, under a bridge, in a church, beside a lake",
        "vehicle": "a bus, a truck, a taxi, a tram, a van",
        "other": "a tractor, a motorcycle, a car, a delivery cart, a police car",
        "company": """Altona Steel, Bright Foods, Delta Paper, Golden Toys, Nordic Glass, Prime Motors, Silver Shoes,
            Union Cables""",
        "season": "spring, summer, fall, winter",
        "job": "teacher, baker, nurse, farmer, gardener, lawyer, painter, pilot, student, waiter",
        "plan": """build new homes, lower the taxes, repair the roads, plant 1000 trees, open a second school,
            make all buses free, save the old harbor, hire more teachers""",
        "prize": "Golden Pen, Silver Key, Blue Star, Green Leaf, Crystal Bell",
        "deed": "a novel about the sea, a film about miners, a cheap water filter, a song for children, a map of the moon",
        "charity": "a hospital, a children's home, an animal shelter, a village school, a fire brigade",
        "cause": "a broken heater, a forgotten candle, a lightning strike, an old cable, a careless cook",
        "treasure": "a Roman sword, a box of silver coins, a mammoth tooth, a golden ring, a stone mask",
        "doing": "walking the dog, digging a well, planting potatoes, repairing a wall, fishing",
        "part": "an arm, a leg, a rib, two fingers, a foot",
        "weather": "rainy, sunny, windy, cold, foggy, hot",
        "food": "apple cake, fish soup, goat cheese, honey beer, plum jam",
    }.items()
}
# smallest and largest value, and the step between values
_NUMBERS = {
    "few": (2, 9, 1), "some": (10, 90, 5), "hundreds": (100, 900, 50), "thousands": (2000, 60000, 1000), "age": (24, 78, 1),
    "share": (51, 79, 1), "goals": (2, 4, 1), "high": (5, 9, 1), "low": (0, 4, 1), "millions": (3, 95, 1),
}  # fmt: skip

_STORIES = (
    Story(
        leads=(
            "A fire broke out in {building} of {city} on {day} {hour}.",
            "Flames destroyed large parts of {building} in {city} on {day} {hour}.",
        ),
        summary="A fire has damaged {building} of {city}.",
        ends=(
            (("The firemen carried {few} people out of the smoke.", "{few} people had to be carried out."),
             "{few} people were saved."),
            (("Nobody was inside at that time.", "All people had left before, so nobody was hurt."), "Nobody was hurt."),
            (("{some} people were taken to hospital with burns.", "Doctors are treating {some} people for burns."),
             "{some} people were hurt."),
        ),
        details=(
            "The police think that {cause} was the reason.", "{some_2} firemen fought the flames for {few_2} hours.",
            "The roof fell in after {few_3} hours.", "It was the second fire in {city} within {few_4} years.",
            "Repairs will cost about {millions} million euros.",
        ),
    ),
    Story(
        leads=(
            "{team} beat {team_2} {high} to {low} in {city} on {day} {hour}.",
            "In {city}, {team_2} lost to {team} {low} to {high} on {day} {hour}.",
        ),
        summary="{team} have won against {team_2}.",
        ends=(
            (("{person.full} scored {goals} times for the winners.", "{goals} of the goals came from {person.full}."),
             "{person.last} scored {goals} goals."),
            (("The winners are first in the league now.", "That makes them the leaders of the league."),
             "They now lead the league."),
        ),
        details=(
            "{thousands} fans watched the game.",
            "The goalkeeper, {person_3.full}, had to leave the field with a broken finger.",
            "Coach {person_4.full} has trained the winners for {few} years.", "The next game is in {city_2} in {few_2} days.",
            "The referee showed {few_3} yellow cards.",
        ),
    ),
    Story(
        leads=(
            "{person.full}, a {job} of {age} years, was elected mayor of {city} on {day}.",
            "The people of {city} chose {person.full}, a {job} aged {age}, as their mayor on {day}.",
        ),
        summary="{person.full} is the new mayor of {city}.",
        ends=(
            (("The first task of the new office is to {plan}.", "In {person.her} speech {person.last} promised to {plan}."),
             "{person.she} wants to {plan}."),
            (("{person.last} won {share} percent of the votes.", "{share} percent of the voters were for {person.last}."),
             "{person.she} got {share} percent of the votes."),
        ),
        details=(
            "The old mayor, {person_3.full}, had been in office for {few_2} years.", "{thousands} people went to the polls.",
            "{person_4.full}, who lost, spoke of a fair campaign.", "The council has {some} members.",
        ),
    ),
    Story(
        leads=(
            "Thieves broke into {shop} in {city} on {day} {hour} and took {loot} worth {thousands} euros.",
            "On {day} {hour}, {loot} worth {thousands} euros disappeared from {shop} in {city}.",
        ),
        summary="{loot} worth {thousands} euros were stolen in {city}.",
        ends=(
            (("{few} men were arrested a little later.", "The police caught {few} men at a gas station."),
             "The police have {few} suspects."),
            (("The police have no trace of them.", "Nobody knows where they are now."), "The thieves are still free."),
        ),
        details=(
            "They came in through a window and needed only {few_2} minutes.",
            "The owner, {person_3.full}, was asleep upstairs.",
            "A camera shows {goals} people with masks.", "The owner offers {hundreds} euros for useful hints.",
            "It is the third theft in this street since {season}.",
        ),
    ),
    Story(
        leads=(
            "After {few} years of work, the new {work} of {city} was opened on {day} {hour}.",
            "{person_3.full}, the mayor of {city}, opened the new {work} of the town on {day} {hour}.",
        ),
        summary="{city} has a new {work}.",
        ends=(
            (("The town paid {millions} million euros for it.", "The costs rose to {millions} million euros in the end."),
             "It cost {millions} million euros."),
            (("Entry is free for everybody until {season}.", "Until {season} nobody has to pay there."),
             "It is free until {season}."),
        ),
        details=(
            "{hundreds} guests came to the party.", "The plans were drawn by {person_4.full} from {city_2}.",
            "{some} workers were busy there every day.", "A band played and there was {food} for all.",
            "{few_2} streets were closed for the party.",
        ),
    ),
    Story(
        leads=(
            "A heavy storm hit {city} on {day} {hour} and tore the roof off {building}.",
            "On {day} {hour}, a storm tore the roof off {building} in {city}.",
        ),
        summary="{building} of {city} has lost its roof in a storm.",
        ends=(
            (("{hundreds} families have been without light since then.",
              "The power failed in the homes of {hundreds} families."),
             "{hundreds} families have no power."),
            (("The schools will stay closed for {few} days.", "For {few} days there will be no lessons."),
             "Schools are closed for {few} days."),
        ),
        details=(
            "The wind reached {share} miles an hour.", "{some} trees fell on the roads.", "The river rose by {few_2} feet.",
            "{person_3.full} of the weather service expects more rain.",
            "A tree fell on the car of {person_4.full}, who was not in it.",
        ),
    ),
    Story(
        leads=(
            "{person.full}, a {job} from {city}, received the {prize} on {day} for {deed}.",
            "The {prize} went to {person.full}, a {job} from {city}, on {day} for {deed}.",
        ),
        summary="{person.full} has won the {prize} for {deed}.",
        ends=(
            (("The money, {thousands} euros, will go to {charity}.",
              "{person.last} will give the {thousands} euros to {charity}."),
             "{person.she} gives the money to {charity}."),
            (("It is the first time that somebody from {city} has won it.", "Nobody from {city} had ever won it before."),
             "{person.she} is the first winner from {city}."),
        ),
        details=(
            "{few} judges read or saw {hundreds} works.", "Last year the winner was {person_3.full} from {city_2}.",
            "{person.last} has worked on it for {few_2} years.",
            "{person_4.full}, one of the judges, spoke of a difficult choice.",
        ),
    ),
    Story(
        leads=(
            "{vehicle} and {other} collided in {city} on {day} {hour}.",
            "In {city}, {vehicle} ran into {other} on {day} {hour}.",
        ),
        summary="There was an accident with {vehicle} and {other} in {city}.",
        ends=(
            (("{person.full}, one of the drivers, broke {part}.", "One driver, {person.full}, was found with {part} broken."),
             "{person.last} broke {part}."),
            (("The road was blocked for {few} hours.", "It took {few} hours until the road was free again."),
             "The road was closed for {few} hours."),
        ),
        details=(
            "The street was wet and the lights did not work.", "{person_3.full}, aged {age}, saw it from a window.",
            "The damage is about {thousands} euros.", "{few_2} passengers came away with a fright.",
            "It is the worst corner of the town, with {some} accidents a year.",
        ),
    ),
    Story(
        leads=(
            "{company} said on {day} that its factory in {city} will close next {season}.",
            "The factory of {company} in {city} will be closed next {season}, the firm said on {day}.",
        ),
        summary="{company} gives up its factory in {city}.",
        ends=(
            (("{hundreds} workers will lose their jobs.", "That is the end of {hundreds} jobs."),
             "{hundreds} people lose their work."),
            (("All workers have been offered jobs in {city_2}.", "The workers may go to the firm's plant in {city_2}."),
             "The workers can go to {city_2}."),
        ),
        details=(
            "The firm lost {millions} million euros last year.", "The factory is {some} years old.",
            "{person_3.full} of the union called it a black day.",
            "{person_4.full}, who leads the firm, did not want to speak.",
            "{hundreds_2} people marched through the town.",
        ),
    ),
    Story(
        leads=(
            "{animal} escaped from the zoo of {city} on {day} {hour}.",
            "On {day} {hour}, {animal} got out of its cage in the zoo of {city}.",
        ),
        summary="{animal} has run away from the zoo of {city}.",
        ends=(
            (("A {job} found it {hiding} after {few} hours.", "{few} hours later a {job} saw it {hiding}."),
             "It was found {hiding}."),
            (("It has not been seen since.", "Nobody has seen it so far."), "It is still missing."),
        ),
        details=(
            "Keeper {person_3.full} had left a door open.", "{some} policemen looked for it.",
            "It is {few_2} years old and eats {some_2} pounds a day.", "Parents were told to keep their children at home.",
            "{person_4.full} heard noises in the kitchen and called the police.",
        ),
    ),
    Story(
        leads=(
            "{person.full}, a {job} of {age} years, found {treasure} near {city} on {day} while {doing}.",
            "While {doing} near {city} on {day}, {person.full}, a {job} aged {age}, came upon {treasure}.",
        ),
        summary="{person.full} has discovered {treasure} near {city}.",
        ends=(
            (("Experts think that it is worth {thousands} euros.", "It may bring {thousands} euros, experts say."),
             "It is worth {thousands} euros."),
            (("The museum of {city_2} will show it to the public.", "Visitors can see it in the museum of {city_2}."),
             "It will be shown in {city_2}."),
        ),
        details=(
            "It lay only {few} feet under the ground.",
            "{person_3.full} of the university wants to dig there for {few_2} weeks.",
            "The family of {person.last} thought of a joke at first.", "It is about {hundreds} years old.",
        ),
    ),
)  # fmt: skip
_DETAILS = (
    "The day was {weather} in {city}.", "{city} has about {thousands_3} inhabitants.", "The town is known for its {food}.",
    '"I have never seen anything like it," said {person_5.full}.', "{person_5.full}, a neighbor, heard of it on the radio.",
    '"Everybody is talking about it," said {person_6.full}, who runs a cafe.', "The mayor thanked {some_3} helpers.",
    "Reporters from {city_3} arrived {few_3} hours later.", "{person_6.full} has lived there for {some_4} years.",
    "There will be a meeting about it on {day_2}.", "Traffic stood still for {few_4} hours.",
    "The radio had no other subject for {few_5} days.",
)  # fmt: skip


class Facts(dict):
    """The facts of one story, drawn where first asked for; persons differ in their surnames."""

    def __init__(self, chance: Random):
        self.chance = chance

    def pick(self, values: Sequence[Any]) -> Any:
        return values[int(self.chance.random() * len(values))]

    def draw(self, slot: str) -> Any:
        if slot == "person":
            is_woman = self.chance.random() < 0.5
            last = self.pick(_SURNAMES)
            full = f"{self.pick(_WOMEN if is_woman else _MEN)} {last}"
            return Person(full, last, *(("she", "her") if is_woman else ("he", "his")))
        return self.pick(range(*_range(slot)) if slot in _NUMBERS else _SLOTS[slot])

    def __missing__(self, name: str) -> Any:
        slot = name.partition("_")[0]
        taken = {getattr(value, "last", value) for key, value in self.items() if key.partition("_")[0] == slot}
        value = self.draw(slot)
        while getattr(value, "last", value) in taken:
            value = self.draw(slot)
        self[name] = value
        return value

    def sentence(self, template: str) -> str:
        text = template.format_map(self)
        return text[0].upper() + text[1:]


def _range(slot: str) -> tuple[int, int, int]:
    least, most, step = _NUMBERS[slot]
    return least, most + 1, step


def _story(chance: Random) -> tuple[str, str]:
    facts = Facts(chance)
    story = facts.pick(_STORIES)
    lead = facts.sentence(facts.pick(story.leads))
    wordings, short_end = facts.pick(story.ends)
    end = facts.sentence(facts.pick(wordings))
    summary = f"{facts.sentence(story.summary)} {facts.sentence(short_end)}"
    rest, left = [], [*story.details, *_DETAILS]
    for _ in range(facts.pick(range(MIN_SENTENCES, MAX_SENTENCES + 1)) - 2):
        rest.append(facts.sentence(left.pop(int(chance.random() * len(left)))))
    # the end is the second, third or fourth sentence
    place = facts.pick(range(3))
    return " ".join([lead, *rest[:place], end, *rest[place:]]), summary


def _generate(seed: int | str, seen: set[str]) -> Iterator[tuple[str, str]]:
    chance = Random(seed)
    while True:
        document, summary = _story(chance)
        if document not in seen:
            seen.add(document)
            yield document, summary


def generate_documents(count: int | None = None, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yields `count` pairs of document and summary, or pairs without end when `count` is None; no document comes twice.

    Raises:
        ValueError: for a negative `count` or `seed`.

    >>> document, summary = next(generate_documents(1, seed=7))
    >>> len(document) > len(summary)
    True
    """
    _check_numbers(count=count or 0, seed=seed)
    return islice(_generate(seed, set()), count)


def _check_numbers(**numbers: int) -> None:
    # random.Random drops the sign of a seed, so -1 would silently repeat 1
    for name, number in numbers.items():
        if number < 0:
            raise ValueError(f"{name} must be 0 or more, got {number}")


def _splits(train: int, validation: int, test: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """The splits, each from its own stream, so that `train` can change without touching the held-out documents."""
    sizes = {"test": test, "validation": validation, "train": train}
    _check_numbers(seed=seed, **sizes)
    seen: set[str] = set()
    splits = {name: list(islice(_generate(f"{seed}/{name}", seen), size)) for name, size in sizes.items()}
    return {name: splits[name] for name in ("train", "validation", "test")}


def toy_summaries(train: int = 6000, validation: int = 300, test: int = 300, seed: int = 0) -> DatasetDict:
    """The set as a `DatasetDict` with a column `translation` of {"document", "summary"}; no document occurs twice.

    The test split depends on `seed` and `test` alone, the validation split also on nothing about `train`.
    """
    from datasets import Dataset, DatasetDict, Features, Value

    # A plain struct keeps the order of the sides that Dataset.from_list would sort.
    features = Features({"translation": {DOCUMENT: Value("string"), SUMMARY: Value("string")}})
    return DatasetDict(
        {
            name: Dataset.from_dict(
                {"translation": [dict(zip((DOCUMENT, SUMMARY), pair, strict=True)) for pair in pairs]},
                features=features,
            )
            for name, pairs in _splits(train, validation, test, seed).items()
        }
    )


def write_toy_summaries(
    folder: str | Path, train: int = 6000, validation: int = 300, test: int = 300, seed: int = 0
) -> dict[str, int]:
    """Writes line-aligned UTF-8 files train.document, train.summary, ... into `folder`; returns the sizes by split."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder to write the documents to")
    splits = _splits(train, validation, test, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        for column, ending in enumerate((DOCUMENT, SUMMARY)):
            lines = "".join(f"{pair[column]}\n" for pair in pairs)
            (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8", newline="\n")
    return {name: len(pairs) for name, pairs in splits.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: python -m hf_deepnmt.toy_summaries FOLDER --train 6000 --seed 0."""
    parser = argparse.ArgumentParser(
        prog="python -m hf_deepnmt.toy_summaries", description="Write generated documents with summaries."
    )
    parser.add_argument("folder", type=Path, help="folder for train.document, train.summary, validation.document, ...")
    for name, size in (("train", 6000), ("validation", 300), ("test", 300)):
        parser.add_argument(f"--{name}", type=int, default=size, help=f"number of {name} documents ({size})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generator (0)")
    options = vars(parser.parse_args(arguments))
    try:
        sizes = write_toy_summaries(**options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{options['folder']}: " + ", ".join(f"{size} {name} documents" for name, size in sizes.items()))


__all__ = ["generate_documents", "main", "toy_summaries", "write_toy_summaries"]


if __name__ == "__main__":
    main()
