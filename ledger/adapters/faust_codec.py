"""The values of the ledger's topics for Faust: `serializer="jobledger-avro"` once jobledger[audit] is installed.

Registered by the entry point group `faust.codecs` (pyproject.toml). To read only: what Faust writes for None is no
tombstone, and facts are written by a Recorder or by the protocol.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from fastavro import schemaless_reader
from faust.serializers.codecs import Codec

from ledger.adapters.avro import HEADER_BYTES, MAGIC
from ledger.adapters.schemas import by_fingerprint


class AvroCodec(Codec):
    """Bytes -> {"fact": name of the schema, "fields": what it says, by the names of the schema}.

    Raises: ValueError if the bytes are not framed, of no schema known here, cut off, or followed by more."""

    def _loads(self, data: bytes) -> Any:
        if data[:2] != MAGIC:
            raise ValueError("no Avro in single-object encoding")
        schema = by_fingerprint().get(bytes(data[2:HEADER_BYTES]))
        if schema is None:
            raise ValueError(f"no schema here has the fingerprint {bytes(data[2:HEADER_BYTES]).hex()}")
        body = BytesIO(data[HEADER_BYTES:])
        try:
            fields = schemaless_reader(body, schema.parsed, None)
        except Exception as error:  # whatever the bytes made the library say
            raise ValueError(f"no {schema.fact}: {error or type(error).__name__}") from error
        if body.read(1):
            raise ValueError(f"more bytes behind the {schema.fact}")
        return {"fact": schema.fact, "fields": fields}

    def _dumps(self, _: Any) -> bytes:
        raise TypeError("Faust only reads the ledger's topics. Write facts with ledger.Recorder, or by docs/PROTOCOL.md.")
