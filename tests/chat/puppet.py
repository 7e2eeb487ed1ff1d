"""A real engine with tiny random weights that says what a test wrote for it: the cache is real, the words are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from chat_fakes import byte_tokenizer
from tokenizers import AddedToken
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from agentkv.engine import Engine
from agentkv.engine.sampling import SamplingParams

# Renders tools, calls and results, as Qwen's template does.
TOOL_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'Tools:' }}{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{%- endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '\\n' if m.content or not loop.first }}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' + m.content }}
{{- '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role != 'system' %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""


class PuppetEngine(Engine):
    """Its replies are `script(the session's text so far)`, as far as the call's constraint allows them."""

    script: Callable[[str], str]

    def generate(self, session: Any, new_ids: Any, params: Any = None, constraint: Any = None, *rest: Any) -> Any:
        text = self.tokenizer.decode([*session.ledger, *new_ids])
        words = self.tokenizer(self.script(text), add_special_tokens=False)["input_ids"]
        lines = Lines([*words, self.tokenizer.eos_token_id], constraint)
        return super().generate(session, new_ids, params or SamplingParams(), lines, *rest)


class Lines:
    """Allows one token at a time; what the real constraint forbids cannot be said."""

    def __init__(self, tokens: list[int], inner: Any):
        self._tokens = tokens
        self._inner = inner
        self._said = 0

    @property
    def done(self) -> bool:
        return self._inner is not None and self._inner.done

    @property
    def accepting(self) -> bool:
        return self._inner is None or self._inner.accepting

    def limit(self, tokens: int) -> None:
        if self._inner is not None:
            self._inner.limit(tokens)

    def mask(self, logits: Tensor) -> Tensor:
        token = self._tokens[self._said]
        wanted = logits.index_fill(0, torch.tensor([token]), 1e3)
        allowed = wanted if self._inner is None else self._inner.mask(wanted)
        assert allowed[token].isfinite(), f"the constraint forbids {token} after {self._tokens[: self._said]}"
        return torch.full_like(logits, float("-inf")).index_fill(0, torch.tensor([token]), 0.0)

    def accept(self, token_id: int) -> None:
        assert token_id == self._tokens[self._said], "a forced token is not what the script says"
        self._said += 1
        if self._inner is not None:
            self._inner.accept(token_id)

    def forced(self) -> list[int]:
        return [] if self._inner is None else self._inner.forced()


def puppet(script: Callable[[str], str], *, window: int = 8192, native: bool = False, **options: Any) -> PuppetEngine:
    engine = tiny(PuppetEngine, window=window, native=native, **options)
    engine.script = script
    return engine


def tiny(kind: type[Engine] = Engine, *, window: int = 8192, native: bool = False, **options: Any) -> Any:
    """An engine of tiny random weights, always the same ones, over bytes."""
    tokenizer = byte_tokenizer(TOOL_TEMPLATE) if native else byte_tokenizer()
    if native:
        tokenizer.add_tokens([AddedToken(text, special=False) for text in ("<tool_call>", "</tool_call>")])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    return kind(LlamaForCausalLM(config).eval(), tokenizer, "tiny", **{"kv_pool": "32MiB"} | options)


def lines(*replies: str) -> Callable[[str], str]:
    """A script that says these replies one after the other."""
    said: Iterator[str] = iter(replies)
    return lambda text: next(said)


def call_text(name: str, arguments: str) -> str:
    """A call as the grammar wants it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
