"""The anchors of a ledger, as its settings define them: the topic, keys and writer of anchors, and the monitoring of an
archiver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.app import archives
from ledger.app.wiring import of_extra
from ledger.errors import ConfigError
from ledger.ports import TopicPartition
from ledger.util.identity import instance, whoami

if TYPE_CHECKING:
    from ledger.adapters.ed25519 import PrivateKey, PublicKeys
    from ledger.app.ledger import Ledger
    from ledger.archive.anchors.anchor_topic import AnchorTopic
    from ledger.archive.anchors.anchoring import Anchoring
    from ledger.archive.format.anchor import Anchor
    from ledger.archive.format.chain import Head
    from ledger.archive.store.archive import Archive
    from ledger.archive.store.archiving import Archiver
    from ledger.archive.store.status import ArchiveProgress
    from ledger.config.config import Config
    from ledger.util.metrics import Metric, Samples


def signer(config: Config) -> PrivateKey | None:
    """The key that signs anchors; None if the settings name none. Raises: ConfigError."""
    if (path := config.archive.anchor_key_file) is None:
        return None
    with of_extra("sign"):
        from ledger.adapters.ed25519 import PrivateKey
    return PrivateKey(path)


def public_keys(config: Config, path: Path | None = None) -> PublicKeys | None:
    """The public keys of valid anchors, from `path` or else from the settings. None if neither names a file; then every
    anchor counts. Raises: ConfigError."""
    if (path := path or config.archive.anchor_public_key_file) is None:
        return None
    with of_extra("sign"):
        from ledger.adapters.ed25519 import PublicKeys
    return PublicKeys(path)


def counting(config: Config, sign: PrivateKey | None) -> Callable[[Anchor], str] | None:
    """The check of anchors for an archiver: a function that returns why an anchor does not count, "" if it counts. None
    if all anchors count.

    All anchors count for an archiver that does not sign, and for one whose key is not among the public keys, since it
    would reject its own anchors. sign: the archiver's key. Raises: as `public_keys`."""
    from ledger.archive.anchors.anchors import made
    from ledger.archive.format.chain import Head

    keys = None if sign is None else public_keys(config)
    return None if keys is None or keys.why_not(made(Head("", 0), sign)) else keys.why_not


def anchor_topic(ledger: Ledger, topic: str = "") -> AnchorTopic:
    """The topic of anchors; the caller closes it. topic: its name; "" = the name in the settings. Raises: as
    `Ledger.event_log`."""
    from ledger.adapters import cloudevents
    from ledger.archive.anchors.anchor_topic import AnchorTopic

    return AnchorTopic(
        topic or ledger.config.topics.anchors, ledger.event_log, ledger.sender, cloudevents,
        ledger.clock, actor=whoami(), writer=instance("archiver"), new_id=lambda: str(uuid.uuid4()),
    )  # fmt: skip


def anchoring(
    ledger: Ledger, archive: Archive, tps: Callable[[], Iterable[TopicPartition]] | None = None, to: Path | None = None
) -> Anchoring:
    """The anchoring of an archive; the caller closes it. tps: as in `Anchoring`; None = all partitions of the topics.
    to: a file for the anchors; None = the topic of anchors.

    Raises: as `signer`, `public_keys` and `Ledger.event_log`."""
    from ledger.archive.anchors.anchoring import Anchoring

    tps = tps or partial(archives.archived_partitions, ledger)
    from ledger.archive.anchors.anchor_file import AnchorFile

    sign = signer(ledger.config)
    if to is not None:
        return Anchoring(archive, AnchorFile(to), tps, sign)
    return Anchoring(archive, anchor_topic(ledger), tps, sign, counting(ledger.config, sign))


def anchored_progress(ledger: Ledger) -> list[ArchiveProgress]:
    """How far the archive is behind each partition (`archives.archive_progress`), with each partition's newest anchor
    from the topic of anchors."""
    from ledger.archive.anchors.anchor_topic import standing
    from ledger.archive.store.status import with_anchors

    found = archives.archive_progress(ledger)
    try:
        with closing(anchor_topic(ledger)) as topic:
            return with_anchors(found, standing(topic.read()).kept, ledger.clock.time())
    except ConfigError:  # `topics check` reports the missing topic
        return found


@contextmanager
def watched(ledger: Ledger, archiver: Archiver, anchoring: Anchoring) -> Iterator[None]:
    """Monitors a running archiver inside the `with` block: its compaction margin, with an alarm, and its metrics if the
    settings name a port.

    Raises: ConfigError if the metrics can't be served.
    """
    from ledger.archive.store.compaction_margin import Headroom
    from ledger.archive.store.metrics import measured

    given, clock = ledger.config.archive, ledger.clock
    known: dict[TopicPartition, Head] = {}

    def ask() -> list[ArchiveProgress]:
        """The progress of all partitions, with heads from the archiver where it knows them, else from the store."""
        known.update(archiver.heads)
        return archives.archive_progress(ledger, known)

    def measure() -> Mapping[Metric, Samples]:
        now = headroom.now()
        passed_s = clock.monotonic() - now.at_s
        own = archiver.records.copy(), archiver.newest_s.copy(), archiver.failing
        return measured(now, clock.time(), passed_s, *own, anchoring.anchored())

    with ExitStack() as opened:
        headroom = Headroom(ask, given.headroom_min, given.headroom_interval_s, clock)
        if given.metrics_port is not None:
            from ledger.adapters.prometheus import Exporter

            opened.enter_context(Exporter(given.metrics_address, given.metrics_port, measure))
        opened.enter_context(headroom)
        yield
