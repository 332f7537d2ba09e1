"""Keys that sign anchors: Ed25519, in PEM files as openssl makes and reads them.

A private key is never logged, shown or sent. An error names its file, never the content. Source: RFC 8032,
docs/decisions/0037.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ledger.archive.format.anchor import Anchor, signed_bytes
from ledger.errors import ConfigError, UsageError
from ledger.util.files import sync_folder

_PUBLIC = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
NEW = "Make one with: jobledger audit key --new FILE"


class PrivateKey:
    """A private key from a PEM file. Implements `archive.anchors.anchors.Signer`."""

    def __init__(self, path: Path) -> None:
        """Reads the key. Raises: ConfigError if it can't be read, or is not an Ed25519 key without a password."""
        try:
            key = load_pem_private_key(path.expanduser().read_bytes(), password=None)
        except OSError as error:
            raise ConfigError(f"The key that signs anchors can't be read: {error}.", hint=NEW) from None
        except (ValueError, TypeError, UnsupportedAlgorithm):  # its message might quote the file
            raise ConfigError(f"{path} is not a private key in PEM without a password.", hint=NEW) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"The key in {path} is not an Ed25519 key.", hint=NEW)
        self._key = key
        self.key = _fingerprint(key.public_key())
        self.open_to_others = bool(stat.S_IMODE(path.expanduser().stat().st_mode) & 0o077)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


class PublicKeys:
    """The public keys in one PEM file. It may hold several, so that old anchors still verify after a key change."""

    def __init__(self, path: Path) -> None:
        """Reads the keys. Raises: ConfigError if they can't be read, or are not Ed25519 public keys."""
        try:
            parts = _PUBLIC.findall(path.expanduser().read_bytes())
            keys = [load_pem_public_key(part) for part in parts]
        except OSError as error:
            raise ConfigError(f"The public key of the anchors can't be read: {error}.") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"A key in {path} can't be read: {error}.") from error
        if not keys or not all(isinstance(key, Ed25519PublicKey) for key in keys):
            raise ConfigError(f"{path} must contain Ed25519 public keys in PEM, and no other keys.")
        self._keys: Mapping[str, Ed25519PublicKey] = {
            _fingerprint(key): key for key in keys if isinstance(key, Ed25519PublicKey)
        }

    def why_not(self, anchor: Anchor) -> str:
        """Why the signature of an anchor is not valid; "" if the signature is valid."""
        if not anchor.signature:
            return "it is not signed"
        if (key := self._keys.get(anchor.key)) is None:
            return f"it is signed with another key, {anchor.key[:16]}"
        try:
            key.verify(bytes.fromhex(anchor.signature), signed_bytes(anchor.head))
        except InvalidSignature:
            return "its signature is invalid"
        return ""


def make(path: Path) -> tuple[Path, str]:
    """Creates a private key at `path`, readable only by its owner, and its public key at `<path>.pub`. Returns the path
    of the public key and its fingerprint.

    Raises: UsageError if one of the files exists or can't be created; then no file is created or changed."""
    key = Ed25519PrivateKey.generate()
    public = path.with_name(f"{path.name}.pub")
    private_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public_pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    made: list[Path] = []
    try:
        for name, data, mode in ((path, private_pem, 0o600), (public, public_pem, 0o644)):
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(name)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(path.absolute().parent)
    except OSError as error:
        for name in made:
            with suppress(OSError):
                name.unlink()
        raise UsageError(f"The key can't be made: {error}.") from error
    return public, _fingerprint(key.public_key())


def _fingerprint(key: Ed25519PublicKey) -> str:
    return sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()
