"""The way to Ray: a private cluster that leaves nothing, a caller's own connection, an address that does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cairn.cluster.session import _runtime_environment, connected, package_folder
from cairn.errors import UserError


def run_python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, whose environment has no Ray in it but for `variables`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.ray
def test_a_private_cluster_has_a_token_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
        import json, os, pathlib
        from cairn.cluster.session import connected
        with connected(3):
            import ray

            @ray.remote
            def look():
                import os
                return os.environ["RAY_AUTH_MODE"], os.environ["RAY_CHDIR_TO_TRIAL_DIR"]

            session = pathlib.Path(ray._private.worker._global_node.get_temp_dir_path())
            found = {"cpus": ray.cluster_resources()["CPU"], "seen": ray.get(look.remote()), "during": session.exists()}
        found |= {"after": session.exists(), "initialized": ray.is_initialized()}
        print(json.dumps(found))
    """
    done = run_python(code, HOME=str(tmp_path), CAIRN_HOME=str(tmp_path / "cairn"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["cpus"] >= 3
    assert found["seen"] == ["token", "0"]
    assert (found["during"], found["after"], found["initialized"]) == (True, False, False)
    assert not (tmp_path / ".ray").exists()


@pytest.mark.ray
def test_a_callers_connection_is_used_and_left_alone(ray_cluster: None) -> None:
    import ray

    before = ray.get_runtime_context().get_job_id()
    with connected():
        assert ray.get_runtime_context().get_job_id() == before
    assert ray.is_initialized()


@pytest.mark.unit
def test_an_address_that_does_not_answer_is_the_users_to_mend() -> None:
    code = """
        from cairn.cli.failures import explain
        from cairn.cluster.session import connected
        try:
            with connected():
                pass
        except Exception as error:
            failure = explain(error)
            print(failure.exit_code, failure.message)
    """
    done = run_python(code, RAY_ADDRESS="127.0.0.1:1")
    assert done.stdout.startswith("2 RAY_ADDRESS=127.0.0.1:1: no Ray cluster can be reached"), done.stdout + done.stderr
    assert "ray start --head" in done.stdout


@pytest.mark.unit
@pytest.mark.parametrize("address", ["ray://head:10001", "http://127.0.0.1:8265"])
def test_an_address_of_another_kind_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match="cairn submit"), connected():
        pass


@pytest.mark.unit
def test_the_workers_of_a_cluster_get_this_package_and_few_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_HOME", "/shared/home")
    monkeypatch.setenv("SECRET", "no")
    alone = _runtime_environment(None)
    assert alone["py_modules"] == [str(package_folder())]
    assert alone["env_vars"]["CAIRN_HOME"] == "/shared/home"
    assert "SECRET" not in alone["env_vars"]
    given = {"runtime_env": {"env_vars": {"CAIRN_HOME": "/other"}, "py_modules": ["gcs://x.zip"]}}
    inside_a_job = _runtime_environment(json.dumps(given))
    assert "py_modules" not in inside_a_job
    assert "CAIRN_HOME" not in inside_a_job["env_vars"]
