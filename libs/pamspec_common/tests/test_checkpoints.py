"""Signed checkpoints, the keys that sign them, and the files that hold them."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Checkpoint, KeyDirectory, Signer, hash_bytes, is_signed, public_keys, read

SIGNER = Signer.of_seed(base64.b64encode(bytes(range(32))).decode())
KEYS = {SIGNER.key_id: SIGNER.public_key}


def checkpoint(size: int = 3, ledger: int = 1, epoch: int = 1) -> Checkpoint:
    return SIGNER.sign(
        Checkpoint(
            scope_id="workspace:a",
            ledger_id=f"{ledger:032x}",
            ledger_epoch=epoch,
            size=size,
            head_hash="sha256:" + "1" * 64,
            root="sha256:" + "2" * 64,
            made_at="2026-03-01T09:00:00.000000Z",
            key_id="",
        )
    )


def test_a_signature_covers_every_member() -> None:
    signed = checkpoint()
    assert is_signed(signed, KEYS)
    assert read(signed.document()) == signed
    changes: dict[str, Any] = {
        "scope_id": "workspace:b",
        "ledger_id": "f" * 32,
        "ledger_epoch": 2,
        "size": 4,
        "head_hash": "sha256:" + "3" * 64,
        "root": "sha256:" + "3" * 64,
        "made_at": "2026-03-01T09:00:00.000001Z",
        "signature": "A" * 86 + "==",
    }
    assert changes.keys() == set(msgspec.structs.asdict(signed)) - {"key_id"}
    for name, value in changes.items():
        assert is_signed(msgspec.structs.replace(signed, **{name: value}), KEYS) is False, name
    assert is_signed(msgspec.structs.replace(signed, signature="not base64"), KEYS) is False
    assert is_signed(msgspec.structs.replace(signed, key_id="0" * 16), KEYS) is None


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"{}", checkpoint().document()[:-1], b'{"size":"3"}'])
def test_what_is_no_checkpoint_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="no checkpoint"):
        read(document)


@pytest.mark.parametrize("seed", ["", "AAAA", "not base64!", base64.b64encode(b"x" * 33).decode()])
def test_a_key_that_is_none_is_refused(seed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Signer.of_seed(seed)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:" + "0" * 63, "0" * 64, "sha256:" + "g" * 64])
def test_a_text_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        hash_bytes(text)


def test_a_directory_makes_its_key_once_and_keeps_the_public_halves(tmp_path: Path) -> None:
    keys = KeyDirectory(tmp_path / "keys")
    seed = keys.seed()
    assert keys.seed() == seed
    first = Signer.of_seed(seed).key_id
    second = keys.rotate()
    assert Signer.of_seed(keys.seed()).key_id == second != first
    assert public_keys(keys.public()).keys() == {first, second}
    for file in keys.path.glob("*.seed"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o700


def test_a_public_key_under_another_id_is_refused() -> None:
    with pytest.raises(ValueError, match="not the id"):
        public_keys({"0" * 16: base64.b64encode(SIGNER.public_key).decode()})


def test_files_hold_the_newest_of_each_ledger(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path / "made")
    assert files.latest() == {}
    files.append([checkpoint(1).document(), checkpoint(9, ledger=2).document()])
    files.append([checkpoint(7).document()])
    files.append([checkpoint(5, epoch=2).document(), checkpoint(8).document()])
    assert {name: found.position for name, found in files.latest().items()} == {
        f"{1:032x}": (2, 5),
        f"{2:032x}": (1, 9),
    }
    assert list(files.latest([f"{2:032x}"])) == [f"{2:032x}"]
    (segment,) = (tmp_path / "made").iterdir()
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    files.append([checkpoint(1).document(), checkpoint(2).document()])
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-40])
    assert [found.size for found in files.latest().values()] == [1]
    files.append([checkpoint(3).document()])
    assert [found.size for found in files.latest().values()] == [3]


def test_files_are_bounded_and_lose_no_ledger(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, segment_bytes=2000, segments=3)
    files.append([checkpoint(4, ledger=7).document()])
    for size in range(1, 200):
        files.append([checkpoint(size).document(), checkpoint(size, ledger=2).document()])
    assert len(list(tmp_path.iterdir())) <= 4
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 4 * 4000
    assert {name: found.size for name, found in files.latest().items()} == {
        f"{1:032x}": 199,
        f"{2:032x}": 199,
        f"{7:032x}": 4,
    }
