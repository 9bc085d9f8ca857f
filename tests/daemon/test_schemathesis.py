"""schemathesis asks what /openapi.json says can be asked, and what it says cannot: no 5xx, errors in the API's shape.

Bounded in examples, which are the same each time.
"""

import asyncio
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from tests.daemon.served import serving

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own imports
    schemathesis = pytest.importorskip("schemathesis")
    hypothesis = pytest.importorskip("hypothesis")

NUM_EXAMPLES = 10
SETTINGS = hypothesis.settings(
    max_examples=NUM_EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.generate],
)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """A server on an event loop of another thread, for schemathesis waits for each answer."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = serving(max_num_seqs=8)

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    served = run(context.__aenter__())
    yield served.base_url
    run(context.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_what_the_document_allows_and_what_it_forbids_is_answered(base_url: str, mode: str) -> None:
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    num_asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.method == "get":  # there is nothing to get wrong
            operation.Case().call_and_validate(timeout=30)
            continue

        def ask(case: Any) -> None:
            nonlocal num_asked
            if isinstance(case.body, dict):
                case.body.update(short(case.body))
            num_asked += 1
            response = case.call(timeout=30)
            assert response.status_code < 500, response.text
            if response.status_code >= 400:
                assert set(response.json()["error"]) == {"message", "type", "param", "code"}

        cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])
        SETTINGS(hypothesis.given(case=cases)(ask))()
    assert num_asked >= 3 * NUM_EXAMPLES


def short(body: dict[str, Any]) -> dict[str, Any]:
    """Bounds on the work of one answer, where it does not say something else of another type."""
    longest = {"max_tokens": 4, "max_completion_tokens": 4, "n": 2, "best_of": 2}
    given = {name: body.get(name) for name in longest}
    return {
        name: longest[name] if value is None or (type(value) is int and value > longest[name]) else value
        for name, value in given.items()
        if name in body or name == "max_tokens"
    }
