"""What is secret is in no answer, log line, recording or reading; tokens of operators and of viewers stay apart."""

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from daemon.api_keys import ApiKeys
from daemon.config_sources import Configured
from daemon.logging import set_up_logging
from daemon.reload import reload
from daemon.viewer_token import InvalidViewerToken, read_viewer_token
from recorder.sealing import unsealed
from tests.daemon.certificates import write_certificate
from tests.daemon.readings import read_in_every_way
from tests.daemon.served import Served, completion, serving

MARK = "CaNaRy"
OPERATOR, TENANT, VIEWER, WRONG = (
    f"{MARK}-{who}-key-of-some-length" for who in ("operator", "tenant", "viewer", "wrong")
)
PAGES = ("/config", "/metrics", "/health", "/ready", "/version", "/openapi.json", "/v1/models", "/viewer/", "/nowhere")


def write_files(folder: Path) -> dict[str, str]:
    """The options that name them."""
    digest = hashlib.sha256(TENANT.encode()).hexdigest()
    (folder / "keys.toml").write_text(f'[tenants.a]\nsha256 = ["{digest}"]\n')
    (folder / "viewer").write_text(VIEWER)
    certificate, key = write_certificate(folder, "tls")
    return {
        "api_key": OPERATOR,
        "api_key_file": str(folder / "keys.toml"),
        "viewer_token_file": str(folder / "viewer"),
        "tls_cert": certificate,
        "tls_key": key,
    }


async def ask_everything(served: Served) -> list[str]:
    """Every page and endpoint with every key; all that was answered."""
    answers = []
    for key in (OPERATOR, TENANT, VIEWER, WRONG, ""):
        headers = {"Authorization": f"Bearer {key}"}
        for path in PAGES:
            async with served.session.get(path, headers=headers) as response:
                answers.append(await response.text())
        for path, body in (("/v1/completions", completion(max_tokens=2)), ("/incidents", {"note": "odd"})):
            async with served.session.post(path, json=body, headers=headers) as response:
                answers.append(await response.text())
        async with served.session.get(f"/{key}?token={key}", headers=headers) as response:
            assert response.status == 404
    async with served.session.get("/health", headers={"Authorization": f"Bearer {WRONG}" + "x" * 9_000}) as response:
        assert (response.status, response.headers["Server"]) == (431, "reprise")
    async with served.session.get("/health") as response:
        assert (response.status, response.headers["Server"]) == (200, "reprise")
    return answers


def serve_it(folder: Path) -> str:
    options = write_files(folder)

    async def story() -> str:
        async with serving(folder / "run", **options) as served:
            answers = await ask_everything(served)
            assert (await reload(served.service, lambda: Configured(served.service.config))).reason == ""
            return "\n".join(answers)

    set_up_logging("debug", sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())


def test_no_secret_is_in_any_answer_log_line_recording_or_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "tests.daemon.test_secrets", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert '"api-key": {"value": "(set, not shown)"' in done.stdout
    assert "request ended" in done.stderr
    for told in (done.stdout, done.stderr, read_in_every_way(tmp_path / "run", tmp_path / "readings", capsys)):
        assert MARK not in told
        assert "PRIVATE KEY" not in told
    for path in [path for path in (tmp_path / "run").rglob("*") if path.is_file()]:
        data = b"".join(unsealed(path)) if path.suffix == ".rps" else path.read_bytes()
        assert MARK.encode() not in data, path


def test_keys_of_tenants_administrators_and_viewers_open_what_is_theirs_alone(tmp_path: Path) -> None:
    async def status(served: Served, method: str, path: str, key: str) -> int:
        body = {"note": "odd"} if path == "/incidents" else completion(max_tokens=1)
        headers = {"Authorization": f"Bearer {key}"}
        async with served.session.request(method, path, headers=headers, json=body) as response:
            return response.status

    async def story() -> None:
        async with serving(tmp_path / "run", **write_files(tmp_path)) as served:
            opened = {}
            for name, key in (("admin", OPERATOR), ("tenant", TENANT), ("viewer", VIEWER), ("nobody", WRONG)):
                asks = (("POST", "/v1/completions"), ("POST", "/incidents"), ("GET", "/config"), ("GET", "/viewer/"))
                opened[name] = [await status(served, method, path, key) for method, path in asks]
            assert opened == {
                "admin": [200, 201, 200, 401],
                "tenant": [200, 403, 403, 401],
                "viewer": [401, 401, 401, 200],
                "nobody": [401, 401, 401, 401],
            }

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_a_viewers_token_that_is_an_api_key_too_is_refused(tmp_path: Path) -> None:
    (tmp_path / "viewer").write_text(VIEWER)
    with pytest.raises(InvalidViewerToken, match="is an API key too") as caught:
        read_viewer_token(str(tmp_path / "viewer"), ApiKeys.configured(VIEWER, ""))
    assert VIEWER not in str(caught.value)


if __name__ == "__main__":
    print(serve_it(Path(sys.argv[1])))
