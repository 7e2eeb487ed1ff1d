"""The web agent that comes along: an adapter inside the package."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentkv.engine.loading import as_device, load_model
from agentkv.engine.merging import load_merged
from agentkv.models import EMBEDDED, named_adapter, resolve_model
from agentkv.models.adapters import CONFIG, WEIGHTS, read_adapter
from agentkv.train.attention import use_packed_attention
from agentkv.train.measure import measure
from agentkv_agents.prompting import FILE, prompting_of
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import Trace, TraceStep

NAME = "smollm2-135m-web"
NAV = (
    'link "Doorstep" [1], searchbox "Search ads" [2], link "Post an Ad" [3], link "Messages" [4], '
    'link "My Account" [5], expand "Categories" [6]'
)
BIKE = "Summit City Bike, 8 gears"
PLAN = (f'type "Search ads" [{BIKE}] [1]', f'click "{BIKE}"', 'click "Add to Favourites"', "stop []")
STEPS = (
    TraceStep(f'page: Doorstep\n{NAV}\n# Newest ads\nlink "All ads" [7]', f'type "Search ads" [2] [{BIKE}] [1]'),
    TraceStep(
        f'page: Ads: {BIKE}\n{NAV}, expand "Filters" [7]\n1-1 of 1\nlink "{BIKE}" [8] $75 good, Kirkby img "red"',
        f'click "{BIKE}" [8]',
    ),
    TraceStep(
        f'page: {BIKE}\n{NAV}\n$75 from link "Nora Weiss" [7]\nlink "Make an Offer" [8], link "Contact Seller" [9], '
        'button "Show Phone" [10], button "Add to Favourites" [11]',
        'click "Add to Favourites" [11]',
    ),
)
TRACE = Trace(
    "t",
    "favourite_ad",
    f"Add the ad '{BIKE}' to my favourites.",
    "label-first",
    tuple(replace(step, plan_step=number) for number, step in enumerate(STEPS, 1)),
    plan=PLAN,
    opened=("Doorstep",),
)


def test_every_adapter_that_the_project_names_is_there_with_its_card() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    names = project["project"]["entry-points"]["agentkv.adapters"]
    assert NAME in names
    for name in names:
        folder = named_adapter(name).folder
        assert {CONFIG, WEIGHTS, FILE, "README.md"} <= {file.name for file in folder.iterdir()}
        assert (folder / WEIGHTS).stat().st_size <= 12_000_000
        assert "Apache-2.0" in (folder / "README.md").read_text()
        assert read_adapter(folder).base in EMBEDDED


@pytest.mark.model
def test_it_acts_on_a_page_as_its_base_does_not() -> None:
    """Teacher-forced, no grammar helping, on pages that were in no demonstration: a plan and three replies."""
    device, right = as_device("cpu"), []
    for load, source in ((load_model, "smollm2-135m"), (load_merged, NAME)):
        model, tokenizer = load(resolve_model(source), "float32", device)
        use_packed_attention(model)
        document = Renderer(tokenizer, tokenizer.eos_token_id, prompting=prompting_of(NAME)).document(TRACE)
        with torch.no_grad():
            right.append(measure(model, [(document,)], device).span_accuracy)
    assert right[0] < right[1]
    assert right[1] >= 3 / 4
