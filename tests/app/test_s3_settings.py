"""From the settings to the blob store: the adapter that is made, and the refused settings with a hint."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.s3.blobs import S3Blobs
from ledger.adapters.s3.settings import S3Settings
from ledger.app import wiring
from ledger.app.ledger import Ledger
from ledger.app.s3_settings import s3_settings
from ledger.cli.config import flat
from ledger.config.config import Config, load_config
from ledger.errors import ConfigError

SECRET = "tops3cret"


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("LEDGER_", "AWS_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Config]:
    def made(**blobs: object) -> Config:
        return load_config(tmp_path, blobs={"adapter": "s3", "bucket": "our-graphs", **blobs})

    return made


def test_graphs_lie_in_the_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert isinstance(Ledger.open(load_config(tmp_path)).blobs, FileBlobs)
    assert (tmp_path / "blobs").is_dir()


def test_graphs_lie_in_a_bucket_if_told_so(config: Callable[..., Config], tmp_path: Path) -> None:
    assert isinstance(Ledger.open(config()).blobs, S3Blobs)
    assert not (tmp_path / "blobs").exists()


def test_what_is_set_is_what_the_adapter_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ledger.toml").write_text("""
[blobs]
adapter = "s3"
bucket = "our-graphs"
prefix = "ledger/prod"
region = "eu-central-1"
path_style = true
sse = "aws:kms"
sse_kms_key_id = "alias/ledger"
part_bytes = 33554432
connect_timeout_s = 1.5
read_timeout_s = 5
""")
    monkeypatch.setenv("LEDGER_BLOBS__ENDPOINT_URL", "https://s3.example:9000")
    monkeypatch.setenv("LEDGER_BLOBS__ATTEMPTS_MAX", "4")
    assert s3_settings(load_config(tmp_path).blobs, "blobs") == S3Settings(
        "our-graphs", "ledger/prod/", "https://s3.example:9000", "eu-central-1", True, "aws:kms", "alias/ledger", 32 << 20,
        1.5, 5.0, 4,
    )  # fmt: skip


def test_the_defaults_are_those_of_the_adapter(config: Callable[..., Config]) -> None:
    assert s3_settings(config().blobs, "blobs") == S3Settings("our-graphs")


def test_one_request_with_all_its_tries_ends_before_the_task_that_makes_it(config: Callable[..., Config]) -> None:
    """Otherwise a store that does not answer looks like a crashed task."""
    made, waits_between_s = config(), 1 + 2  # the longest waits of boto3
    longest_s = made.blobs.attempts_max * made.blobs.read_timeout_s + waits_between_s
    assert longest_s < made.reconciler.action_timeout_s


@pytest.mark.parametrize(("prefix", "key"), [("", ""), ("a", "a/"), ("a/", "a/"), ("a/b.c-d_e", "a/b.c-d_e/")])
def test_a_prefix_is_a_path(config: Callable[..., Config], prefix: str, key: str) -> None:
    assert s3_settings(config(prefix=prefix).blobs, "blobs").prefix == key


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"bucket": ""}, "blobs.bucket is not set"),
        ({"sse_kms_key_id": "k"}, "sse_kms_key_id"),
        ({"sse_kms_key_id": "k", "sse": "AES256"}, "sse_kms_key_id"),
        ({"endpoint_url": "s3.example:9000"}, "endpoint_url"),
        ({"endpoint_url": "ftp://s3.example"}, "endpoint_url"),
        ({"endpoint_url": "http://s3.example:port"}, "endpoint_url"),
        ({"endpoint_url": ""}, "endpoint_url"),
        ({"endpoint_url": f"https://user:{SECRET}@s3.example"}, "endpoint_url"),
    ],
)
def test_what_can_not_be_is_told_before_anything_is_asked(
    config: Callable[..., Config], settings: dict[str, str], told: str
) -> None:
    made = config(**settings)
    with pytest.raises(ConfigError, match=told) as raised:
        Ledger.open(made).blobs  # noqa: B018
    assert SECRET not in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize(
    "settings",
    [
        {"adapter": "hdfs"}, {"bucket": "a bucket"}, {"prefix": "/a"}, {"prefix": "a//b"}, {"prefix": "../a"},
        {"prefix": "."}, {"sse": "rot13"},
        {"part_bytes": (5 << 20) - 1}, {"read_timeout_s": 0}, {"attempts_max": 0}, {"access_key": "x"},
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(config: Callable[..., Config], settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"blobs.{next(iter(settings))}"):
        config(**settings)


def test_a_missing_extra_is_named(config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ledger.adapters.s3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    for make in (lambda made: Ledger.open(made).blobs, wiring.preload):
        with pytest.raises(ConfigError, match="boto3") as raised:
            make(config())
        assert "jobledger[s3]" in raised.value.hint


def test_a_child_finds_what_was_preloaded_and_nobody_was_asked(
    config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledger.adapters.s3 import client

    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    wiring.preload(config())  # there are no credentials and no region, and boto3 looks for none
    read: list[str] = []
    monkeypatch.setattr(type(client._models().file_loader), "load_file", lambda self, path: read.append(path))
    client.connect(s3_settings(config(region="eu-central-1").blobs, "blobs"))
    assert read == []


def test_without_s3_nothing_is_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    wiring.preload(load_config(tmp_path))


def test_all_of_it_is_shown(config: Callable[..., Config]) -> None:
    made = config(prefix="ledger", sse="AES256")
    shown = dict(flat(json.loads(json.dumps(made.shown()))))
    assert {name: shown[f"blobs.{name}"] for name in ("adapter", "bucket", "prefix", "sse", "endpoint_url")} == {
        "adapter": "s3", "bucket": "our-graphs", "prefix": "ledger", "sse": "AES256", "endpoint_url": None,
    }  # fmt: skip
    assert made.origins()["blobs.bucket"] == "flag"
    assert made.environment()["LEDGER_BLOBS__BUCKET"] == "our-graphs"


def test_the_settings_in_the_runbook_can_be_used(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "RUNBOOK.md").read_text()
    written = page[page.index("[blobs]\nadapter") :].partition("```")[0]
    for name in ("endpoint_url", "path_style"):
        written = written.replace(f"# {name}", name)
    (tmp_path / "ledger.toml").write_text(written)
    given = s3_settings(load_config(tmp_path).blobs, "blobs")
    assert (given.bucket, given.prefix, given.endpoint_url) == ("our-graphs", "ledger/prod/", "https://s3.example:9000")
    assert given.encryption == {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/ledger"}
