"""Who may ask, and for whom: API keys as they are configured, and the tenant that a request's key stands for.

One key (`--api-key`) lets in whoever has it, as tenant "default" and administrator. A file (`--api-key-file`, TOML)
names tenants; it holds no key, only what `printf %s KEY | sha256sum` prints, so that who reads it cannot ask in their
name:

    [tenants.chat]
    sha256 = ["2bb80d53…", "…"]   # any number of keys, so that one can be replaced while the other still works
    priority = 3                  # class of requests that name none; default 0
    max_concurrent_requests = 8   # of all its keys together; more get 429; default 0: no bound
    tokens_per_minute = 60_000    # prompt and output, likewise (`tenant_limits.py`)
    admin = true                  # may see /config and mark incidents; default false

It must not know HTTP. A key that is tried is compared with all there are, each in constant time.
"""

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.errors import EngineError

DEFAULT_TENANT = "default"
MAX_PRIORITY = 9
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BOUND = 2**40
_FIELDS = {"sha256", "priority", "admin", "max_concurrent_requests", "tokens_per_minute"}
_WANTED = "priority, admin, max_concurrent_requests, tokens_per_minute"
_REMEDY = "see `daemon/api_keys.py` or the README for the form"


class InvalidKeyFile(EngineError):
    """The key file cannot be read or is not what it should be; the message says where and what to do."""


class Caller(NamedTuple):
    """
    priority                                      class of the caller's requests that name none
    is_admin                                      may see what belongs to no tenant
    max_concurrent_requests, tokens_per_minute    of the tenant, whichever of its keys; 0: no bound
    """

    tenant: str = DEFAULT_TENANT
    priority: int = 0
    is_admin: bool = False
    max_concurrent_requests: int = 0
    tokens_per_minute: int = 0


class ApiKeys:
    """`caller_of(key)`; without any key configured everybody is the default tenant."""

    def __init__(self, callers: Iterable[tuple[bytes, Caller]] = ()) -> None:
        """`callers`: (SHA-256 of the key, who has it)."""
        self._callers = tuple(callers)

    @classmethod
    def configured(cls, api_key: str, path: str) -> "ApiKeys":
        """Those of the options; "" where one is not given. Raises InvalidKeyFile."""
        callers = [(_digest(api_key), Caller(is_admin=True))] if api_key else []
        return cls([*callers, *_read(path)] if path else callers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKeys) and self._callers == other._callers

    __hash__ = None  # type: ignore[assignment]  # no key of a mapping

    @property
    def are_required(self) -> bool:
        return bool(self._callers)

    def caller_of(self, key: str) -> Caller | None:
        """None: the key is nobody's."""
        if not self._callers:
            return Caller(is_admin=True)
        digest, found = _digest(key), None
        for of_one, caller in self._callers:
            if hmac.compare_digest(of_one, digest):
                found = caller
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _read(path: str) -> list[tuple[bytes, Caller]]:
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InvalidKeyFile(f"--api-key-file: {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidKeyFile(f"--api-key-file: {path} is not TOML: {error}") from error
    tenants = content.pop("tenants", None)
    if content or not isinstance(tenants, dict) or not tenants:
        raise InvalidKeyFile(f"--api-key-file: {path} must hold tables [tenants.NAME] and nothing else: {_REMEDY}")
    callers = [pair for name, table in tenants.items() for pair in _read_tenant(path, name, table)]
    if len({digest for digest, _ in callers}) < len(callers):
        raise InvalidKeyFile(f"--api-key-file: {path} gives one key twice: a key stands for one tenant")
    return callers


def _read_tenant(path: str, name: str, table: Any) -> list[tuple[bytes, Caller]]:
    where = f"--api-key-file: {path}: tenant {name}"
    if not _NAME.fullmatch(name):
        raise InvalidKeyFile(f"{where}: a name is 1 to 64 letters, digits, dots, dashes or underscores")
    if not isinstance(table, Mapping) or (unknown := set(table) - _FIELDS):
        named = f" (there is {', '.join(sorted(unknown))})" if isinstance(table, Mapping) else ""
        raise InvalidKeyFile(f"{where}: give sha256 and, if wanted, {_WANTED}, and nothing else{named}")
    digests, priority = table.get("sha256"), table.get("priority", 0)
    if not isinstance(digests, list) or not digests or not all(_is_digest(digest) for digest in digests):
        raise InvalidKeyFile(f"{where}: sha256 must list 64 hexadecimal digits a key, as sha256sum prints them")
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        raise InvalidKeyFile(f"{where}: priority must be a whole number from 0 to {MAX_PRIORITY}")
    is_admin = table.get("admin", False)
    if type(is_admin) is not bool:
        raise InvalidKeyFile(f"{where}: admin must be true or false")
    bounds = [_bound(where, field, table.get(field, 0)) for field in ("max_concurrent_requests", "tokens_per_minute")]
    return [(bytes.fromhex(digest), Caller(name, priority, is_admin, *bounds)) for digest in digests]


def _bound(where: str, field: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_BOUND:
        raise InvalidKeyFile(f"{where}: {field} must be a whole number from 0 (no bound) to {_MAX_BOUND}")
    return value


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
