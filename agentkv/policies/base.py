"""What a KV policy is: scorer, allocator, precision, trigger and protection, put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import Tensor

from agentkv.cache.facts import Role
from agentkv.cache.formats import KVFormat
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError
from agentkv.policies.allocators import Allocator, Uniform
from agentkv.policies.precision import Precision
from agentkv.policies.rules import AttentionRule, CreationRule, ModelFacts
from agentkv.policies.shares import Share, as_slots
from agentkv.policies.triggers import Block, Confidence, EachToken, Trigger

if TYPE_CHECKING:
    from typing import Self


class Scorer(ABC):
    """Says how much each slot is worth. A pure function of the view; what it needs it declares.

    Attributes:
        mass: the attention it reads in ``view.mass``, if any.
        creation: what it reads in ``view.creation``, if anything.
        needs_segments, needs_surprise, needs_ids, needs_observations: which facts of the ledger it reads.
        by_segment: whether it keeps whole sentences or lines by itself.
        by_token: whether its scores are numbers from 0 to below the session's length, of tokens, alike in all heads.
        ranks: whether it compares slots of one layer and head only, so that scores of two heads say nothing together.
    """

    mass: AttentionRule | None = None
    creation: CreationRule | None = None
    needs_segments: bool = False
    needs_surprise: bool = False
    needs_ids: bool = False
    needs_observations: bool = False
    by_segment: bool = False
    by_token: bool = False
    ranks: bool = False

    @property
    def settled(self) -> Mapping[str, object]:
        """Options of its policy that ``bind`` has decided."""
        return {}

    @abstractmethod
    def __call__(self, view: CacheView) -> Tensor:
        """[L, H, S] floating, higher is kept. Values of protected and empty slots are ignored."""

    def bind(self, model: ModelFacts) -> Self:
        """The scorer for one model. Raises AgentKVError if it does not fit."""
        if self.creation is None:
            return self
        return replace(self, creation=self.creation.bind(model))  # type: ignore[type-var]  # scorers are dataclasses


@dataclass(frozen=True)
class Policy:
    """A policy, resolved for nothing yet: the same object serves every session.

    Attributes:
        name: as registered.
        scorer: None never evicts.
        sinks: the first tokens of the session, never evicted.
        recent: the newest tokens, never evicted.
        allocator: how the slots are divided among layers and heads.
        trigger: when slots are given up, and how many.
        precision: None stores everything in the model's dtype.
        protect: whose words are never evicted; of observations the newest.
        whole_observations: an observation that loses a slot loses all of them.
        options: what the policy was built with, for reports and session files.
        builder: the registered name that builds it with these options, where that is another one than ``name``.

    Raises AgentKVError for parts that do not go together.
    """

    name: str
    scorer: Scorer | None
    sinks: int = 0
    recent: Share = 0
    allocator: Allocator = field(default_factory=Uniform)
    trigger: Trigger = field(default_factory=EachToken)
    precision: Precision | None = None
    protect: tuple[Role, ...] = ()
    whole_observations: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    builder: str = ""

    def __post_init__(self) -> None:
        conflict = self._conflict()
        if conflict:
            raise AgentKVError(f"{self.name}: {conflict}")

    def _conflict(self) -> str | None:
        """Why parts that are each right make no policy together, beginning with the part to change."""
        precision, mass = self.precision, self.mass
        if precision is not None and self.evicts:
            if precision.format is KVFormat.INT8_CHANNEL:
                return (
                    "precision: with a scale per channel the tokens of a page share it and none can be evicted; use "
                    "format int8 or fp8, or a policy that evicts nothing"
                )
            if self.allocator.global_total:
                return (
                    "allocator: heads that compete for one total hold no fixed share of quantised slots; use another "
                    "allocator or no precision"
                )
        if precision is not None and precision.rule is not None:
            if not isinstance(mass, precision.rule):
                return "precision: it reads statistics of layers that only ARKV's scorer, window-statistics, collects"
            if not isinstance(self.trigger, Block):
                return "trigger: precision by score is decided when a block is freed; use trigger block"
        if self.allocator.global_total and self.scorer is not None and self.scorer.ranks:
            return (
                "allocator: heads compete by their scores, and this scorer gives ranks within a head; use another "
                "allocator"
            )
        if mass is not None and mass.resets and isinstance(self.trigger, EachToken | Confidence):
            return (
                "trigger: an observation window begins anew when slots are freed, and this trigger frees them token by "
                "token; use trigger block"
            )
        return None

    @property
    def registered(self) -> str:
        """The name under which the registry builds this policy from its options."""
        return self.builder or self.name

    @property
    def evicts(self) -> bool:
        return self.scorer is not None

    @property
    def mass(self) -> AttentionRule | None:
        return None if self.scorer is None else self.scorer.mass

    @property
    def creation(self) -> CreationRule | None:
        return None if self.scorer is None else self.scorer.creation

    @property
    def reads_surprise(self) -> bool:
        """Whether −log p of every token has to be taken from the logits."""
        return self.scorer is not None and self.scorer.needs_surprise

    @property
    def columns(self) -> tuple[str, ...]:
        """Float32 values kept per slot."""
        named = (("mass", self.mass), ("creation", self.creation))
        return tuple(name for name, rule in named if rule is not None)

    @property
    def needs_confidence(self) -> bool:
        return self.trigger.needs_confidence

    @property
    def code_format(self) -> KVFormat:
        return KVFormat.INT8_TOKEN if self.precision is None else self.precision.format

    @property
    def steady(self) -> bool:
        """Whether a full cache takes one token by giving up one slot of each head."""
        return not (self.allocator.global_total or self.whole_observations)

    def bind(self, model: ModelFacts) -> Policy:
        """The policy for one model. Raises AgentKVError if it does not fit."""
        if self.scorer is None:
            return self
        scorer = self.scorer.bind(model)
        return replace(self, scorer=scorer, options=_settled(self.options, scorer.settled))

    def recent_slots(self, max_slots: int) -> int:
        # With mixed precision the newest token is always there, at full width, to be the next one quantised.
        return max(as_slots(self.recent, max_slots), 0 if self.precision is None else 1)

    def protected_slots(self, max_slots: int) -> int:
        """Sinks and newest tokens."""
        return self.sinks + self.recent_slots(max_slots)

    def least_slots(self, max_slots: int) -> int:
        """The protected set and what has to be free beside it."""
        return self.protected_slots(max_slots) + self.trigger.headroom(max_slots)

    def target_slots(self, confidence: float | None, max_slots: int) -> int:
        """Slots per head the session may hold for its next token, at most ``max_slots``."""
        return max(self.trigger.slots(confidence, max_slots), min(max_slots, self.least_slots(max_slots)))

    def prefill_chunk(self, max_slots: int, least_layer: int) -> int:
        """Tokens that go in at once: room for them is made first, so a large chunk costs kept slots.

        Args:
            max_slots: mean over layers.
            least_layer: slots of the layer that has fewest.
        """
        # A chunk arrives at full width, beside slots that may be quantised: smaller pieces then keep more tokens.
        most, share = (128, 8) if self.precision is not None and self.precision.narrow else (256, 4)
        return max(1, min(most, max_slots // share, least_layer - self.protected_slots(max_slots)))


def _settled(written: Mapping[str, object], settled: Mapping[str, object]) -> dict[str, object]:
    """Options, and those of a recipe's parts inside, with the values that ``bind`` has decided."""
    found: dict[str, object] = {}
    for name, value in written.items():
        if name in settled:
            found[name] = settled[name]
        elif isinstance(value, Mapping):
            found[name] = _settled(value, settled)
        elif isinstance(value, list):
            found[name] = [_settled(one, settled) if isinstance(one, Mapping) else one for one in value]
        else:
            found[name] = value
    return found
