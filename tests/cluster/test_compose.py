"""docker-compose.yml matches the topology, and the compose specification's reference implementation accepts it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.adapters.java.jars import KAFKA_VERSION, cache_folder
from ledger.config.config import load_config
from tests.cluster.cluster import JOBLEDGER
from tests.cluster.topology import Topology, read, text

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMPOSE_GO = "github.com/compose-spec/compose-go/v2/cli@v2.16.2"

#: The environment variables for settings in ZooKeeper's official image.
ZOO = {
    "tickTime": "ZOO_TICK_TIME",
    "initLimit": "ZOO_INIT_LIMIT",
    "syncLimit": "ZOO_SYNC_LIMIT",
    "standaloneEnabled": "ZOO_STANDALONE_ENABLED",
    "admin.enableServer": "ZOO_ADMINSERVER_ENABLED",
    "4lw.commands.whitelist": "ZOO_4LW_COMMANDS_WHITELIST",
    "autopurge.purgeInterval": "ZOO_AUTOPURGE_PURGEINTERVAL",
    "autopurge.snapRetainCount": "ZOO_AUTOPURGE_SNAPRETAINCOUNT",
}


def kafka_variable(name: str) -> str:
    """The variable for a setting in Kafka's official image: `-` -> `___`, `_` -> `__`, `.` -> `_`."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def differences(compose: dict[str, Any], topology: Topology) -> list[str]:
    """The differences between a compose file and the topology; one line each."""
    services = compose["services"]
    wanted = expected(topology)
    found = [f"{name}: not wanted" for name in services if name not in wanted]
    for name, one in wanted.items():
        if name not in services:
            found.append(f"{name}: missing")
            continue
        found += [f"{name}.{key}: {services[name].get(key)!r}, not {value!r}" for key, value in one.items()
                  if comparable(services[name].get(key)) != comparable(value)]  # fmt: skip
    return found


def expected(topology: Topology) -> dict[str, dict[str, Any]]:
    """Service -> the fields that its definition must have."""
    kafka, zookeeper = topology.names("kafka"), topology.names("zookeeper")
    wanted: dict[str, dict[str, Any]] = {}
    for name in kafka:
        port = topology.external_port(name)
        settings = topology.broker_settings(name, "localhost") | {"log.dirs": "/var/lib/kafka/data"}
        wanted[name] = {
            "image": topology.kafka["image"],
            "environment": {kafka_variable(key): value for key, value in settings.items()}
            | {"CLUSTER_ID": topology.kafka["cluster_id"], "KAFKA_HEAP_OPTS": topology.kafka["heap"]},
            "hostname": name,
            "networks": ["kafka"],
            "ports": [f"127.0.0.1:{port}:{port}"],
            "volumes": [f"{name}:/var/lib/kafka/data"],
            "healthcheck": healthcheck(topology.health["kafka"]),
        }
    given = topology.zookeeper
    ports = f"{given['quorum_port']}:{given['election_port']};{given['client_port']}"
    servers = " ".join(f"server.{number}={name}:{ports}" for number, name in enumerate(zookeeper, start=1))
    extra = " ".join(f"{key}={value}" for key, value in topology.zookeeper_settings.items() if key not in ZOO)
    for number, name in enumerate(zookeeper, start=1):
        wanted[name] = {
            "image": given["image"],
            "environment": {ZOO[key]: value for key, value in topology.zookeeper_settings.items() if key in ZOO}
            | {"ZOO_MY_ID": str(number), "ZOO_SERVERS": servers, "ZOO_CFG_EXTRA": extra}
            | {"ZK_SERVER_HEAP": given["heap_mb"]},
            "hostname": name,
            "networks": ["zookeeper"],
            "volumes": [f"{name}:/data", f"{name}-log:/datalog"],
            "healthcheck": healthcheck(topology.health["zookeeper"]),
        }
    ours = {
        "image": "jobledger",
        "pull_policy": "never",
        "init": True,
        "environment": topology.environment,
        "networks": ["kafka", "zookeeper"],
        "volumes": [f"ledger:{topology.environment['LEDGER_DIR']}"],
    }
    healthy = {"condition": "service_healthy"}
    wanted["topics"] = ours | {
        "build": {"context": ".", "dockerfile": "deploy/Dockerfile"},
        "command": list(topology.first),
        "depends_on": dict.fromkeys(kafka, healthy),
        "restart": "on-failure:5",
    }
    first = {"topics": {"condition": "service_completed_successfully"}}
    for kind in topology.roles:
        for name in topology.names(kind):
            wanted[name] = ours | {
                "command": ["jobledger", "serve", kind, "--name", name],
                "hostname": name,
                "depends_on": first | dict.fromkeys(zookeeper, healthy),
                "healthcheck": healthcheck(topology.health["roles"]),
                "restart": "unless-stopped",
            }
    return wanted


def healthcheck(health: dict[str, Any]) -> dict[str, Any]:
    seconds = {"interval": "interval_s", "timeout": "timeout_s", "start_period": "start_s"}
    times = {name: f"{health[key]}s" for name, key in seconds.items()}
    return {"test": ["CMD", *health["command"]], "retries": health["retries"], **times}


def comparable(value: object) -> object:
    """The value with all scalars as text, as in an environment."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    return [comparable(one) for one in value] if isinstance(value, list) else text(value)


def written() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return compose


def test_the_compose_file_is_the_topology():
    assert differences(written(), read()) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("kafka-2", "environment", "KAFKA_MIN_INSYNC_REPLICAS"), 1, "kafka-2.environment"),
        (("kafka-3", "environment", "KAFKA_CONTROLLER_QUORUM_VOTERS"), "1@kafka-1:9093", "kafka-3.environment"),
        (("zookeeper-1", "environment", "ZOO_MY_ID"), 2, "zookeeper-1.environment"),
        (("zookeeper-1", "image"), "zookeeper:latest", "zookeeper-1.image"),
        (("projector-2", "networks"), ["kafka"], "projector-2.networks"),
        (("reconciler-1", "environment", "LEDGER_LEADERSHIP__ADAPTER"), "file", "reconciler-1.environment"),
        (("reconciler-2",), None, "reconciler-2: missing"),
        (("projector-3",), {}, "projector-3: not wanted"),
        (("agent-1", "depends_on", "topics"), {"condition": "service_started"}, "agent-1.depends_on"),
        (("kafka-1", "healthcheck", "retries"), 100, "kafka-1.healthcheck"),
        (("topics", "command"), ["jobledger", "topics", "check"], "topics.command"),
        (("projector-1", "hostname"), "projector-2", "projector-1.hostname"),
        (("kafka-2", "environment", "KAFKA_HEAP_OPTS"), "-Xmx1g", "kafka-2.environment"),
    ],
)
def test_every_difference_is_told(path: tuple[str, ...], value: object, told: str):
    compose = json.loads(json.dumps(written()))  # aliases of one mapping become separate mappings
    place = compose["services"]
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    found = differences(compose, read())
    assert len(found) == 1
    assert found[0].startswith(told)


def test_what_is_named_is_declared_and_used():
    compose = written()
    services = compose["services"].values()
    assert {one for service in services for one in service["networks"]} == set(compose["networks"])
    assert {one.partition(":")[0] for service in services for one in service.get("volumes", ())} == set(compose["volumes"])


def test_one_service_builds_the_image_of_all():
    services = written()["services"]
    assert [name for name, service in services.items() if "build" in service] == ["topics"]


@pytest.mark.parametrize("name", sorted(written()["services"]))
def test_no_container_has_a_capability_or_grows_without_end(name: str):
    service = written()["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    # A limit for an agent would limit its jobs, whose needs are unknown.
    assert (service["mem_limit"] == 0) == (name == "agent-1")


def test_a_heap_fits_its_limit():
    services = written()["services"]
    assert "-Xmx384m" in services["kafka-1"]["environment"]["KAFKA_HEAP_OPTS"]
    assert services["kafka-1"]["mem_limit"] == "1g"
    assert (services["zookeeper-1"]["environment"]["ZK_SERVER_HEAP"], services["zookeeper-1"]["mem_limit"]) == (128, "384m")


#: Volumes that the images declare and no service needs. Without an explicit mount each becomes an anonymous volume.
DECLARED = {
    "kafka": {"/etc/kafka/secrets", "/mnt/shared/config", "/var/lib/kafka/data"},
    "zookeeper": {"/data", "/datalog", "/logs"},
}


def test_no_volume_is_without_a_name():
    for name, service in written()["services"].items():
        mounted = {one.partition(":")[2] for one in service["volumes"]}
        mounted |= {one.partition(":")[0] for one in service.get("tmpfs", ())}
        assert DECLARED.get(name.rpartition("-")[0], set()) <= mounted


def answer_once(server: socket.socket, answer: bytes, requests: list[bytes]) -> None:
    """Accepts one connection and answers once the whole request is read: its length (4 bytes), then that many bytes."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        length = stream.read(4)
        requests.append(stream.read(*struct.unpack("!i", length)))
        connection.sendall(answer)


@pytest.mark.parametrize(
    ("error", "code"),
    [(0, 0), (35, 1)],
    ids=["it serves", "it refuses"],
)
def test_a_broker_is_asked_without_a_jvm(error: int, code: int):
    # An answer to ApiVersions, version 0, of one API: length, correlation id, error code, array of (key, lowest,
    # highest).
    body = struct.pack("!ihihhh", 1, error, 1, 18, 0, 4)
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = struct.pack("!i", len(body)) + body
        thread = threading.Thread(target=answer_once, args=(server, answer, requests), daemon=True)
        thread.start()
        command = [part.replace("/9092", f"/{server.getsockname()[1]}") for part in read().health["kafka"]["command"]]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        thread.join(60)
    assert (done.returncode, done.stderr) == (code, b"")
    assert requests == [struct.pack("!hhih", 18, 0, 1, -1)]  # ApiVersions, version 0, correlation id 1, no client id


def test_a_broker_that_is_not_there_is_not_healthy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [part.replace("/9092", f"/{port}") for part in read().health["kafka"]["command"]]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0


def test_images_are_pinned_and_the_broker_is_the_one_that_is_tested():
    assert read().kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    images = [service["image"] for service in written()["services"].values() if "pull_policy" not in service]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert [image for image in images if not re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z-]+)?", image)] == []


def test_the_environment_is_settings_that_exist(monkeypatch: pytest.MonkeyPatch):
    for name, value in read().environment.items():
        monkeypatch.setenv(name, value)
    config = load_config()
    assert (config.leadership.adapter, config.embedded) == ("zookeeper", False)
    assert config.topic_settings().replication_factor == 3
    assert config.zookeeper.hosts == ",".join(f"{name}:2181" for name in read().names("zookeeper"))
    assert config.bootstrap == ",".join(f"{name}:9092" for name in read().names("kafka"))


@pytest.mark.slow
def test_the_commands_are_jobledgers_own():
    ours = [service for service in written()["services"].values() if service["image"] == "jobledger"]
    commands = [service["command"] for service in ours]
    commands += [service["healthcheck"]["test"][1:] for service in ours if "healthcheck" in service]
    for command in {tuple(command[: 3 if "serve" in command else None]) for command in commands}:
        assert command[0] == "jobledger"
        done = subprocess.run([JOBLEDGER, *command[1:], "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
        assert f"jobledger {' '.join(command[1:])}" in " ".join(done.stdout.split())


def test_the_dockerfile_copies_what_is_there_and_the_context_lets_it_through():
    context = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text()
    let_through = {line[1:] for line in context.splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (.+)", DOCKERFILE.read_text(), re.MULTILINE)
    copied = {name for line in copies if not line.startswith("--from") for name in line.split()[:-1]}
    assert {name.partition("/")[0] for name in copied} == let_through
    assert [name for name in copied if not (ROOT / name).exists()] == []


@cache
def compose_check() -> str:
    """The path of compose_check.go, built with the reference implementation once and cached; skips if it can't be
    built."""
    source = Path(__file__).with_name("compose_check.go")
    version = f"{COMPOSE_GO.rpartition('@')[2]}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    program = cache_folder() / "compose-check" / version
    if program.exists():
        return str(program)
    if (go := shutil.which("go")) is None:
        pytest.skip("Go is not installed, so the compose specification's reference implementation can't be built")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        shutil.copy(source, work)
        built = str(Path(work, "built"))
        for command in (["mod", "init", "check"], ["get", COMPOSE_GO], ["build", "-o", built]):
            done = subprocess.run(
                [go, *command], cwd=work, capture_output=True, text=True, check=False, env={**os.environ, "GOWORK": "off"}
            )
            if done.returncode != 0:
                pytest.skip(f"go {' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
        # A temporary name with the pid: another run may build the same program.
        new = program.with_name(f"{program.name}.{os.getpid()}")
        shutil.copy(built, new)
    new.replace(program)
    return str(program)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_reference_implementation_of_compose_takes_it_and_reads_the_same():
    done = subprocess.run([compose_check(), str(FILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    resolved = json.loads(done.stdout)["services"]
    assert differences({"services": {name: flat(one) for name, one in resolved.items()}}, read()) == []


def seconds(duration: str) -> str:
    """`1m0s` as `60s`."""
    minutes, _, rest = duration.rpartition("m")
    return f"{60 * int(minutes or 0) + int(rest.removesuffix('s'))}s"


def flat(service: dict[str, Any]) -> dict[str, Any]:
    """The implementation's output for a service, in the short notation of the file."""
    short = {
        "networks": list(service["networks"]),
        "ports": [f"{one['host_ip']}:{one['published']}:{one['target']}" for one in service.get("ports", ())],
        "volumes": [f"{one['source']}:{one['target']}" for one in service.get("volumes", ())],
        "depends_on": {
            name: {"condition": one["condition"]} for name, one in service.get("depends_on", {}).items() if one["required"]
        },
    }
    if "healthcheck" in service:
        check = service["healthcheck"]
        short["healthcheck"] = check | {key: seconds(check[key]) for key in ("interval", "timeout", "start_period")}
    if "build" in service:
        short["build"] = service["build"] | {"context": os.path.relpath(service["build"]["context"], ROOT)}
    return service | short


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("sound", "broken", "complaint"),
    [
        ("healthcheck:", "heathcheck:", "heathcheck"),
        ("topics: {condition", "topic: {condition", "topic"),
        ('"kafka-1:/var', '"kafka-0:/var', "kafka-0"),
        ("networks: [zookeeper]", "networks: [keepers]", "keepers"),
    ],
)
def test_the_reference_implementation_complains_of_what_is_broken(tmp_path: Path, sound: str, broken: str, complaint: str):
    assert sound in FILE.read_text()
    file = tmp_path / "docker-compose.yml"
    file.write_text(FILE.read_text().replace(sound, broken))
    done = subprocess.run([compose_check(), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
