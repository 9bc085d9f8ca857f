"""The loop: recorded before published, in the order in which things happened, and no kernel's error ends it."""

import pytest
from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import RequestFinished, RequestRejected, StepPlanned, TokensEmitted
from engine.core.events import PolicyChanged, RequestArrived, RequestCancelled, StepCompleted, StepFailed
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Cancel, ChangePolicy, Message, PolicyRefused, ProtocolError, Ready, Stop


class Inbox:
    """`idle` messages come when the engine has nothing to do; `during[n]` come while its n-th step runs."""

    def __init__(self, idle: list[Message], during: dict[int, list[Message]]) -> None:
        self._idle = [*idle, Stop("done")]
        self._during = during
        self._num_steps = 0

    def get(self) -> Message:
        return self._idle.pop(0)

    def drain(self) -> list[Message]:
        messages = self._during.get(self._num_steps, [])
        self._num_steps += 1
        return messages


class Witness(NoRecord):
    """A sink and subscriber that keeps everything in one order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []

    def record(self, entry: Entry) -> None:
        self.log.append(("record", entry))

    def record_contents(self, request: int, contents: RequestContents) -> None:
        self.log.append(("contents", request))

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        self.log.append(("tokens", [output.request for output in outputs]))

    def publish(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        self.log.append(("publish", entry))
        self.log.append(("outputs", [output.request for output in outputs]))

    def of(self, kind: str) -> list[object]:
        return [item for name, item in self.log if name == kind]

    @property
    def entries(self) -> list[Entry]:
        return [item for item in self.of("record") if isinstance(item, Entry)]


def arrive(number: int, *, prompt: int = 4, output: int = 2) -> Arrive:
    contents = RequestContents(tuple(range(1, prompt + 1)))
    return Arrive(number, f"r{number}", "t", 0, 0, output, SamplingParams(seed=number, ignore_eos=True), contents)


def run(
    idle: list[Message], during: dict[int, list[Message]] | None = None, runner: ScriptedRunner | None = None
) -> Witness:
    witness = Witness()
    limits = Limits(num_kv_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=32)
    loop = EngineLoop(Core(limits), runner or ScriptedRunner(16, 4, b"k" * 16), ManualClock(), witness, witness.publish)
    assert loop.serve(Inbox(idle, during or {})) == "done"
    return witness


def test_every_entry_is_recorded_before_it_is_published() -> None:
    witness = run([arrive(0)])
    order = [name for name, _item in witness.log if name in ("record", "publish")]
    assert order == ["record", "publish"] * len(witness.entries)
    assert [entry.sequence for entry in witness.entries] == list(range(len(witness.entries)))


def test_what_arrives_during_a_step_is_handled_before_its_result() -> None:
    witness = run([arrive(0)], {0: [arrive(1), Cancel(0, "client")]})
    kinds = [type(entry.event) for entry in witness.entries]
    assert kinds[:4] == [RequestArrived, RequestArrived, RequestCancelled, StepCompleted]


def test_tokens_of_a_request_cancelled_during_the_step_reach_the_vault_but_no_client() -> None:
    witness = run([arrive(0)], {0: [Cancel(0, "client")]})
    assert witness.of("tokens") == [[0]]
    assert all(outputs == [] for outputs in witness.of("outputs"))
    assert not any(isinstance(d, TokensEmitted) for entry in witness.entries for d in entry.decisions)


def test_a_policy_is_changed_by_an_event_and_a_change_that_cannot_be_is_answered_before_it_is_one() -> None:
    witness, replies = Witness(), list[Message]()
    core = Core(Limits(num_kv_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=32))
    loop = EngineLoop(core, ScriptedRunner(16, 4, b"k" * 16), ManualClock(), witness, witness.publish, replies.append)
    with capture_logs():
        loop.serve(Inbox([ChangePolicy("lottery"), ChangePolicy("fair", (("decode_token_price", 5),))], {}))
    assert [entry.event for entry in witness.entries] == [PolicyChanged("fair", (("decode_token_price", 5),))]
    (refused,) = replies
    assert isinstance(refused, PolicyRefused)
    assert (refused.policy, "choose one of fcfs" in refused.message) == ("lottery", True)
    assert core.planner.policy.name == "fair"


class Raising(ScriptedRunner):
    def execute(self, plan: StepPlanned) -> StepResult:
        if plan.step == 1:
            raise FloatingPointError("overflow in a kernel")
        return super().execute(plan)


def test_a_step_that_raises_fails_its_requests_and_the_engine_goes_on() -> None:
    with capture_logs() as logs:
        witness = run([arrive(0), arrive(1)], runner=Raising(16, 4, b"k" * 16))
    failed = [entry.event for entry in witness.entries if isinstance(entry.event, StepFailed)]
    assert failed == [StepFailed(1, "FloatingPointError: overflow in a kernel")]
    ends = [d for entry in witness.entries for d in entry.decisions if isinstance(d, RequestFinished)]
    assert [end.reason for end in ends] == ["failed", "length"]
    assert logs[0]["event"] == "step failed"


def test_contents_of_a_refused_request_are_not_kept() -> None:
    witness = run([arrive(0, prompt=40), arrive(1)])
    refused = [d for entry in witness.entries for d in entry.decisions if isinstance(d, RequestRejected)]
    assert len(refused) == 1
    assert witness.of("contents") == [1]


class Losing(ScriptedRunner):
    """Reports a step that was never planned."""

    def execute(self, plan: StepPlanned) -> StepResult:
        result = super().execute(plan)
        return result._replace(completed=result.completed._replace(step=99))


def test_an_event_that_breaks_the_core_is_the_last_one_recorded() -> None:
    witness = Witness()
    core = Core(Limits(num_kv_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=32))
    loop = EngineLoop(core, Losing(16, 4, b"k" * 16), ManualClock(), witness, witness.publish)
    with pytest.raises(Exception, match="step 99 arrived while step 0 is under way"):
        loop.serve(Inbox([arrive(0)], {}))
    assert isinstance(witness.entries[-1].event, StepCompleted)
    assert witness.entries[-1].decisions == ()


def test_a_message_that_only_the_engine_may_send_is_refused() -> None:
    with pytest.raises(ProtocolError, match="takes no Ready message"):
        run([Ready({})])
