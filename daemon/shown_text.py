"""What of an answer's tokens becomes its text: control tokens, and what ended it. It must not know tokens."""

from typing import NamedTuple

from daemon import fields
from daemon.errors import bad_request
from daemon.fields import Body


class ShownText(NamedTuple):
    """
    special   control tokens are written out
    stop      the stop string, or the token of `stop_token_ids`, that ended it is a part of it
    """

    special: bool = False
    stop: bool = False


TEXT_ALONE = ShownText()


def read_shown_text(body: Body) -> ShownText:
    """`skip_special_tokens` and `include_stop_str_in_output`. Raises ApiError 400."""
    shows_special = not fields.boolean(body, "skip_special_tokens", True)
    if shows_special and body.get("stop"):
        message = "stop strings are looked for in the text without control tokens, so they cannot be had with "
        raise bad_request(message + "skip_special_tokens false: leave one out, or give stop_token_ids", "stop")
    return ShownText(shows_special, fields.boolean(body, "include_stop_str_in_output"))
