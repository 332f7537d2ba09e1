"""The HTTP endpoint that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ledger.errors import ConfigError
from ledger.util.metrics import Measure


class Exporter(Collector):
    """A context manager that serves GET /metrics on separate threads. Each scrape calls `measure`.

    Raises: ConfigError if it can't listen on the address and port."""

    def __init__(self, address: str, port: int, measure: Measure) -> None:
        self._measure = measure
        registry = CollectorRegistry()
        registry.register(self)
        try:
            served: tuple[Any, Thread] = start_http_server(port, address, registry)
        except OSError as error:
            hint = "Name another port: LEDGER_ARCHIVE__METRICS_PORT"
            raise ConfigError(f"Metrics can't be served at {address}:{port}: {error}.", hint=hint) from error
        self._server, self._thread = served

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric, samples in self._measure().items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples.items():
                family.add_metric(labels, value)
            yield family

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)
