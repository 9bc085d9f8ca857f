"""TLS as it is configured: a certificate with its chain and its key, from files or a service's credentials.

    reprise serve --tls-cert chain.pem --tls-key key.pem

At least TLS 1.2. Both files are read again by a reload; connections that are open go on under what they began with. It
must not know HTTP.
"""

import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from engine.core.errors import EngineError

WARN_DAYS = 14
DAY_SECONDS = 86_400

log = structlog.get_logger(__name__)
_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"


class InvalidTls(EngineError):
    """The files cannot be used; the message names the option, the file and the remedy, and nothing that is in them."""


@dataclass(frozen=True, slots=True)
class Tls:
    """
    context   what new connections are greeted with
    digest    of both files: they have changed when it has
    not_after_s   until when the certificate is valid, in seconds of the calendar
    """

    context: ssl.SSLContext = field(compare=False)
    digest: bytes
    not_after_s: float = field(compare=False)


def read_tls(certificate_path: str, key_path: str) -> Tls | None:
    """None where neither is given. Raises InvalidTls."""
    if not certificate_path and not key_path:
        return None
    if not certificate_path or not key_path:
        given, missing = ("--tls-cert", "--tls-key") if certificate_path else ("--tls-key", "--tls-cert")
        raise InvalidTls(f"{given} is given and {missing} is not: give both, or neither for plain HTTP")
    certificate = _read("--tls-cert", certificate_path, _CERTIFICATE, "certificate")
    key = _read("--tls-key", key_path, _KEY, "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate_path, key_path, password=_refuse_password)
    except ssl.SSLError as error:
        raise InvalidTls(_explained(error, certificate_path, key_path)) from error
    return Tls(context, hashlib.sha256(certificate + b"\0" + key).digest(), _not_after_s(certificate))


def warn_of_expiry(tls: Tls | None, wall_ns: int) -> None:
    """A certificate that is about to run out is served all the same: clients decide."""
    days = (tls.not_after_s - wall_ns / 1e9) / DAY_SECONDS if tls is not None else WARN_DAYS
    if days < 0:
        log.error("the certificate has expired, clients will refuse it: renew --tls-cert, reload", days=round(-days, 1))
    elif days < WARN_DAYS:
        log.warning("the certificate expires soon: renew --tls-cert, reload", days=round(days, 1))


def _not_after_s(certificate: bytes) -> float:
    """Of the first one, the server's own."""
    from cryptography.x509 import load_pem_x509_certificate  # here, for most daemons have no TLS

    return load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def _read(option: str, path: str, mark: bytes, what: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        remedy = "let the daemon's user read it, or hand it over as a credential of the service"
        raise InvalidTls(f"{option}: {path} cannot be read: {error.strerror}; {remedy}") from error
    if mark not in content:
        raise InvalidTls(
            f"{option}: {path} holds no {what} in PEM form ({mark.decode().strip('-')}): is it another file?"
        )
    return content


def _refuse_password() -> str:
    raise InvalidTls("--tls-key: the key is encrypted, and nobody is there to be asked: decrypt it with `openssl pkey`")


def _explained(error: ssl.SSLError, certificate_path: str, key_path: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return (
            f"--tls-key: {key_path} is not the key of the first certificate in {certificate_path}: "
            "the server's own certificate stands first, its issuers behind it"
        )
    return f"--tls-cert, --tls-key: {certificate_path} and {key_path} cannot be used: {error.reason or 'no valid PEM'}"
