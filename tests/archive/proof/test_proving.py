"""Proofs, checked by the script in the docs, which does not use this library; and anchors in a file."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from base64 import b64decode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import cloudevents
from ledger.archive.anchors import anchors
from ledger.archive.format.anchor import Anchor, AnchorRecord
from ledger.archive.format.chain import Head, head_of
from ledger.archive.proof.proving import prove
from ledger.errors import ConfigError, NotFound, UsageError
from ledger.ports import Record
from tests.support.archives.given import TOPIC, an_archive, records

SCRIPT = Path(__file__).parents[3] / "docs" / "check_proof.py"
check = runpy.run_path(str(SCRIPT))["check"]


def id_of(record: Record) -> str:
    return cloudevents.parse(record.headers()).id


def test_every_record_is_proved_against_the_head_and_every_anchor_above_it() -> None:
    archive, _, heads = an_archive(60)
    for partition, head in enumerate(heads):
        anchored = [head_of(manifest) for manifest in archive.manifests(TOPIC, partition)]
        for record in records(60, partition, partition):
            proof = json.loads(json.dumps(prove(archive, id_of(record), id_of)))
            assert check(proof, head.sha256)
            for anchor in anchored:
                assert check(proof, anchor.sha256) == (anchor.next > record.offset())


def flipped(text: str) -> str:
    return text[:-3] + ("B" if text[-3] == "A" else "A") + text[-2:]


@pytest.mark.parametrize("change", [
    lambda p: p["record"].update(offset=p["record"]["offset"] + 1),
    lambda p: p["record"].update(timestamp_ms=0),
    lambda p: p["record"].update(value=None),
    lambda p: p["record"].update(
        value="Zm9yZ2Vk", value_sha256=sha256(b64decode(p["record"]["value"])).hexdigest()
    ),
    lambda p: p["record"].update(actor="somebody else"),
    lambda p: p.update(head=json.loads(p["manifests"][1])["previous"]),
    lambda p: p["path"].clear(),
    lambda p: p["manifests"].clear(),
    lambda p: p.update(size="many"),
    lambda p: p.pop("record"),
    lambda p: p["record"].update(key=flipped(p["record"]["key"])),
    lambda p: p["record"]["headers"].pop(),
    lambda p: p.update(index=p["index"] ^ 1),
    lambda p: p["path"].reverse(),
    lambda p: p["path"].append("00" * 32),
    lambda p: p.update(size=p["size"] + 1),
    lambda p: p.update(partition=1),
    lambda p: p["manifests"].pop(1),
    lambda p: p["manifests"].__setitem__(0, p["manifests"][0].replace('"test"', '"Test"')),
])  # fmt: skip
def test_anything_altered_is_not_proved(change: Any) -> None:
    archive, _, heads = an_archive(60)
    record = next(one for one in records(60, 0, 0)[10:] if one.value() is not None)
    proof = prove(archive, id_of(record), id_of)
    assert check(proof, heads[0].sha256)
    change(proof)
    # an exception counts as "not proved": the script reports both the same way
    with suppress(ValueError, LookupError, TypeError):
        assert not check(proof, heads[0].sha256)


def test_what_is_not_there_has_no_proof() -> None:
    archive, _, _ = an_archive()
    with pytest.raises(NotFound, match="no record of the event 'nobody'"):
        prove(archive, "nobody", id_of)


def test_the_script_answers_by_its_exit_code(tmp_path: Path) -> None:
    archive, _, heads = an_archive(60)
    (tmp_path / "proof.json").write_text(json.dumps(prove(archive, id_of(records(60, 0, 0)[7]), id_of)))
    for anchor, code in ((heads[0].sha256, 0), (heads[1].sha256, 1)):
        command = [sys.executable, "-I", str(SCRIPT), str(tmp_path / "proof.json"), anchor]
        assert subprocess.run(command, check=False, capture_output=True).returncode == code
    for text in ("", "[1]", "[" * 100_000):
        (tmp_path / "proof.json").write_text(text)
        answer = subprocess.run(command, check=False, capture_output=True, text=True)
        assert answer.returncode == 1
        assert "NOT PROVED" in answer.stdout + answer.stderr and "Traceback" not in answer.stderr


def test_anchors_are_appended_and_read(tmp_path: Path) -> None:
    _, _, heads = an_archive()
    file = tmp_path / "anchors"
    anchors.append(file, [Anchor(heads[0])])
    anchors.append(file, [Anchor(heads[1], "0a", "ff")])
    with file.open("a") as more:  # with spaces, as an earlier version wrote them
        more.write(json.dumps(heads[0]._asdict()) + "\n\n")
    wanted = [Anchor(heads[0]), Anchor(heads[1], "0a", "ff"), Anchor(heads[0])]
    assert anchors.read(file) == [AnchorRecord(one, f"{file}, line {n}") for n, one in enumerate(wanted, start=1)]


def test_an_anchor_is_never_appended_to_the_line_of_another(tmp_path: Path) -> None:
    """An editor or a shell may leave a file whose last line has no line end."""
    _, _, heads = an_archive()
    anchors.append(tmp_path / "anchors", [Anchor(heads[0])])
    (tmp_path / "anchors").write_bytes((tmp_path / "anchors").read_bytes().rstrip())
    anchors.append(tmp_path / "anchors", [])
    anchors.append(tmp_path / "anchors", [Anchor(heads[1])])
    assert [one.anchor for one in anchors.read(tmp_path / "anchors")] == [Anchor(heads[0]), Anchor(heads[1])]


@pytest.mark.parametrize("line", [
    "{", "[]", "{}", '{"topic": 1}', json.dumps(Head("t", 0)._asdict()),
    json.dumps(Head("t", 0, 1, "0" * 63, 1, "i")._asdict()),
    json.dumps({**Head("t", 0, 1, "0" * 64, 1)._asdict(), "key": "0a"}),
    json.dumps(Head("t" * 5000, 0, 1, "0" * 64, 1)._asdict()), json.dumps(Head("t", 0, 10**99, "0" * 64, 1)._asdict()),
    json.dumps(Head("t", True, 1, "0" * 64, 1, "i")._asdict()),
])  # fmt: skip
def test_a_line_that_is_no_anchor_is_told_and_not_left_out(tmp_path: Path, line: str) -> None:
    _, _, heads = an_archive()
    anchors.append(tmp_path / "anchors", map(Anchor, heads))
    with (tmp_path / "anchors").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UsageError, match="line 3 is not an anchor"):
        anchors.read(tmp_path / "anchors")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Can't read anchors"):
        anchors.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="Can't write anchors"):
        anchors.append(tmp_path, [])
