"""Gemma 3 keeps every promise: chats through the daemon past its window, in company, preempted, on cached prefixes.

A tiny random model with real weights, tokenizer and template in one GGUF file; `make test-slow` asks the packaged one
(tests/execution/test_packaged_gemma3.py).
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from engine.core.decisions import RequestAdmitted, RequestPreempted
from tests.integration.aftermath import check_recording, entries_of, wait_idle
from tests.integration.daemon_process import DaemonProcess, reprise
from tests.integration.tiny_gemma3 import WINDOW, write_tiny_gemma3

MODEL = "tiny-gemma"
SYSTEM = "the river in a river. " * 9
NUM_CLIENTS = 8
FLAGS: dict[str, Any] = {
    "block_size": 8,
    "num_kv_blocks": 32,  # two chats take more than that
    "max_model_len": 256,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 48,
    "reserve_output": "none",
    "thrash_bound_permille": 0,
    "kv_digests": True,
    "audit_rate": 1,
}


@pytest.fixture(scope="module", params=["recompute", pytest.param("swap", marks=pytest.mark.slow)])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("gemma3")
    flags = FLAGS | ({"swap_space": "16MiB"} if request.param == "swap" else {})
    with DaemonProcess(folder, model=write_tiny_gemma3(folder / f"{MODEL}.gguf"), **flags) as daemon:
        yield daemon


def body(number: int) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "a river " * (1 + number)}]
    extra = {"ignore_eos": True, "return_token_ids": True}
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": 100,
        "seed": number,
        "temperature": 0.8,
        "extra_body": extra,
    }


async def in_company(daemon: DaemonProcess) -> list[str]:
    async with AsyncOpenAI(base_url=f"{daemon.base_url}/v1", api_key="-", max_retries=0, timeout=120) as client:

        async def stream(number: int) -> str:
            chunks = await client.chat.completions.create(stream=True, **body(number))
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        return list(await asyncio.gather(*[stream(number) for number in range(NUM_CLIENTS)]))


def test_chats_in_company_are_those_alone_and_the_recording_proves_it(daemon: DaemonProcess) -> None:
    together = asyncio.run(in_company(daemon))
    with OpenAI(base_url=f"{daemon.base_url}/v1", api_key="-", max_retries=0, timeout=120) as client:
        alone = [client.chat.completions.create(**body(number)) for number in range(NUM_CLIENTS)]
    assert [answer.choices[0].message.content for answer in alone] == together
    assert len(set(together)) == NUM_CLIENTS
    assert all(answer.usage and answer.usage.prompt_tokens > 2 * WINDOW for answer in alone)
    wait_idle(daemon)
    assert daemon.stop() == 0
    decisions = [decision for entry in entries_of(daemon.recording) for decision in entry.decisions]
    assert any(isinstance(decision, RequestPreempted) for decision in decisions), "nobody was preempted"
    assert any(isinstance(decision, RequestAdmitted) and decision.num_hit_blocks > 0 for decision in decisions)
    check_recording(daemon.recording, execute=True)
    isolated = reprise("isolate", daemon.recording, "--all", "--json")
    assert isolated.returncode == 0, isolated.stdout + isolated.stderr
    assert json.loads(isolated.stdout)["figures"]["requests"] == 2 * NUM_CLIENTS


def test_the_template_and_the_ends_of_turns_are_gemmas(tmp_path: Path) -> None:
    from engine.text.model_source import resolve_model
    from engine.text.text_model import load_text_model

    model = load_text_model(resolve_model(str(write_tiny_gemma3(tmp_path / "m.gguf"))))
    prompt = model.render_chat([{"role": "user", "content": "the river"}, {"role": "assistant", "content": "a"}])
    assert prompt == (
        "<bos><start_of_turn>user\nthe river<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n<start_of_turn>model\n"
    )
    ids = model.encode(prompt, add_special=False)
    assert [model.token_text(number) for number in ids[:6]] == [
        "<bos>",
        "<start_of_turn>",
        "user",
        "\n",
        "the",
        " river",
    ]
    assert {model.token_text(number) for number in model.eos_token_ids} == {"<eos>", "<end_of_turn>"}
    assert model.decode(model.encode("a\n\nriver")) == "a\n\nriver"
