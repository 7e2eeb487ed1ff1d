"""TRIM-KV (arXiv 2512.03324) and its dynamic budget (arXiv 2605.09649): learned gates say how long a token is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError, GatesFileError
from agentkv.policies.allocators import Allocator, Global, Uniform
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.registry import register
from agentkv.policies.rules import CreationRule, ModelFacts
from agentkv.policies.shares import Share, check_count, check_positive, check_share
from agentkv.policies.shipped_gates import find_gates
from agentkv.policies.triggers import Block
from agentkv.policies.trim_gates import Gates, load_gates, random_gates

RANDOM, AUTO = "random", "auto"


@dataclass(frozen=True)
class LogRetention:
    """log β of each token, from the input of the attention layer, once.

    Attributes:
        gates_from: path of a file of gates, "random", or "auto": those that an installed package brings for the model.
        seed: of random gates.
        digest: that the gates of a package must have; "" takes any, and ``bind`` sets it.
        gates: set for one model by ``bind``.
    """

    gates_from: str = AUTO
    seed: int = 0
    digest: str = ""
    gates: Gates | None = None
    needs_hidden: bool = True

    def bind(self, model: ModelFacts) -> LogRetention:
        """Raises GatesFileError if the gates are not for this model, or there are none for it."""
        if self.gates_from == RANDOM:
            gates = random_gates(model.layers, model.hidden_size, model.kv_heads, self.seed, model.device)
            return replace(self, gates=gates)
        gates = load_gates(_shipped(model) if self.gates_from == AUTO else self.gates_from, model.device)
        gates.check(model)
        if self.digest not in ("", gates.digest):
            raise GatesFileError(f"{gates.source} holds other gates than the session was saved with; {_OLD_PACKAGE}")
        return replace(self, gates=gates, digest=gates.digest)

    def __call__(self, layer: int, keys: Tensor, hidden: Tensor | None) -> Tensor:
        assert self.gates is not None, "bind first"
        assert hidden is not None
        return self.gates.log_beta(layer, hidden)


@dataclass(frozen=True)
class Retention(Scorer):
    """log β · (T + 1 − i) in float32, where T tokens were seen and i is the token's index: how much of it is left."""

    creation: CreationRule | None = None

    @property
    def settled(self) -> Mapping[str, object]:
        rule = self.creation
        return {"digest": rule.digest} if isinstance(rule, LogRetention) and rule.gates_from == AUTO else {}

    def __call__(self, view: CacheView) -> Tensor:
        assert view.creation is not None
        return view.creation * (view.logical_length + 1 - view.token_index).float()


@register("trim-kv")
def trim_kv(
    gates: str = AUTO, seed: int = 0, block: Share = 32, recent: Share = 0, sinks: int = 0, digest: str = ""
) -> Policy:
    """Keep the tokens whose learned retention has decayed least; each head keeps the same number.

    Args:
        gates: "auto", those that an installed package brings for the model; a file of gates trained for it; or
            "random": untrained ones, a control.
        seed: of random gates.
        block: slots freed by one decision (the paper's buffer).
        recent: newest slots never evicted; the paper protects none.
        sinks: first tokens never evicted; the paper protects none.
        digest: sha256 that the file of the gates must have, as saved sessions say; "" takes any.
    """
    return _trim_kv("trim-kv", Uniform(), gates, seed, block, recent, sinks, digest)


@register("trim-kv-db")
def trim_kv_db(
    gates: str = AUTO,
    seed: int = 0,
    block: Share = 32,
    recent: Share = 0,
    sinks: int = 0,
    digest: str = "",
    ceiling: float = 4.0,
) -> Policy:
    """As trim-kv, but all heads of all layers compete for one total.

    Args:
        gates, seed, block, recent, sinks, digest: as in trim-kv; ``block`` is per head on average.
        ceiling: the most slots of one head, in multiples of the mean.
    """
    ceiling = check_positive("trim-kv-db", "ceiling", ceiling)
    if ceiling < 1:
        raise AgentKVError(f"trim-kv-db: ceiling must be at least 1, not {ceiling!r}; 1 gives every head the same")
    policy = _trim_kv("trim-kv-db", Global(ceiling), gates, seed, block, recent, sinks, digest)
    return replace(policy, options={**policy.options, "ceiling": ceiling})


def _trim_kv(
    name: str, allocator: Allocator, gates: str, seed: int, block: Share, recent: Share, sinks: int, digest: str
) -> Policy:
    block, recent = (check_share(name, option, value) for option, value in (("block", block), ("recent", recent)))
    seed, sinks = (check_count(name, option, value) for option, value in (("seed", seed), ("sinks", sinks)))
    if gates not in (RANDOM, AUTO):
        gates, digest = _checked(name, gates, digest)
    return Policy(
        name=name,
        scorer=Retention(LogRetention(gates, seed, digest)),
        sinks=sinks,
        recent=recent,
        allocator=allocator,
        trigger=Block(block),
        options={"gates": gates, "seed": seed, "block": block, "recent": recent, "sinks": sinks, "digest": digest},
    )


_OLD_PACKAGE = "install the package's version of then, or begin a new session"


def takes_installed_gates(policy: Policy) -> bool:
    """Whether its gates are those that an installed package brings."""
    return isinstance(policy.creation, LogRetention) and policy.creation.gates_from == AUTO


def _shipped(model: ModelFacts) -> Path:
    found = find_gates(model)
    if found is None:
        raise GatesFileError(
            "trim-kv: no installed package brings retention gates for this model; train some (`agentkv train gates`) "
            "and set the option gates to their file, at the command line by a recipe: {scorer: {name: retention, gates:"
            f" FILE}}, trigger: block}}; {RANDOM!r} in place of a file is an untrained control"
        )
    return found


def _checked(name: str, gates: object, digest: str) -> tuple[str, str]:
    """Absolute path and digest of a file of gates that can be read."""
    if not isinstance(gates, str | Path):
        raise AgentKVError(f"{name}: gates must be the path of a gates file, {AUTO!r} or {RANDOM!r}, not {gates!r}")
    path = str(Path(gates).expanduser().resolve())
    found = load_gates(path).digest
    if digest not in ("", found):
        raise GatesFileError(f"{path} holds other gates than the session was saved with; put the old file back")
    return path, found
