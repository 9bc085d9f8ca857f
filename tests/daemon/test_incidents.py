"""POST /incidents keeps what is recorded now; audits and digests of KV blocks run in a served engine and show."""

import asyncio
import json
from pathlib import Path
from typing import Any

from recorder.incidents import pins_of
from tests.daemon.served import Served, completion
from tests.daemon.test_server import tell_alone


def metric(page: str, name: str, label: str = "") -> float:
    lines = [line for line in page.splitlines() if line.startswith(name + "{") and label in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_note_pins_the_segment_that_is_written_to(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.complete()
        status, answer = await served.post("/incidents", {"note": " answers look odd "})
        assert (status, answer["run"], answer["segment"]) == (201, "run", "000001")
        (pin,) = pins_of(tmp_path / "run" / "000001.rpr")
        assert (pin.reason, pin.is_automatic) == ("answers look odd", False)

    tell_alone(story, tmp_path / "run", api_key="secret")  # no endpoint outside /v1/ asks for it
    assert (tmp_path / "run" / "000001.pin").exists()


def test_a_note_that_says_nothing_is_refused(tmp_path: Path) -> None:
    bodies: list[Any] = [{}, {"note": ""}, {"note": "  "}, {"note": 3}, {"note": "x" * 1001}, []]

    async def story(served: Served) -> None:
        for body in bodies:
            async with served.session.post("/incidents", data=json.dumps(body)) as response:
                assert response.status == 400
                assert "note" in (await response.json())["error"]["message"] or body == []

    tell_alone(story, tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.pin"))


def test_where_nothing_is_recorded_there_is_nothing_to_keep() -> None:
    async def story(served: Served) -> None:
        status, answer = await served.post("/incidents", {"note": "odd"})
        assert (status, answer["error"]["code"]) == (409, "not_recording")

    tell_alone(story)


def test_finished_requests_are_audited_while_the_engine_is_idle_and_metrics_say_so() -> None:
    async def story(served: Served) -> None:
        await asyncio.gather(*[served.complete(prompt=[9] * 40 + [number]) for number in range(3)])
        timeline = served.service.engine.timeline
        await served.until(lambda: timeline.totals.audits["equal"] == 3)
        async with served.session.get("/metrics") as response:
            page = await response.text()
        assert metric(page, "reprise:audit_requests_total", 'result="equal"') == 3
        assert metric(page, "reprise:audit_requests_total", 'result="different"') == 0
        assert metric(page, "reprise:audit_tokens_total") == 3 * completion()["max_tokens"]
        assert metric(page, "reprise:kv_mismatch_total") == 0

    tell_alone(story, audit_rate=1.0, kv_digests=True)
