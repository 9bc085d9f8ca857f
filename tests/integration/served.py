"""A daemon for a group of tests, with the books kept: what clients got is compared with what was recorded, at the end.

    with serve(directory, max_num_seqs=4) as served:
        async with served.connect() as client: ...

Leaving the block checks that the daemon is idle and alive (I1, I2), stops it, and checks the recording (I3), the
counts of every client (I4), its replay (I5), and that no answer gave away what is inside (I6).
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from engine.core.decisions import RequestFinished
from engine.core.vocabulary import Entry
from recorder.reader import Recording
from tests.integration.aftermath import check_daemon, check_recording, ends_of
from tests.integration.client import Client, Stream, connect
from tests.integration.daemon_process import DaemonProcess

_INSIDES = re.compile(r"Traceback|File \"|\.py\b|\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|Error\b|Exception\b")


class Served:
    """
    daemon    the process
    streams   every request sent through `connect`, for the books
    """

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.streams: list[Stream] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        async with connect(self.daemon.base_url) as client:
            yield _Keeper(client, self.streams)

    def entries(self) -> list[Entry]:
        """What has been recorded so far."""
        return list(Recording.open(self.daemon.recording).entries())


@contextmanager
def serve(directory: Path, **flags: Any) -> Iterator[Served]:
    """Start a daemon with `flags`; afterwards nothing about it may be wrong."""
    with DaemonProcess(directory, **flags) as daemon:
        served = Served(daemon)
        yield served
        check_daemon(daemon)
    entries = check_recording(daemon.recording, execute=True)
    check_accounts(entries, daemon.recording, served.streams)
    for stream in served.streams:
        if stream.error is not None:
            check_error(stream.error)


def check_accounts(entries: list[Entry], recording: Path, streams: list[Stream]) -> int:
    """I4: counts and tokens of every answer are those of the recording, bit for bit; returns how many were compared."""
    ends = ends_of(entries)
    contents = Recording.open(recording).contents()
    num_compared = 0
    for stream in streams:
        request_id = stream.headers.get("x-request-id", "")
        if stream.finish_reason is None or request_id not in ends:
            continue
        (end,) = ends[request_id]
        assert isinstance(end, RequestFinished)
        assert stream.finish_reason == {"kv_cache_exhausted": "length"}.get(end.reason, end.reason)
        if stream.wants_token_ids:
            assert stream.token_ids == contents.outputs(end.request)
            assert len(stream.token_ids) == end.num_output_tokens
        if stream.usage is not None:
            assert stream.usage["prompt_tokens"] == end.num_prompt_tokens
            assert stream.usage["completion_tokens"] == end.num_output_tokens
            assert stream.usage["prompt_tokens_details"]["cached_tokens"] == end.num_cached_tokens
        num_compared += 1
    assert num_compared == sum(stream.finish_reason is not None for stream in streams)
    return num_compared


def check_error(error: dict[str, Any]) -> None:
    """I6: an error is the API's own object and tells nothing of files, classes or tracebacks."""
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert not _INSIDES.search(error["message"]), error["message"]


class _Keeper(Client):
    """A client whose every request is put on the books."""

    def __init__(self, client: Client, streams: list[Stream]) -> None:
        super().__init__(client._session)
        self._kept = streams

    def send(
        self, body: dict[str, Any], *, path: str = "/v1/completions", headers: dict[str, str] | None = None
    ) -> Stream:
        stream = super().send(body, path=path, headers=headers)
        self._kept.append(stream)
        return stream
