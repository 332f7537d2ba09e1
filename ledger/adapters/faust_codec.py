"""A Faust codec that decodes the values of the ledger's topics: `serializer="jobledger-avro"`. Needs jobledger[audit].

The entry point group `faust.codecs` registers the codec (pyproject.toml). The codec only decodes: Faust does not write
None as a tombstone, and facts are written with a Recorder or by docs/PROTOCOL.md."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from fastavro import schemaless_reader
from faust.serializers.codecs import Codec

from ledger.adapters.avro import HEADER_BYTES, MAGIC
from ledger.adapters.schemas import by_fingerprint


class AvroCodec(Codec):
    """Decodes bytes to {"fact": name of the schema, "fields": {field name in the schema: value}}.

    Raises: ValueError if the bytes have no single-object framing, an unknown schema, are cut off, or have trailing
    bytes."""

    def _loads(self, data: bytes) -> Any:
        if data[:2] != MAGIC:
            raise ValueError("not Avro in single-object encoding")
        schema = by_fingerprint().get(bytes(data[2:HEADER_BYTES]))
        if schema is None:
            raise ValueError(f"no known schema has the fingerprint {bytes(data[2:HEADER_BYTES]).hex()}")
        body = BytesIO(data[HEADER_BYTES:])
        try:
            fields = schemaless_reader(body, schema.parsed, None)
        except Exception as error:  # on damaged bytes, fastavro raises a dozen classes
            raise ValueError(f"no {schema.fact}: {error or type(error).__name__}") from error
        if body.read(1):
            raise ValueError(f"trailing bytes after the {schema.fact}")
        return {"fact": schema.fact, "fields": fields}

    def _dumps(self, _: Any) -> bytes:
        raise TypeError("Faust only reads the ledger's topics. Write facts with ledger.Recorder, or by docs/PROTOCOL.md.")
