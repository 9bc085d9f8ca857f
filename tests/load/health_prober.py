"""/health asked over and over, each time on a new connection, by a process of its own, whose times are the daemon's.

with HealthProber(port) as prober: ...
prober.milliseconds, prober.num_failed
"""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType

PROBE_SECONDS = 0.05


class HealthProber:
    """
    milliseconds   of each answer, from before the connection is made
    num_failed     answers other than 200, and none
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.milliseconds: list[float] = []
        self.num_failed = 0

    def __enter__(self) -> "HealthProber":
        command = [sys.executable, "-m", "tests.load.health_prober", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate(timeout=60)
        self.milliseconds, self.num_failed = json.loads(output)


def _probe(port: int) -> tuple[list[float], int]:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    milliseconds, num_failed = [], 0
    while not ended.is_set():
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/health")
            num_failed += connection.getresponse().status != 200
        except OSError:
            num_failed += 1
        finally:
            connection.close()
        milliseconds.append(round((time.perf_counter() - begun) * 1000, 2))
        ended.wait(PROBE_SECONDS)
    return milliseconds, num_failed


if __name__ == "__main__":
    print(json.dumps(_probe(int(sys.argv[1]))))
