import re

import pytest
import torch
from chat_fakes import byte_tokenizer
from transformers import AutoTokenizer

from agentkv.engine import constraints
from agentkv.engine.constraints import GrammarConstraint
from agentkv.errors import AgentKVError
from agentkv.models import resolve_model

ACTIONS = """
start: "click " ELEMENT | "stop " TEXT
ELEMENT: "\\"" ("black toaster" | "red kettle") "\\" [" ("27" | "3") "]"
TEXT: "[" /[^\\]\\n]{1,20}/ "]"
"""
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["bytes", pytest.param("smollm2-135m", marks=pytest.mark.model)])
def tokenizer(request):
    if request.param == "bytes":
        return byte_tokenizer()
    return AutoTokenizer.from_pretrained(resolve_model(request.param))


def allowed(constraint, tokenizer, width=None):
    masked = constraint.mask(torch.zeros(width or len(tokenizer)))
    return set(masked.isfinite().nonzero().flatten().tolist())


def random_sentence(constraint, tokenizer, seed, limit=200):
    """What comes out when every allowed token is equally likely."""
    generator = torch.Generator().manual_seed(seed)
    ids = []
    while not constraint.done and len(ids) < limit:
        choices = sorted(allowed(constraint, tokenizer))
        token = choices[int(torch.randint(len(choices), (1,), generator=generator))]
        if token == tokenizer.eos_token_id:
            break
        constraint.accept(token)
        ids.append(token)
    return tokenizer.decode(ids)


def test_random_walks_stay_in_the_grammar(tokenizer):
    pattern = re.compile(r'click "(black toaster|red kettle)" \[(27|3)\]|stop \[[^\]\n]{1,20}\]')
    sentences = {random_sentence(GrammarConstraint(tokenizer, ACTIONS), tokenizer, seed) for seed in range(12)}
    assert len(sentences) > 4
    for sentence in sentences:
        # A byte tokenizer can end a walk inside a character's bytes, never outside the grammar.
        assert pattern.fullmatch(sentence), sentence


def test_the_end_comes_when_nothing_may_follow(tokenizer):
    constraint = GrammarConstraint(tokenizer, 'start: "ab" | "ac"')
    for token in tokenizer("ab")["input_ids"]:
        assert not constraint.done
        constraint.accept(token)
    assert constraint.done
    assert constraint.accepting
    assert constraint.forced() == []


def test_the_end_is_allowed_where_more_may_follow(tokenizer):
    constraint = GrammarConstraint(tokenizer, "start: /[a-z]+/")
    assert tokenizer.eos_token_id not in allowed(constraint, tokenizer)
    constraint.accept(tokenizer("a")["input_ids"][0])
    assert constraint.accepting
    assert not constraint.done
    assert tokenizer.eos_token_id in allowed(constraint, tokenizer)
    constraint.accept(tokenizer.eos_token_id)
    assert constraint.done


def test_forced_tokens_are_what_must_come(tokenizer):
    constraint = GrammarConstraint(tokenizer, 'start: "click the button " /[0-9]{1,3}/')
    forced = constraint.forced()
    assert tokenizer.decode(forced).startswith("click the button")
    for token in forced:
        assert token in allowed(constraint, tokenizer)
        constraint.accept(token)


def test_logits_of_a_padded_vocabulary_are_masked_and_not_changed(tokenizer):
    width = len(tokenizer) + 100
    logits = torch.zeros(width)
    masked = GrammarConstraint(tokenizer, ACTIONS).mask(logits)
    assert masked.shape == logits.shape
    assert not masked[len(tokenizer) :].isfinite().any()
    assert logits.isfinite().all()


def test_json_schema(tokenizer):
    constraint = GrammarConstraint.from_json_schema(tokenizer, PERSON)
    for token in tokenizer('{"name":"Ada","age":36')["input_ids"]:
        constraint.accept(token)
    assert not constraint.accepting
    for token in tokenizer("}")["input_ids"]:
        constraint.accept(token)
    assert constraint.done


def test_a_token_outside_the_grammar_is_an_error(tokenizer):
    with pytest.raises(AgentKVError, match=r"the grammar cannot go on: .*doesn't satisfy the grammar"):
        GrammarConstraint(tokenizer, 'start: "a"').accept(tokenizer("b")["input_ids"][0])


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [("start: thing", 'unknown name: "thing"'), ("start: (", "Expected token"), ("", "Empty grammar")],
)
def test_wrong_grammars_are_one_line(tokenizer, grammar, reason):
    with pytest.raises(AgentKVError) as caught:
        GrammarConstraint(tokenizer, grammar)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schema", ["{not json", {"type": "objekt"}, {"enum": {1, 2}}])
def test_wrong_schemas_are_one_line(tokenizer, schema):
    with pytest.raises(AgentKVError, match=r"^the JSON schema .+$"):
        GrammarConstraint.from_json_schema(tokenizer, schema)


def test_the_tokenizer_is_prepared_once(tokenizer):
    assert constraints._llguidance_tokenizer(tokenizer) is constraints._llguidance_tokenizer(tokenizer)
