"""Names that differ between the splits: brands, places, people. Nothing stands in both columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The names of one split.

    Attributes:
        brands: first words of titles.
        places: districts of the town, with their distance in km.
        first, last: first and last names of people.
        owner: full name of the person who is signed in.
    """

    brands: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    first: tuple[str, ...]
    last: tuple[str, ...]
    owner: str


VOCABULARIES = {
    "test": Vocabulary(
        brands=(
            *("Falcon", "Harvest", "Lantern", "Meadow", "Pioneer", "Beacon", "Canyon", "Ranger", "Velvet", "Marble"),
            *("Comet", "Willow", "Anchor", "Badger", "Cobalt", "Dragon", "Ember", "Fable", "Granite", "Hazel"),
            *("Iron", "Jupiter", "Kestrel", "Liberty", "Mango", "Nimbus", "Onyx", "Prairie", "Quartz", "Rocket"),
            *("Saturn", "Tango", "Union", "Voyager", "Walnut", "Zephyr", "Arctic", "Bronze", "Cascade", "Dune"),
        ),
        places=(
            *(("Millbrook", 2), ("Ashford", 4), ("Kingsley", 5), ("Riverton", 7), ("Oakham", 9)),
            *(("Stonegate", 11), ("Westfield", 13), ("Larkhill", 16), ("Newport", 19), ("Thornbury", 23)),
        ),
        first=(
            *(
                "Alma",
                "Boris",
                "Celine",
                "Dmitri",
                "Elena",
                "Farid",
                "Greta",
                "Hugo",
                "Ines",
                "Jonas",
                "Karim",
                "Lucia",
            ),
            *("Marek", "Nadia", "Oscar", "Petra", "Quinn", "Rosa", "Stefan", "Tessa", "Umar", "Vera", "Walter", "Yara"),
        ),
        last=(
            *("Novak", "Berger", "Costa", "Dahl", "Evans", "Fuchs", "Garcia", "Horvat", "Ivanov", "Jensen", "Klein"),
            *("Lopez", "Moreau", "Nagy", "Olsen", "Pereira", "Quist", "Romano", "Silva", "Torres", "Urban", "Vogel"),
        ),
        owner="Nora Winter",
    ),
    "train": Vocabulary(
        brands=(
            *("Acorn", "Bison", "Cactus", "Delta", "Eclipse", "Fjord", "Glacier", "Heron", "Indigo", "Jasper"),
            *("Koala", "Lotus", "Magnet", "Nectar", "Otter", "Panther", "Quiver", "Raven", "Sierra", "Tapir"),
            *("Umber", "Violet", "Whistle", "Yonder", "Zenith", "Atlas", "Bramley", "Copper", "Drift", "Echo"),
            *("Flint", "Galaxy", "Harp", "Ivory", "Juniper", "Lagoon", "Mosaic", "Nordic", "Oasis", "Pebble"),
        ),
        places=(
            *(("Brookside", 3), ("Elmwood", 4), ("Foxton", 6), ("Greenvale", 8), ("Highgate", 10)),
            *(("Kirkby", 12), ("Longmead", 14), ("Marston", 17), ("Northam", 20), ("Southwell", 24)),
        ),
        first=(
            *(
                "Anton",
                "Bianca",
                "Carlos",
                "Daria",
                "Emil",
                "Fiona",
                "Georg",
                "Helga",
                "Ivan",
                "Julia",
                "Kevin",
                "Lydia",
            ),
            *(
                "Mario",
                "Nils",
                "Olga",
                "Pablo",
                "Rita",
                "Sergio",
                "Tamara",
                "Ulrich",
                "Victor",
                "Wanda",
                "Xenia",
                "Zora",
            ),
        ),
        last=(
            *(
                "Adler",
                "Blanc",
                "Conti",
                "Duarte",
                "Ekman",
                "Ferrari",
                "Gruber",
                "Hansen",
                "Ibsen",
                "Janssen",
                "Keller",
            ),
            *("Lund", "Meyer", "Nilsson", "Ortega", "Popov", "Ricci", "Santos", "Takacs", "Ullman", "Varga", "Weber"),
        ),
        owner="Maya Sommer",
    ),
}
