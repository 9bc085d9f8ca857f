"""Who may see a recording in a browser: a token, once in the URL and then in a cookie; and what every answer forbids.

    first request    /?token=TOKEN, as `reprise view` prints it → 303 to the same place without it, and a cookie
    from then on     the cookie (HttpOnly, SameSite=Lax), or `Authorization: Bearer TOKEN` for programs

Another site may lead here by a link (a view is a link), but may not ask: Sec-Fetch-Site tells them apart. The Host
header must be one of `hosts` where they are given: a page of a stranger whose name was turned to 127.0.0.1 (DNS
rebinding) is refused. What is compared is digests, in constant time. It must not know what is shown.
"""

import hashlib
import hmac
from collections.abc import Collection
from typing import NamedTuple

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_OURS = ("same-origin", "none")


class Asked(NamedTuple):
    """What of a request matters to access; "" for what it does not say.

    fetch_site   Sec-Fetch-Site: where the page that asks comes from; "none" for an address typed in
    fetch_mode   Sec-Fetch-Mode: "navigate" for a page that is opened
    """

    host: str
    token: str = ""
    cookie: str = ""
    authorization: str = ""
    fetch_site: str = ""
    fetch_mode: str = ""


class Refused(NamedTuple):
    status: int
    reason: str


class Access:
    """
    token          what the URL bears
    cookie_name    one per port, for a browser sends cookies to all ports of a host
    cookie_value   derived from the token, which does not follow from it
    root           path that the cookie is for
    """

    def __init__(
        self, token: str, hosts: Collection[str] | None = None, cookie_suffix: str = "", root: str = "/"
    ) -> None:
        """`hosts`: as the Host header gives them, with the port; None takes any."""
        self.token = token
        self.root = root
        self.cookie_name = f"reprise_viewer{cookie_suffix}"
        self.cookie_value = hashlib.sha256(b"reprise viewer cookie\0" + _encoded(token)).hexdigest()
        self._hosts = hosts

    def refusal(self, asked: Asked) -> Refused | None:
        """None: let it in."""
        if self._hosts is not None and asked.host.lower() not in self._hosts:
            return Refused(421, "this server is not called so: open the address that `reprise view` printed")
        if asked.fetch_site and asked.fetch_site not in _OURS and asked.fetch_mode != "navigate":
            return Refused(403, "another site asks: open the address itself")
        if not self._knows(asked):
            return Refused(401, "the token is missing or wrong: open the address with its ?token=…")
        return None

    def brings_token(self, asked: Asked) -> bool:
        """It has the token in its URL: give it the cookie and take the token out."""
        return bool(asked.token) and _equal(asked.token, self.token)

    def _knows(self, asked: Asked) -> bool:
        scheme, _, given = asked.authorization.partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        in_url, in_header = _equal(asked.token, self.token), _equal(bearer, self.token)
        return in_url | in_header | _equal(asked.cookie, self.cookie_value)


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(hashlib.sha256(_encoded(given)).digest(), hashlib.sha256(_encoded(right)).digest())


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
