"""What must not be learnt by heart: codes, numbers and people of a data seed. Tasks name them as `__NAME__`."""

from __future__ import annotations

import functools
import random

from agentkv_envs.sites.shopping.vocabulary import VOCABULARIES

ORDERS = 10
_DAYS = ("Tuesday 17 March", "Wednesday 18 March", "Thursday 19 March", "Friday 20 March")
_HOURS = ("8 to 10", "10 to 12", "13 to 15", "16 to 18")
_AGENTS = {"test": ("Ines Ott", "Ralf Baum", "Tara Moor", "Leo Zinn"), "train": ("Gerd Wolf", "Mina Thal", "Ulla Kern")}


@functools.lru_cache(maxsize=64)
def facts(seed: int, split: str = "test") -> dict[str, str]:
    """Name to value, the same on every call. In the split "test" the customer is always the same person."""
    words = VOCABULARIES[split]
    rng = random.Random(f"shopping-facts-{seed}" if split == "test" else f"shopping-facts-{split}-{seed}")
    codes = [f"{word}{rng.randint(10, 99)}" for word in rng.sample(words.code_words, 4)]
    result = dict(zip(("WELCOME_CODE", "SPRING_CODE", "REWARD_CODE", "THANKS_CODE"), codes, strict=True))
    result |= _numbers(rng)
    result["PHONE"] = f"030-{rng.randint(100, 999)}{rng.randint(10, 99)}"
    taken = {code[:-2] for code in codes}
    rest = rng.sample([word for word in words.code_words if word not in taken], 5)
    for name, word in zip(("GARDEN", "BASKET", "NEWS", "MAIL", "WINTER"), rest, strict=True):
        result[f"{name}_CODE"] = f"{word}{rng.randint(10, 99)}"
    result |= {
        "LOCKER": f"{rng.choice('ABCDEF')}{rng.randint(2, 38)}",
        "LOCKER_CODE": f"{rng.randint(1000, 9999)}",
        "RETURN_1": f"RT-{rng.randint(2000, 8000)}",
        "COLLECTION_DAY": rng.choice(_DAYS),
        "COLLECTION_HOURS": rng.choice(_HOURS),
        "AGENT": rng.choice(_AGENTS[split]),
    }
    result["RETURN_2"] = f"RT-{int(result['RETURN_1'][3:]) + 3}"
    result["RETURN_PIN_2"] = pins(seed, split)[2]
    return result | _people(rng, split)


def _numbers(rng: random.Random) -> dict[str, str]:
    """Order and tracking numbers by order id; newer orders have greater numbers."""
    numbers = sorted(rng.sample(range(1100, 9900), ORDERS), reverse=True)
    by_id = (1, 6, 2, 7, 3, 4, 5, 8, 9, 10)  # order ids from the newest to the oldest
    result = {f"ORDER_{order}": str(number) for order, number in zip(by_id, numbers, strict=True)}
    return result | {f"TRACKING_{i}": f"BC{rng.randint(100, 999)}-{rng.choice('KLMNPR')}" for i in range(1, ORDERS + 1)}


def _people(rng: random.Random, split: str) -> dict[str, str]:
    words = VOCABULARIES[split]
    pick = (lambda values, count: values[:count]) if split == "test" else rng.sample
    first, kin = pick(words.firstnames, 2)
    (last,) = pick(words.lastnames, 1)
    return {
        "FIRSTNAME": first,
        "LASTNAME": last,
        "KIN": kin,
        "EMAIL": f"{first}.{last}@example.com".lower(),
        "PASSWORD": "Password.123",
    }


def pins(seed: int, split: str = "test") -> dict[int, str]:
    """Drop-off PINs of returns by their id."""
    rng = random.Random(f"shopping-pins-{split}-{seed}")
    return {return_id: f"{rng.randint(1000, 9999)}" for return_id in range(1, 31)}
