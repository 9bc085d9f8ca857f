"""Two hundred schemas asked of the default model: every answer valid, the recording replayed equal, the cost told."""

import json
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from engine.execution.token_mask import TokenMask
from engine.text import grammar
from tests.execution.schemas import schemas
from tests.execution.test_schemas import must_be_valid
from tests.execution.test_token_mask import TEXT_MODEL
from tests.integration.daemon_process import MODEL
from tests.integration.served import serve


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_schemas_of_growing_difficulty_are_all_followed_and_replayed(tmp_path: Path) -> None:
    """Prints what the masks take per token, each alone: `pytest -s`."""
    asked = schemas(200)
    with serve(tmp_path, max_num_seqs=8) as served, ThreadPoolExecutor(8) as threads:
        client = OpenAI(base_url=f"{served.daemon.base_url}/v1", api_key="none", max_retries=0, timeout=3000)

        def ask(schema: Any) -> tuple[str, list[int]]:
            described: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            extra = {"return_token_ids": True}
            prompt: Any = [{"role": "user", "content": "Invent one as JSON: " + json.dumps(schema, ensure_ascii=False)}]
            chat = client.chat.completions.create(
                model=MODEL, messages=prompt, response_format=described, max_tokens=500, seed=5, extra_body=extra
            )
            (choice,) = chat.choices
            assert choice.finish_reason == "stop", (schema, choice.message.content)
            return choice.message.content or "", (choice.model_extra or {})["token_ids"]

        answers = list(threads.map(ask, asked))
        client.close()
    for schema, (text, _token_ids) in zip(asked, answers, strict=True):
        must_be_valid(text, schema)
    begun_us, step_us = array("d"), array("d")
    for schema, (_text, token_ids) in zip(asked, answers, strict=True):
        source, began = grammar.of_json_schema(schema), time.process_time()
        mask = TokenMask(TEXT_MODEL, source)
        mask.allowed()
        begun_us.append((time.process_time() - began) * 1e6)
        for token_id in token_ids:
            began = time.process_time()
            mask.take(token_id)
            mask.allowed()
            step_us.append((time.process_time() - began) * 1e6)
    for what, values in (("to the first mask", sorted(begun_us)), ("per token", sorted(step_us))):
        median, p99, mean = values[len(values) // 2], values[len(values) * 99 // 100], sum(values) / len(values)
        print(f"{what}: median {median:.0f} us, mean {mean:.0f}, p99 {p99:.0f}, worst {values[-1]:.0f} ({len(values)})")
