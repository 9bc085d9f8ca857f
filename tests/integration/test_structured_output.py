"""Structured output of the default model through the official client: valid, streamed alike, and replayed equal."""

import json
from pathlib import Path
from typing import Any

from openai import OpenAI

from tests.integration.daemon_process import MODEL
from tests.integration.served import serve

ASKED: Any = [{"role": "user", "content": "Describe a person as JSON."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["rain", "bread", "trains"]}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}


def test_answers_under_a_schema_are_valid_and_the_recording_replays(tmp_path: Path) -> None:
    with serve(tmp_path, max_num_seqs=4) as served:
        client = OpenAI(base_url=f"{served.daemon.base_url}/v1", api_key="none", max_retries=0, timeout=120)
        chat = client.chat.completions.create(
            model=MODEL, messages=ASKED, response_format=FORMAT, max_tokens=150, seed=3, n=3
        )
        for choice in chat.choices:
            assert choice.finish_reason == "stop"
            person = json.loads(choice.message.content or "")
            assert set(person) == {"name", "age", "likes"}
            assert 0 <= person["age"] <= 150
            assert set(person["likes"]) <= {"rain", "bread", "trains"}
        chunks = client.chat.completions.create(
            model=MODEL, messages=ASKED, response_format=FORMAT, max_tokens=150, seed=3, stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == chat.choices[0].message.content
        cut = client.chat.completions.create(model=MODEL, messages=ASKED, response_format=FORMAT, max_tokens=3)
        assert cut.choices[0].finish_reason == "length"
        colour = client.completions.create(
            model=MODEL, prompt="The sky is", max_tokens=20, extra_body={"guided_choice": ["blue", "green"]}
        )
        assert colour.choices[0].text in ("blue", "green")
        client.close()
