"""What the engine says about a call's requests → deltas per choice, and how each ended.

The one place where the engine's ends become the API's finish reasons or errors; whole and streamed answers both go
through it, so they cannot differ.
"""

from collections.abc import Callable, Sequence

from daemon import errors
from daemon.answer import Answer, Delta
from daemon.choice_plan import ONE_CHOICE, ChoiceCounts
from daemon.errors import ApiError
from daemon.mailbox import Blamed, EngineLost, Item, PromptTold
from daemon.response_bodies import FINISH_REASONS, Json, usage
from engine.core.contents import TokenOutput
from engine.core.decisions import FinishReason, RequestFinished


class Choices:
    """
    lost_error   what to tell when no engine will go on
    request_id   of the call, as the client knows it
    counts       of choices per prompt
    finished     per choice that has ended, the engine's own account of it
    """

    def __init__(
        self,
        answers: Sequence[Answer],
        lost_error: Callable[[], ApiError],
        request_id: str = "",
        counts: ChoiceCounts = ONE_CHOICE,
    ) -> None:
        self._counts = counts
        self._request_id = request_id
        self._answers = answers
        self._lost_error = lost_error
        self.finished: dict[int, RequestFinished] = {}

    @property
    def are_finished(self) -> bool:
        return len(self.finished) == len(self._answers)

    @property
    def num_tokens(self) -> int:
        """Output tokens received so far, over all choices."""
        return sum(answer.num_tokens for answer in self._answers)

    def usage(self) -> Json:
        """The token counts of the whole call, once all have finished; a prompt of several choices counts once."""
        return usage([self.finished[index] for index in sorted(self.finished)], self._counts.num_tried)

    def told(self) -> list[int]:
        """Indices of the choices that are answered, in the answer's order."""
        return self._counts.told([answer.mean_logprob for answer in self._answers])

    def take(self, index: int, item: Item) -> tuple[Delta, str | None] | None:
        """The delta that `item` gives, with the finish reason if it is the last; None while all is held back.

        Raises ApiError when the request ended in a way that is no answer.
        """
        if type(item) is TokenOutput:
            delta = self._answers[index].push(item)
            return None if delta is None else (delta, None)
        if type(item) is PromptTold:
            return self._answers[index].tell_prompt(item), None
        if type(item) is RequestFinished:
            reason = FINISH_REASONS.get(item.reason)
            if reason is None:
                raise self._failure(item.reason)
            self.finished[index] = item
            answer = self._answers[index]
            delta = answer.finish()
            return delta, "tool_calls" if reason == "stop" and answer.num_calls else reason
        if type(item) is EngineLost:
            raise self._lost_error()
        if type(item) is Blamed:
            raise errors.request_kills_engine(self._request_id)
        return None

    def _failure(self, reason: FinishReason) -> ApiError:
        match reason:
            case FinishReason.DRAINED:
                return errors.cut_by_drain()
            case FinishReason.EXPIRED:
                return errors.expired()
            case FinishReason.FAILED:
                return errors.step_failed()
            case FinishReason.LOST:
                return self._lost_error()
            case _:
                return ApiError(500, "the request was cancelled before it was finished", code="cancelled")
