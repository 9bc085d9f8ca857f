"""An answer → the bodies of /v1/responses: one response, or the events by which a client builds it, in its order.

The answer is a list of items: what is said is a message, each call an item of its own. An item is opened, grows, and
is closed; the response is told when it is begun and, whole, at the end. The counterpart of `ResponseBodies`.
"""

from collections.abc import Sequence
from typing import Any

from daemon.answer import Delta
from daemon.responses_request import Asked

Json = dict[str, Any]


class ResponsesBodies:
    """Builds every body of one call, in order: what was told before is counted on."""

    numbers_events = False  # an id per event, to come back to, is of the other endpoints

    def __init__(self, request_id: str, created: int, model: str, system_fingerprint: str, asked: Asked) -> None:
        self._request_id = request_id
        self._asked = asked
        self._sequence = 0
        self._items: list[Json] = []
        self._is_open = False  # the last item
        self._reason = "stop"
        self._head: Json = {
            "id": f"resp_{request_id}",
            "object": "response",
            "created_at": created,
            "model": model,
            "system_fingerprint": system_fingerprint,
        }

    def whole(self, choices: Sequence[tuple[Delta, str]], usage: Json) -> Json:
        ((answer, reason),) = choices
        self.chunks(0, answer, reason)
        return self._response(usage)

    def opening_chunks(self, num_choices: int) -> list[Json]:
        begun = {**self._response(None), "status": "in_progress"}
        return [self._event("response.created", response=begun), self._event("response.in_progress", response=begun)]

    def chunks(self, index: int, delta: Delta, finish_reason: str | None = None) -> list[Json]:
        """The events of one delta; the last one closes what is open."""
        events: list[Json] = []
        if delta.text:
            events += self._open_message()
            events.append(self._event("response.output_text.delta", **self._place(), delta=delta.text, logprobs=[]))
            self._items[-1]["content"][0]["text"] += delta.text
        for call in delta.calls:
            if call.name:
                events += self._open_call(call.name)
            if call.arguments:
                kind = "response.function_call_arguments.delta"
                events.append(self._event(kind, **self._place(), delta=call.arguments))
                self._items[-1]["arguments"] += call.arguments
        if finish_reason is not None:
            self._reason = finish_reason
            events += [] if self._items else self._open_message()  # an empty answer is a message, too
            events += self._close()
        return events

    def ending(self, usage: Json) -> list[Json]:
        response = self._response(usage)
        return [self._event(f"response.{response['status']}", response=response)]

    def failure(self, body: Json) -> Json:
        """`body` as of an error that is no stream; clients of either kind see that it is one."""
        error = body["error"]
        return self._event("error", code=str(error["code"]), message=error["message"], param=error["param"], **body)

    def _open_message(self) -> list[Json]:
        if self._is_open and self._items[-1]["type"] == "message":
            return []
        events = self._close()
        message = {"type": "message", "role": "assistant", "content": []}
        self._items.append({"id": f"msg_{self._request_id}-{len(self._items)}", **message})
        events.append(self._item_event("added", "in_progress"))
        self._items[-1]["content"].append({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
        events.append(self._event("response.content_part.added", **self._place(), part=self._part()))
        self._is_open = True
        return events

    def _open_call(self, name: str) -> list[Json]:
        events = self._close()
        number = len(self._items)
        call = {"type": "function_call", "call_id": f"call_{self._request_id}-{number}", "name": name, "arguments": ""}
        self._items.append({"id": f"fc_{self._request_id}-{number}", **call})
        self._is_open = True
        return [*events, self._item_event("added", "in_progress")]

    def _close(self) -> list[Json]:
        if not self._is_open:
            return []
        self._is_open = False
        item = self._items[-1]
        if item["type"] == "message":
            text = item["content"][0]["text"]
            done = [
                self._event("response.output_text.done", **self._place(), text=text, logprobs=[]),
                self._event("response.content_part.done", **self._place(), part=self._part()),
            ]
        else:
            kind = "response.function_call_arguments.done"
            done = [self._event(kind, **self._place(), name=item["name"], arguments=item["arguments"])]
        return [*done, self._item_event("done", self._status())]

    def _item_event(self, what: str, status: str) -> Json:
        item = {**self._items[-1], "status": status}
        if item["type"] == "message":
            item["content"] = [dict(part) for part in item["content"]]
        return self._event(f"response.output_item.{what}", output_index=len(self._items) - 1, item=item)

    def _place(self) -> Json:
        item = self._items[-1]
        place = {"item_id": item["id"], "output_index": len(self._items) - 1}
        return {**place, "content_index": 0} if item["type"] == "message" else place

    def _part(self) -> Json:
        return dict(self._items[-1]["content"][0])

    def _event(self, kind: str, **values: Any) -> Json:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence - 1, **values}

    def _status(self) -> str:
        return "incomplete" if self._reason == "length" else "completed"

    def _response(self, usage: Json | None) -> Json:
        asked = self._asked
        items = [{**item, "status": "completed"} for item in self._items]
        if items:
            items[-1]["status"] = self._status()
        return {
            **self._head,
            "status": self._status(),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if self._reason == "length" else None,
            "output": items,
            "usage": None if usage is None else _usage(usage),
            "instructions": asked.instructions,
            "tools": list(asked.tools),
            "tool_choice": asked.tool_choice,
            "parallel_tool_calls": asked.is_parallel,
            "max_output_tokens": asked.max_output_tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "text": asked.text,
            "metadata": asked.metadata,
            "truncation": "disabled",
            "previous_response_id": None,
            "store": False,
            "background": False,
        }


def _usage(usage: Json) -> Json:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
