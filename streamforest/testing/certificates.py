"""Certificates for tests: an own authority and the certificates it signs, as PEM files.

Needs trustme (`pip install trustme`); nothing here is for production.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any


class Authority:
    """A certificate authority that lives as long as the test.

    >>> authority = Authority(tmp_path)                         # doctest: +SKIP
    >>> BrokerSecurity(authority.node("localhost"), authority.file, {"alice": "…"})  # doctest: +SKIP
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        import trustme

        self._ca = trustme.CA(organization_name=f"streamforest test {name}")
        self._folder = folder
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._ca.cert_pem.bytes())

    def node(self, *hosts: str, until: datetime | None = None) -> Path:
        """Key and certificate of a broker with these names, in one file, as Kafka expects them."""
        path = self._folder / f"node-{len(list(self._folder.glob('node-*')))}.pem"
        certificate = self._ca.issue_cert(*hosts, not_after=until)
        _write(path, _key(certificate), certificate)
        return path

    def client(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a client called `name`, as two files."""
        certificate = self._ca.issue_cert(f"{name}@example.org", common_name=name)
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        _write(paths[0], b"", certificate)
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(_key(certificate))
        return paths


def _key(certificate: Any) -> bytes:
    """The private key as PKCS#8, the only format that Kafka's PEM store reads."""
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _write(path: Path, key: bytes, certificate: Any) -> None:
    path.touch(mode=0o600)
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    path.write_bytes(key + chain)
