"""The description of a bundle, in `bundle.json`: its maker and reason, its contents, and the moments that it covers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from ledger.archive.format.removals import taken_of
from ledger.core.plan.pools import Pool, Pools
from ledger.errors import UsageError
from ledger.history.moment import parse
from ledger.ports import TopicPartition
from ledger.reader.expiry_gaps import Expired
from ledger.util.times import rfc3339

ABOUT = "bundle.json"
FORMAT = 1
TIME_MAX_S = 9e9  # the year 2255
_COUNT_MAX = 100_000  # partitions of a topic: readers allocate memory for each


@dataclass(frozen=True, slots=True)
class About:
    """The description of a bundle. made_at: RFC 3339. jobs: ids, empty = all. cut: in the form of --as-of. partitions: of
    either topic. sure_from_s: `topic[partition]` -> the oldest moment (seconds since the epoch) that the bundle holds
    completely, apart from expired records. expired: `topic[partition]` -> those, in the form of `plain`; absent if there
    are none, and in older bundles. as_of_s: the requested moment, seconds since the epoch; None = when the bundle was
    made. config: the settings, without secrets. versions: name -> version of the programs that made it. format: of this
    file."""

    made_at: str
    made_by: str
    reason: str
    jobs: tuple[str, ...]
    events: str
    recovery: str
    rejects: str
    partitions: Mapping[str, int]
    keep: int
    cut: str
    sure_from_s: Mapping[str, float]
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    expired: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    as_of_s: float | None = None
    format: int = FORMAT

    @property
    def as_of(self) -> str:
        """The moment up to which the bundle holds the ledger, RFC 3339."""
        return self.made_at if self.as_of_s is None else rfc3339(self.as_of_s, "milliseconds")

    @property
    def known_s(self) -> float:
        """The moment up to which the bundle holds the ledger, in seconds since the epoch. A relative moment such as
        `15m` counts back from it. Raises: ValueError."""
        return self.made_at_s if self.as_of_s is None else self.as_of_s

    @property
    def made_at_s(self) -> float:
        """When the bundle was made, in seconds since the epoch. Raises: ValueError."""
        return datetime.fromisoformat(self.made_at).timestamp()

    def reaching(self) -> dict[TopicPartition, int]:
        """Partition -> offset of the last record that the bundle must hold of this partition. Raises: ValueError."""
        topics = {"events": self.events, "recovery": self.recovery}
        cut = (parse(self.cut, self.made_at_s).last or {}) if not self.jobs else {}
        return {
            (topics[short], partition): last for (short, partition), last in cut.items()
            if last >= 0 and f"{short}[{partition}]" not in self.expired
        }  # fmt: skip

    def limits(self) -> Pools | None:
        """The pools in the settings that the bundle holds; None = it holds no settings. Raises: UsageError if they are
        invalid."""
        try:
            given = self.config.get("pools")
            return None if given is None else Pools(
                Pool(name, pool["slots"], frozenset(pool["namespaces"]), frozenset(pool["runners"]))
                for name, pool in given.items()
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"The pools in this bundle can't be read: {error!r}.") from error

    @property
    def starts_max(self) -> int | None:
        """The maximum of starts per pass in the settings that the bundle holds; None = it holds no settings."""
        section = self.config.get("reconciler")
        found = section.get("starts_max") if isinstance(section, Mapping) else None
        return found if isinstance(found, int) else None

    def encode(self) -> bytes:
        plain = asdict(self)
        for name in ("expired", "as_of_s"):
            if not plain[name]:
                del plain[name]  # so that older programs can still read the bundle
        return json.dumps(plain, indent=1, sort_keys=True).encode()


def decode(data: bytes | None) -> About:
    """The description of a bundle. data: the content of `bundle.json`, None = it is missing. Raises: UsageError."""
    if data is None:
        raise UsageError(f"This is no bundle: there is no {ABOUT} in it.", hint="Make one with: jobledger audit bundle")
    try:
        values = json.loads(data)
        if (number := values.get("format")) != FORMAT:
            raise UsageError(f"This bundle has the format {number!r}; this version reads {FORMAT}.",
                             hint="Use the version that made it; bundle.json names it.")  # fmt: skip
        if not isinstance(values["jobs"], list):
            raise TypeError("jobs are a list")
        about = About(**{**values, "jobs": tuple(values["jobs"])})
        _check(about)
        return about
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{ABOUT} of this bundle can't be read: {error}.") from error


def _check(about: About) -> None:
    """Checks the fields that readers rely on. Raises: as `expired_of`; OverflowError."""
    texts = about.made_at, about.made_by, about.reason, about.events, about.recovery, about.rejects, about.cut
    if not all(isinstance(text, str) for text in (*texts, *about.jobs)):
        raise TypeError("a field that must be a text is not one")
    by_name = about.partitions, about.sure_from_s, about.config, about.versions, about.expired
    if not all(isinstance(found, Mapping) for found in by_name):
        raise TypeError("a field that must be an object with names is not one")
    if any(type(number) is not int or not 1 <= number <= _COUNT_MAX for number in (about.keep, *about.partitions.values())):
        raise ValueError("a number of partitions, or `keep`, is out of range")
    if not all(type(time_s) in (int, float) for time_s in about.sure_from_s.values()):
        raise TypeError("a value of sure_from_s is not a time")
    if set(about.partitions) != {"events", "recovery"}:
        raise ValueError("partitions of events and recovery are missing")
    if type(about.as_of_s) not in (int, float, type(None)) or not abs(about.known_s) <= TIME_MAX_S:
        raise TypeError("its moment, as_of_s, is not a time")
    if (last := parse(about.cut, about.made_at_s).last) is None:
        raise ValueError("its cut names no offsets")
    for short, partition in last:
        if partition >= about.partitions[short]:
            raise ValueError(f"there is no {short}[{partition}]")
    for found in about.expired.values():
        for one in map(expired_of, found):
            if not abs(one.until_s) <= TIME_MAX_S:
                raise ValueError("until_s of expired records is not a time")


def plain(expired: Expired, jobs: Collection[str]) -> dict[str, Any] | None:
    """The fields of an Expired as plain values. jobs: the jobs to include (empty = all), as id -> [first, since_ms,
    below]. None = none of these jobs lost records."""
    plain = expired._asdict()
    if expired.jobs is not None:
        taken = {job_id: numbers for job_id, *numbers in expired.jobs if not jobs or job_id in jobs}
        if not taken:
            return None
        plain["jobs"] = taken
    return plain


def expired_of(plain: Mapping[str, Any]) -> Expired:
    """The inverse of `plain`. Raises: AttributeError, KeyError, TypeError, ValueError for invalid values."""
    jobs = None if plain["jobs"] is None else taken_of(plain["jobs"])
    return Expired(str(plain["namespace"]), float(plain["until_s"]), int(plain["below"]), jobs, int(plain["records"]))
