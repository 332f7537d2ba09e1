"""Faulty records stop no projector and change no good job. Unusable records become rejects."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import NUMBER_MAX, claim_key, partition_of
from ledger.errors import ConfigError
from ledger.reader.rejects import RejectsTopic, list_rejects
from ledger.roles.common.role_parts import ProjectorSettings
from ledger.roles.projector.projector import Projector
from tests.support.bad_input import DIGEST, GOOD, SPEC, TARGET, Bad, Fate, everything, good_records
from tests.support.odd_headers import ODD, OddHeaders
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, PARTITIONS, RECOVERY, REJECTS, World, run

ALL = everything()


class Fed:
    """A leading projector with good jobs, which a test feeds with faulty records."""

    def __init__(self, result_retention_s: float | None = None) -> None:
        self.world = World(ProjectorSettings(commit_interval_s=0.0, result_retention_s=result_retention_s))
        self.world.log.max_message_bytes = 4 << 20  # topics of other systems may allow more
        parts = self.world.parts("projector", "p1")
        self.projector = Projector(parts, RejectsTopic(REJECTS, EVENTS), self.world.settings)
        for job_id, register, fact in good_records():
            self.world.record(job_id, register, fact)
        run(self.projector)
        self.before = self.good()

    def throw(self, bads: Sequence[Bad]) -> dict[str, str]:
        """Writes faulty records. Returns description -> place of the record."""
        places = {}
        for bad in bads:
            if bad.job and not bad.alone:
                key = f"{bad.job}/spec/{DIGEST}".encode()
                self.world.raw(key, avro.encode(SPEC), partition_of(bad.job, PARTITIONS))
        run(self.projector)
        for bad in bads:
            partition = bad.partition(PARTITIONS)
            offset = self.world.raw(bad.key, bad.value, partition, headers=bad.headers)  # type: ignore[arg-type]
            places[bad.what] = f"{EVENTS}/{partition}/{offset}"
        run(self.projector)
        return places

    def good(self) -> dict[str, RecoveryEntry]:
        return {job_id: entry for job_id, entry in self.world.meaning().items() if job_id in GOOD}

    def rejected(self) -> set[str]:
        return {reject.origin for reject in list_rejects(self.world.log.reader([REJECTS]))}

    def judge(self, bads: Sequence[Bad], places: dict[str, str]) -> None:
        assert self.projector.epoch == 1  # it never stepped down
        assert self.good() == self.before and len(self.before) == len(GOOD)
        rejected = self.rejected()
        wanted = {places[bad.what] for bad in bads if bad.fate is Fate.REJECTED}
        assert wanted <= rejected, [bad.what for bad in bads if places[bad.what] in wanted - rejected]
        harmless = {places[bad.what] for bad in bads if bad.fate is Fate.HARMLESS}
        assert not harmless & rejected, [bad.what for bad in bads if places[bad.what] in harmless & rejected]
        entries = self.world.published().entries
        for bad in bads:
            if bad.job:
                entry = entries.get(bad.job)
                assert (str(entry.state) if entry else "") == bad.state, (bad.what, entry and entry.reason)


@pytest.fixture
def fed() -> Fed:
    return Fed()


@pytest.mark.parametrize("bad", ALL, ids=lambda bad: bad.what[:60].encode("unicode_escape").decode())
def test_one_bad_record_harms_nobody(fed: Fed, bad: Bad, capsys: pytest.CaptureFixture[str]) -> None:
    fed.judge([bad], fed.throw([bad]))
    assert "job_not_folded" not in capsys.readouterr().out


def test_all_of_them_at_once_and_a_successor_that_reads_them_cold(fed: Fed, capsys: pytest.CaptureFixture[str]) -> None:
    tracemalloc.start()
    places = fed.throw(ALL)
    successor = fed.world.projector("p2")
    fed.judge(ALL, places)
    fed.world.elections["projector"].holder = successor._parts.leadership
    run(fed.projector, successor)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert successor.epoch == 2 and fed.good() == fed.before
    assert peak < 200 << 20
    assert "job_not_folded" not in capsys.readouterr().out


def test_with_results_that_expire_a_spec_from_long_ago_is_refused_and_none_from_the_future(fed: Fed) -> None:
    """Only with expiring results does the producer's clock matter."""
    clocks = [bad for bad in ALL if bad.job.startswith("clock-")]
    fed = Fed(100 * 365 * 86_400.0)
    places = fed.throw(clocks)
    old = {bad.what for bad in clocks if places[bad.what] in fed.rejected()}
    assert old == {"a spec of the first day", "a spec of before it"}
    fed.judge([bad for bad in clocks if bad.what not in old], places)


# -- on ledger.recovery, where only leaders write ----------------------------------------------------------------------

HOME = partition_of(TARGET, PARTITIONS)
ENTRY = avro.encode(RecoveryEntry(TARGET, "other", "default", "memory", JobState.FINISHED, "0" * 64))
STRAYS = {
    "an entry": (TARGET.encode(), ENTRY, HOME),
    "an entry's tombstone": (TARGET.encode(), None, HOME),
    "an entry in the wrong partition": (TARGET.encode(), ENTRY, 1 - HOME),
    "a tombstone in the wrong partition": (TARGET.encode(), None, 1 - HOME),
    "junk in the place of an entry": (TARGET.encode(), b"\xff" * 100, HOME),
    "a key that is no job id": (b"\xff\xfe/\0", ENTRY, HOME),
    "a key without a character": (b"", ENTRY, HOME),
    "progress": (b"~progress", b"junk", HOME),
    "a tombstone of progress": (b"~progress", None, HOME),
    "no claim": (b"~claim/projector/0", b"junk", HOME),
    "no key": (None, ENTRY, HOME),
}
EPOCHS = {"none": b"", "0": b"0", "less than none": b"-1", "the highest": b"9007199254740992", "no number": b"x"}


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("stray", STRAYS)
def test_what_a_stranger_writes_to_ledger_recovery_harms_nobody(fed: Fed, stray: str, epoch: str) -> None:
    key, value, partition = STRAYS[stray]
    headers = (("ledger_epoch", EPOCHS[epoch]),) if EPOCHS[epoch] else ()
    fed.world.raw(key, value, partition, RECOVERY, headers)  # type: ignore[arg-type]
    run(fed.projector)
    assert fed.good() == fed.before and fed.projector.epoch == 1
    length = sum(len(fed.world.log.records(RECOVERY, p)) for p in range(PARTITIONS))
    run(fed.projector)
    assert sum(len(fed.world.log.records(RECOVERY, p)) for p in range(PARTITIONS)) == length  # the leader stops writing
    successor = fed.world.projector("p2")
    fed.world.elections["projector"].holder = successor._parts.leadership
    run(fed.projector, successor)
    assert fed.good() == fed.before and successor.epoch == 2


# -- headers that the client library can't return ----------------------------------------------------------------------


def test_headers_that_can_not_be_read_are_none() -> None:
    world = World(ProjectorSettings(commit_interval_s=0.0, result_retention_s=1e9))
    parts = world.parts("projector", "p1", wrap=OddHeaders)
    projector = Projector(parts, RejectsTopic(REJECTS, EVENTS), world.settings)
    for job_id, register, fact in good_records():
        world.record(job_id, register, fact)
    run(projector)
    odd = (*ODD, ("ledger_epoch", b"1"))
    world.raw(f"{TARGET}/no register".encode(), b"x", HOME, headers=odd)
    world.raw(f"odd/spec/{DIGEST}".encode(), avro.encode(SPEC), partition_of("odd", PARTITIONS), headers=odd)
    world.raw(TARGET.encode(), None, HOME, RECOVERY, odd)
    run(projector)
    assert projector.epoch == 1 and {*GOOD, "odd"} == {*world.meaning()}
    assert len(list(list_rejects(world.log.reader([REJECTS])))) == 1


# -- the highest epoch -------------------------------------------------------------------------------------------------


def test_a_claim_of_the_last_epoch_is_told_and_nothing_is_written_that_no_reader_takes(fed: Fed, tmp_path) -> None:
    last = claim_key("projector", NUMBER_MAX).encode()
    fed.world.raw(last, avro.encode(LeaderClaimed("projector", NUMBER_MAX, "x")), 0, RECOVERY)
    with pytest.raises(ConfigError, match="none is above it"):
        run(fed.projector)
    cluster = Cluster(tmp_path)
    cluster.raw(claim_key("reconciler", NUMBER_MAX).encode(), avro.encode(LeaderClaimed("reconciler", NUMBER_MAX, "x")), 0)
    with pytest.raises(ConfigError, match="none is above it"):
        cluster.go()
