"""The doctor's findings: what is here, and for what is not, the consequence."""

from __future__ import annotations

import socket

import pytest

from cairn.cli.main import run
from cairn.cluster import doctor

pytestmark = pytest.mark.unit


def test_it_prints_versions_devices_and_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("python", "torch", "ray", "deepspeed", "cpus", "gpus", "c++ compiler", "CAIRN_HOME", "port 8000"):
        assert word in text
    assert "2.13.0" in text


def test_every_lack_names_its_consequence() -> None:
    findings = doctor.examine()
    assert all(finding.consequence for finding in findings if not finding.works)
    assert {finding.what for finding in findings} >= {*doctor.LIBRARIES, "memory", "hugging face hub"}


def test_a_missing_compiler_and_an_occupied_port_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    lacks = {finding.what: finding for finding in doctor._compiler()}
    assert not lacks["c++ compiler"].works
    assert "offload_optimizer" in lacks["c++ compiler"].consequence
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "cairn serve"})
        assert [finding.works for finding in doctor._ports()] == [False]
    assert [finding.works for finding in doctor._ports()] == [True]


def test_a_library_of_another_version_or_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    real = metadata.version

    def version(name: str) -> str:
        if name == "peft":
            raise metadata.PackageNotFoundError(name)
        return "9.9.9" if name == "transformers" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = {finding.what: finding for finding in doctor._libraries()}
    assert (found["peft"].works, found["transformers"].works, found["torch"].works) == (False, False, True)


def test_a_cluster_that_does_not_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert [finding.works for finding in doctor._cluster()] == [False]
    monkeypatch.delenv("RAY_ADDRESS")
    assert [finding.works for finding in doctor._cluster()] == [True]
