"""Sends records with arbitrary bytes as header names. It calls the C functions of librdkafka, which allow them."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_ssize_t, c_void_p
from pathlib import Path

import confluent_kafka

# rd_kafka_vtype_t and RD_KAFKA_MSG_F_COPY, from rdkafka.h: part of its ABI.
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS, _END, _COPY = 1, 3, 4, 5, 7, 10, 0, 2
FLUSH_MS = 30_000


def send_with_headers(
    bootstrap: str, topic: str, partition: int, key: bytes, value: bytes, headers: list[tuple[bytes, bytes]],
    times: int = 1,
) -> None:  # fmt: skip
    """Sends records and returns when all are acknowledged. Raises: OSError if one was not."""
    library = next((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*"))
    rd = ctypes.CDLL(str(library))
    for name, result, arguments in [
        ("rd_kafka_conf_new", c_void_p, []),
        ("rd_kafka_conf_set", c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t]),
        ("rd_kafka_new", c_void_p, [c_int, c_void_p, c_void_p, c_size_t]),
        ("rd_kafka_headers_new", c_void_p, [c_size_t]),
        ("rd_kafka_header_add", c_int, [c_void_p, c_char_p, c_ssize_t, c_char_p, c_ssize_t]),
        ("rd_kafka_flush", c_int, [c_void_p, c_int]),
        ("rd_kafka_destroy", None, [c_void_p]),
    ]:
        function = getattr(rd, name)
        function.restype, function.argtypes = result, arguments
    conf, said = rd.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    rd.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), said, 512)
    client = rd.rd_kafka_new(0, conf, said, 512)  # 0 = RD_KAFKA_PRODUCER
    if not client:
        raise OSError(said.value.decode("utf-8", "replace"))
    try:
        for _ in range(times):
            made = rd.rd_kafka_headers_new(len(headers))
            for header, text in headers:
                rd.rd_kafka_header_add(made, header, len(header), text, len(text))
            error = rd.rd_kafka_producev(
                c_void_p(client), c_int(_TOPIC), c_char_p(topic.encode()), c_int(_PARTITION), c_int32(partition),
                c_int(_KEY), c_char_p(key), c_size_t(len(key)), c_int(_VALUE), c_char_p(value), c_size_t(len(value)),
                c_int(_FLAGS), c_int(_COPY), c_int(_HEADERS), c_void_p(made), c_int(_END),
            )  # fmt: skip
            if error:
                raise OSError(f"not sent: {error}")
        if rd.rd_kafka_flush(client, FLUSH_MS):
            raise OSError("not all records were acknowledged")
    finally:
        rd.rd_kafka_destroy(client)
