"""`agentkv train gates`: from texts to a file of TRIM-KV's retention gates for one model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from agentkv.cache.architecture import layout_of
from agentkv.engine.loading import as_device
from agentkv.engine.merging import load_merged, weights_fingerprint
from agentkv.models import resolve_model
from agentkv.policies.trim_gates import Gates, random_gates, save_gates
from agentkv.train import log as logs
from agentkv.train.attention import use_packed_attention
from agentkv.train.documents import Document
from agentkv.train.dtypes import training_dtype
from agentkv.train.errors import TrainError
from agentkv.train.folder import prepare, progress_of
from agentkv.train.gate_picture import save_picture
from agentkv.train.kept_page import KeptTokens, most_retained, save_page
from agentkv.train.log import Log, Screen, read_log
from agentkv.train.memory import check_memory, gated_pack_bytes
from agentkv.train.retention import GateFigures, RetentionObjective, as_gates, trainable
from agentkv.train.settings import TrainSettings
from agentkv.train.texts import Encode, read_text, recall_documents, text_documents
from agentkv.train.trainer import Data, Trained, Trainer

FILE, PICTURE, PAGE = "gates.safetensors", "training.svg", "kept.html"
HELD_OUT = "held out"
# Of a text, what validates: its end.
_VALIDATES = 0.1


@dataclass(frozen=True)
class GateOptions:
    """One training of gates.

    Attributes:
        text: UTF-8 files: running text, and the sentences among which facts are hidden.
        out: the folder for gates, picture, log and checkpoint.
        model: as `Engine.load` takes it; an adapter's folder too.
        document: tokens of a document of text and of recall.
        width: hidden units of a gate.
        bias: where log β begins: σ(18) forgets nothing for 10⁷ tokens, σ(8) half in 2,000.
        capacity: M, tokens a head may hold before the hinge.
        weight: λ of the hinge.
        pooled: one hinge for all heads of all layers.
        validate: documents of each kind that validate.
        more: further documents by kind, beside text and recall; the last ones validate.
        sources: files they come from.
        check: is given the texts by file, and raises TrainError if they must not be trained on.
        finish: end an interrupted training where it stands.
        fresh: begin again if the folder holds a training.
        json: rows on standard output instead of progress.
    """

    text: tuple[Path, ...]
    out: Path
    model: str = "smollm2-135m"
    settings: TrainSettings = field(default_factory=lambda: TrainSettings(length=2048, lr=1e-3))
    document: int = 1024
    width: int = 128
    bias: float = 8.0
    capacity: int = 128
    weight: float = 1.0
    pooled: bool = False
    validate: int = 4
    more: Callable[[Any, PreTrainedModel], dict[str, list[Document]]] = lambda tokenizer, model: {}
    sources: tuple[Path, ...] = ()
    check: Callable[[Mapping[str, str]], None] = lambda texts: None
    dtype: str = "auto"
    device: str = "cpu"
    finish: bool = False
    fresh: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        for name in ("document", "width", "capacity", "validate"):
            if getattr(self, name) < 1:
                raise TrainError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.capacity >= self.document:
            raise TrainError(
                f"--capacity {self.capacity} is no limit for documents of {self.document} tokens; make it smaller"
            )
        if not self.weight > 0:
            raise TrainError(f"--weight must be above 0, not {self.weight}: without it gates keep everything")


def run(options: GateOptions, interrupted: Callable[[], bool] = lambda: False) -> None:
    """Train, and write the gates with the lowest loss on held-out documents. Interrupted, the same call goes on.

    Raises:
        TrainError: texts, settings or folder that cannot be used, or a training that failed.
        AgentKVError: the model cannot be loaded.
        KeyboardInterrupt: after a checkpoint, when `interrupted` says so.
    """
    import matplotlib  # noqa: F401 - missing, it should be missed now and not after hours

    texts = {str(path): read_text(path) for path in options.text}
    options.check(texts)
    prepare(options.out, (FILE, PICTURE, PAGE), options.fresh, options.finish)
    device = as_device(options.device)
    model, tokenizer = load_merged(resolve_model(options.model), training_dtype(options.dtype, device), device)
    fingerprint = weights_fingerprint(model)
    progress = progress_of(options.out, _facts(options, fingerprint))
    kinds = _kinds(options, texts, model, tokenizer)
    data = _data(kinds, options.settings)
    longest = min(options.settings.length, sum(len(document.ids) for document in data.training))
    check_memory(model, gated_pack_bytes(model, longest), longest, " and no longer --document")
    use_packed_attention(model.eval())
    parameters = trainable(_first_gates(options, model))
    objective = RetentionObjective(model, parameters, options.capacity, options.weight, options.pooled)
    with Screen() as screen, objective.ready():
        log = Log(options.out, progress.step, _print if options.json else screen.show)
        trainer = Trainer(objective, parameters, data, options.settings, progress, options.out, log, interrupted)
        screen.begin(trainer.steps, progress.step)
        trained = trainer.finish() if options.finish else trainer.run()
        best = {**trained.best, "w1": trained.best["w1"].bfloat16().float()}  # halves the file; measured as it is there
        save_gates(as_gates(best, fingerprint), options.out / FILE)
        trainer.use_best(best)
        final = trainer.measure()[HELD_OUT]
        _save_page(options, objective, {name: own[0] for name, (_, own) in kinds.items()}, tokenizer)
    save_picture(options.out / PICTURE, read_log(options.out / logs.FILE), options.capacity)
    _say(options, trained, final)


_DECIDE = ("model", "document", "width", "bias", "capacity", "weight", "pooled", "validate", "dtype")


def _facts(options: GateOptions, fingerprint: str) -> dict[str, Any]:
    """All that decides the result, as a checkpoint holds it; files by what is in them."""
    own = {name: getattr(options, name) for name in _DECIDE}
    text, sources = ([sha256(path.read_bytes()).hexdigest() for path in of] for of in (options.text, options.sources))
    return {
        **options.settings.as_dict(), **own,
        "fingerprint": fingerprint, "text": text, "sources": sources,
    }  # fmt: skip


def _first_gates(options: GateOptions, model: PreTrainedModel) -> Gates:
    layout, config = layout_of(model.config, model.dtype), model.config.get_text_config()
    shape = layout.layers, config.hidden_size, layout.kv_heads
    return random_gates(*shape, options.settings.seed, model.device, width=options.width, bias=options.bias)


Kinds = dict[str, tuple[list[Document], list[Document]]]
"""Training and validation documents of every kind, none of them empty."""


def _data(kinds: Kinds, settings: TrainSettings) -> Data:
    """As many tokens of each kind as there are and an equal share of the training holds."""
    share = settings.tokens // len(kinds)
    training = [document for own, _ in kinds.values() for document in _about(own, share, settings.seed)]
    return Data(training, {HELD_OUT: [document for _, own in kinds.values() for document in own]})


def _kinds(options: GateOptions, texts: dict[str, str], model: PreTrainedModel, tokenizer: Any) -> Kinds:
    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    kinds = _kinds_of_text(options, texts, encode)
    for name, documents in options.more(tokenizer, model).items():
        short = [document.cut(options.settings.length) for document in documents]
        short = [document for document in short if document.spans]
        if len(short) <= options.validate:
            raise TrainError(f"only {len(short)} documents of {name} fit --length {options.settings.length}")
        kinds[name] = short[: -options.validate], short[-options.validate :]
    return kinds


def _kinds_of_text(options: GateOptions, texts: dict[str, str], encode: Encode) -> Kinds:
    """Text and recall; those that validate come from the texts' ends."""
    length, few = options.document, options.validate
    parts = {name: _ends(text) for name, text in texts.items()}
    text = [[d for n, both in parts.items() for d in text_documents(both[i], encode, length, n)] for i in (0, 1)]
    if not text[0] or not text[1]:
        raise TrainError(
            f"the texts are too short: documents have {length} tokens, and a tenth of each text validates; "
            "give longer texts or a smaller --document"
        )
    many = options.settings.tokens // length + 1
    joined = ["\n".join(both[i] for both in parts.values()) for i in (0, 1)]
    seed = options.settings.seed
    recall = [recall_documents(joined[i], encode, length, n, 2 * seed + i) for i, n in ((0, many), (1, few))]
    return {"text": (text[0], text[1][:few]), "recall": (recall[0], recall[1])}


def _ends(text: str) -> tuple[str, str]:
    """What trains and what validates."""
    at = round(len(text) * (1 - _VALIDATES))
    return text[:at], text[at:]


def _about(documents: Sequence[Document], tokens: int, seed: int) -> list[Document]:
    """Documents in random order, until they have so many tokens."""
    chosen: list[Document] = []
    for document in random.Random(seed).sample(list(documents), len(documents)):
        if tokens <= 0:
            break
        chosen.append(document)
        tokens -= len(document.ids)
    return chosen


def _save_page(
    options: GateOptions, objective: RetentionObjective, documents: Mapping[str, Document], tokenizer: Any
) -> None:
    """The page of one document of each kind."""
    shown = [
        KeptTokens(
            f"{kind}: {document.name}",
            [tokenizer.decode([token], skip_special_tokens=False) for token in document.ids],
            most_retained(objective.log_beta(document), options.capacity),
        )
        for kind, document in documents.items()
    ]
    about = (
        f"{options.model}, held-out documents, after the last token: of each KV head the {options.capacity} tokens "
        "whose retention has decayed least. The darker, the more of the chosen heads keep the token."
    )
    save_page(options.out / PAGE, shown, about)


def _say(options: GateOptions, trained: Trained, final: GateFigures) -> None:
    progress = trained.progress
    if options.json:
        _print({"kind": "result", "folder": str(options.out), **asdict(progress), "held_out": asdict(final)})
        return
    print(f"{options.out / FILE}: {progress.ended}; the best was step {progress.best_step}")
    print(
        f"  held out: NLL {final.nll:.4f} where full attention has {final.nll_full:.4f}, KL {final.kl:.4f}; "
        f"a head holds {final.held:.0f} tokens in the end"
    )
    print(f"  use them: kv_policy='trim-kv', policy option gates='{options.out / FILE}'; see docs/policies/trim-kv.md")


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
