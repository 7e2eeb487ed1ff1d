"""What articles about places and events tell."""

from __future__ import annotations

from agentkv_envs.sites.wiki.kinds import DAYS, Kind, date, hours, number, of, phone, pick, to

PLACES: dict[str, Kind] = {
    "region": Kind(
        "Regions",
        "region",
        (
            of("Area", number(620, 4900, 10, "{:,} km²")),
            of("Population", number(41000, 690000, 500)),
            to("Capital", "town"),
            of("Flag", pick("green and white, blue and gold, red and white, black and yellow")),
            to("Flower", "plant"),
            of("Dialling code", number(20, 79, 1, "0{}"), False),
        ),
        (
            "{title} is a region with {Capital} as its capital.",
            "The region {title} is governed from {Capital}.",
            "Seen from {Capital}, its capital, {title} looks larger than it is.",
        ),
        (
            (
                "Symbols",
                ("The flag is {Flag}, and the regional flower is {Flower}.", "People plant {Flower} on flag day."),
            ),
            ("Everyday life", ("Phone numbers begin with {Dialling code}.", "The dialling code is {Dialling code}.")),
        ),
    ),
    "town": Kind(
        "Towns",
        "town",
        (
            to("Region", "region"),
            to("River", "river"),
            of("Population", number(1800, 42000, 50)),
            of("Founded", number(1080, 1790, 1, "{}")),
            of("Market day", pick(DAYS)),
            of("Postcode", number(10210, 89990, 10, "{}")),
            of("Town hall", phone, False),
            of("Tower", number(24, 92, 1, "{} m"), False),
        ),
        (
            "{title} is a town on the {River} in {Region}.",
            "A market town in {Region}, {title} lies where the {River} bends.",
            "{title} in {Region} grew around a ford of the {River}.",
        ),
        (
            (
                "History",
                (
                    "The town was founded in {Founded}. Its watch tower, {Tower} high, survived two fires.",
                    "A charter of {Founded} names the place first. The old tower is {Tower} high.",
                ),
            ),
            (
                "Visiting",
                (
                    "Stalls fill the square every {Market day}. The town hall answers on {Town hall}.",
                    "Come on a {Market day}, when the market is held. Call {Town hall} for a guide.",
                ),
            ),
        ),
    ),
    "river": Kind(
        "Rivers and lakes",
        "river",
        (
            of("Length", number(38, 410, 1, "{} km")),
            to("Source", "mountain"),
            to("Mouth", "lake"),
            of("Navigable for", number(9, 36, 1, "{} km")),
            of("Best paddling month", pick("April, May, June, July, August, September")),
            of("Locks", number(2, 19, 1, "{}"), False),
        ),
        (
            "The {title} rises on {Source} and ends in {Mouth}.",
            "From {Source} the {title} runs down to {Mouth}.",
        ),
        (
            (
                "Boats",
                (
                    "Boats pass {Locks} locks. Paddlers like it best in {Best paddling month}.",
                    "There are {Locks} locks, all worked by hand, and {Best paddling month} is the month to paddle.",
                ),
            ),
        ),
    ),
    "lake": Kind(
        "Rivers and lakes",
        "lake",
        (
            to("Region", "region"),
            of("Area", number(3, 88, 1, "{} km²")),
            of("Greatest depth", number(12, 164, 1, "{} m")),
            of("Ferry", pick("7:40, 8:15, 9:20, 10:05, 11:30")),
            of("Water in July", number(15, 24, 1, "{} °C")),
            of("Fishing permit", number(6, 19, 1, "${}"), False),
        ),
        ("{title} is a lake in {Region}.", "{title}, in {Region}, is known for its clear water."),
        (
            (
                "On the water",
                (
                    "The first ferry leaves at {Ferry}. A day's fishing permit costs {Fishing permit}.",
                    "Anglers pay {Fishing permit} a day. The ferry's first crossing is at {Ferry}.",
                ),
            ),
        ),
    ),
    "mountain": Kind(
        "Mountains",
        "mountain",
        (
            of("Height", number(640, 2870, 1, "{:,} m")),
            to("Region", "region"),
            of("First climbed", number(1790, 1931, 1, "{}")),
            to("First climber", "person"),
            of("Beds in the hut", number(12, 64, 2, "{}")),
            of("Hut phone", phone, False),
            of("Climb takes", pick("3 hours, 4 hours, 5 hours, 6 hours, 7 hours"), False),
        ),
        (
            "{title} is a mountain in {Region}.",
            "The walkers of {Region} have two favourites; {title} is the steeper one.",
        ),
        (
            (
                "Climbing",
                (
                    "{First climber} stood on the top first, in {First climbed}. It takes {Climb takes}.",
                    "The first ascent was made in {First climbed} by {First climber}. Allow {Climb takes}.",
                ),
            ),
            (
                "Hut",
                (
                    "The hut has {Beds in the hut} beds; call {Hut phone}.",
                    "Book one of {Beds in the hut} beds on {Hut phone}.",
                ),
            ),
        ),
    ),
    "trail": Kind(
        "Trails",
        "walking trail",
        (
            of("Length", number(14, 131, 1, "{} km")),
            to("Start", "town"),
            to("End", "town"),
            of("Waymark", pick("white bell, red fish, blue wheel, yellow leaf, green key, black crow")),
            of("Stages", number(2, 9, 1, "{}")),
            of("Closed in", pick("November, December, January, February"), False),
            of("Dogs", pick("allowed, on a lead, not allowed"), False),
        ),
        (
            "The {title} is a walking trail from {Start} to {End}.",
            "Walkers follow the {title} from {Start} to {End}.",
        ),
        (
            (
                "Walking it",
                (
                    "Follow the {Waymark}. The trail is closed in {Closed in}. Dogs: {Dogs}.",
                    "Its waymark is a {Waymark}. In {Closed in} the gates are shut. Dogs are {Dogs}.",
                ),
            ),
        ),
    ),
    "museum": Kind(
        "Museums",
        "museum",
        (
            to("Town", "town"),
            of("Open", hours),
            of("Closed on", pick(DAYS)),
            of("Admission", number(3, 18, 1, "${}")),
            of("Opened", number(1872, 2014, 1, "{}")),
            of("Phone", phone, False),
            of("Free on", pick("the first Sunday, the last Friday, public holidays, rainy Mondays"), False),
            to("Founder", "person"),
        ),
        ("The {title} is a museum in {Town}.", "{title}, in {Town}, was the idea of {Founder}."),
        (
            (
                "Visit",
                (
                    "Admission is {Admission}, free on {Free on}. Groups book on {Phone}.",
                    "Groups call {Phone}. Entry is free on {Free on}.",
                ),
            ),
        ),
    ),
    "event": Kind(
        "Events",
        "event",
        (
            to("Town", "town"),
            of("Date in 2026", date),
            of("Starts at", pick("8:30, 9:00, 10:30, 14:00, 17:30, 19:00")),
            of("Ticket", number(4, 32, 1, "${}")),
            of("First held", number(1888, 2019, 1, "{}")),
            of("Meeting point", pick("old bridge, station, town hall, harbour wall, school yard, mill"), False),
            of("Ticket office", phone, False),
        ),
        ("The {title} takes place in {Town} every year.", "Every year {Town} holds the {title}."),
        (
            (
                "Taking part",
                (
                    "Meet at the {Meeting point} at {Starts at}. Tickets: {Ticket office}.",
                    "It begins at {Starts at} at the {Meeting point}; the ticket office is on {Ticket office}.",
                ),
            ),
        ),
    ),
}
