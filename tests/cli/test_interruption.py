"""A verb that is ended while it works removes its temporary files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import until


def test_a_submit_that_is_ended_leaves_no_packed_graph(tmp_path: Path) -> None:
    """The command waits for a Kafka that accepts connections and never answers."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "graph").write_text("files")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    environment |= {"TMPDIR": str(temporary), "LEDGER_DIR": str(tmp_path / "ledger")}
    with socket.create_server(("127.0.0.1", 0)) as mute, contextlib.ExitStack() as calls:
        broker = f"127.0.0.1:{mute.getsockname()[1]}"
        command = [sys.executable, "-m", "ledger", "submit", "-b", broker, "--graph", str(tmp_path / "graph"), "--", "true"]
        submit = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: list(temporary.glob("jobledger-graph-*")), "the command has packed the graph")
            mute.settimeout(60)
            calls.enter_context(mute.accept()[0])  # the command waits for Kafka
            submit.send_signal(signal.SIGTERM)
            code = submit.wait(60)
        finally:
            submit.kill()
            submit.wait()
    assert list(temporary.iterdir()) == []
    assert code != 0
