"""Certificates for tests: one's own authority is oneself."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGINS = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
ENDS = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


def write_certificate(folder: Path, name: str, password: bytes | None = None) -> tuple[str, str]:
    """Paths of a certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), BEGINS, ENDS)
    signed = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    certificate, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    kept = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, kept))
    return str(certificate), str(key_file)
