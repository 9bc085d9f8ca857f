"""What the request handlers share: the engine, the model's text side, names, seeds. It must not know HTTP."""

import asyncio
import hashlib
import json
import secrets
from dataclasses import asdict
from importlib.metadata import version

from daemon.api_keys import ApiKeys
from daemon.config import DaemonConfig
from daemon.config_sources import Configured
from daemon.engine_client import EngineClient
from daemon.errors import unavailable
from daemon.grammar_maker import GrammarMaker
from daemon.prompt_encoder import PromptEncoder
from daemon.refusals import Refusals
from daemon.resumables import Resumables
from daemon.supervisor import ENGINE_MODULE, EngineState
from daemon.telemetry.spans_sent import SpansSent
from daemon.tenant_limits import TenantLimits
from daemon.tls import read_tls, warn_of_expiry
from daemon.viewer_token import read_viewer_token
from engine.clock import Clock
from engine.config import EngineConfig
from engine.text.model_source import ModelSource
from engine.text.text_model import TextModel

MAX_LARGE_BODIES = 4  # read at the same time


class Service:
    """Raises InvalidKeyFile, InvalidTls, InvalidViewerToken.

    served_names   names that clients may ask for; the first is the one answered
    config         what is in force; a reload changes what can change while serving (`reload.py`)
    configured     what was read last, with the place of each value: what waits for the next start is there already
    spans_sent     what became of OpenTelemetry's spans
    refusals, reloads   calls answered with an error; reloads by what came of them
    large_bodies   whose turn it is to bring one
    is_draining    a signal came: what runs goes on, nothing new is taken
    """

    def __init__(
        self,
        config: DaemonConfig,
        engine_config: EngineConfig,
        source: ModelSource,
        clock: Clock,
        engine_module: str = ENGINE_MODULE,
    ) -> None:
        self.config = config
        self.configured = Configured(config)
        self.api_keys = ApiKeys.configured(config.api_key, config.api_key_file)
        self.tls = read_tls(config.tls_cert, config.tls_key)
        warn_of_expiry(self.tls, clock.wall_ns())
        self.viewer_token = read_viewer_token(config.viewer_token_file, self.api_keys)
        self.clock = clock
        self.tenant_limits = TenantLimits(clock)
        self.engine = EngineClient(engine_config, clock, engine_module)
        self.large_bodies = asyncio.Semaphore(MAX_LARGE_BODIES)
        self.resumables = Resumables(self.engine, clock)
        self.engine.on_ready = lambda info: self.resumables.compare_numerics(info.get("numerics_class", ""))
        self.served_names = config.served_model_name or (source.name,)
        self.created = clock.wall_ns() // 1_000_000_000
        self.version = version("reprise")
        self.spans_sent = SpansSent()
        self.refusals = Refusals()
        self.reloads = dict.fromkeys(("done", "refused"), 0)
        self.is_draining = False
        self._engine_config = engine_config
        self._text_model: TextModel | None = None
        self._encoder: PromptEncoder | None = None
        self._grammars: GrammarMaker | None = None
        self._num_seeds = 0

    @property
    def not_ready_reason(self) -> str:
        """Why no request can be taken now; "" when one can."""
        if self.is_draining:
            return "draining"
        if self.engine.supervisor.state is not EngineState.READY:
            return f"engine {self.engine.supervisor.state}"
        return "" if self._text_model is not None else "loading the tokenizer"

    @property
    def text_model(self) -> TextModel:
        if self._text_model is None:
            raise unavailable("the tokenizer is still being loaded", "engine_not_ready")
        return self._text_model

    @property
    def encoder(self) -> PromptEncoder:
        assert self._encoder is not None, "it comes with the text model"
        return self._encoder

    @property
    def grammars(self) -> GrammarMaker:
        assert self._grammars is not None, "it comes with the text model"
        return self._grammars

    @property
    def system_fingerprint(self) -> str:
        """Changes with whatever may change an answer: numerics class and the engine's configuration."""
        configuration = {**asdict(self._engine_config), "record_dir": ""}  # where a run is kept changes no answer
        identity = [self.version, self.engine.supervisor.info.get("numerics_class", ""), configuration]
        digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=6)
        return f"fp_{digest.hexdigest()}"

    def use_text_model(self, text_model: TextModel) -> None:
        self._text_model = text_model
        self._encoder = PromptEncoder(text_model, self.clock)
        self._grammars = GrammarMaker(text_model.vocabulary)

    def next_seed(self) -> int:
        """For a request that brings none: drawn, or the next of the sequence that --seed names."""
        if self.config.seed is None:
            return secrets.randbits(63)
        self._num_seeds += 1
        digest = hashlib.blake2b(f"{self.config.seed}:{self._num_seeds}".encode(), digest_size=8)
        return int.from_bytes(digest.digest(), "little") >> 1

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.close()
        if self._grammars is not None:
            self._grammars.close()
