"""A full disk is reported as such, with its path, and damages no stored file."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.local.disk_space import without_room
from ledger.adapters.local.objects import FolderObjects
from ledger.cli import Frame
from ledger.cli.options import Context, verb
from ledger.errors import OutcomeUnknown, Unreachable
from tests.support.small_disks import fill, make_room, small_disk


def test_a_graph_that_finds_no_room_is_refused_and_what_lies_there_stays(tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    graph.write_bytes(b"g" * 300_000)
    with small_disk(tmp_path / "blobs", 1) as disk:
        blobs = FileBlobs(disk)
        ref = blobs.put("job-1", graph)
        fill(disk)
        graph.write_bytes(b"h" * 300_000)
        with pytest.raises(Unreachable, match="No space left") as refused:
            blobs.put("job-2", graph)
        assert str(disk) in str(refused.value) and "Make room" in refused.value.hint and refused.value.exit_code == 3
        assert blobs.exists(ref)
        assert [blob.unfinished for blob in blobs.listing()] == [""], "the failed put leaves nothing"
        make_room(disk)
        assert blobs.exists(blobs.put("job-2", graph))


def test_a_folder_that_can_not_be_written_is_no_server_that_could_be_started(tmp_path: Path) -> None:
    """The hint for an unwritable folder must not be the one for an unreachable broker: `jobledger up` would not help."""
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "root"
    for write in (lambda: FolderObjects(root).create("one", b"1"), lambda: FileBlobs(root)):
        with pytest.raises(Unreachable, match=f"Errno.*{root.parent}") as refused:
            write()
        assert refused.value.hint == f"Check {root}: its owner, its mode, its disk."


def test_which_folders_have_no_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 2) as disk:
        assert without_room([tmp_path, disk, tmp_path / "nowhere"], room_bytes=1 << 20) == []
        assert without_room([tmp_path, disk], room_bytes=4 << 20) == [disk]
        fill(disk)
        assert without_room([tmp_path, disk], room_bytes=1) == [disk]


@pytest.mark.parametrize("error", [Unreachable("No answer from Kafka."), OutcomeUnknown("Sent.", hint="Ask again.")])
def test_who_gets_no_answer_is_told_that_the_brokers_disk_is_full(error: Exception, tmp_path: Path) -> None:
    app = typer.Typer(cls=Frame)

    @app.command()
    @verb
    def fail(world: Context) -> None:
        raise error

    @app.command()
    @verb
    def other(world: Context) -> None: ...

    with small_disk(tmp_path / "broker" / "data", 1) as disk:
        told = CliRunner().invoke(app, ["fail", "--dir", str(tmp_path)])
        assert f"The disk of {disk} is full: make room there" in told.stderr
