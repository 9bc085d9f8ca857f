"""The self-audit: finished requests are computed again, alone, while the engine has nothing else to do.

What a request emitted in company must be the same bits alone, so a difference is a fault of this engine: a block of
another request, a stale one, a result of another row. It has a small KV memory of its own and never touches the pool;
it goes a step at a time, so that a request that arrives waits for one short step. Of the digests of KV blocks, where
they are kept, the first that differs says which block went wrong. It must not know recordings or sockets.

Bounded: MAX_REQUESTS followed or waiting, and of each its first MAX_TOKENS tokens; whoever finds no room is passed by.
So are requests that failed, for of what they had emitted it is told already that it may be wrong.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import FinishReason, RequestAdmitted, RequestFinished, RequestRejected
from engine.core.events import AuditCompleted, AuditResult, KVMismatch, RequestArrived, StepCompleted
from engine.core.limits import MAX_ERROR_CHARS, Limits
from engine.core.vocabulary import Entry
from engine.execution.alone import steps_alone
from engine.execution.interface import Runner, StepResult
from engine.execution.kv_watch import KVWatch
from engine.log import Logger

MAX_REQUESTS = 64
MAX_TOKENS = 1024  # of prompt and output together: 64 blocks, 24 MB for the default model
STEP_TOKENS = 32  # of a prefill: about the step of those that serve, 10 to 50 ms for the default model

log = Logger(__name__)


@dataclass(slots=True)
class _Followed:
    """emitted: token id, digest and log-probability bits of each; blocks: digests by place in its block table;
    prompt: digest of what it was told of its prompt."""

    arrived: RequestArrived
    contents: RequestContents
    emitted: list[tuple[int, int, int]] = field(default_factory=list)
    blocks: dict[int, int] = field(default_factory=dict)
    prompt: tuple[int, int, int] | None = None


class SelfAudit:
    """
    rate          share of the requests, above 0 and at most 1: every so many-th, not drawn by chance
    make_runner   a runner with that many blocks of its own, made when the first request is audited
    watch         of the runner that serves, where digests of KV blocks are kept
    """

    def __init__(
        self, rate: float, limits: Limits, make_runner: Callable[[int], Runner], watch: KVWatch | None = None
    ) -> None:
        self._rate = rate
        self._num_blocks = -(-MAX_TOKENS // limits.block_size)
        self._limits = _limits_alone(limits, self._num_blocks)
        self._make_runner = make_runner
        self._watch = watch
        self._runner: Runner | None = None
        self._credit = 0.0
        self._following: dict[int, _Followed] = {}
        self._waiting: deque[_Followed] = deque()
        self._audit: _Audit | None = None

    @property
    def has_work(self) -> bool:
        return self._audit is not None or bool(self._waiting)

    def arrives(self, arrived: RequestArrived, contents: RequestContents) -> None:
        """Before the core is told. Whether it is followed is settled here."""
        self._credit += self._rate
        if self._credit < 1 or arrived.request in self._following:
            return
        has_room = len(self._following) + len(self._waiting) < MAX_REQUESTS
        if has_room and arrived.num_prompt_tokens + arrived.num_output_tokens < self._limits.max_model_len:
            self._credit -= 1
            self._following[arrived.request] = _Followed(arrived, contents)
        else:
            self._credit = 1.0  # the next one, then

    def see(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        """After an entry's decisions were carried out; `outputs` are the tokens that went to clients."""
        if not self._following:
            return
        if type(entry.event) is StepCompleted:
            self._see_step(entry.event, outputs)
        for decision in entry.decisions:
            followed = self._following.get(getattr(decision, "request", -1))
            if followed is None:
                continue
            if isinstance(decision, RequestAdmitted):
                self._see_found(followed, decision)
            elif isinstance(decision, RequestFinished):
                self._end(followed, decision)
            elif isinstance(decision, RequestRejected):
                del self._following[decision.request]

    def run_slice(self) -> list[AuditCompleted | KVMismatch]:
        """One step of the audit under way, or of the next; what it found when that was the last."""
        if self._audit is None:
            self._runner = self._runner or self._make_runner(self._num_blocks)
            self._audit = _Audit(self._waiting.popleft(), self._limits, self._runner)
        audit = self._audit
        completed = audit.step()
        if completed is None:
            return []
        self._audit = None
        if completed.result != AuditResult.EQUAL:
            log.error("a finished request is not the same alone", **completed._asdict())
        mismatch = audit.block_mismatch(self._watch)
        if mismatch is not None:
            log.error("a KV block does not hold what should have been written to it", **mismatch._asdict())
        return [completed] if mismatch is None else [completed, mismatch]

    def _see_step(self, event: StepCompleted, outputs: tuple[TokenOutput, ...]) -> None:
        token_ids = {output.request: output.token_id for output in outputs}
        for number, _flag, digest, bits in event.emitted:
            if number in token_ids and (followed := self._following.get(number)) is not None:
                followed.emitted.append((token_ids[number], digest, bits))
        for number, index, digest in event.kv_digests:
            if (followed := self._following.get(number)) is not None:
                followed.blocks[index] = digest
        for told in event.prompt_logprobs:
            if (followed := self._following.get(told[0])) is not None:
                followed.prompt = told

    def _see_found(self, followed: _Followed, decision: RequestAdmitted) -> None:
        """Blocks that others have filled for it."""
        for index, block in enumerate(decision.block_ids[: decision.num_hit_blocks]):
            if self._watch is not None and (written := self._watch.written(block)) is not None:
                followed.blocks[index] = written.digest

    def _end(self, followed: _Followed, finished: RequestFinished) -> None:
        del self._following[finished.request]
        if followed.emitted and finished.reason != FinishReason.FAILED:
            self._waiting.append(followed)


class _Audit:
    """One request computed again."""

    def __init__(self, followed: _Followed, limits: Limits, runner: Runner) -> None:
        arrived = followed.arrived
        num_known = arrived.num_prompt_tokens + arrived.num_output_tokens
        self._followed = followed
        self._expected = followed.emitted[: limits.max_model_len - num_known]
        num_output_tokens = arrived.num_output_tokens + len(self._expected)
        alone = arrived._replace(max_output_tokens=num_output_tokens, deadline_ns=0)
        self._steps: Generator[StepResult, None, None] = steps_alone(alone, followed.contents, limits, runner)
        self._num_equal = 0
        self._other_block: tuple[int, int] | None = None  # its place, and its digest alone
        self._is_prompt_equal = True

    def step(self) -> AuditCompleted | None:
        """Compute one step and compare; the outcome, when it has ended."""
        try:
            result = next(self._steps, None)
        except Exception as error:  # whatever a kernel raises says something of the engine, and must not end it
            log.exception("an audit raised", request=self._followed.arrived.request)
            return self._completed(-1, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
        if result is None:  # it ended before it had emitted as much
            return self._completed(self._num_equal if self._num_equal < len(self._expected) else -1)
        self._compare_blocks(result.completed)
        for told in result.completed.prompt_logprobs:
            self._is_prompt_equal = self._followed.prompt in (None, told)
        for (_number, _flag, digest, bits), output in zip(result.completed.emitted, result.outputs, strict=False):
            if self._expected[self._num_equal] != (output.token_id, digest, bits):
                return self._completed(self._num_equal)
            self._num_equal += 1
        if result.completed.emitted and not result.outputs:  # its logits were not finite
            return self._completed(self._num_equal)
        return self._completed(-1) if self._num_equal == len(self._expected) else None

    def block_mismatch(self, watch: KVWatch | None) -> KVMismatch | None:
        """Where the block that differs still lies in the pool as it was written."""
        if watch is None or self._other_block is None:
            return None
        index, digest = self._other_block
        return watch.mismatch_at_audit(self._followed.arrived.request, index, self._followed.blocks[index], digest)

    def _compare_blocks(self, completed: StepCompleted) -> None:
        for _number, index, digest in completed.kv_digests:
            if self._other_block is None and self._followed.blocks.get(index, digest) != digest:
                self._other_block = (index, digest)

    def _completed(self, first_difference: int, error: str = "") -> AuditCompleted:
        self._steps.close()
        is_equal = first_difference < 0 and self._other_block is None and self._is_prompt_equal
        result = AuditResult.FAILED if error else AuditResult.EQUAL if is_equal else AuditResult.DIFFERENT
        first_block = self._other_block[0] if self._other_block else -1
        num_tokens = self._num_equal + (first_difference >= 0)
        return AuditCompleted(self._followed.arrived.request, num_tokens, first_difference, first_block, result, error)


def _limits_alone(limits: Limits, num_blocks: int) -> Limits:
    """A core for one request, whose steps are short."""
    return replace(
        limits,
        num_kv_blocks=num_blocks,
        max_model_len=min(limits.max_model_len, num_blocks * limits.block_size),
        max_num_seqs=1,
        max_num_batched_tokens=STEP_TOKENS,
        swap_space_blocks=0,
    )
