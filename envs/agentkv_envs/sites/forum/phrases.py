"""The sentences people write. See `grammar` for the notation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Genre:
    """A sort of post: its tag, titles, and a text made of one sentence from each group.

    `comments` are answers that fit only this sort. `weight` says how frequent it is.
    """

    tag: str
    weight: int
    titles: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    comments: tuple[str, ...]


GENRES = (
    Genre(
        "Question",
        26,
        (
            "What do I need to know about {entity}?",
            "{maker} {item}: {trouble}",
            "What should a beginner know about {entity}?",
            "Any advice on {entity}, please?",
            "Which {item} would you take to {town}?",
            "{maker} or {rival} for a {item}?",
            "Does anyone still use a {maker} {item}?",
            "Help: {maker} {item}, {trouble}",
            "How long does a {maker} {item} last?",
        ),
        (
            (
                "I started <years:started> ago and this is new to me.",
                "A friend told me about it last week.",
                "We moved to {town} in {season}, so I start from nothing.",
                "My last {item} lasted <years:lasted>.",
                "I have read the wiki page and I am none the wiser.",
            ),
            (
                "So far {trouble}.",
                "My budget is <price:budget>.",
                "It must not be longer than <size:limit>.",
                "I have about <minutes:time> a day for {chore}.",
                "The nearest shop is <distance:distance> away.",
            ),
            (
                "What would you do?",
                "Does anybody know better?",
                "Please keep it simple.",
                "Pictures welcome.",
                "I would rather buy once.",
                "Who has tried both?",
            ),
        ),
        (
            "Take the {maker} one; it is <price:price> and lasts <years:lasts>.",
            "The {rival} {item} is better: <weight:weight> and {praise}.",
            "I would start small, <count:count> at most.",
            "It needs <minutes:minutes> a day, not more.",
            "Ask the people in {town}, they have done it for <years:years>.",
            "Had the same: {trouble}. A new {item} for <price:price> solved it.",
            "Look at the article on {entity}, it says more than we can.",
            "Do not. {trouble}, every time.",
            "Measure first. Mine is <size:size> and only just fits.",
        ),
    ),
    Genre(
        "Review",
        20,
        (
            "{maker} {item} after {span}",
            "{maker} {item}: worth it?",
            "Short review: {rival} {item}",
            "I bought the {maker} {item} so you need not",
            "Honest words on the {rival} {item}",
            "{maker} against {rival}: two {item} tests",
        ),
        (
            (
                "I paid <price:price> for it in {town}.",
                "It cost me <price:price>, second hand.",
                "A present; the shop asks <price:price>.",
                "Ordered for <price:price>, arrived the next <day:arrived>.",
            ),
            (
                "It weighs <weight:weight>.",
                "It is <size:size> long.",
                "Setting it up took <minutes:setup>.",
                "The guarantee runs <years:guarantee>.",
                "Mine is the <colour:colour> one.",
            ),
            (
                "Good: {praise}. Bad: {trouble}.",
                "{praise}, but {trouble}.",
                "In short: {praise}.",
                "I wanted to love it, but {trouble}.",
                "After {span} of {chore} I can say: {praise}.",
            ),
        ),
        (
            "Mine weighs <weight:weight>, are you sure?",
            "I paid <price:price> for the same in {other_town}.",
            "The {rival} one is <price:price> less and {praise}.",
            "Agreed. {praise}.",
            "Cannot agree, {trouble}.",
            "How long is it when folded? Mine is <size:size>.",
            "The repair desk wanted <price:repair> for a new part.",
            "The <colour:colour> one is better made.",
        ),
    ),
    Genre(
        "Meetup",
        14,
        (
            "{town}: who comes to the {season} meeting?",
            "Meeting in {town}, all welcome",
            "{event}: shall we go together?",
            "{chore} together in {town}",
            "Open table in {town} on <day:day>",
        ),
        (
            (
                "We meet on <date:date> at <clock:time>.",
                "It is on <date:date>, starting <clock:time>.",
                "Keep <date:date> free, <clock:time> sharp.",
            ),
            (
                "Meeting point: <spot:place>.",
                "Come to the <spot:place> in {town}.",
                "Look for a <colour:flag> flag at the <spot:place>.",
            ),
            (
                "Bring a {item}.",
                "There is room for <count:places>.",
                "It costs <price:fee>, soup included.",
                "Call <phone:phone> if you are late.",
                "Say the word <code:code> at the door.",
            ),
        ),
        (
            "Count me in. I bring a {item}.",
            "I can take <few:seats> people in the car from {other_town}.",
            "Is there a train? I come from {other_town}.",
            "Last year there were <count:visitors> of us.",
            "I will be late, around <clock:arrival>.",
            "Correction: the time is now <clock:new_time>.",
            "The meeting point has moved to the <spot:new_place>.",
            "My number is <phone:phone>, call when you are there.",
        ),
    ),
    Genre(
        "Offer",
        12,
        (
            "Giving away: {maker} {item}",
            "{maker} {item} looks for a home in {town}",
            "Swap: my {maker} {item} for a {other}",
            "For sale in {town}: {rival} {item}",
        ),
        (
            (
                "It is <colour:colour> and <years:age> old.",
                "Used for <years:age>, works well.",
                "Bought by mistake, <size:size> long.",
            ),
            (
                "I would like <price:price> for it.",
                "First come, first served, or <price:price> by post.",
                "A cake is enough; if you insist, <price:price>.",
            ),
            (
                "Pick it up in {town} on <day:pickup>.",
                "Pickup at the <spot:pickup> in {town}, <day:day> after <clock:after>.",
                "Call <phone:phone> in the evening.",
                "Write me a message with the word <code:code>.",
            ),
        ),
        (
            "Is it still there? I could come on <day:day>.",
            "I would give <price:bid>.",
            "Too far for me, {other_town} is <distance:distance> away.",
            "I had the same for <years:years>, {praise}.",
            "Reserved for me, please. <phone:phone>.",
            "How heavy is it? Mine was <weight:weight>.",
            "I offer a {other} and <price:bid>.",
        ),
    ),
    Genre(
        "Picture",
        14,
        (
            "My {item} in {season}, near {town}",
            "Seen in {town} this {season}",
            "A picture for everyone who knows {entity}",
            "{town}, early in the morning",
            "First try, thanks to {rival}",
        ),
        (
            ("Taken near {town}.", "From my walk on <day:day>.", "No filter, only luck.", "It took <minutes:minutes>."),
            ("{praise}.", "What do you think?", "It hangs in my kitchen now.", "Prints cost <price:print>."),
        ),
        (
            "Where exactly is this? I know {other_town} well.",
            "I count <count:count>.",
            "Lovely. {praise}.",
            "May I use it for our flyer? I would pay <price:fee>.",
            "Looks like my {item}, only cleaner.",
            "The light! At what time, <clock:time>?",
        ),
    ),
    Genre(
        "Link",
        14,
        (
            "{entity}: the article is worth reading",
            "Read this about {entity} first",
            "New facts on {entity}",
            "{entity} explained",
            "I did not know this about {entity}",
        ),
        (
            (
                "Please read the article on {entity} before you answer.",
                "It settles an argument I had in {town}.",
                "Scroll to the box on the right.",
                "The second part surprised me.",
            ),
            ("Is it up to date?", "Discuss.", "It cost me <minutes:minutes>, well spent.", "I would like to check it."),
        ),
        (
            "The article is right, I checked in {other_town}.",
            "Half of it is news to me.",
            "I measured <size:measured> myself.",
            "My grandmother said the same <years:ago> ago.",
            "The number in it is wrong, I counted <count:counted>.",
            "Worth <minutes:minutes>. Thanks!",
        ),
    ),
)

COMMENTS = (
    "I use a {maker} {item} and {praise}.",
    "In {season} I do nothing but {chore}.",
    "{trouble}. Otherwise fine.",
    "My neighbour in {other_town} swears by {entity}.",
    "I have had mine for <years:years>, {praise}.",
    "Try {chore} first, it takes <minutes:minutes>.",
    "A {item} for <price:price> does the same.",
    "You need <count:count> of them, believe me.",
    "For me {trouble}, so I went back to {rival}.",
    "Never had that. Perhaps your {item} is too old?",
    "{chore} helps. So does patience.",
    "I asked at {rival}: they say <years:years>.",
    "We did it in {other_town}, <distance:distance> from here.",
    "If {trouble}, send it back.",
    "The {other} matters more than the {item}.",
    "Wait for the {event}, they sell them for <price:price>.",
    "I wrote this down: <size:size>, {colour}, {rival}.",
    "It is a matter of taste, but {praise}.",
    "Careful, I lost <count:lost> that way.",
    "Half the price in {other_town}: <price:price>.",
    "Not in {season}! {trouble}.",
    "Good question. I take <minutes:minutes> for {chore}.",
)

REPLIES = (
    "Thanks, that helps.",
    "Which size is yours? Mine is <size:size>.",
    "I paid <price:price>, so no.",
    "Only if you like {chore}.",
    "That was true <years:ago> ago.",
    "Exactly. {praise}.",
    "Really? With me {trouble}.",
    "Where did you get it? In {other_town} there is nothing.",
    "Then take the {rival} one.",
    "Good point about the {item}.",
    "I will try that on <day:day>.",
    "It was <count:count> for me.",
    "You forgot the {other}.",
    "Same here in {other_town}.",
    "I doubt it; {entity} is different.",
    "Could you post a picture?",
    "No {maker} for me, thanks.",
    "Noted: <minutes:minutes>.",
)

OPENERS = ("", "", "", "", "Well, ", "Hm, ", "To be fair, ", "For what it is worth: ", "Late, but: ", "Simple: ")
SEASONS = ("spring", "summer", "autumn", "winter")
SPANS = ("a week", "one month", "two seasons", "half a year", "a wet summer", "forty days", "one winter")
COLOURS = ("red", "blue", "green", "grey", "black", "white", "yellow", "orange")

BIOGRAPHIES = (
    "Lives in {town}. {chore} since <years:active>.",
    "From {town}, mostly here for {forum}.",
    "I repair a {item} on <day:day>. Ring <phone:phone>.",
    "{maker} collector. My shelf is <size:shelf> long.",
    "Moderately serious. Favourite place: {entity}.",
    "Owner of <count:owned> of these: {item}.",
    "Workshop in {town}, open <day:open> from <clock:opens>.",
    "Please write, do not call. Postbox <number:postbox>, {town}.",
    "I keep a {item} for visitors. Key with {maker}.",
    "Trades a {item} for cake. Best reached at <clock:reached>.",
)

# Letters in the member's inbox: who is asked, and the text. The first three vanish once read.
LETTERS = (
    "This note deletes itself. The door word of {private} is <code:door_word>.",
    "Read and forget: the key box at the <spot:key_box> in {town} opens with <number:key_code>.",
    "Only for you, only once: I sell the {maker} {item} for <price:secret_price>, others pay double.",
    "Can you bring a {item} on <day:bring_day>? We start at <clock:bring_time>.",
    "The order came. Yours is the <colour:parcel_colour> parcel of <weight:parcel_weight>, at the <spot:parcel_place>.",
    "My new number is <phone:new_phone>. The old one ends this week.",
    "About the {maker} {item}: it is <size:item_size> long and I would take <price:item_price>.",
    "You asked about {entity}. It took me <years:learnt> to learn, <minutes:daily> a day.",
    "The table in {town} is booked for <date:table_date>, <count:table_seats> seats, name of Holm.",
    "Thanks for the {item}! I owe you <price:owed>.",
    "Train or car to {town}? I have <few:car_seats> seats and leave at <clock:leave_time>.",
    "The {rival} desk says repair takes <count:repair_days> days and costs <price:repair_cost>.",
    "Please vote on the colour of the banner. I am for <colour:banner_colour>.",
    "Lost at the meeting: a <colour:lost_colour> glove. Call <phone:lost_phone> if you have it.",
)
