"""What the subforums are about. A theme has another name in each split; its common words are the same in both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """One subforum.

    `names` are its names by split. `kinds` are the kinds of encyclopedia topics its people talk about; `items`,
    `troubles`, `praise` and `chores` the words they use; `picture` what their photographs show.
    """

    names: tuple[str, str]
    title: str
    about: str
    kinds: tuple[str, ...]
    items: tuple[str, ...]
    troubles: tuple[str, ...]
    praise: tuple[str, ...]
    chores: tuple[str, ...]
    picture: tuple[str, ...]
    private: bool = False

    def name(self, split: str) -> str:
        return self.names[split == "train"]


def _theme(
    names: str,
    title: str,
    about: str,
    kinds: str,
    items: str,
    troubles: str,
    praise: str,
    chores: str,
    picture: str,
    private: bool = False,
) -> Theme:
    test, train = names.split("/")
    lists = [tuple(text.split(", ")) for text in (kinds, items, troubles, praise, chores, picture)]
    return Theme((test, train), title, about, lists[0], lists[1], lists[2], lists[3], lists[4], lists[5], private)


THEMES = (
    _theme(
        "allotment/greenthumbs",
        "Allotment and vegetable plot",
        "Growing food and flowers on small plots.",
        "plant, town, event",
        "spade, cold frame, watering can, seed tray, wheelbarrow, compost bin",
        "slugs ate half of it, the soil is heavy clay, nothing has come up yet, the leaves went yellow",
        "it came up in a week, the bees love it, it filled the whole bed, even the north side did well",
        "sowing, mulching, turning the compost, netting the beds, pruning",
        "plant, watering can, basket",
    ),
    _theme(
        "windowsill/pottedlife",
        "House plants",
        "Pots, cuttings and light for plants indoors.",
        "plant, material, person",
        "plant pot, grow lamp, mister, saucer, plant stand, moisture meter",
        "the tips are turning brown, it drops a leaf a day, there are gnats in the soil, it leans to the window",
        "it has a new leaf every week, it forgave a month without water, it finally flowered, the roots look perfect",
        "repotting, taking cuttings, misting, moving it out of the draught",
        "plant, vase, lamp",
    ),
    _theme(
        "potluck/suppertable",
        "Home cooking",
        "What we cooked, how, and what we would change.",
        "dish, town, material",
        "frying pan, stew pot, peeler, kitchen scale, chopping board, grater",
        "the middle stayed raw, it was far too salty, the crust burnt, the sauce split",
        "there were no leftovers, the crust was perfect, my neighbours asked for more, it tasted even better cold",
        "kneading, peeling, stirring, washing up",
        "bowl, cake, mug",
    ),
    _theme(
        "loafclub/crumbandcrust",
        "Bread and baking",
        "Dough, ovens and patience.",
        "dish, maker, event",
        "baking tin, dough scraper, rolling pin, proofing basket, oven thermometer, bread knife",
        "it did not rise, the base is soggy, the top cracked, it stuck to the tin",
        "the crumb is open and soft, it rose like a balloon, the crust sings, it kept for five days",
        "proofing, shaping, scoring, feeding the starter",
        "bread, cake, bowl",
    ),
    _theme(
        "ridgeline/hilltalk",
        "Hill walking",
        "Routes, huts and weather on the hills.",
        "mountain, trail, lake",
        "backpack, walking pole, head torch, map case, rain jacket, flask",
        "the path was under water, the hut was full, the waymarks were gone, my knees gave up",
        "the view was worth it, we had it to ourselves, the hut soup was great, the path is easy to find",
        "packing, reading the map, drying boots, planning the stages",
        "mountain, tent, boot",
    ),
    _theme(
        "campkit/tentlife",
        "Camping gear",
        "Tents, stoves and what to leave at home.",
        "maker, lake, norm",
        "two-person tent, gas stove, sleeping mat, lantern, folding chair, water filter",
        "the zip jammed, it leaks at the seam, a pole snapped, it is heavier than they say",
        "it packs down tiny, it stood through a storm, it is up in four minutes, it stayed dry inside",
        "pitching, sealing seams, airing the bag, cleaning the stove",
        "tent, lamp, boot",
    ),
    _theme(
        "spokes/pedalpost",
        "Cycling",
        "Bikes for every day and long tours.",
        "trail, maker, town",
        "saddle bag, bicycle helmet, rear light, floor pump, chain, mudguard",
        "the gears slip, it squeaks in the wet, the rim is bent, I had two flats in a day",
        "it rolls beautifully, the brakes bite now, it made my commute faster, not one flat since",
        "truing a wheel, oiling the chain, patching a tube, setting the saddle",
        "bicycle, helmet, lamp",
    ),
    _theme(
        "feathered/nestwatch",
        "Bird watching",
        "What we saw, heard and counted.",
        "bird, lake, region",
        "binoculars, nest box, notebook, feeder, spotting scope, bird bath",
        "it was gone too soon, the feeder was empty in an hour, the hide was shut, I heard it but never saw it",
        "it sat still for ten minutes, two pairs this year, it came back to the same box, I got the ring colour",
        "ringing, counting, cleaning boxes, filling the feeder",
        "bird, nest box, binoculars",
    ),
    _theme(
        "shavings/sawdustclub",
        "Woodwork",
        "Joints, tools and finishes.",
        "material, maker, person",
        "hand plane, chisel, clamp, bench vice, workbench, folding rule",
        "the board cupped, the glue line shows, the drawer sticks, the finish stayed tacky",
        "the joint closed by hand, the grain came up beautifully, it has not moved in a year, the drawer glides",
        "sharpening, sanding, glueing up, oiling",
        "chair, box, stool",
    ),
    _theme(
        "mendit/fixbench",
        "Repairs",
        "Keeping things alive.",
        "maker, norm, material",
        "kettle, desk lamp, toaster, radio, sewing machine, vacuum cleaner",
        "it trips the fuse, the switch is loose, the maker has no spare parts, one screw will not come out",
        "it has run ever since, the part cost next to nothing, it took ten minutes, it is better than new",
        "soldering, cleaning the contacts, finding parts, testing",
        "lamp, kettle, box",
    ),
    _theme(
        "yarnroom/knitnook",
        "Knitting and textiles",
        "Yarn, looms and half-finished sleeves.",
        "material, person, event",
        "circular needle, loom, yarn winder, darning egg, project bag, row counter",
        "one sleeve is longer, I ran out of yarn, it felted in the wash, the pattern has an error",
        "it blocks beautifully, it is so soft, the colours glow, it fits at last",
        "casting on, blocking, winding, darning",
        "sweater, hat, basket",
    ),
    _theme(
        "brewbar/steephouse",
        "Coffee and tea",
        "Cups, beans, leaves and water.",
        "maker, town, material",
        "hand grinder, teapot, kettle, milk jug, coffee scale, filter holder",
        "it tastes sour, the grinder clogs, it drips from the spout, it goes cold too fast",
        "the cup is sweet and clean, it grinds evenly, it pours without a drip, it keeps warm for an hour",
        "descaling, dialling in, rinsing filters, weighing",
        "mug, kettle, bowl",
    ),
    _theme(
        "shutter/framed",
        "Photography",
        "Pictures and how they were made.",
        "lake, museum, mountain",
        "tripod, camera bag, lens cloth, light meter, film scanner, strap",
        "the horizon is crooked, everything came out too dark, the focus is on the fence, the battery died",
        "the light was perfect, I like the empty corner, the colours are true, it was the first frame of the roll",
        "cleaning the sensor, scanning, cropping, waiting for light",
        "boat, house, mountain",
    ),
    _theme(
        "meeples/tabletoppers",
        "Board games",
        "Rules, players and shelves.",
        "person, town, event",
        "dice tower, card sleeves, game shelf, score pad, play mat, box insert",
        "the rules are unclear, it took four hours, one piece was missing, the last round drags",
        "we played it three times in a row, it teaches in ten minutes, it works with two, the box is well made",
        "sorting tokens, sleeving, teaching, keeping score",
        "dice, box, table",
    ),
    _theme(
        "moorings/slipway",
        "Small boats and fishing",
        "Rivers, lakes and the boats on them.",
        "river, lake, bird",
        "life jacket, paddle, rod holder, dry bag, anchor, bilge pump",
        "the lock was closed, she takes on water, nothing was biting, the permit office had shut",
        "flat water all day, she tracks straight, we had three before noon, the lock keeper is lovely",
        "varnishing, bailing, splicing, tying knots",
        "boat, fish, bird",
    ),
    _theme(
        "galleries/daysout",
        "Museums and days out",
        "Where to go, when, and whether it was worth it.",
        "museum, event, town",
        "day ticket, audio guide, picnic blanket, guide book, folding stool, umbrella",
        "it closed early, the queue was an hour, half of it was under repair, the café was shut",
        "the children loved it, the guard told us stories, it was nearly empty, the top floor is the best",
        "booking, queueing, finding the entrance, reading the labels",
        "house, boat, vase",
    ),
    _theme(
        "backyards/hometown",
        "Living here",
        "Town news, lost and found, and help for neighbours.",
        "town, event, region",
        "ladder, moving box, bicycle pump, hedge trimmer, folding table, dog lead",
        "the notice was wrong, nobody answers the phone, the bus was cancelled, it was gone by noon",
        "everyone helped, it was sorted in a day, the town hall was quick, the children painted it",
        "clearing snow, carrying boxes, watering the square, collecting",
        "house, bicycle, dog",
    ),
    _theme(
        "pawprints/whiskers",
        "Pets",
        "Animals at home.",
        "plant, person, material",
        "cat tree, dog bed, feeding bowl, carrier, lead, brush",
        "he ignores it, she chewed it in a day, it smells after a week, the vet was puzzled",
        "he sleeps in it all day, she stopped scratching the sofa, it washes well, the vet approves",
        "brushing, training, cleaning the bowl, walking",
        "dog, cat, bowl",
    ),
    _theme(
        "strings/bandroom",
        "Making music",
        "Instruments, practice and small concerts.",
        "person, maker, event",
        "music stand, metronome, guitar case, tuner, bow, practice mute",
        "it will not stay in tune, the bridge moved, the neighbours complained, a string broke mid song",
        "it rings like a bell, it stays in tune, the tone is warm, the hall loved it",
        "tuning, restringing, practising scales, carrying amps",
        "guitar, drum, chair",
        True,
    ),
    _theme(
        "archive/oldpapers",
        "Local history",
        "Old maps, letters and the people in them.",
        "person, town, museum",
        "archive box, magnifier, paper knife, map tube, cotton gloves, document scanner",
        "the ink has faded, the date cannot be right, a page is missing, the archive is closed for moving",
        "the name was on the back, the map shows the old bridge, it matches the church book, the paper is like new",
        "transcribing, scanning, dating, indexing",
        "book, house, box",
        True,
    ),
)

TAGS = ("Question", "Review", "Meetup", "Offer", "Picture", "Link", "Story")
