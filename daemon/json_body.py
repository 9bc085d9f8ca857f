"""Bytes of a request's body → a JSON object, refusing what only looks like JSON.

The Content-Type is not looked at: `curl -d` sends form data and means JSON.
"""

import json
from typing import Any, NoReturn

from daemon.errors import ApiError, bad_request

BOM = b"\xef\xbb\xbf"  # which some editors and shells put before a file
MAX_VALUES = 1_200_000  # a prompt of a million token ids, and room


def parse_object(raw: bytes) -> dict[str, Any]:
    """Raises ApiError 400 for invalid UTF-8 or JSON, NaN and infinities, endless nesting, half surrogate pairs, and 413
    for more values than any prompt has: each of a few bytes becomes an object of a hundred."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise ApiError(413, f"the body holds more than {MAX_VALUES} values", code="body_too_large")
    try:
        text = raw.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not valid UTF-8 at byte {error.start}") from error
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # only an escape can bring in what no UTF-8 can hold, and no tokenizer read
            json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise bad_request("the body holds an escape for half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise bad_request("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    except ValueError as error:  # NaN, or a whole number of thousands of digits
        raise bad_request(f"the body holds a number that cannot be used: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
