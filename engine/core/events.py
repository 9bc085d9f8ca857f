"""Everything that can happen to the core: its inputs, in the order in which it saw them.

An event holds counts, digests and parameters that matter to scheduling; never a token, never text. What is not an
event cannot influence a decision. Events are named tuples so that they are cheap to make, compare and pack; their kind
numbers stand in `vocabulary.py`. Fields are only ever appended.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from engine.core.sampling_params import SamplingParams


class CancelCause(StrEnum):
    """Who wants a request to end before its own end."""

    CLIENT = "client"  # the connection closed
    DRAIN = "drain"  # the drain timeout passed
    SLOW_CLIENT = "slow_client"  # it took nothing of its answer for too long


class FinishFlag(StrEnum):
    """What execution saw in the row that emitted a token."""

    NONE = ""
    STOP = "stop"  # an end-of-text or stop token id, or the token that completed a stop string
    ERROR = "error"  # the logits were not finite


class KVNoticed(StrEnum):
    """When a block was seen not to hold what was written to it."""

    HIT = "hit"  # a request was admitted that found it in the prefix cache
    SWAP_OUT = "swap_out"  # before it was copied to the host pool
    SWAP_IN = "swap_in"  # after it was copied back
    AUDIT = "audit"  # its writer was computed again, and wrote something else


class AuditResult(StrEnum):
    """What came of computing a finished request again, alone."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"  # it raised


class RequestArrived(NamedTuple):
    """A request reached the engine.

    request           number of the request, unique in the run, ascending in order of arrival
    request_id        the name the client knows it by (X-Request-Id, or made by the daemon)
    arrival_ns        monotonic time at which the daemon had read the whole HTTP request
    prompt_digests    keyed, chained digests of the prompt's full blocks (16 bytes each), in order
    sampling          opaque to the core: carried so that the recording says how the tokens were drawn
    ttft_target_ms, itl_target_ms
                      when it wants its first token after its arrival, and each further one after the one before;
                      0 takes the limits'
    deadline_ns       monotonic time by which it must have been admitted, or it ends as expired; 0: it may wait forever
    num_output_tokens tokens emitted before: known tokens, to be computed again; the next one's count follows on them
    num_handovers     engines that held it before and died; above 0 it was taken in once, so no bound of the queue and
                      no drain refuses it
    num_cached_tokens prompt tokens found in the prefix cache when one of those first admitted it; -1: none did
    trace_context     the client's W3C traceparent, "" for none: carried so that spans can be made of the recording
    grammar_digest    keyed digest of the grammar that its answer must follow (16 bytes); empty for none
    num_choices       answers asked for its prompt (the API's n), told with the first of them; 0 with the others
    wants_prompt_logprobs
                      log-probabilities of its prompt's tokens are asked for: each of them is computed, so it takes no
                      prefix hits before its first token
    operation         what was asked, as GenAI's conventions name it: text_completion or chat
    is_streamed       its client reads tokens as they come
    """

    request: int
    request_id: str
    tenant: str
    priority: int
    arrival_ns: int
    num_prompt_tokens: int
    max_output_tokens: int
    prompt_digests: tuple[bytes, ...]
    sampling: SamplingParams
    ttft_target_ms: int = 0
    itl_target_ms: int = 0
    deadline_ns: int = 0
    num_output_tokens: int = 0
    num_handovers: int = 0
    num_cached_tokens: int = -1
    trace_context: str = ""
    grammar_digest: bytes = b""
    num_choices: int = 1
    wants_prompt_logprobs: bool = False
    operation: str = "text_completion"
    is_streamed: bool = False


class RequestCancelled(NamedTuple):
    """A request must end now, whatever it is doing."""

    request: int
    cause: CancelCause


class StepCompleted(NamedTuple):
    """The step under way has been executed.

    emitted   (request, FinishFlag, digest of the final hidden row as u64, bits of the token's fp32 log-probability)
              per emitted token
    filled    (request, block digest) per block that the step filled beyond the prompt's own full blocks, in order
    swap_ns   time spent on copying blocks to and from the host pool since the step before; not part of execute_ns
    kv_digests
              (request, place in its block table, u64) per block that the step filled: a digest of the keys and values
              that lie in it (`kernels/block_digest.py`); empty unless they are kept
    prompt_logprobs
              (request, num_tokens, u64) per request whose prompt this step has finished and of which log-probabilities
              are wanted: a digest of all of them (`engine/execution/prompt_logprobs.py`), in whatever steps they were
              computed
    """

    step: int
    emitted: tuple[tuple[int, str, int, int], ...]
    filled: tuple[tuple[int, bytes], ...]
    execute_ns: int
    sample_ns: int
    swap_ns: int = 0
    kv_digests: tuple[tuple[int, int, int], ...] = ()
    prompt_logprobs: tuple[tuple[int, int, int], ...] = ()


class StepFailed(NamedTuple):
    """The step under way raised: its requests cannot go on."""

    step: int
    error: str


class StepLaunched(NamedTuple):
    """The step under way was handed to the device, which will be busy with it: time to plan the next one.

    Comes only where `async_scheduling` is on, between the step's plan and its result.
    """

    step: int


class DrainRequested(NamedTuple):
    """Take no new request; finish those that are here."""


class ExecutorRestarted(NamedTuple):
    """A fresh engine takes over from one that died.

    lost          (request, request_id, num_prompt_tokens, num_output_tokens already delivered) per request that ends
                  with the engine that held it: nobody waits for it any more, or the engine died on it
    handed_over   (request, num_output_tokens already delivered) per request that goes on: each arrives again, under its
                  number, at once or when others have shown that the engine does not die on them
    blamed        of the lost, those on which the engine died again
    """

    lost: tuple[tuple[int, str, int, int], ...]
    handed_over: tuple[tuple[int, int], ...] = ()
    blamed: tuple[int, ...] = ()


class TimerFired(NamedTuple):
    """The time that the core wanted to be told has come: whose deadline has passed ends."""


class PolicyChanged(NamedTuple):
    """From now on another policy, or the same with other parameters, orders the waiting, who are ranked anew.

    parameters   (name, value) pairs of `Limits` fields; those not named stay as they are. What the policy before had
                 counted or learned is kept where the same policy goes on
    counted      what this policy had counted in an engine that died (`to_hand_over`): (tenant, figure …) each
    """

    policy: str
    parameters: tuple[tuple[str, Any], ...] = ()
    counted: tuple[tuple[Any, ...], ...] = ()


class KVMismatch(NamedTuple):
    """A block of the pool does not hold what was written to it.

    expected, got   digests (`StepCompleted.kv_digests`) of what was written, and of what lies there
    writer          the request that filled it
    readers         requests that have it in their block tables now
    noticed         KVNoticed; request, block_index: for whose sake it was looked at, and its place in that one's table
    """

    block: int
    expected: int
    got: int
    writer: int
    readers: tuple[int, ...]
    noticed: str
    request: int
    block_index: int


class AuditCompleted(NamedTuple):
    """A finished request was computed again, alone, while there was nothing else to do.

    num_tokens         output tokens compared: ids, digests of hidden rows, bits of log-probabilities
    first_difference   position among the output tokens of the first that differs; -1: none does
    first_block        place in its block table of the first block whose digest differs; -1: none, or none was kept
    result             AuditResult
    error              what it raised
    """

    request: int
    num_tokens: int
    first_difference: int
    first_block: int
    result: str
    error: str = ""


Event = (
    RequestArrived
    | RequestCancelled
    | StepCompleted
    | StepFailed
    | TimerFired
    | PolicyChanged
    | DrainRequested
    | ExecutorRestarted
    | KVMismatch
    | AuditCompleted
    | StepLaunched
)
