"""docker-compose.yml in the engine that `docker` reaches, under a unique project name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "docker-compose.yml", Path(__file__).with_name("override.yml"))
IMAGE = "jobledger-containers"
#: The first version of compose that has both `up --wait` and the override's `!reset`.
LEAST = (2, 18)
#: The slowest machine seen needed 10 minutes to build the image and 3 to start the servers.
UP_S = 2700.0
COMMAND_S = 300.0


class Failed(Exception):
    """A command of the engine, or one inside a container, did not end with exit code 0."""


def why_no_engine() -> str | None:
    """The reason why the compose file can't be run here; None if it can."""
    if shutil.which("docker") is None:
        return "there is no docker on PATH"
    try:
        _run(["docker", "version", "--format", "{{.Server.Version}}"], 60.0)
    except (Failed, subprocess.TimeoutExpired) as error:
        return f"no engine answers docker: {error}"
    try:
        version = _run(["docker", "compose", "version", "--short"], 60.0).strip()
    except (Failed, subprocess.TimeoutExpired) as error:
        return f"docker has no compose: {error}"
    numbers = version.removeprefix("v").split(".")
    try:
        found = (int(numbers[0]), int(numbers[1]))
    except (ValueError, IndexError):
        return f"docker compose has a version that can't be read: {version!r}"
    least = ".".join(map(str, LEAST))
    return None if found >= LEAST else f"docker compose is {version}; {least} is the oldest that will do"


@dataclass
class Compose:
    """One start of the compose file. project: its name, unique among all starts."""

    project: str
    volumes: set[str] = field(default_factory=set)
    """Volumes that its containers had mounted. Anonymous volumes do not have the project's label."""

    def up(self) -> None:
        """Builds the image, starts all services, and returns when all are healthy. Raises: Failed."""
        # Users want to see compose's own output in these minutes; stdout is for the table.
        command = [*self._command("up"), "--build", "--wait"]
        done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=UP_S, env=_environment())
        if done.returncode != 0:
            raise Failed(f"docker compose up --build --wait: exit code {done.returncode}")

    def inside(self, service: str, *command: str, given: str = "", timeout_s: float = COMMAND_S) -> str:
        """Runs a command in the container of a service; its stdout. Raises: Failed with its stderr."""
        return _run([*self._command("exec"), "--no-TTY", service, *command], timeout_s, given)

    def jobledger(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """Runs a command of the ledger, as README shows it. Raises: Failed."""
        return self.inside("agent-1", "jobledger", *arguments, timeout_s=timeout_s)

    def started(self, service: str) -> str:
        """The start time of a service's container, in the engine's notation; it differs after each restart."""
        state = self._inspected(service)["State"]
        return str(state["StartedAt"]) if state["Running"] else ""

    def kill_init(self, service: str) -> None:
        """SIGKILL to the first process of a container, which ends all of it; then its restart policy applies.

        `docker kill` would count as an operator's stop, after which no policy restarts it. Raises: Failed.
        """
        pid = str(self._inspected(service)["State"]["Pid"])
        alone = ["--rm", "--pid", "host", "--network", "none", "--user", "0", "--entrypoint", "kill"]
        _run(["docker", "run", *alone, IMAGE, "-KILL", pid], COMMAND_S)

    def services(self) -> dict[str, str]:
        """The id of each service's container, including ended ones."""
        listed = _run([*self._command("ps"), "--all", "--format", "json"], COMMAND_S)
        rows = json.loads(listed) if listed.startswith("[") else [json.loads(line) for line in listed.splitlines()]
        return {row["Service"]: row["ID"] for row in rows}

    def logs(self, lines: int = 15) -> str:
        """The last lines of each container."""
        return _run([*self._command("logs"), "--no-color", "--tail", str(lines)], COMMAND_S)

    def down(self) -> list[str]:
        """Stops and removes everything; returns what is left, by kind and name. Idempotent. Raises: Failed."""
        for container in self.services().values():
            mounts = json.loads(_run(["docker", "inspect", container], COMMAND_S))[0]["Mounts"]
            self.volumes |= {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
        _run([*self._command("down"), "--volumes", "--remove-orphans"], COMMAND_S)
        mark = ["--filter", f"label=com.docker.compose.project={self.project}"]
        left = [f"container {one}" for one in _run(["docker", "ps", "--all", "--quiet", *mark], COMMAND_S).split()]
        left += [f"network {one}" for one in _run(["docker", "network", "ls", "--quiet", *mark], COMMAND_S).split()]
        all_volumes = set(_run(["docker", "volume", "ls", "--quiet"], COMMAND_S).split())
        own = set(_run(["docker", "volume", "ls", "--quiet", *mark], COMMAND_S).split())
        return left + [f"volume {one}" for one in sorted(own | self.volumes & all_volumes)]

    def _inspected(self, service: str) -> dict[str, Any]:
        container = self.services().get(service)
        if container is None:
            raise Failed(f"{service} has no container")
        found: dict[str, Any] = json.loads(_run(["docker", "inspect", container], COMMAND_S))[0]
        return found

    def _command(self, verb: str) -> list[str]:
        files = [part for file in FILES for part in ("--file", str(file))]
        return ["docker", "compose", "--project-name", self.project, *files, verb]


def _run(command: Sequence[str], timeout_s: float, given: str = "") -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False, env=_environment()
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(f"{' '.join(command[:4])} …: exit code {done.returncode}: {' / '.join(said[-3:])}")
    return done.stdout


def _environment() -> dict[str, str]:
    """The environment without variables that a user has set for a compose cluster of their own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
