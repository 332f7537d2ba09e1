"""The command's frame: help, flags and their variables, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from ledger import errors
from ledger._version import __version__
from ledger.cli import BUG, EXIT_CODES, Frame, app
from ledger.cli.options import Context, verb
from ledger.cli.output import Column

HEAVY = (
    "boto3", "botocore", "confluent_kafka", "fastavro", "pydantic", "pydantic_settings", "psutil", "structlog", "pyspark",
    "starlette",
)  # fmt: skip
SHARED = {
    "--dir": "LEDGER_DIR", "--bootstrap-server": "LEDGER_KAFKA__BOOTSTRAP_SERVERS", "--config": "LEDGER_CONFIG",
    "-X": None, "--output": "LEDGER_OUTPUT", "--debug": "LEDGER_DEBUG",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LEDGER_")]:
        monkeypatch.delenv(name)


def run(*arguments: str, of: typer.Typer = app, **environment: str) -> Result:
    return CliRunner().invoke(of, list(arguments), env={"COLUMNS": "400", **environment}, prog_name="jobledger")


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ledger", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its path of names."""
    group = group or typer.main.get_command(app)
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name), found


VERBS = list(commands())
OWN = [(path, found) for path, found in VERBS if path[0] in ("up", "down", "serve", "topics", "config", "leader")]


def named(case: Any) -> str:
    return " ".join(case[0]) if isinstance(case, tuple) else str(case)


# -- help ------------------------------------------------------------------------------------------------------------


def test_help_says_the_verbs_and_the_exit_codes() -> None:
    told = run("--help")
    assert told.exit_code == 0
    for name in ("up", "down", "serve", "topics", "config", "leader"):
        assert f"│ {name} " in told.output
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in told.output


def test_help_loads_nothing_heavy() -> None:
    """Few imports make the help quick. A time limit would measure the machine instead."""
    script = (
        "import sys, ledger.cli\n"
        "try: ledger.cli.app(['--help'])\n"
        f"except SystemExit: print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stderr.strip().endswith("HEAVY []")


def test_the_version_is_told() -> None:
    assert command("--version").stdout == f"jobledger {__version__}\n"


@pytest.mark.parametrize("case", [((), typer.main.get_command(app)), *VERBS], ids=named)
def test_only_what_names_the_ledger_and_how_it_answers_comes_from_the_environment(
    case: tuple[tuple[str, ...], Any],
) -> None:
    path, found = case
    context = typer.Context(found, info_name="jobledger", auto_envvar_prefix=None)
    assert found.context_settings.get("auto_envvar_prefix") is None
    for parameter in found.params:
        variables = parameter.resolve_envvar_value
        allowed = {SHARED.get(name) for name in parameter.opts}
        assert parameter.envvar is None or parameter.envvar in allowed, parameter.opts
        assert variables(context) is None
    assert "env var" not in run(*path, "--help").output


@pytest.mark.parametrize("name", [
    "LEDGER_VERSION", "LEDGER_INSTALL_COMPLETION", "LEDGER_SHOW_COMPLETION", "LEDGER_CONFIG_SHOW_SOURCES", "LEDGER_HELP",
    "LEDGER_X", "LEDGER_CONFIG_SHOW_X",
])  # fmt: skip
def test_a_variable_that_an_image_sets_changes_no_command(name: str, tmp_path: Path) -> None:
    arguments = ("config", "show", "--dir", str(tmp_path))
    told, plain = run(*arguments, **{name: "2.3.1"}), run(*arguments)
    assert (told.exit_code, told.stdout) == (0, plain.stdout)


def test_options_that_name_the_ledger_may_stand_before_the_verb(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[log]\nlevel = "error"\n')
    before = ("--dir", str(tmp_path), "-b", "k:1", "--config", str(file), "-X", "client.id=a", "-X", "retries=1")
    verb_and_own = ("config", "show", "-o", "json", "--sources")
    told, behind = run(*before, *verb_and_own), run(*verb_and_own, *before)
    assert told.exit_code == 0
    assert told.stdout == behind.stdout
    settings = {row["setting"]: (row["value"], row["source"]) for row in json.loads(told.stdout)}
    assert settings["dir"] == (str(tmp_path), "flag")
    assert settings["kafka.bootstrap.servers"] == ("k:1", "flag")
    assert settings["log.level"][0] == "error"
    assert settings["kafka.client.id"] == ("a", "flag")


def test_behind_the_verb_they_win_over_those_before_it(tmp_path: Path) -> None:
    told = run("-b", "k:1", "-X", "client.id=a", "-X", "retries=1", "config", "show", "-o", "json", "--dir", str(tmp_path),
               "-b", "k:2", "-X", "client.id=b", LEDGER_KAFKA__BOOTSTRAP_SERVERS="k:3")  # fmt: skip
    shown = json.loads(told.stdout)
    assert shown["bootstrap"] == "k:2"
    assert (shown["kafka"]["client.id"], shown["kafka"]["retries"]) == ("b", "1")


def test_help_says_what_comes_from_the_environment() -> None:
    told = " ".join(run("--help").output.split())
    assert "LEDGER_DIR" in told and "LEDGER_SECTION__KEY" in told


@pytest.mark.parametrize("case", OWN, ids=named)
def test_every_verb_takes_the_shared_options(case: tuple[tuple[str, ...], Any]) -> None:
    options = {name: parameter for parameter in case[1].params for name in parameter.opts}
    assert {name: options[name].envvar for name in SHARED} == SHARED
    assert {"-b", "-o"} <= set(options)


# -- usage and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["no-such-verb"], ["up", "--no-such-flag"], ["config", "show", "-o", "xml"], ["up", "--projectors", "many"],
     ["up", "--projectors", "-1"], ["config", "show", "-X", "nonsense"], ["serve", "nobody"], ["config", "show", "more"]],
)  # fmt: skip
def test_wrong_usage_is_exit_2(arguments: list[str], tmp_path: Path) -> None:
    told = run(*arguments, LEDGER_DIR=str(tmp_path))
    assert told.exit_code == 2
    assert told.stdout == ""
    assert "rror" in told.stderr


def raising(error: BaseException | Callable[[], None]) -> typer.Typer:
    other = typer.Typer(cls=Frame, pretty_exceptions_enable=False)

    @other.callback()
    def group() -> None: ...

    @other.command()
    @verb
    def fail(world: Context) -> None:
        if isinstance(error, BaseException):
            raise error
        error()

    return other


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.NotFound, 1), (errors.PermanentError, 1), (errors.UsageError, 2), (errors.ConfigError, 2),
        (errors.Unreachable, 3), (errors.TemporaryError, 3), (errors.OutcomeUnknown, 4), (errors.Refused, 5),
        (errors.Fenced, 5),
    ],
)  # fmt: skip
def test_each_error_is_told_with_its_hint_and_code(kind: type[errors.LedgerError], code: int) -> None:
    told = run("fail", of=raising(kind("It failed.", hint="Retry it.")))
    assert (told.exit_code, told.stdout, told.stderr) == (code, "", "error: It failed.\nhint: Retry it.\n")
    assert code in EXIT_CODES


def test_no_class_of_errors_is_forgotten() -> None:
    marks = test_each_error_is_told_with_its_hint_and_code.pytestmark
    tested = {case[0] for mark in marks for case in mark.args[1]}
    assert tested == {kind for kind in errors.LedgerError.__subclasses__() if kind.__module__ == errors.__name__}


def test_a_bug_is_one_line_and_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("fail", of=raising(KeyError("register")))
    assert told.exit_code == BUG
    assert told.stderr.startswith("error: KeyError: 'register'\nhint: This is a bug")
    assert "Traceback" not in told.stderr
    monkeypatch.setenv("LEDGER_DEBUG", "1")
    assert "Traceback" in run("fail", of=raising(KeyError("register"))).stderr


def test_an_interrupt_is_130() -> None:
    assert run("fail", of=raising(KeyboardInterrupt())).exit_code == 130


def test_exits_of_verbs_are_kept() -> None:
    assert run("fail", of=raising(typer.Exit(1))).exit_code == 1


def test_where_a_broker_is_away_the_way_to_start_one_is_told(tmp_path: Path) -> None:
    away = raising(errors.Unreachable("No answer."))
    assert f"hint: Does it run? jobledger up --dir {tmp_path}" in run("fail", "--dir", str(tmp_path), of=away).stderr
    assert "hint" not in run("fail", "-b", "k:1", of=raising(errors.Unreachable("No answer."))).stderr


def test_a_reader_that_goes_away_is_no_bug() -> None:
    script = f"{sys.executable} -m ledger config show --sources | true; echo ${{PIPESTATUS[0]}}"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert told.stderr == ""
    assert told.stdout.strip() in ("0", "141")  # 0: everything was written before the reader ended


# -- the shared options ----------------------------------------------------------------------------------------------


@pytest.fixture
def seen() -> tuple[typer.Typer, list[Context]]:
    other, worlds = typer.Typer(cls=Frame), []

    @other.callback()
    def group() -> None: ...

    @other.command()
    @verb
    def look(world: Context, job: Annotated[str, typer.Argument()], deep: bool = False) -> None:
        """Look."""
        worlds.append(world)
        world.printer.one({"job": job, "deep": deep}, [Column("JOB", "job"), Column("DEEP", "deep")])

    return other, worlds


def test_arguments_and_flags_stand_beside_the_shared_options(seen: tuple[typer.Typer, list[Context]]) -> None:
    told = run("look", "etl", "--deep", "-o", "json", of=seen[0])
    assert json.loads(told.stdout) == {"job": "etl", "deep": True}
    assert run("look", "etl", "--deep", of=seen[0], LEDGER_OUTPUT="json").stdout == told.stdout


def test_flags_reach_the_settings_and_variables_keep_their_name_as_source(
    seen: tuple[typer.Typer, list[Context]], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text("[topics]\npartitions = 5\n")
    flags = ["--dir", str(tmp_path), "-b", "k:1", "--config", str(tmp_path / "other.toml"), "-X", "client.id=a=b"]
    assert run("look", "etl", *flags, of=seen[0]).exit_code == 0
    config = seen[1][-1].config
    assert (config.dir, config.bootstrap, config.topics.partitions) == (tmp_path, "k:1", 5)
    assert config.kafka["client.id"] == "a=b"
    assert config.origins()["kafka.bootstrap.servers"] == "flag"


def test_a_variable_is_no_flag(seen: tuple[typer.Typer, list[Context]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_KAFKA__BOOTSTRAP_SERVERS", "k:2")
    monkeypatch.setenv("LEDGER_DIR", "/from/environment")
    assert run("look", "etl", of=seen[0]).exit_code == 0
    config = seen[1][-1].config
    assert (str(config.dir), config.bootstrap) == ("/from/environment", "k:2")
    assert set(config.origins().values()) == {"environment"}


# -- config ----------------------------------------------------------------------------------------------------------


def test_config_show_masks_secrets_and_names_sources(tmp_path: Path) -> None:
    environment = {
        "LEDGER_DIR": str(tmp_path), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": "k:1", "LEDGER_KAFKA__SASL_PASSWORD": "s3cret",
    }  # fmt: skip
    for arguments in ([], ["--sources"], ["-o", "json"], ["--sources", "-o", "json"], ["-o", "wide"], ["-o", "jsonl"]):
        told = run("config", "show", *arguments, **environment)
        assert told.exit_code == 0, told.stderr
        assert "s3cret" not in told.stdout + told.stderr
        assert "sasl.password" in told.stdout
    shown = json.loads(command("config", "show", "-o", "json", **environment).stdout)
    assert (shown["bootstrap"], shown["dir"]) == ("k:1", str(tmp_path))
    rows = json.loads(run("config", "show", "--sources", "-o", "json", **environment).stdout)
    sources = {row["setting"]: row["source"] for row in rows}
    assert sources["kafka.sasl.password"] == sources["dir"] == "environment"
    assert sources["topics.prefix"] == "default"


def test_config_show_needs_no_ledger(tmp_path: Path) -> None:
    told = command("config", "show", "-o", "json", "--dir", str(tmp_path))
    assert json.loads(told.stdout)["bootstrap"] is None


def test_config_show_says_where_graphs_lie_and_check_whether_that_can_be(tmp_path: Path) -> None:
    environment = {"LEDGER_DIR": str(tmp_path), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": "k:1", "LEDGER_BLOBS__ADAPTER": "s3"}
    named = {**environment, "LEDGER_BLOBS__BUCKET": "our-graphs", "LEDGER_BLOBS__REGION": "eu-central-1"}
    shown = json.loads(run("config", "show", "-o", "json", **named).stdout)["blobs"]
    assert (shown["adapter"], shown["bucket"], shown["part_bytes"]) == ("s3", "our-graphs", 16 << 20)
    assert run("config", "show", **environment).exit_code == 0  # invalid settings are shown too
    told = run("config", "check", **environment)
    assert (told.exit_code, "LEDGER_BLOBS__BUCKET" in told.stderr) == (2, True)
    assert run("config", "check", **named).exit_code == 0
    told = run("config", "check", **named, LEDGER_BLOBS__ENDPOINT_URL="https://two..dots")
    assert (told.exit_code, "boto3 refuses" in told.stderr) == (2, True)


def test_config_check_asks_the_client_library(tmp_path: Path) -> None:
    assert command("config", "check", "-b", "k:1", "--dir", str(tmp_path)).returncode == 0
    told = command("config", "check", "-b", "k:1", "--dir", str(tmp_path), "-X", "no.such.setting=1")
    assert told.returncode == 2
    assert "no.such.setting" in told.stderr


def test_up_beside_a_kafka_of_your_own_is_refused(tmp_path: Path) -> None:
    told = command("up", "--dir", str(tmp_path / "new"), "-b", "k:1")
    assert told.returncode == 2
    assert "k:1" in told.stderr
    assert not (tmp_path / "new").exists()


def test_down_where_nothing_is(tmp_path: Path) -> None:
    told = command("down", "--dir", str(tmp_path / "nothing"))
    assert (told.returncode, told.stdout) == (0, f"no ledger in {tmp_path / 'nothing'}\n")


def test_what_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "broker").touch()
    for arguments in ([], ["--purge", "--yes"]):
        told = command("down", "--dir", str(tmp_path), *arguments)
        assert (told.returncode, told.stdout) == (0, f"no ledger in {tmp_path}\n")
        assert [path.name for path in tmp_path.iterdir()] == ["broker"]


def test_purge_deletes_what_the_ledger_made_and_nothing_else(tmp_path: Path) -> None:
    precious = tmp_path / "thesis"
    precious.touch()
    inside, outside = tmp_path / "ledger", tmp_path / "disk"
    for name in ("run", "broker", "agent", "log"):
        (inside / name).mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    (inside / "blobs").symlink_to(outside)
    (inside / "run" / "up.lock").touch()
    (inside / "ledger.toml").touch()
    told = command("down", "--dir", str(inside), "--purge")
    assert told.stdout == f"deleted the ledger in {inside}; other files stay: ledger.toml\n"
    assert sorted(path.name for path in inside.iterdir()) == ["ledger.toml"]
    (inside / "ledger.toml").unlink()
    (inside / "run").mkdir()
    (inside / "run" / "up.lock").touch()
    assert command("down", "--dir", str(inside), "--purge").stdout == f"deleted {inside}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "thesis"]
    assert (outside / "kept").exists()


@pytest.mark.parametrize("verb", [["list"], ["submit", "--", "true"], ["topics", "check"], ["config", "check"]])
def test_settings_that_the_client_library_does_not_take_are_no_bug(tmp_path: Path, verb: list[str]) -> None:
    kafka = {"bootstrap.servers": "k:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
    lines = [f'"{name}" = "{value}"' for name, value in kafka.items()]
    (tmp_path / "ledger.toml").write_text("\n".join(["[kafka]", *lines]))
    told = command(*verb, LEDGER_CONFIG=str(tmp_path / "ledger.toml"), LEDGER_DIR=str(tmp_path / "data"))
    assert told.returncode == 2, told.stderr
    assert "sasl.username and sasl.password must be set" in told.stderr
    assert "hint: Correct section kafka, then run: jobledger config check" in told.stderr
