"""Anchors in a compacted topic of their own, `ledger.anchors`, with one partition.

    key      the chain, `<topic>[<partition>]`
    value    the anchor as `archive.format.anchor` encodes it; none (a tombstone) gives up earlier anchors of the key
    headers  CloudEvents, content-type application/json, the writer; a tombstone also has `ledger_reason`

A record that is not an anchor is reported and never skipped. A slower archiver, or a person on purpose, may overwrite a
newer anchor with an older one. Log compaction keeps both for a day, readers count both, and an archiver writes its own
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ledger.archive.format import anchor as anchors
from ledger.archive.format.anchor import Anchor, AnchorRecord, chain_of
from ledger.core.model.published import headers_of
from ledger.errors import Unreachable
from ledger.ports import Clock, Envelope, Event, EventLog, Headers, Reader, Record, Sender

FACT = "ChainAnchored"
REASON = "ledger_reason"
PATIENCE_S, POLL_S = 10.0, 0.2
_TEXT_MAX = 1000


class Posted(NamedTuple):
    """A record of the topic of anchors. key: the raw bytes. chain, where: the key and the position of the record, for
    people. time_s: append time, seconds since the epoch. anchor: None for a tombstone (given_up: who and why) and for a
    record that is no anchor (problem: why)."""

    key: bytes
    chain: str
    where: str
    time_s: float
    anchor: Anchor | None = None
    problem: str = ""
    given_up: str = ""


@dataclass(frozen=True, slots=True)
class AnchorTopicState:
    """The state of the topic of anchors. kept: the anchors that count. unreadable: the records that are no anchors, for
    people. given_up: the tombstones, for people."""

    kept: tuple[AnchorRecord, ...]
    unreadable: tuple[str, ...]
    given_up: tuple[str, ...]


class AnchorTopic:
    """Reads and writes the topic of anchors. sender: returns the Sender; called at the first write. writer: identifies
    this instance in `ce_source`."""

    def __init__(
        self, topic: str, log: EventLog, sender: Callable[[], Sender], envelope: Envelope, clock: Clock, *,
        actor: str, writer: str, new_id: Callable[[], str],
    ) -> None:  # fmt: skip
        self.topic, self._log, self._make_sender = topic, log, sender
        self._envelope, self._clock, self._new_id, self._actor = envelope, clock, new_id, actor
        self._source, self._sequence = f"/ledger/anchors/{writer}/{new_id()}", 0
        self._reader: Reader | None = None
        self._sender: Sender | None = None

    def read(self) -> list[Posted]:
        """All records that were acknowledged before this call and that no earlier call has returned.

        Raises: Unreachable; ConfigError if there is no such topic. The next call then starts at the beginning."""
        try:
            if self._reader is None:
                self._reader = self._log.reader([self.topic])
            return self._read(self._reader)
        except BaseException:
            self._forget()
            raise

    def write(self, anchor: Anchor) -> None:
        """Writes an anchor and returns once it is durable. Raises: as `Sender.send`."""
        self._send(chain_of(anchor.head).encode(), anchors.encode(anchor))

    def give_up(self, key: bytes, reason: str) -> None:
        """Writes a tombstone for a key, so that earlier anchors under the key no longer count. reason: for people.
        Raises: as `write`."""
        self._send(key, None, ((REASON, reason.encode()),))

    def close(self) -> None:
        self._forget()
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _read(self, reader: Reader) -> list[Posted]:
        ends = reader.high_watermarks()
        found: list[Posted] = []
        idle_since = self._clock.monotonic()
        while any(reader.position().get(tp, 0) < end for tp, end in ends.items()):
            before = reader.position()
            records = reader.poll(1000, POLL_S)
            found += [self._posted(record) for record in records]
            if records or reader.position() != before:
                idle_since = self._clock.monotonic()
            elif self._clock.monotonic() - idle_since > PATIENCE_S:
                raise Unreachable(f"No record of {self.topic} came for {PATIENCE_S:g} s, but its end is not reached.")
            elif not records:
                self._clock.sleep(0.01)
        return found

    def _posted(self, record: Record) -> Posted:
        where, time_s = f"{record.topic()}[{record.partition()}]@{record.offset()}", record.timestamp()[1] / 1000
        key, value = record.key() or b"", record.value()
        chain = key[:_TEXT_MAX].decode("utf-8", "replace")
        if value is None:
            headers = headers_of(record)
            who = self._envelope.parse(headers).actor or "somebody"
            reason = (dict(headers).get(REASON) or b"no reason was given")[:_TEXT_MAX].decode("utf-8", "replace")
            given_up_by = f"{where}: {who} gave up the anchors of {chain}: {reason}"
            return Posted(key, chain, where, time_s, given_up=given_up_by)
        try:
            anchor = anchors.decode(value)
        except ValueError as error:
            return Posted(key, chain, where, time_s, problem=f"{where}, of {chain}: {error}")
        if chain_of(anchor.head).encode() != key:
            return Posted(key, chain, where, time_s, problem=f"{where}, of {chain}: it names {chain_of(anchor.head)}")
        return Posted(key, chain, where, time_s, anchor)

    def _send(self, key: bytes, value: bytes | None, extra: Headers = ()) -> None:
        if self._sender is None:
            self._sender = self._make_sender()
        self._sequence += 1
        made = self._envelope.headers(
            FACT, event_id=self._new_id(), source=self._source, subject="", key=key.decode("utf-8", "replace"),
            time_s=self._clock.time(), sequence=self._sequence, actor=self._actor,
        )  # fmt: skip
        headers = tuple((name, b"application/json" if name == "content-type" else text) for name, text in made)
        self._sender.ready(self.topic)
        self._sender.send(Event(self.topic, 0, key, value, (*headers, *extra)))

    def _forget(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def standing(posted: Iterable[Posted]) -> AnchorTopicState:
    """The state of the topic of anchors. posted: all records of the topic, in order. A tombstone removes the earlier
    anchors of its key, and is reported."""
    chains: dict[bytes, list[Posted]] = {}
    given_up = []
    for one in posted:
        if one.given_up:
            chains[one.key] = []
            given_up.append(one.given_up)
        else:
            chains.setdefault(one.key, []).append(one)
    left = [one for chain in chains.values() for one in chain]
    return AnchorTopicState(
        tuple(AnchorRecord(one.anchor, one.where, one.time_s) for one in left if one.anchor is not None),
        tuple(one.problem for one in left if one.problem),
        tuple(given_up),
    )
