"""The ledger's codec with a cache. Its results depend only on the bytes, and a simulation decodes the same bytes hundreds
of times. The module has the functions of a `ports.Codec`, so roles can use it as theirs."""

from __future__ import annotations

from functools import lru_cache

from ledger.adapters import avro
from ledger.adapters.avro import encode, spec_digest

__all__ = ["decode", "encode", "read", "spec_digest"]

REMEMBERED_MAX = 20_000

decode = lru_cache(REMEMBERED_MAX)(avro.decode)
read = lru_cache(REMEMBERED_MAX, typed=True)(avro.read)  # typed: registers of two kinds may be equal tuples
