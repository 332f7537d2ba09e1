"""Java is found by the version that it reports, in the order JAVA_HOME, PATH, /usr/lib/jvm."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.adapters.java import java
from ledger.errors import ConfigError


@pytest.fixture(autouse=True)
def no_java_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "_JVM_FOLDER", tmp_path / "jvm")


def install(home: Path, version: str, *, release_file: bool = True) -> Path:
    """A fake Java that only prints its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return program


def test_java_home_comes_before_the_path_and_the_path_before_the_installed(tmp_path, monkeypatch):
    installed = install(tmp_path / "jvm" / "java-21", "21.0.2")
    assert java.find_java() == installed
    on_path = install(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path
    named = install(tmp_path / "named", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert java.find_java() == named
    assert java.java_home() == tmp_path / "named"


def test_an_unfit_java_is_passed_over(tmp_path, monkeypatch):
    install(tmp_path / "named", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    install(tmp_path / "jvm" / "a-8", "1.8.0_392")
    fit = install(tmp_path / "jvm" / "b-17", "17.0.15")
    install(tmp_path / "jvm" / "c-25", "25")
    assert java.find_java() == fit


def test_a_link_leads_to_the_home_of_the_real_program(tmp_path, monkeypatch):
    real = install(tmp_path / "real", "17.0.15")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real)
    monkeypatch.setenv("PATH", str(links))
    assert java.java_home() == tmp_path / "real"


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 1), ("25-ea", 25)])
@pytest.mark.parametrize("release_file", [True, False])
def test_the_version_is_read_from_the_release_file_or_asked_for(tmp_path, monkeypatch, version, major, release_file):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert java.java_major(install(tmp_path / "home", version, release_file=release_file)) == major


def test_without_a_fit_java_the_error_lists_what_there_is_and_says_what_to_install(tmp_path, monkeypatch):
    program = install(tmp_path / "jvm" / "c-25", "25")
    with pytest.raises(ConfigError, match=f"{program} is Java 25") as raised:
        java.find_java()
    assert "openjdk-17-jre-headless" in raised.value.hint
    assert "\n" not in raised.value.hint


def test_nothing_is_installed_without_root_or_without_apt(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "_apt_get", lambda *_: pytest.fail("must not install"))
    monkeypatch.setattr(java.os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError):
        java.ensure_java()
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError):
        java.ensure_java()


@pytest.mark.parametrize("carried", java.MAJORS)
def test_root_with_apt_gets_the_java_that_the_release_carries(tmp_path, monkeypatch, carried):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "apt-get").write_text(
        "#!/bin/sh\n"
        f'[ "$2" = update ] && exit 0\n'
        f'case "$*" in *openjdk-{carried}-jre-headless*) ;; *) exit 100;; esac\n'
        f"mv '{tmp_path}/package' '{tmp_path}/jvm'\n"
    )
    (tools / "apt-get").chmod(0o755)
    install(tmp_path / "package" / f"java-{carried}", f"{carried}.0.1")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(tools / name) if name == "apt-get" else None)
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    assert java.ensure_java() == tmp_path / "jvm" / f"java-{carried}" / "bin" / "java"
