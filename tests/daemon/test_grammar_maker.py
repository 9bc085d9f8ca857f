"""Hostile grammars cost their sender the answer, and nobody else anything but a wait."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.errors import ApiError
from daemon.grammar_maker import GrammarMaker
from daemon.structure import of_schema, read_structure
from tests.daemon.text_models import word_text_model

FRIENDLY = of_schema({"type": "object", "properties": {"a": {"type": "integer"}}}, "guided_json", "guided_json")
HOSTILE: dict[str, dict[str, Any]] = {
    "never ends": {
        "guided_json": {"allOf": [{"type": "string", "pattern": f"[a-z]{{{count}}}"} for count in range(60)]}
    },
    "overflows the stack": {
        "guided_grammar": "start: r0\n"
        + "".join([f'r{rule}: "a{rule}" r{rule + 1} | "b{rule}"\n' for rule in range(8000)])
        + 'r8000: "z"\n'
    },
    "takes long before its first token": {"guided_regex": "(a{1000}){1000}"},
    "has too many ways to go on": {
        "guided_json": {
            "type": "object",
            "properties": {f"p{i}": {"type": "string", "pattern": f"^[a-z]{{1,{i % 50 + 1}}}$"} for i in range(3000)},
            "additionalProperties": False,
        }
    },
    "is nested deeply": {"guided_json": json.loads('{"items":' * 900 + "{}" + "}" * 900)},
    "is too long": {"guided_json": {"enum": ["x" * 1_200_000]}},
}


@pytest.fixture
def maker() -> Iterator[GrammarMaker]:
    maker = GrammarMaker(word_text_model().vocabulary)
    yield maker
    maker.close()


def test_a_hostile_grammar_is_refused_and_the_next_one_is_made(maker: GrammarMaker) -> None:
    async def story() -> None:
        for why, body in HOSTILE.items():
            structure = read_structure(body)
            assert structure is not None
            with pytest.raises(ApiError) as raised:
                await maker.make(structure)
            assert (raised.value.status, raised.value.param) == (400, *body), (why, raised.value.message)
            assert len(raised.value.message) < 500
        assert '"a"' in await maker.make(FRIENDLY)

    asyncio.run(story())


def test_the_event_loop_goes_on_while_a_grammar_is_made(maker: GrammarMaker) -> None:
    async def story() -> None:
        structure = read_structure(HOSTILE["never ends"])
        assert structure is not None
        making = asyncio.create_task(maker.make(structure))
        num_turns = 0
        while not making.done():
            await asyncio.sleep(0.001)
            num_turns += 1
        assert num_turns > 20  # of at least a thousand
        assert isinstance(making.exception(), ApiError)

    asyncio.run(story())


def test_a_grammar_made_lately_is_known_and_of_too_many_at_once_some_are_sent_away(maker: GrammarMaker) -> None:
    async def story() -> None:
        first = await maker.make(FRIENDLY)
        assert await maker.make(FRIENDLY) is first
        schemas = [of_schema({"const": number}, "guided_json", "guided_json") for number in range(100)]
        answers = await asyncio.gather(*[maker.make(schema) for schema in schemas], return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, ApiError)]
        assert {error.status for error in refused} == {503}
        assert len(refused) == 100 - 64
        assert json.loads(str(answers[0]))["grammars"][0]["json_schema"]["const"] == 0

    asyncio.run(story())
