"""HTTPS: who connects sees the configured certificate, a reload replaces it, and files that cannot be used say why."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import uvloop
from structlog.testing import capture_logs

from daemon.accepting import MAX_GREETINGS
from daemon.application import listen
from daemon.config_sources import Configured, read_config
from daemon.listening import listening_sockets
from daemon.reload import reload
from daemon.tls import InvalidTls, read_tls, warn_of_expiry
from tests.daemon.certificates import ENDS, write_certificate
from tests.daemon.served import Served, completion, serving


async def ask(port: int, context: ssl.SSLContext) -> tuple[int, str]:
    """The status of a streamed answer and the TLS version."""
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"https://127.0.0.1:{port}/v1/completions", json=completion(stream=True)) as response,
    ):
        assert response.connection is not None
        assert response.connection.transport is not None
        version = response.connection.transport.get_extra_info("ssl_object").version()
        assert (await response.text()).endswith("data: [DONE]\n\n")
        return response.status, str(version)


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


def test_a_daemon_with_a_certificate_answers_by_tls_alone_and_a_reload_takes_the_next_one(tmp_path: Path) -> None:
    first, key = write_certificate(tmp_path, "first")
    second, second_key = write_certificate(tmp_path, "second")

    async def story(served: Served, port: int) -> None:
        assert await ask(port, trusting(first)) == (200, "TLSv1.3")
        old = trusting(first)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await ask(port, old) == (200, "TLSv1.2")
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{port}/health")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(port, trusting(second))
        await check_reload(served, port)

    async def check_reload(served: Served, port: int) -> None:
        Path(first).write_bytes(Path(second).read_bytes())  # without its key: refused, and all stays as it was
        outcome = await reload(served.service, lambda: Configured(served.service.config))
        assert "is not the key of the first certificate" in outcome.reason
        assert served.service.tls is not None
        Path(key).write_bytes(Path(second_key).read_bytes())
        outcome = await reload(served.service, lambda: Configured(served.service.config))
        assert outcome.changed == ("tls-cert", "tls-key")
        assert await ask(port, trusting(second)) == (200, "TLSv1.3")
        plain = replace(served.service.config, tls_cert="", tls_key="")
        outcome = await reload(served.service, lambda: Configured(plain))
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/health") as response:
            assert response.status == 200

    async def told() -> None:
        async with serving(tls_cert=first, tls_key=key) as served:
            runner = await listen(served.service, served.calls, listening_sockets("127.0.0.1", 0, [], 60.0))
            await story(served, runner.addresses[0][1])
            await runner.cleanup()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


def test_handshakes_that_do_not_go_on_keep_no_more_than_so_many_descriptors(tmp_path: Path) -> None:
    """Who waits behind them is served once they are given up; here, once they leave."""
    certificate, key = write_certificate(tmp_path, "one")

    async def told() -> None:
        async with serving(tls_cert=certificate, tls_key=key) as served:
            runner = await listen(served.service, served.calls, listening_sockets("127.0.0.1", 0, [], 60.0))
            port = runner.addresses[0][1]
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_GREETINGS + 20)]
            waiting = asyncio.create_task(ask(port, trusting(certificate)))
            await asyncio.sleep(0.1)
            for _reader, writer in silent:
                writer.close()
            assert await waiting == (200, "TLSv1.3")
            await runner.cleanup()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


def test_older_tls_is_refused(tmp_path: Path) -> None:
    tls = read_tls(*write_certificate(tmp_path, "one"))
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_files_that_cannot_be_used_say_which_and_why(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    other, other_key = write_certificate(tmp_path, "other")
    _, locked = write_certificate(tmp_path, "locked", b"CaNaRy")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nCaNaRy\n-----END CERTIFICATE-----\n")
    for paths, told in (
        ((certificate, ""), "--tls-cert is given and --tls-key is not: give both"),
        (("", key), "--tls-key is given and --tls-cert is not: give both"),
        ((str(tmp_path / "no.pem"), key), r"--tls-cert: .*no.pem cannot be read: No such file .*credential"),
        ((certificate, str(tmp_path)), "--tls-key: .* cannot be read: Is a directory; let the daemon's user read it"),
        ((certificate, other_key), r"--tls-key: .*other.key is not the key of the first certificate in .*one.pem"),
        ((other, key), "is not the key of the first certificate"),
        ((key, key), "--tls-cert: .* holds no certificate in PEM form"),
        ((certificate, certificate), "--tls-key: .* holds no private key in PEM form"),
        ((certificate, locked), "--tls-key: the key is encrypted"),
        ((str(broken), key), "cannot be used"),
    ):
        with pytest.raises(InvalidTls, match=told) as caught:
            read_tls(*paths)
        assert "CaNaRy" not in str(caught.value)


def test_a_service_finds_its_certificate_among_its_credentials(tmp_path: Path) -> None:
    for name in ("reprise-tls-cert", "reprise-tls-key"):
        (tmp_path / name).write_text("")
    config = read_config({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert (config.tls_cert, config.tls_key) == (f"{tmp_path}/reprise-tls-cert", f"{tmp_path}/reprise-tls-key")


def test_a_certificate_that_runs_out_is_said_before_clients_say_it(tmp_path: Path) -> None:
    tls = read_tls(*write_certificate(tmp_path, "server"))
    assert tls is not None
    assert tls.not_after_s == ENDS.timestamp()
    for days, said in ((30, ""), (13, "expires soon"), (-1, "has expired")):
        with capture_logs() as logs:
            warn_of_expiry(tls, round((ENDS.timestamp() - days * 86_400) * 1e9))
        assert len(logs) == bool(said)
        assert all(said in line["event"] for line in logs)
    warn_of_expiry(None, 0)
