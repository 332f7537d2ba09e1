"""Anchors the chains of an archive in the topic of anchors: a chore of the archiver, and `jobledger audit anchor`.

A chain is anchored only if it extends its last anchor. Suppose an archive was cut off or made anew: a new anchor from
an honest archiver would let log compaction remove the only anchors that show it. Source: docs/decisions/0037.
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
LISTED_EVERY = 60  # a chain is listed at every 60th look: by default once an hour


class AnchorStore(Protocol):
    """The store of the anchors. The methods are those of `anchor_topic.AnchorTopic` and `anchor_file.AnchorFile`."""

    def read(self) -> list[Posted]: ...
    def write(self, anchor: Anchor) -> None: ...
    def give_up(self, key: bytes, reason: str) -> None: ...
    def close(self) -> None: ...


class NotAnchored(LedgerError):
    """A chain does not extend its last anchor, so somebody altered the archive or the anchors. `jobledger audit verify`
    shows more. Do not continue before you know who made the change."""


@dataclass(slots=True)
class _Chain:
    """The anchors of one chain. newest: the anchor of the greatest sequence. time_s: when the topic received it. last:
    the anchor that the topic holds last; None if that record is no anchor, or does not count. fork: why two anchors
    can't both be true. looks: how often its manifests were read."""

    newest: Anchor
    time_s: float
    last: Anchor | None
    fork: str = ""
    looks: int = 0


class Anchoring:
    """Anchors the chains of one archive. topic: the store of the anchors, a topic or a file. tps: partitions to anchor,
    besides those that are anchored already. signer: signs new anchors, None = they are not signed; the signer's own
    anchors must count. why_not: as in `archive.format.anchor.judge`. An anchor that does not count is reported and
    overwritten."""

    def __init__(
        self, archive: Archive, topic: AnchorStore, tps: Callable[[], Iterable[TopicPartition]],
        signer: Signer | None = None, why_not: Callable[[Anchor], str] | None = None,
    ) -> None:  # fmt: skip
        self._archive, self._topic, self._tps, self._signer = archive, topic, tps, signer
        self._why_not = why_not or (lambda _: "")
        self._chains: dict[TopicPartition, _Chain] = {}
        self._keys: set[bytes] = set()

    def anchored(self) -> dict[TopicPartition, tuple[int, float]]:
        """Maps each partition to the number of its last anchored manifest, and to the time of that anchor. The values
        are those of the last `step`. Callable from any thread."""
        return {tp: (one.newest.head.sequence, one.time_s) for tp, one in self._chains.copy().items()}

    def close(self) -> None:
        self._topic.close()

    def step(self) -> list[Anchor]:
        """Anchors every chain whose head differs from its last anchor in the topic, and returns the written anchors.
        The topic is read first: chains only grow, so the anchors in it can't be ahead of them.

        Raises: NotAnchored, which names every chain that does not extend its anchor; all other chains were anchored.
        Unreachable, ConfigError, and as `Sender.send`: written anchors stay, and the call can be repeated."""
        try:
            self._take(self._topic.read())
            written, refused = [], []
            for tp in sorted({*self._tps(), *self._chains}):
                head, why = self._look(tp)
                if why:
                    refused.append(f"{tp[0]}[{tp[1]}]: {why}")
                elif self._is_due(tp, head):
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
        """Gives up all anchors in the topic, and returns new anchors of the chains as they are. Raises: as `step`."""
        self._take(self._topic.read())
        for key in sorted(self._keys):
            self._topic.give_up(key, reason)
        return self.step()

    def _take(self, posted: Iterable[Posted]) -> None:
        tps = {f"{topic}[{partition}]": (topic, partition) for topic, partition in self._chains}
        for one in posted:
            known = self._chains.get(tps.get(one.chain, ("", -1)))
            if one.given_up:
                self._keys.discard(one.key)
                if known is not None:
                    del self._chains[tps[one.chain]]
                continue
            self._keys.add(one.key)
            if one.anchor is None:
                log.error("no_anchor", why=one.problem)
                if known is not None:
                    known.last = None
            elif why := self._why_not(one.anchor):  # anybody may have written it, and no reader trusts it
                log.error("anchor_does_not_count", why=f"{one.where}, of {one.chain}: {why}")
                if known is not None:
                    known.last = None
            elif known is None:
                tp = tps[one.chain] = one.anchor.head.topic, one.anchor.head.partition
                self._chains[tp] = _Chain(one.anchor, one.time_s, one.anchor)
            else:
                if one.anchor.head.sequence < known.newest.head.sequence:  # the next step overwrites it
                    log.warning("anchor_goes_back", where=one.where, chain=one.chain, manifest=one.anchor.head.sequence,
                                newest=known.newest.head.sequence)  # fmt: skip
                _follow(known, one.anchor, one.time_s)

    def _look(self, tp: TopicPartition) -> tuple[Head, str]:
        """The head of a chain, and why it must not be anchored; "" if it may be."""
        known = self._chains.get(tp)
        try:
            if known is None:
                return self._archive.head(*tp), ""
            if known.fork:
                return known.newest.head, known.fork
            grown = self._grown(known)
            why = why_not_above(known.newest.head, grown)
            return (known.newest.head if why or grown[-1] is None else head_of(grown[-1])), why
        except (Unreachable, TemporaryError, ConfigError):
            raise
        except LedgerError as error:  # an error of this chain alone
            return Head(*tp), str(error)

    def _grown(self, known: _Chain) -> list[Manifest | None]:
        """The manifests from the anchored one on. They are read by name, because listing all takes longer every day.
        But some of them may have been joined since, for example after a long pause. So the chain is listed if the
        anchored manifest is missing, at the first look, and at every LISTED_EVERY-th look after that."""
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

    def _is_due(self, tp: TopicPartition, head: Head) -> bool:
        """Whether the chain must be anchored. This includes chains whose last anchor was overwritten or is not signed
        with our key."""
        known = self._chains.get(tp)
        if known is None:
            return head.sequence >= 0
        key = "" if self._signer is None else self._signer.key
        return known.last is None or known.last.head != head or bool(key and known.last.key != key)


def _follow(known: _Chain, anchor: Anchor, time_s: float) -> None:
    newest = known.newest.head
    known.last = anchor
    if anchor.head.sequence == newest.sequence and anchor.head.sha256 != newest.sha256:
        known.fork = f"{chain_of(newest)} has two anchors of manifest {newest.sequence} that can't both be true"
    if anchor.head.sequence >= newest.sequence:
        known.newest, known.time_s = anchor, time_s
