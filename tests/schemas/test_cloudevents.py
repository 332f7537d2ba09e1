"""The reference library reads the headers as CloudEvents in binary mode, and reading bad headers never fails."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.adapters.cloudevents import ParsedHeaders, headers, parse
from ledger.util.times import parse_rfc3339, rfc3339
from ledger.core.model.published import EPOCH_HEADER, epoch_of

_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
_TIME_S = st.floats(0, 4e9)
KEY = "orders-1/checkpoint/1/7"


class AsIs(JSONFormat):
    """A format for the reference library that leaves the data unchanged."""

    def read_data(self, body: bytes, datacontenttype: str | None) -> Any:
        return body

    def write_data(self, data: Any, datacontenttype: str | None) -> bytes:
        return bytes(data)


def written(**changes: Any) -> Any:
    arguments = {
        "event_id": "e-1", "source": "/prod/etl", "subject": "orders-1", "key": KEY, "time_s": 1738324800.25, "sequence": 3,
    }  # fmt: skip
    return headers("CheckpointCompleted", **(arguments | changes))


def test_the_reference_library_reads_them() -> None:
    message = KafkaMessage(dict(written(actor="alice", epoch=7)), KEY.encode(), b"value")
    event = from_binary(message, AsIs())
    assert event.get_specversion() == "1.0"
    assert (event.get_id(), event.get_source(), event.get_subject()) == ("e-1", "/prod/etl", "orders-1")
    assert event.get_type() == "io.jobledger.CheckpointCompleted.v1"
    assert event.get_time() == datetime(2025, 1, 31, 12, 0, 0, 250_000, UTC)
    assert event.get_datacontenttype() == "application/avro"
    assert event.get_extension("partitionkey") == KEY
    assert event.get_extension("sequence") == "3"
    assert event.get_data() == b"value"


def test_it_writes_the_same_attributes() -> None:
    attributes = {
        "specversion": "1.0", "id": "e-1", "source": "/prod/etl", "type": "io.jobledger.CheckpointCompleted.v1",
        "time": datetime(2025, 1, 31, 12, 0, 0, 250_000, UTC), "subject": "orders-1", "partitionkey": KEY,
        "sequence": "3", "datacontenttype": "application/avro",
    }  # fmt: skip
    message = to_binary(CloudEvent(attributes, b"value"), AsIs())
    assert message.headers == dict(written())
    assert message.key == KEY


@given(_TEXT, _TEXT, _TEXT, _TEXT, _TIME_S, st.integers(1, 2**53), st.none() | st.integers(1, 2**53))
def test_what_is_written_is_read(
    id_: str, source: str, subject: str, actor: str, time_s: float, sequence: int, epoch: int | None
) -> None:
    out = written(event_id=id_, source=source, subject=subject, actor=actor, time_s=time_s, sequence=sequence, epoch=epoch)
    found = parse(out)
    assert found._replace(time_s=None) == ParsedHeaders(
        id_, source, "io.jobledger.CheckpointCompleted.v1", None, subject, actor, sequence, epoch
    )
    assert found.time_s == pytest.approx(time_s, abs=1e-6)
    assert epoch_of(out) == (epoch or 0)


def test_the_epoch_header_is_the_one_that_readers_judge() -> None:
    assert [value for name, value in written(epoch=12) if name == EPOCH_HEADER] == [b"12"]
    assert EPOCH_HEADER not in dict(written())


def test_the_same_event_has_the_same_headers_and_what_is_added_comes_last() -> None:
    assert written() == written()
    assert written(key=KEY.encode()) == written()
    assert written(extra=[("traceparent", b"00-1-2-01")]) == (*written(), ("traceparent", b"00-1-2-01"))


def test_what_has_no_job_names_no_subject() -> None:
    """CloudEvents forbids an empty subject."""
    assert "ce_subject" not in dict(written(subject=""))
    assert "ledger_actor" not in dict(written(actor=""))


# -- reading foreign headers -------------------------------------------------------------------------------------------

_VALUE = st.none() | st.binary(max_size=30) | st.text(max_size=10)
_NAME = st.sampled_from(["ce_id", "ce_time", "ce_sequence", "ledger_epoch", "ce_subject", "other"])


@given(st.none() | st.lists(st.tuples(_NAME, _VALUE)))
def test_reading_never_fails(found: Any) -> None:
    envelope = parse(found)
    assert envelope.time_s is None or math.isfinite(envelope.time_s)


def test_nothing_said_is_nothing_known() -> None:
    assert parse(None) == parse([]) == ParsedHeaders()


def test_the_first_of_several_counts_as_it_does_for_the_epoch_filter() -> None:
    several = [("ce_id", b"1"), ("ledger_epoch", b"3"), ("ce_id", b"2"), ("ledger_epoch", b"4")]
    assert parse(several).id == "1"
    assert parse(several).epoch == epoch_of(several) == 3


def test_a_header_without_end_is_not_kept() -> None:
    assert parse([("ce_source", b"x" * 4097)]).source == ""


@pytest.mark.parametrize("text", ["", "0", "-1", "01", "1.0", " 1", "1 ", "١", "9" * 20, str(2**53 + 1)])
def test_what_is_no_number_is_none(text: str) -> None:
    assert parse([("ce_sequence", text.encode()), ("ledger_epoch", text.encode())]) == ParsedHeaders()


TIMES = {
    "2025-01-31T12:00:00Z": 1738324800.0,
    "2025-01-31t12:00:00z": 1738324800.0,
    "2025-01-31T12:00:00.25Z": 1738324800.25,
    "2025-01-31T12:00:00.250000999Z": 1738324800.25,
    "2025-01-31T13:30:00.25+01:30": 1738324800.25,
    "1969-12-31T23:59:59.5Z": -0.5,
}
NO_TIMES = [
    "", "now", "2025-01-31", "2025-01-31T12:00:00", "2025-01-31 12:00:00Z", "2025-13-31T12:00:00Z", "2025-W05-5T12:00:00Z",
    "2025-01-31T12:00:60Z", "2025-01-31T12:00:00+24:00", "2025-01-31T12:00:00Z\n", "٢٠٢٥-01-31T12:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize(("text", "time_s"), TIMES.items())
def test_a_time_of_any_language_is_read(text: str, time_s: float) -> None:
    assert parse_rfc3339(text) == time_s


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_rfc3339(text) is None


@given(_TIME_S)
@example(0.3)
@example(1738324800.9999999)
def test_a_time_is_written_as_rfc3339(time_s: float) -> None:
    text = rfc3339(time_s)
    assert len(text) == 27
    assert parse_rfc3339(text) == pytest.approx(time_s, abs=1e-6)
