"""What a daemon recorded can be asked what-if, predicted and executed; what the answer is, no clock of ours decides."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from replay.__main__ import main
from tests.integration.client import completion
from tests.integration.served import serve

NUM_REQUESTS, OUTPUT = 6, 12


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["what-if", *arguments, "--json"])
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == values["exit_code"]
    assert code in (0, 1)  # trusted or not, as the machine was; but answered
    return values


def test_a_served_load_is_predicted_and_executed_under_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def load(served: Any) -> None:
        async with served.connect() as client:
            bodies = [completion(20, index, output=OUTPUT, stream=True) for index in range(NUM_REQUESTS)]
            await asyncio.gather(*[client.ask(body) for body in bodies])

    with serve(tmp_path, max_num_seqs=2) as served:
        asyncio.run(load(served))
    recording = str(served.daemon.recording)
    same = answered(capsys, recording)
    assert same["first_difference"] is None
    assert same["what_if"] == same["recorded"]
    assert len(same["redealt"]["recorded"]) == 3
    wider = answered(capsys, recording, "--max-num-seqs", "6", "--record", str(tmp_path / "wider"))
    executed = answered(capsys, recording, "--max-num-seqs", "6", "--execute", "--record", str(tmp_path / "executed"))
    for values in (wider, executed):
        assert values["recorded"]["finished"]["length"] >= NUM_REQUESTS
        for figure in ("finished", "output_tokens"):
            assert values["what_if"][figure] == values["recorded"][figure]
    assert wider["what_if"]["steps"] < wider["recorded"]["steps"]
    assert executed["control"]["finished"] == executed["recorded"]["finished"]
    main(["diff", recording, str(tmp_path / "executed"), "--json"])
    pairs = json.loads(capsys.readouterr().out)["requests"]
    assert [pair["first_differing_token"] for pair in pairs] == [None] * len(pairs)
