"""`agentkv train agent`: from files of demonstrations to a folder with an adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from agentkv.engine.loading import as_device, eos_token_ids, load_model
from agentkv.engine.merging import base_fingerprint
from agentkv.models import resolve_model
from agentkv.models.adapters import CONFIG, WEIGHTS, Adapter, find_adapter, read_adapter
from agentkv.train import log as logs
from agentkv.train.attention import use_packed_attention
from agentkv.train.documents import Document
from agentkv.train.dtypes import training_dtype
from agentkv.train.errors import TrainError
from agentkv.train.folder import prepare, progress_of
from agentkv.train.frozen import ReplyTokens
from agentkv.train.log import Log, Screen, read_log
from agentkv.train.lora import add_lora, check_start, load_weights, save_adapter, start_weights
from agentkv.train.measure import Measured, NextTokens
from agentkv.train.memory import check_memory, pack_bytes, recompute_activations
from agentkv.train.settings import TrainSettings
from agentkv.train.trainer import Data, Trained, Trainer
from agentkv_agents.prompting import FILE as PROMPTING
from agentkv_agents.prompting import Prompting, prompting_of, save_prompting
from agentkv_agents.teaching.card import write_card
from agentkv_agents.teaching.documents import ending_token
from agentkv_agents.teaching.leaks import check_leaks, test_text
from agentkv_agents.teaching.picture import save_picture
from agentkv_agents.teaching.renaming import rename
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import Split, Trace, digest, read_traces, split

CARD, PICTURE = "README.md", "training.svg"
UNSEEN, SEEN = "unseen families", "seen families"
TAUGHT = Prompting(plan=True, explain_actions=False, recall=True)
_PROMPTING = ("plan", "explain_actions", "recall")
_RESULTS = (CONFIG, WEIGHTS, PROMPTING, CARD, PICTURE)


@dataclass(frozen=True)
class TeachOptions:
    """One training.

    Attributes:
        traces: files of demonstrations.
        out: the folder for the adapter, its card, the log and the checkpoint.
        model: the base: embedded name, model folder or hub id.
        notes: share of the demonstrations, 0 to 1, in which facts to remember are noted when they are seen.
        rename: share of the demonstrations, 0 to 1, in which makers, people and places have other names.
        plan, explain_actions, recall: how the agent will ask the model (see `Prompting`); None: as the adapter to
            begin with was taught, or with a plan and what is recalled, and without explanations.
        start: folder or name of an adapter of the same base and rank to begin with; None: one that changes nothing.
        held_out: families that validate and are not trained on.
        validate: the most demonstrations of each validation set.
        replies_only: learn through replies alone, pages getting no gradient: about twice as fast.
        recompute: compute activations twice instead of keeping them: slower, in less memory.
        finish: end an interrupted training where it stands.
        fresh: begin again if the folder holds a training.
        json: rows on standard output instead of progress.
    """

    traces: tuple[Path, ...]
    out: Path
    model: str = "smollm2-135m"
    settings: TrainSettings = field(default_factory=TrainSettings)
    notes: float = 0.0
    rename: float = 0.0
    plan: bool | None = None
    explain_actions: bool | None = None
    recall: bool | None = None
    start: str | None = None
    held_out: int = 6
    validate: int = 24
    dtype: str = "auto"
    device: str = "cpu"
    replies_only: bool = False
    recompute: bool = False
    finish: bool = False
    fresh: bool = False
    json: bool = False

    @property
    def prompting(self) -> Prompting:
        """How the agent will ask the model. Raises ModelError: the adapter to begin with is damaged."""
        taught = prompting_of(self.start) if self.start is not None else TAUGHT
        return taught.but(**{name: getattr(self, name) for name in _PROMPTING})


def run(options: TeachOptions, interrupted: Callable[[], bool] = lambda: False) -> None:
    """Train, and write the adapter with the lowest loss in validation. Interrupted, the same call goes on.

    Raises:
        TrainError: traces, settings or folder that cannot be used, or a training that failed.
        AgentKVError: the base cannot be loaded.
        ModuleNotFoundError: peft or matplotlib is missing.
        KeyboardInterrupt: after a checkpoint, when `interrupted` says so.
    """
    if not 0 <= options.notes <= 1:
        raise TrainError(f"--notes must be a share from 0 to 1, not {options.notes}")
    if options.recall and not options.prompting.recall:
        raise TrainError("--recall has no use without a plan, whose open steps it is for; add --plan")
    import matplotlib  # noqa: F401 - missing, it should be missed now and not after hours
    import peft  # noqa: F401

    traces = rename(read_traces(options.traces), options.rename)
    check_leaks(traces, test_text())
    parts = split(traces, options.held_out, options.validate, options.validate)
    if find_adapter(options.model) is not None:
        raise TrainError(f"{options.model} is an adapter already; train one for its base, which may --start with it")
    start, prompting = _start(options), options.prompting
    prepare(options.out, _RESULTS, options.fresh, options.finish)
    device = as_device(options.device)
    model, tokenizer = load_model(resolve_model(options.model), training_dtype(options.dtype, device), device)
    facts = _facts(options, traces, base_fingerprint(model), start)
    progress = progress_of(options.out, facts)
    data = _data(
        parts,
        Renderer(
            tokenizer,
            ending_token(eos_token_ids(model, tokenizer), tokenizer),
            options.notes,
            prompting,
        ),
        min(options.settings.length, model.config.max_position_embeddings),
    )
    use_packed_attention(model)
    settings = options.settings
    less = "" if options.recompute else ", or --recompute, which takes less"
    check_memory(model, pack_bytes(model, settings.length, options.recompute), settings.length, less)
    if options.recompute:
        recompute_activations(model)
    parameters = add_lora(model, settings.rank, settings.alpha, settings.seed)
    if start is not None and not progress.step:
        load_weights(parameters, start_weights(start, parameters, facts["fingerprint"]))
    with Screen() as screen:
        log = Log(options.out, progress.step, _print if options.json else screen.show)
        objective = (ReplyTokens if options.replies_only else NextTokens)(model)
        trainer = Trainer(objective, parameters, data, settings, progress, options.out, log, interrupted)
        screen.begin(trainer.steps, progress.step)
        trained = trainer.finish() if options.finish else trainer.run()
        save_adapter(
            options.out,
            trained.best,
            rank=settings.rank,
            alpha=settings.alpha,
            base=facts["model"],
            fingerprint=facts["fingerprint"],
        )
        save_prompting(options.out, prompting)
        # What is shipped is measured: the weights as the file has them, rounded.
        trainer.use_best({name: weight.to(torch.bfloat16) for name, weight in trained.best.items()})
        final = trainer.measure()
    _conclude(options, trained, parts, data, final)


def _start(options: TeachOptions) -> Adapter | None:
    """The adapter to begin with, checked before anything is removed. Raises TrainError: it cannot be begun with."""
    if options.start is None:
        return None
    folder = find_adapter(options.start)
    if folder is None:
        raise TrainError(f"--start {options.start}: there is no adapter; give a name or a folder that has one")
    if folder.resolve() == options.out.resolve():
        raise TrainError(f"--start {options.start} is the folder that is to be written; give another --out")
    adapter = read_adapter(folder)
    check_start(adapter, options.settings.rank, options.settings.alpha)
    return adapter


def _facts(options: TeachOptions, traces: list[Trace], fingerprint: str, start: Adapter | None) -> dict[str, Any]:
    """All that decides the result."""
    base = Path(options.model).expanduser()
    return {
        **options.settings.as_dict(),
        "model": str(base.resolve()) if base.is_dir() else options.model,
        "fingerprint": fingerprint,
        "traces": digest(traces),
        "notes": options.notes,
        # Following a plan is no matter of training.
        **{name: value for name in _PROMPTING if (value := getattr(options.prompting, name)) or name != "recall"},
        **({"rename": options.rename} if options.rename else {}),
        "replies_only": options.replies_only,
        "start": start and start.folder.resolve().name,
        "start_weights": start and sha256((start.folder / WEIGHTS).read_bytes()).hexdigest(),
        "held_out": options.held_out,
        "validate": options.validate,
        "dtype": options.dtype,
    }


def _data(parts: Split, renderer: Renderer, length: int) -> Data:
    """Documents of all sets, none longer than a pack or the model's window: their ends are left out."""

    def documents(traces: tuple[Trace, ...]) -> list[Document]:
        whole = [renderer.document(trace).cut(length) for trace in traces]
        return [document for document in whole if document.spans]

    training, unseen, seen = (documents(s) for s in (parts.training, parts.unseen_families, parts.seen_families))
    if not training or not unseen:
        raise TrainError(f"no trace has an action within {length} tokens; raise --length")
    return Data(training, {UNSEEN: unseen, **({SEEN: seen} if seen else {})})


def _conclude(options: TeachOptions, trained: Trained, parts: Split, data: Data, final: dict[str, Measured]) -> None:
    rows = read_log(options.out / logs.FILE)
    save_picture(options.out / PICTURE, rows)
    write_card(options.out / CARD, trained.progress, parts, data, rows, final, PICTURE)
    if options.json:
        sets = {name: asdict(measured) for name, measured in final.items()}
        _print({"kind": "result", "folder": str(options.out), **asdict(trained.progress), "sets": sets})
        return
    print(f"{options.out}: {trained.progress.ended}; the best was step {trained.progress.best_step}")
    for name, measured in final.items():
        print(
            f"  {name}: loss {measured.loss:.4f}, replies right {measured.span_accuracy:.1%} of {measured.spans}, "
            f"whole ways {measured.document_accuracy:.1%} of {measured.documents}"
        )


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
