"""What articles about plants, birds, dishes, materials, makers, norms and people tell."""

from __future__ import annotations

from agentkv_envs.sites.wiki.kinds import MONTHS, Attribute, Kind, date, number, of, phone, pick, to

THINGS: dict[str, Kind] = {
    "plant": Kind(
        "Plants",
        "plant",
        (
            of("Light", pick("full sun, half shade, deep shade, bright window")),
            of("Water every", number(2, 16, 1, "{} days")),
            of("Hardy to", number(2, 24, 1, "-{} °C")),
            of("Flowers in", pick(MONTHS)),
            of("Height", number(12, 180, 2, "{} cm")),
            to("Grows well with", "plant"),
            of("Cats", pick("safe, poisonous, mildly poisonous"), False),
            of("Sow", number(1, 6, 1, "{} cm deep"), False),
        ),
        (
            "{title} is a garden plant that likes {Light}.",
            "Gardeners grow {title} for its flowers in {Flowers in}.",
            "{title} is an old cottage plant, easy to keep in {Light}.",
        ),
        (
            (
                "Care",
                (
                    "Sow it {Sow} and water every {Water every}. It grows well with {Grows well with}.",
                    "Seeds go {Sow}. Beside {Grows well with} it grows best.",
                ),
            ),
            ("Pets", ("For cats the leaves are {Cats}.", "Cat owners should know: {Cats}.")),
        ),
    ),
    "material": Kind(
        "Materials",
        "material",
        (
            of("Made from", pick("sheep's wool, reed and resin, beech chips, sea clay, recycled bottles, oak bark")),
            of("Wash at", number(20, 60, 10, "{} °C")),
            of("Withstands", number(70, 340, 10, "{} °C")),
            of("Weight", number(120, 890, 10, "{} g/m²")),
            of("Waterproof", pick("yes, no, when oiled")),
            to("Invented by", "person"),
            of("Clean with", pick("soap and water, vinegar, a dry brush, warm milk, chalk powder"), False),
        ),
        ("{title} is a material made from {Made from}.", "Makers value {title}, which is made from {Made from}."),
        (
            (
                "Care",
                (
                    "Wash it at {Wash at} at most. Stains come off with {Clean with}.",
                    "Clean it with {Clean with}; above {Wash at} it shrinks.",
                ),
            ),
            ("History", ("{Invented by} made the first sheet.", "It was invented by {Invented by}.")),
        ),
    ),
    "norm": Kind(
        "Product norms",
        "product norm",
        (
            Attribute("Covers"),
            of("In force since", number(2009, 2025, 1, "{}")),
            of("Warranty at least", number(2, 6, 1, "{} years")),
            of("Weight at most", number(400, 4800, 100, "{} g")),
            of("Mark", pick("blue triangle, green circle, red square, black star, orange ring")),
            of("Test lasts", number(12, 96, 4, "{} hours"), False),
            of("Checked by", pick("two inspectors, an outside laboratory, the maker, a trade guild"), False),
            of("Fee", number(90, 880, 10, "${}"), False),
            of("Valid for", number(2, 9, 1, "{} years"), False),
            to("Issued in", "town"),
        ),
        ("{title} is a product norm for {Covers}.", "{Covers} must meet {title} before they carry its {Mark}."),
        (
            (
                "Test",
                (
                    "A test lasts {Test lasts} and is done by {Checked by}.",
                    "Samples are tested for {Test lasts}. The result is checked by {Checked by}.",
                ),
            ),
            (
                "Applying",
                (
                    "The fee is {Fee}, and the mark is valid for {Valid for}. The office is in {Issued in}.",
                    "Makers apply in {Issued in}. They pay {Fee} for {Valid for}.",
                ),
            ),
        ),
    ),
    "maker": Kind(
        "Makers",
        "maker",
        (
            to("Seat", "town"),
            of("Founded", number(1861, 2016, 1, "{}")),
            of("Staff", number(6, 420, 1, "{}")),
            of("Known for", pick("lamps, tents, kettles, knives, bicycles, chairs, flutes, boots, looms, clocks")),
            to("Works with", "material"),
            of("Repair desk", phone, False),
            of("Guarantee", number(2, 12, 1, "{} years"), False),
        ),
        (
            "{title} is a maker of {Known for} in {Seat}.",
            "In {Seat}, {title} has made {Known for} since {Founded}.",
        ),
        (
            (
                "Products",
                (
                    "Most pieces are of {Works with} and carry a guarantee of {Guarantee}.",
                    "It works with {Works with}. The guarantee lasts {Guarantee}.",
                ),
            ),
            ("Service", ("The repair desk is on {Repair desk}.", "For repairs call {Repair desk}.")),
        ),
    ),
    "person": Kind(
        "People",
        "person",
        (
            of("Born", number(1841, 1889, 1, "{}")),
            to("Birthplace", "town"),
            of("Profession", pick("botanist, architect, clockmaker, painter, engineer, baker, sailor, teacher")),
            of("Prize", pick("Bell Medal, Golden Spade, Harbour Prize, Order of the Oak")),
            of("Children", number(0, 7, 1, "{}"), False),
            of("Instrument", pick("cello, flute, accordion, drum, harp, trumpet"), False),
            of(
                "Best-known work",
                pick("The Blue Bridge, Seven Gardens, The Salt Clock, A Winter Map, The Long Loaf"),
                False,
            ),
            of("Finished in", number(1907, 1938, 1, "{}"), False),
        ),
        ("{title} was a {Profession} from {Birthplace}.", "Born in {Birthplace}, {title} worked as a {Profession}."),
        (
            (
                "Life",
                (
                    "Born in {Born}, later holder of the {Prize}. Played the {Instrument}.",
                    "The {Prize} came late. At home one heard the {Instrument}.",
                ),
            ),
            (
                "Work",
                (
                    "The best-known work is {Best-known work}, finished in {Finished in}.",
                    "{Best-known work} was finished in {Finished in}.",
                ),
            ),
        ),
    ),
    "bird": Kind(
        "Birds",
        "bird",
        (
            of("Length", number(9, 58, 1, "{} cm")),
            of("Eggs", number(1, 9, 1, "{}")),
            of("Eats", pick("seeds, beetles, small fish, berries, snails, moths")),
            of("Seen from", pick(MONTHS)),
            to("Nests near", "lake"),
            of("Call", pick("a short whistle, two clicks, a rolling trill, a low hoot, three high notes"), False),
            of("Ring colour", pick("red, blue, white, yellow, green"), False),
            of("Pairs counted", number(14, 930, 1, "{}"), False),
            of("Protected until", date, False),
        ),
        (
            "The {title} is a bird that nests near {Nests near}.",
            "Look for the {title} at {Nests near}, from {Seen from} on.",
        ),
        (
            (
                "In the field",
                (
                    "It eats {Eats}; its call is {Call}. Ringed birds wear {Ring colour}.",
                    "Listen for {Call}. Bird ringers use {Ring colour} rings.",
                ),
            ),
            (
                "Protection",
                (
                    "Nests are fenced until {Protected until}. Last year {Pairs counted} pairs were counted.",
                    "{Pairs counted} pairs were counted; keep away until {Protected until}.",
                ),
            ),
        ),
    ),
    "dish": Kind(
        "Dishes",
        "dish",
        (
            to("Town", "town"),
            of("Oven", number(150, 240, 5, "{} °C")),
            of("Time", number(15, 130, 5, "{} minutes")),
            of("Serves", number(2, 9, 1, "{}")),
            of("Main ingredient", pick("leeks, buckwheat, smoked trout, barley, pears, white beans, goat cheese, rye")),
            of("Spice", pick("caraway, nutmeg, juniper, mustard seed, saffron, fennel")),
            of("Served with", pick("plum jam, sour cream, pickled beets, brown butter, apple sauce, cress"), False),
            of("Rest", number(10, 90, 5, "{} minutes"), False),
        ),
        ("{title} is a dish from {Town}.", "In {Town} nobody agrees about {title}, except on the {Spice}."),
        (
            (
                "Preparation",
                (
                    "Bake at {Oven} for {Time}. Let it rest for {Rest}.",
                    "After {Rest} of rest it goes into the oven at {Oven}.",
                ),
            ),
            ("At table", ("It is served with {Served with}.", "Nobody eats it without {Served with}.")),
        ),
    ),
}
