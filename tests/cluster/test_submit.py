"""What is uploaded is measured as Ray would pack it, refused when too large, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.main import run
from cairn.cluster.submit import Submission, Upload, measure, refuse_large, submit
from cairn.errors import RecipeError, UserError

pytestmark = pytest.mark.unit

RECIPE = "model: {path: m}\ndata: {train: [a.jsonl]}\nstage: sft\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / ".venv").mkdir()
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / ".gitignore").write_text("ignored.bin\n")
    (folder / ".rayignore").write_text("weights/\n")
    for name, size in (("ignored.bin", 900), ("data/big.bin", 700), ("data/small.bin", 30), (".venv/lib.so", 5000)):
        (folder / name).write_bytes(b"x" * size)
    (folder / "weights").mkdir()
    (folder / "weights" / "model.safetensors").write_bytes(b"x" * 10_000)
    return folder


def submission(folder: Path, **changes: object) -> Submission:
    values = {
        "verb": "train",
        "recipe": folder / "recipe.yaml",
        "overrides": (),
        "folder": folder,
        "address": "http://127.0.0.1:1",
        "limit_bytes": 10**6,
        **changes,
    }
    return Submission(**values)  # type: ignore[arg-type]


def test_the_measure_is_of_what_ray_would_pack(project: Path) -> None:
    from ray._private.runtime_env.packaging import create_package

    upload = measure(project)
    names = {str(path) for path, _ in upload.files}
    assert {str(path) for path, _ in upload.files[:1]} == {"data/big.bin"}
    archive = project.parent / "package.zip"
    create_package(str(project), archive, include_gitignore=True, excludes=[".venv"])
    import zipfile

    with zipfile.ZipFile(archive) as packed:
        assert names == {info.filename for info in packed.infolist() if not info.is_dir()}
        assert upload.total_bytes == sum(info.file_size for info in packed.infolist())


def test_a_large_upload_is_refused_and_the_ten_largest_are_named(tmp_path: Path) -> None:
    files = tuple((Path(f"part-{size:02d}"), size * 2**20) for size in range(20, 0, -1))
    upload = Upload(files)
    refuse_large(upload, tmp_path, 210 * 2**20)
    with pytest.raises(UserError) as caught:
        refuse_large(upload, tmp_path, 210 * 2**20 - 1)
    text = str(caught.value)
    assert "the upload is 210.0 MiB" in text
    assert [f"part-{size:02d}" in text for size in (20, 11, 10)] == [True, True, False]
    assert ".rayignore" in text


def test_the_command_refuses_before_it_looks_for_a_cluster(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    arguments = ["submit", "train", "recipe.yaml", "--address", "http://127.0.0.1:1"]
    assert run([*arguments, "--max-upload-mib", "0.0005"]) == 2
    assert "data/big.bin" in capsys.readouterr().err
    assert run(arguments) == 2
    assert "no cluster answers" in capsys.readouterr().err


def test_mistakes_are_found_before_anything_is_sent(project: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'train'"):
        submit(submission(project, verb="trian"))
    with pytest.raises(RecipeError, match=r"training\.stpes"):
        submit(submission(project, overrides=("training.stpes=3",)))
    outside = tmp_path / "outside.yaml"
    outside.write_text(RECIPE)
    with pytest.raises(UserError, match="outside the folder"):
        submit(submission(project, recipe=outside))
