"""What a tenant may have at once, and tokens per minute: the bounds of its key, held before the engine is asked.

Tokens are a bucket that holds a minute's worth and fills evenly. A call takes out what it may need at most, prompt and
max_tokens; what it did not use is put back once it has ended. A call larger than the bucket goes when that is full, and
leaves it below zero, so that the long-time rate holds. Accounts are settled when the tenant asks again: nothing has to
happen at a call's end, however it ends, and a client that leaves a resumable answer is still counted while it runs.
It must not know HTTP, nor keys.
"""

from dataclasses import dataclass, field

from daemon.api_keys import Caller
from daemon.call import Call
from daemon.errors import ApiError
from engine.clock import Clock

BUSY_RETRY_SECONDS = 1  # when one of its requests ends is not known
_NS_PER_MINUTE = 60 * 10**9


@dataclass(slots=True)
class _Account:
    """
    level   tokens × ns per minute: exact, for the rate is a whole number of tokens per minute
    open    (call, tokens taken out for it) of those not known to have ended
    """

    rate: int
    level: int
    filled_ns: int
    open: list[tuple[Call, int]] = field(default_factory=list)


class TenantLimits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def enter(self, caller: Caller, call: Call, num_tokens: int) -> None:
        """`call`, of which nothing has been asked yet, may take `num_tokens` at most. Raises ApiError 429."""
        if not caller.max_concurrent_requests and not caller.tokens_per_minute:
            self._accounts.pop(caller.tenant, None)
            return
        account = self._settled(caller)
        if 0 < caller.max_concurrent_requests <= len(account.open):
            message = f"{len(account.open)} of your requests are being worked on, no more may be: try again later"
            raise ApiError(429, message, code="too_many_requests", retry_after_seconds=BUSY_RETRY_SECONDS)
        if caller.tokens_per_minute:
            self._take(account, caller.tokens_per_minute, num_tokens)
        account.open.append((call, num_tokens if caller.tokens_per_minute else 0))

    def _settled(self, caller: Caller) -> _Account:
        """Filled up to now, and with what the calls that have ended did not use."""
        now_ns, rate = self._clock.now_ns(), caller.tokens_per_minute
        full = rate * _NS_PER_MINUTE
        account = self._accounts.get(caller.tenant)
        if account is None or account.rate != rate:  # a new rate begins with a full bucket
            still_open = account.open if account is not None else []
            account = _Account(rate, full, now_ns, [(call, 0) for call, _ in still_open])
            self._accounts[caller.tenant] = account
        account.level += (now_ns - account.filled_ns) * rate
        account.filled_ns = now_ns
        for call, num_taken in account.open:
            if call.has_ended and num_taken:
                account.level += max(0, num_taken - call.num_tokens) * _NS_PER_MINUTE
        account.open = [each for each in account.open if not each[0].has_ended]
        account.level = min(account.level, full)
        return account

    def _take(self, account: _Account, tokens_per_minute: int, num_tokens: int) -> None:
        needed = min(num_tokens, tokens_per_minute) * _NS_PER_MINUTE
        if account.level < needed:
            seconds = -(-(needed - account.level) // (tokens_per_minute * 10**9))
            num_left = max(0, account.level // _NS_PER_MINUTE)
            message = (
                f"prompt and max_tokens make {num_tokens} tokens, you have {num_left} left "
                f"of {tokens_per_minute} a minute: try again in {seconds} s, or lower max_tokens"
            )
            raise ApiError(429, message, code="token_rate_exceeded", retry_after_seconds=seconds)
        account.level -= num_tokens * _NS_PER_MINUTE
