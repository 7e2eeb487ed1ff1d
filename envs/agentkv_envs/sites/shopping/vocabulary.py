"""The words a shop's data are drawn from. Names of brands and people differ between the splits, common words do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """One split's names.

    Attributes:
        brands: the makers of the first and of the second part of the range.
        reviewers: nicknames below reviews, questions and answers.
        code_words: discount codes are one of these and two digits.
        firstnames, lastnames: of the customer and the customer's family.
        streets, towns: of addresses; a town with its postcode.
    """

    brands: tuple[tuple[str, ...], tuple[str, ...]]
    reviewers: tuple[str, ...]
    code_words: tuple[str, ...]
    firstnames: tuple[str, ...]
    lastnames: tuple[str, ...]
    streets: tuple[str, ...]
    towns: tuple[tuple[str, str], ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


VOCABULARIES = {
    "test": Vocabulary(
        brands=(
            _words("Alpine Harbor Maple Orbit Summit Cedar Nova Field"),
            _words("Tundra Quill Breeze Ember Lumen Ridge Saffron Willow"),
        ),
        reviewers=_words(
            "Ada Bruno Carla Dario Elif Femke Goran Hana Igor Jana Kofi Lena Milo Nadia Oskar Priya Quentin Rosa Sven"
            " Tilda Umberto Vera Wanda Xenia Yusuf Zora Amara Benno Celeste Dimitri Esme Fabio"
        ),
        code_words=_words("FERN OPAL RIVER SAGE TULIP MINT CORAL AMBER LUNAR PEARL BIRCH IVORY"),
        firstnames=_words("Emma Paul Greta Anton"),
        lastnames=_words("Fischer"),
        streets=("Lindenweg 8", "Hafenstrasse 41", "Am Markt 3"),
        towns=(("Berlin", "10435"), ("Hamburg", "20457"), ("Kassel", "34117")),
    ),
    "train": Vocabulary(
        brands=(
            _words("Anchor Basalt Clover Dune Falcon Glade Heron Juniper"),
            _words("Kestrel Lagoon Meadow Nimbus Onyx Prairie Quartz Raven"),
        ),
        reviewers=_words(
            "Aldo Bibi Conrad Dagny Ennio Flora Gideon Hilda Ivo Jorun Kasper Lotte Marek Nils Odile Pavel Runa Stellan"
            " Thora Ulrik Viola Wim Ylva Zeno Agda Bertil Cosima Dorian Edda Florin Gesine Hugo"
        ),
        code_words=_words("PLUM CHERRY DAHLIA FROST GROVE HAZEL INDIGO KARMA LOTUS MAGNET NECTAR OASIS"),
        firstnames=_words("Nora Felix Clara Jonas Marta Simon Irene Viktor Alma Rasmus Selma Teodor"),
        lastnames=_words("Keller Brandt Lorenz Winter Sommer Vogel Haas Ritter Engel Busch"),
        streets=("Birkenallee 12", "Seestrasse 5", "Kirchplatz 19", "Mohnweg 27", "Talgasse 2", "Bergring 33"),
        towns=(("Bremen", "28195"), ("Dresden", "01067"), ("Munich", "80331"), ("Cologne", "50667"), ("Ulm", "89073")),
    ),
}
