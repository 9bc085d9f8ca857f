"""The engine process with its real loop, core and recorder, and the runner without weights in place of the model.

It loads no torch, so it starts in a fraction of a second, and takes STEP_SECONDS per step. A prompt that holds POISON
kills it, one that holds FATAL kills it in its first step, one that holds FAILING fails its step, one that holds STUCK
makes a step that does not end. The model's name may say how it starts. Each append to the recording takes
APPEND_SECONDS longer than the disk does, the first one FIRST_APPEND_SECONDS, and the first sync SYNC_SECONDS.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from engine.clock import Clock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.errors import ModelError
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import StepResult
from engine.execution.scripted import SCRIPTED_VOCABULARY, ScriptedRunner
from recorder.frames import FramedFile

STEP_SECONDS = float(os.environ.get("SCRIPTED_STEP_SECONDS", "0.002"))
APPEND_SECONDS = float(os.environ.get("SCRIPTED_APPEND_SECONDS", "0"))
FIRST_APPEND_SECONDS = float(os.environ.get("SCRIPTED_FIRST_APPEND_SECONDS", "0"))
SYNC_SECONDS = float(os.environ.get("SCRIPTED_SYNC_SECONDS", "0"))
POISON = SCRIPTED_VOCABULARY + 13
FAILING = SCRIPTED_VOCABULARY + 14
STUCK = SCRIPTED_VOCABULARY + 15
FATAL = SCRIPTED_VOCABULARY + 16
UNLOADABLE = "unloadable"  # says why it cannot start
SHORT_LIVED = "short-lived"  # dies as soon as it is ready


class SlowRunner(ScriptedRunner):
    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        if POISON in contents.prompt_token_ids:
            os._exit(7)
        super().add_request(request, sampling, contents, digests)

    def execute(self, plan: StepPlanned) -> StepResult:
        time.sleep(STEP_SECONDS)
        prompts = [self._requests[request].contents.prompt_token_ids for request, _start, _count in plan.rows]
        if any(FATAL in prompt for prompt in prompts):
            os._exit(8)
        if any(FAILING in prompt for prompt in prompts):
            raise ArithmeticError("asked to fail")
        if any(STUCK in prompt for prompt in prompts):
            time.sleep(3600)
        return super().execute(plan)


class Built:
    """What `build_runner` gives, as far as the process reads it."""

    def __init__(self, config: EngineConfig, digest_key: bytes) -> None:
        self.limits = Limits(
            num_kv_blocks=config.num_kv_blocks or 256,
            max_model_len=config.max_model_len or 512,
            **config.given_limits(),
        )
        self.runner = SlowRunner(
            self.limits.num_kv_blocks, self.limits.block_size, digest_key, keeps_kv_digests=config.kv_digests
        )
        self.info: dict[str, Any] = {
            "backend": "scripted",
            "numerics_class": "scripted",
            "p4_holds": True,
            "model": config.model,
        }


def build(config: EngineConfig, digest_key: bytes, clock: Clock) -> Built:
    if config.model == UNLOADABLE:
        raise ModelError("the file is no model")
    if config.model == SHORT_LIVED:
        threading.Timer(0.1, lambda: os._exit(9)).start()
    return Built(config, digest_key)


def slow_down_the_disk() -> None:
    append, sync = FramedFile.append, FramedFile.sync
    seconds_to_sync, seconds_to_append = [SYNC_SECONDS], [FIRST_APPEND_SECONDS]

    def late_append(file: FramedFile, bodies: Sequence[bytes]) -> None:
        time.sleep(seconds_to_append.pop() if seconds_to_append else APPEND_SECONDS)
        append(file, bodies)

    def late_sync(file: FramedFile) -> None:
        time.sleep(seconds_to_sync.pop() if seconds_to_sync else 0)
        sync(file)

    FramedFile.append = late_append  # type: ignore[assignment,method-assign]
    FramedFile.sync = late_sync  # type: ignore[assignment,method-assign]


def main() -> int:
    """The real process, with this module in place of the one that builds a model."""
    slow_down_the_disk()
    builder = ModuleType("engine.execution.build")
    vars(builder).update(build_runner=build, BuiltRunner=Built)
    sys.modules[builder.__name__] = builder
    from engine import process

    return process.main()


if __name__ == "__main__":
    sys.exit(main())
