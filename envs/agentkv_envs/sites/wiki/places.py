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
            of("Common fish", pick("trout, perch, pike, eel, carp, grayling"), False),
            of("Fishing opens", date, False),
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
            (
                "Fish",
                (
                    "Anglers catch {Common fish}; fishing opens on {Fishing opens}.",
                    "From {Fishing opens} on one may fish, mostly for {Common fish}.",
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
            of("Camping", number(7, 29, 1, "${} a night"), False),
            to("Nearest town", "town"),
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
            (
                "Shore",
                (
                    "Camping on the shore costs {Camping}. The nearest town is {Nearest town}.",
                    "From {Nearest town} a path leads to the camp site, {Camping}.",
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
            of("First climbed", number(1907, 1938, 1, "{}")),
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
            of("Highest point", number(210, 1690, 1, "{:,} m"), False),
            of("Huts", number(2, 8, 1, "{}"), False),
            of("Hut supper", number(9, 27, 1, "${}"), False),
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
            (
                "On the way",
                (
                    "The highest point is at {Highest point}. There are {Huts} huts; supper costs {Hut supper}.",
                    "{Huts} huts serve supper for {Hut supper}. The trail climbs to {Highest point}.",
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
            of("Opened", number(1907, 1949, 1, "{}")),
            of("Phone", phone, False),
            of("Free on", pick("the first Sunday, the last Friday, public holidays, rainy Mondays"), False),
            to("Founder", "person"),
            of("Café closes", pick("15:00, 15:30, 16:00, 16:30, 17:15"), False),
            of("Oldest piece", number(1390, 1810, 1, "{}"), False),
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
            (
                "House",
                (
                    "The oldest piece is of {Oldest piece}. The café closes at {Café closes}.",
                    "Its café closes at {Café closes}; the oldest piece shown is from {Oldest piece}.",
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
            of("Children free below", number(5, 15, 1, "{}"), False),
            of("Rain date", date, False),
            of("Visitors", number(300, 9800, 100), False),
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
            (
                "Rules",
                (
                    "Children below {Children free below} need no ticket. The rain date is {Rain date}.",
                    "If it rains, it moves to {Rain date}. Some {Visitors} people come.",
                ),
            ),
        ),
    ),
}
