"""The codec of the ledger, which remembers: what it says is a function of the bytes, and here the same are read hundreds of
times. Whoever only decodes has `decode`; for roles it is a `ports.Codec`."""

from __future__ import annotations

from functools import lru_cache

from ledger.adapters import avro
from ledger.adapters.avro import encode, spec_digest

__all__ = ["decode", "encode", "read", "spec_digest"]

REMEMBERED_MAX = 20_000

decode = lru_cache(REMEMBERED_MAX)(avro.decode)
read = lru_cache(REMEMBERED_MAX, typed=True)(avro.read)  # typed: registers of two kinds may be equal tuples
