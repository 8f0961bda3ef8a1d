"""Signed checkpoints: what a scope's ledger was at a size, kept where nobody who edits PostgreSQL can reach it.

Pure but for the keys, which are read from files once. Invariant: the signature covers every other member, the scope and
its ledger id among them, so a checkpoint of one ledger is worth nothing beside another.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import nacl.exceptions
import nacl.signing

from pamspec_common.strict_json import dumps

DOMAIN = b"pamspec-checkpoint-1\n"
BUCKET = "PAMSPEC_CHECKPOINTS"
STREAM = f"KV_{BUCKET}"
SEED_BYTES = 32
_HASH = "sha256:"


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """contracts/schemas/checkpoint.json."""

    scope_id: str
    ledger_id: str
    ledger_epoch: int
    size: int
    head_hash: str
    root: str
    made_at: str
    key_id: str
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        document = msgspec.structs.asdict(self)
        del document["signature"]
        return DOMAIN + dumps(document)

    def document(self) -> bytes:
        """The checkpoint as it is stored and served."""
        return dumps(msgspec.structs.asdict(self))

    @property
    def position(self) -> tuple[int, int]:
        """By which the newer of two checkpoints of a ledger is found: epoch and size."""
        return self.ledger_epoch, self.size


_decode = msgspec.json.Decoder(Checkpoint).decode


def hash_text(digest: bytes) -> str:
    """A digest as documents carry it."""
    return _HASH + digest.hex()


def hash_bytes(text: str) -> bytes:
    """The digest of such a text; ValueError for anything else."""
    found = bytes.fromhex(text.removeprefix(_HASH))
    if not text.startswith(_HASH) or len(found) != hashlib.sha256().digest_size:
        raise ValueError("no SHA-256 digest")
    return found


def read(document: bytes) -> Checkpoint:
    """The checkpoint of a stored document; ValueError when it is none."""
    try:
        return _decode(document)
    except msgspec.DecodeError as error:
        raise ValueError(f"no checkpoint: {error}") from None


def key_id(public_key: bytes) -> str:
    """The id of a key, which its public half gives: nobody can take another's."""
    return hashlib.sha256(public_key).hexdigest()[:16]


@dataclass(frozen=True)
class Signer:
    """Signs checkpoints with one key."""

    _key: nacl.signing.SigningKey

    @classmethod
    def of_seed(cls, seed: str) -> Signer:
        """From the base64 text of 32 bytes; ValueError for anything else."""
        raw = base64.b64decode(seed.strip(), validate=True)
        if len(raw) != SEED_BYTES:
            raise ValueError("a signing key is the base64 text of 32 bytes")
        return cls(nacl.signing.SigningKey(raw))

    @property
    def public_key(self) -> bytes:
        """What verifiers need."""
        return bytes(self._key.verify_key)

    @property
    def key_id(self) -> str:
        """The key's id."""
        return key_id(self.public_key)

    def sign(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with this key's id and signature."""
        named = msgspec.structs.replace(checkpoint, key_id=self.key_id)
        signature = base64.b64encode(self._key.sign(named.signed_bytes()).signature).decode()
        return msgspec.structs.replace(named, signature=signature)


def is_signed(checkpoint: Checkpoint, public_keys: Mapping[str, bytes]) -> bool | None:
    """Whether the key that it names has signed it; None when that key is not among these."""
    public_key = public_keys.get(checkpoint.key_id)
    if public_key is None:
        return None
    try:
        signature = base64.b64decode(checkpoint.signature, validate=True)
        nacl.signing.VerifyKey(public_key).verify(checkpoint.signed_bytes(), signature)
    except (nacl.exceptions.BadSignatureError, nacl.exceptions.ValueError, ValueError):
        return False
    return True


def public_keys(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Public keys by their ids, from base64; ValueError when an id is not its key's."""
    found = {name: base64.b64decode(text.strip(), validate=True) for name, text in texts.items()}
    for name, key in found.items():
        if key_id(key) != name:
            raise ValueError(f"{name} is not the id of its key")
    return found


class KeyDirectory:
    """The keys of a deployment: `<key id>.seed` with mode 0600, `<key id>.pub`, and `active`, which names the signer.

    Public halves stay when a key is replaced, so that old checkpoints can still be checked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def seed(self) -> str:
        """The text of the active key, made when there is none."""
        active = self.path / "active"
        if not active.exists():
            self.rotate()
        return (self.path / f"{active.read_text(encoding='ascii').strip()}.seed").read_text(encoding="ascii").strip()

    def rotate(self) -> str:
        """Make a key and let it sign from the next start on; its id."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        seed = base64.b64encode(os.urandom(SEED_BYTES)).decode()
        signer = Signer.of_seed(seed)
        _write(self.path / f"{signer.key_id}.seed", seed, 0o600)
        _write(self.path / f"{signer.key_id}.pub", base64.b64encode(signer.public_key).decode(), 0o644)
        _write(self.path / "active", signer.key_id, 0o644)
        return signer.key_id

    def public(self) -> dict[str, str]:
        """The public keys in base64 by their ids."""
        return {file.stem: file.read_text(encoding="ascii").strip() for file in sorted(self.path.glob("*.pub"))}


def _write(path: Path, text: str, mode: int) -> None:
    """Whole or not at all."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
