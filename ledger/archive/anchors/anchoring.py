"""Anchors what an archive holds, in the topic of anchors: a chore of the archiver, and `jobledger audit anchor`.

Only what grew out of the last anchor is anchored. Else an archive that was cut off or made anew would be given anchors by
an honest archiver, and the cleaner would take the only ones that tell. Source: docs/decisions/0037.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ledger.archive.anchors.anchor_topic import Posted
from ledger.archive.anchors.anchors import Signer, made
from ledger.archive.format import chain as core_chain
from ledger.archive.format.anchor import Anchor, chain_of, why_not_above
from ledger.archive.format.chain import Head, Manifest, head_of
from ledger.archive.format.segments import manifest_name
from ledger.archive.store.archive import Archive
from ledger.errors import ConfigError, LedgerError, TemporaryError, Unreachable
from ledger.ports import TopicPartition
from ledger.util.loggers import Logger

log = Logger("ledger.archive")
LISTED_EVERY = 60  # looks at a chain: by default one an hour


class AnchorPlace(Protocol):
    """Where anchors are kept: `anchor_topic.AnchorTopic`, `anchor_file.AnchorFile`, whose words these are."""

    def read(self) -> list[Posted]: ...
    def write(self, anchor: Anchor) -> None: ...
    def give_up(self, key: bytes, reason: str) -> None: ...
    def close(self) -> None: ...


class NotAnchored(LedgerError):
    """The archive, or the topic of anchors, is not what it was: `jobledger audit verify` tells more. Do not go on before
    you know who changed it."""


@dataclass(slots=True)
class _Chain:
    """newest: the anchor of the greatest sequence, time_s: since when, by the topic; last: what the topic holds last, None
    if that is no anchor, or does not count. fork: why two anchors can't both be true. looks: how often its manifests were
    asked for."""

    newest: Anchor
    time_s: float
    last: Anchor | None
    fork: str = ""
    looks: int = 0


class Anchoring:
    """One who anchors. topic: or a file. places: of the chains to be anchored, beside those that were. why_not: as of
    `core.anchors.judge`; what does not count is told, and written over. Those of `signer` must count."""

    def __init__(
        self, archive: Archive, topic: AnchorPlace, places: Callable[[], Iterable[TopicPartition]],
        signer: Signer | None = None, why_not: Callable[[Anchor], str] | None = None,
    ) -> None:  # fmt: skip
        self._archive, self._topic, self._places, self._signer = archive, topic, places, signer
        self._why_not = why_not or (lambda _: "")
        self._chains: dict[TopicPartition, _Chain] = {}
        self._keys: set[bytes] = set()

    def anchored(self) -> dict[TopicPartition, tuple[int, float]]:
        """Place -> number of the manifest that was anchored last, and when; as of the last `step`. From any thread."""
        return {place: (one.newest.head.sequence, one.time_s) for place, one in self._chains.copy().items()}

    def close(self) -> None:
        self._topic.close()

    def step(self) -> list[Anchor]:
        """Anchors every chain whose head is not what the topic says last; what was written. The topic is read first:
        chains only grow, so what stands there can't be ahead of them.

        Raises: NotAnchored that names every chain that is not what was anchored; all others were anchored all the same.
        Unreachable, ConfigError, and as `recorder.Sender.send`: what was written stands, call it again."""
        try:
            self._take(self._topic.read())
            written, refused = [], []
            for place in sorted({*self._places(), *self._chains}):
                head, why = self._look(place)
                if why:
                    refused.append(f"{place[0]}[{place[1]}]: {why}")
                elif self._is_due(place, head):
                    written.append(made(head, self._signer))
                    self._topic.write(written[-1])
            self._take(self._topic.read())
        except BaseException:
            self._chains, self._keys = {}, set()
            self._topic.close()
            raise
        if written:
            log.info("anchored", chains=len(written))
        if refused:
            raise NotAnchored(f"Not anchored: {'; '.join(refused)}.", hint="See: jobledger audit verify")
        return written

    def begin_anew(self, reason: str) -> list[Anchor]:
        """Gives up all that stands in the topic, and anchors the chains as they are. Raises: as `step`."""
        self._take(self._topic.read())
        for key in sorted(self._keys):
            self._topic.give_up(key, reason)
        return self.step()

    def _take(self, posted: Iterable[Posted]) -> None:
        places = {f"{topic}[{partition}]": (topic, partition) for topic, partition in self._chains}
        for one in posted:
            known = self._chains.get(places.get(one.chain, ("", -1)))
            if one.given_up:
                self._keys.discard(one.key)
                if known is not None:
                    del self._chains[places[one.chain]]
                continue
            self._keys.add(one.key)
            if one.anchor is None:
                log.error("no_anchor", why=one.problem)
                if known is not None:
                    known.last = None
            elif why := self._why_not(one.anchor):  # anybody may have written it, and no reader believes it
                log.error("anchor_does_not_count", why=f"{one.where}, of {one.chain}: {why}")
                if known is not None:
                    known.last = None
            elif known is None:
                place = places[one.chain] = one.anchor.head.topic, one.anchor.head.partition
                self._chains[place] = _Chain(one.anchor, one.time_s, one.anchor)
            else:
                if one.anchor.head.sequence < known.newest.head.sequence:  # it is written over by the next step
                    log.warning("anchor_goes_back", where=one.where, chain=one.chain, manifest=one.anchor.head.sequence,
                                newest=known.newest.head.sequence)  # fmt: skip
                _follow(known, one.anchor, one.time_s)

    def _look(self, place: TopicPartition) -> tuple[Head, str]:
        """The head of a chain, and why it is not to be anchored ("" if it may be)."""
        known = self._chains.get(place)
        try:
            if known is None:
                return self._archive.head(*place), ""
            if known.fork:
                return known.newest.head, known.fork
            grown = self._grown(known)
            why = why_not_above(known.newest.head, grown)
            return (known.newest.head if why or grown[-1] is None else head_of(grown[-1])), why
        except (Unreachable, TemporaryError, ConfigError):
            raise
        except LedgerError as error:  # of this chain alone
            return Head(*place), str(error)

    def _grown(self, known: _Chain) -> list[Manifest | None]:
        """The manifests from the anchored one on. They are asked for by name, as to list all takes longer by the day; but
        others may lie in between that were joined since, as after a long pause: the first time, and now and then, that is
        looked for."""
        anchor, found = known.newest.head, list[Manifest | None]()
        while None not in found:
            name = manifest_name(anchor.topic, anchor.partition, anchor.sequence + len(found))
            data = self._archive.store.read(name)
            if data is None:
                break
            try:
                found.append(core_chain.decode(data))
            except ValueError:
                found.append(None)
        end = anchor.sequence + len(found)
        listed = known.looks % LISTED_EVERY == 0
        if not found or (listed and self._archive.head(anchor.topic, anchor.partition).sequence >= end):
            found = list(self._archive.chain(anchor.topic, anchor.partition).manifests[anchor.sequence :])
        known.looks += 1
        return found

    def _is_due(self, place: TopicPartition, head: Head) -> bool:
        """Also what somebody has written over, and what is not signed with our key."""
        known = self._chains.get(place)
        if known is None:
            return head.sequence >= 0
        key = "" if self._signer is None else self._signer.key
        return known.last is None or known.last.head != head or bool(key and known.last.key != key)


def _follow(known: _Chain, anchor: Anchor, time_s: float) -> None:
    newest = known.newest.head
    known.last = anchor
    if anchor.head.sequence == newest.sequence and anchor.head.sha256 != newest.sha256:
        known.fork = f"{chain_of(newest)} has two anchors of number {newest.sequence} that can't both be true"
    if anchor.head.sequence >= newest.sequence:
        known.newest, known.time_s = anchor, time_s
