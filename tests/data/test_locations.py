"""Where data lies: folders, globs, splits, source trees and other file systems, the last in memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.data.recipes import data_recipe

from cairn.cluster.evaluation import EvaluationJob, _rank
from cairn.config.data import Data
from cairn.data.datasets import data_files
from cairn.data.documents import read_documents, read_records
from cairn.data.drops import Rejected
from cairn.data.fingerprint import content_identity
from cairn.data.pipeline import prepare_local
from cairn.data.shards import TokenShards
from cairn.data.sources.files import resolve, size_of
from cairn.data.sources.location import Location
from cairn.data.sources.rows import read_rows
from cairn.data.sources.splits import split_of
from cairn.errors import DataError, UserError

pytestmark = pytest.mark.unit

LINE = b'{"text": "one"}\n'


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    for path in system.find("/"):
        system.rm(path)


def fill(folder: Path, *names: str, data: bytes = LINE) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def inside(found: list[Location], folder: Path) -> list[str]:
    return [str(location.path.relative_to(folder)) for location in found]


def test_what_a_person_writes_is_a_location(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert str(Location.of("./a/b.jsonl")) == "a/b.jsonl"
    assert str(Location.of(Path("/a/b"))) == "/a/b"
    assert str(Location.of("~/a")) == "/home/me/a"
    assert str(Location.of("file:///a/b")) == "/a/b"
    assert str(Location.of("tree:~/a")) == "tree:/home/me/a"
    assert str(Location.of("s3://bucket/a b.jsonl")) == "s3://bucket/a b.jsonl"
    assert Location.of("https://host/a.jsonl.gz?download=true").name == "a.jsonl.gz"
    assert Location.of("zip://x/a.csv::s3://b/c.zip").name == "a.csv"
    assert [Location.of(text).is_local for text in ("a:b", "s3://a", "tree:x", "tree:hf://datasets/a/b")] == [
        True, False, True, False,
    ]  # fmt: skip
    location = Location.of("tree:memory://a")
    assert Location.of(location) is location
    assert pickle.loads(pickle.dumps(location)) == location
    assert Location(str(location)) == location


def test_a_folder_is_its_data_files_sorted(tmp_path: Path) -> None:
    fill(
        tmp_path, "b/2.jsonl.zst", "b/1.JSONL", "a.csv", "z.txt", "c/d/e.parquet", "f.md", "x.json.xz",
        ".hidden.jsonl", ".cache/a.jsonl", "c/.d/a.jsonl", "current_chunk_incomplete.jsonl", "script.py", "photo.png",
        "README.md", "LICENSE.txt", "dataset_info.json", "dataset_infos.json", "state.json", "cache-0123.arrow",
    )  # fmt: skip
    expected = ["a.csv", "b/1.JSONL", "b/2.jsonl.zst", "c/d/e.parquet", "f.md", "x.json.xz", "z.txt"]
    for given in (tmp_path, f"{tmp_path}/", f"file://{tmp_path}"):
        assert inside(resolve([given]), tmp_path) == expected


def test_a_folder_of_documents_keeps_its_readme_and_is_read_in_order(tmp_path: Path) -> None:
    fill(tmp_path, "README.md", "b.txt", "a/c.md", data="é".encode())
    assert inside(resolve([tmp_path]), tmp_path) == ["README.md", "a/c.md", "b.txt"]
    assert [document.text for document in read_documents([tmp_path])] == ["é"] * 3


def test_a_mixed_folder_is_read_file_by_file(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl")
    fill(tmp_path, "b.csv", data=b"text,n\ntwo,1\nthree,2\n")
    fill(tmp_path, "d.txt", data=b"five")
    pq.write_table(pa.table({"text": ["four"]}), tmp_path / "c.parquet")
    found = [(Path(d.source.file).name, d.source.line, d.text) for d in read_documents([tmp_path])]
    assert found == [
        ("a.jsonl", 1, "one"), ("b.csv", 2, "two"), ("b.csv", 3, "three"), ("c.parquet", 1, "four"), ("d.txt", 1, "five"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train.jsonl", "train"),
        ("data/train-00000-of-00002.parquet", "train"),
        ("data/test_prefs-00000-of-00001.parquet", "test"),
        ("Validation/a.txt", "validation"),
        ("my_dev_set.csv", "validation"),
        ("squad-train.arrow", "train"),
        ("train0.jsonl", "train"),
        ("train/test.jsonl", "test"),
        ("trained.jsonl", None),
        ("contest.jsonl", None),
        ("data/00.jsonl", None),
        ("devices.csv", None),
    ],
)
def test_a_name_says_its_split(path: str, split: str | None) -> None:
    assert split_of(path) == split


def test_a_split_of_a_folder_is_chosen_by_name(tmp_path: Path) -> None:
    hub = fill(
        tmp_path / "hub", *(f"data/{name}-0000{i}-of-00002.parquet" for name in ("train", "test") for i in (0, 1))
    )
    fill(hub, "README.md", "extra.jsonl")
    for split, instead in (("train", "train"), ("test", "test"), ("validation", "test")):
        assert inside(resolve([hub], split=split), hub) == [f"data/{instead}-0000{i}-of-00002.parquet" for i in (0, 1)]
    assert len(resolve([hub])) == 5
    plain = fill(tmp_path / "plain", "a.jsonl", "b.jsonl")
    assert inside(resolve([plain], split="train"), plain) == ["a.jsonl", "b.jsonl"]
    held = fill(tmp_path / "held", "test.jsonl")
    with pytest.raises(DataError, match="its files are for test, none is for train") as caught:
        resolve([held], split="train")
    assert caught.value.next_step
    assert inside(resolve([held / "test.jsonl"], split="train"), held) == ["test.jsonl"]


def card(folder: Path, *configs: dict[str, Any], prose: str = "# Set\n") -> Path:
    (folder / "README.md").write_text(f"---\n{json.dumps({'license': 'mit', 'configs': configs})}\n---\n{prose}")
    return folder


def config(name: str, *, default: bool = False, **paths: Any) -> dict[str, Any]:
    files = [{"split": split, "path": path} for split, path in paths.items()]
    return {"config_name": name, "data_files": files} | ({"default": True} if default else {})


def test_a_card_says_which_files_are_the_training_data(tmp_path: Path) -> None:
    names = [f"{name}/{split}-0.parquet" for name in ("main", "other") for split in ("train", "test")]
    folder = card(
        fill(tmp_path / "set", *names),
        config("main", default=True, train="main/train-*", test="main/test-*"),
        config("other", train="other/train-*"),
    )
    assert inside(resolve([folder], split="train"), folder) == ["main/train-0.parquet"]
    assert inside(resolve([folder], split="validation"), folder) == ["main/test-0.parquet"]
    for name in ("main", "other"):
        assert inside(resolve([folder], split="train", config=name), folder) == [f"{name}/train-0.parquet"]
    assert inside(resolve([folder / "other"], split="train"), folder) == ["other/train-0.parquet"]
    assert len(resolve([folder])) == 4
    card(folder, {"config_name": "default", "data_files": "other/*.parquet"})
    assert inside(resolve([folder], split="train"), folder) == ["other/test-0.parquet", "other/train-0.parquet"]
    card(folder, {"config_name": "x", "data_dir": "main", "data_files": ["**/te*"]})
    assert inside(resolve([folder], split="train"), folder) == ["main/test-0.parquet"]
    card(folder, config("x", train=["main", "other/tr*.parquet"]))
    assert len(resolve([folder], split="train")) == 3


def test_a_card_that_leaves_it_open_is_an_error_that_shows_the_choice(tmp_path: Path) -> None:
    folder = fill(tmp_path / "set", "a/train.jsonl", "b/train.jsonl", "train_sft.jsonl", "train_gen.jsonl")
    cases: list[tuple[list[dict[str, Any]], str, str]] = [
        (
            [config("a", train="a/*"), config("b", train="b/*")],
            "holds 2 configurations",
            f"{folder}/a/*; b: {folder}/b/*",
        ),
        (
            [config("x", train_sft="train_sft*", train_gen="train_gen*")],
            "several splits for train",
            f"{folder}/train_gen*",
        ),
        ([config("x", test="a/*")], "has the splits test, none is for train", f"{folder}/a/*"),
        ([config("x", train="missing/*")], "names missing/\\* for train", "fetch the whole"),
    ]
    for configs, message, advice in cases:
        with pytest.raises(DataError, match=message) as caught:
            resolve([card(folder, *configs)], split="train")
        assert advice in caught.value.next_step
        assert caught.value.where == str(folder)
    with pytest.raises(DataError, match="no configuration 'c'"):
        resolve([card(folder, config("a", train="a/*"))], split="train", config="c")
    with pytest.raises(DataError, match="no card that lists a configuration 'c'"):
        resolve([fill(tmp_path / "plain", "a.jsonl")], split="train", config="c")
    for text in (
        "---\nconfigs: [\n---\n",
        "---\nconfigs: 3\n---\n",
        "---\n- 1\n---\n",
        "no card",
        "---\nconfigs:\n- x\n---",
    ):
        (folder / "README.md").write_text(text)
        assert len(resolve([folder], split="train")) == 4


def test_training_and_validation_take_their_own_files_of_a_folder(tmp_path: Path, tiny_path: Path) -> None:
    folder = fill(tmp_path / "set", "train.jsonl", "validation.jsonl", "test.jsonl")
    prepared = prepare_local(data_recipe(tiny_path, folder, validation=[str(folder)]))
    assert [reading.path for reading in prepared.validation] == [str(folder / "validation.jsonl")]
    assert prepared.manifest.documents == 1
    job = EvaluationJob(model=str(tiny_path), data=(str(folder),))
    assert [file.name for file in job.files()] == ["test.jsonl"]


# Source trees


def source_tree(folder: Path) -> Path:
    fill(folder, "pkg/b.py", "pkg/a.py", "Makefile", "package.json", data="é = 1\n".encode())
    fill(folder, "logo.png", data=b"\x89PNG\0\0")
    fill(folder, ".git/config", "node_modules/x.js", "pkg/__pycache__/a.pyc")
    fill(folder, "latin.c", data=b"// \xe9\n")
    return folder


def test_a_source_tree_is_one_location_of_a_document_a_file(tmp_path: Path) -> None:
    folder = source_tree(tmp_path / "repo")
    (tree,) = resolve([f"tree:{folder}"])
    told: list[int] = []
    found = list(read_rows(tree, on_bytes=told.append))
    assert [(source.file, source.line) for source, _ in found] == [
        (f"{folder}/{name}", 1) for name in ("Makefile", "latin.c", "logo.png", "package.json", "pkg/a.py", "pkg/b.py")
    ]
    rows = [row for _, row in found if not isinstance(row, Rejected)]
    assert rows == [{"text": "é = 1\n", "path": name} for name in ("Makefile", "package.json", "pkg/a.py", "pkg/b.py")]
    rejected = {
        row.source.file: (row.reason.name, row.reason.unusable) for _, row in found if isinstance(row, Rejected)
    }
    assert rejected == {f"{folder}/latin.c": ("DAMAGED_ROW", True), f"{folder}/logo.png": ("BINARY_FILE", False)}
    assert told[-1] == size_of(tree) == 4 * 7 + 6 + 5


def test_links_are_followed_to_data_and_not_in_a_source_tree(tmp_path: Path) -> None:
    outside = fill(tmp_path / "blobs", "abc", "sub/x.jsonl")
    data = fill(tmp_path / "data", "a.jsonl")
    (data / "b.jsonl").symlink_to(outside / "abc")
    (data / "c").symlink_to(outside / "sub")
    assert inside(resolve([data]), data) == ["a.jsonl", "b.jsonl"]
    (data / "broken.jsonl").symlink_to(outside / "nothing")
    with pytest.raises(DataError, match="no such file"):
        resolve([data])
    code = fill(tmp_path / "code", "a.py")
    (code / "b.py").symlink_to(code / "a.py")
    assert [row["path"] for _, row in read_rows(resolve([code])[0])] == ["a.py"]


def test_a_folder_of_source_files_is_a_tree_and_one_with_rows_is_not(tmp_path: Path) -> None:
    code = fill(tmp_path / "code", "a.py", "README.md", "LICENSE")
    assert [str(location) for location in resolve([code])] == [f"tree:{code}"]
    mixed = fill(tmp_path / "mixed", "load.py", "data.jsonl")
    assert inside(resolve([mixed]), mixed) == ["data.jsonl"]
    assert [str(location) for location in resolve([f"{code}/*.py"])] == [f"{code}/a.py"]
    with pytest.raises(DataError, match="holds no files"):
        resolve([f"tree:{fill(tmp_path / 'empty', '.x')}"])


def test_a_source_tree_trains_and_is_prepared_anew_when_a_file_moves(tmp_path: Path, tiny_path: Path) -> None:
    folder = fill(tmp_path / "repo", *(f"pkg/{i}.py" for i in range(5)), data=b"x = 1\n")
    prepared = prepare_local(data_recipe(tiny_path, folder))
    assert prepared.manifest.documents == 5
    assert len([path for path in prepared.train.iterdir() if path.suffix == ".arrow"]) == 1
    assert prepare_local(data_recipe(tiny_path, folder)).train == prepared.train
    (folder / "pkg/0.py").rename(folder / "pkg/z.py")
    assert prepare_local(data_recipe(tiny_path, folder)).train != prepared.train


def test_the_files_of_a_tree_stand_where_the_tree_does() -> None:
    files = [Location("/b.jsonl"), Location("tree:/a"), Location("/a.txt")]
    assert [_rank(file, files) for file in ("/b.jsonl", "/a/x.py", "/a/y/z.py", "/a.txt")] == [0, 1, 1, 2]


# Other file systems


def test_any_file_system_is_read_like_the_local_one(memory: MemoryFileSystem) -> None:
    files = {
        "a.jsonl": LINE,
        "b.csv.gz": gzip.compress(b"text\ntwo\n"),
        "c.json": b'[{"text": "three"}]',
        "d.txt": b"four",
    }
    for name, data in files.items():
        memory.pipe(f"/corpus/{name}", data)
    with memory.open("/corpus/e.parquet", "wb") as sink:
        pq.write_table(pa.table({"text": ["five"]}), sink)
    memory.pipe("/corpus/.hidden.jsonl", b"no")
    memory.pipe("/corpus/current_chunk_incomplete.jsonl", b"no")
    for given in ("memory://corpus", "memory://corpus/", "memory://corpus/*"):
        found = resolve([given])
        assert [location.name for location in found] == ["a.jsonl", "b.csv.gz", "c.json", "d.txt", "e.parquet"]
        assert [document.text for document in read_documents(found)] == ["one", "two", "three", "four", "five"]
    assert [size_of(location) for location in found[:1]] == [len(LINE)]
    assert [str(location) for location in resolve(["memory://corpus/a.jsonl"])] == ["memory://corpus/a.jsonl"]
    (document,) = read_documents(["memory://corpus/a.jsonl"])
    assert str(document.source) == "memory://corpus/a.jsonl:1"


def test_a_tree_on_another_file_system(memory: MemoryFileSystem) -> None:
    memory.pipe("/repo/a/b.rs", b"fn main() {}")
    memory.pipe("/repo/.git/x", b"no")
    (tree,) = resolve(["memory://repo"])
    assert str(tree) == "tree:memory://repo"
    ((source, row),) = read_rows(tree)
    assert row == {"text": "fn main() {}", "path": "a/b.rs"}
    assert source.file == "memory://repo/a/b.rs"
    assert tree.holds(source.file)
    assert not tree.holds("memory://repo2/a")


def test_a_folder_within_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("data/train.jsonl", LINE)
        archive.writestr("data/test.jsonl", LINE)
    for folder in (f"zip://data::{tmp_path}/a.zip", f"zip://data/::{tmp_path}/a.zip"):
        found = resolve([folder], split="train")
        assert [str(location) for location in found] == [f"zip://data/train.jsonl::{tmp_path}/a.zip"]
        assert [document.text for document in read_documents(found)] == ["one"]
    assert [location.name for location in resolve([f"zip://::{tmp_path}/a.zip"])] == ["test.jsonl", "train.jsonl"]


class HubLike(MemoryFileSystem):
    """What the hub's file system says of its files, over a store in memory."""

    protocol = "hublike"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("hublike://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return "hublike://" + name.strip("/")

    def info(self, path: str, **settings: Any) -> dict[str, Any]:
        found = super().info(path, **settings)
        return {key: found[key] for key in ("name", "size", "type")}

    def ls(self, path: str, detail: bool = True, **settings: Any) -> list[Any]:
        found = super().ls(path, detail=True, **settings)
        for entry in found:
            entry.pop("created", None)
            if entry["type"] == "file":
                entry["blob_id"] = hashlib.sha1(self.cat(entry["name"])).hexdigest()
        return found if detail else [entry["name"] for entry in found]


@pytest.fixture
def hub() -> Iterator[HubLike]:
    fsspec.register_implementation("hublike", HubLike, clobber=True)
    system = HubLike()
    yield system
    HubLike.store.clear()


def test_a_dataset_of_the_hub_trains_on_its_train_files(hub: HubLike, tiny_path: Path) -> None:
    for split, texts in (("train", ["a", "b"]), ("test", ["c"])):
        with hub.open(f"/datasets/org/name/data/{split}-00000-of-00001.parquet", "wb") as sink:
            pq.write_table(pa.table({"text": texts}), sink)
    hub.pipe("/datasets/org/name/data/train-old.parquet", b"not of the card")
    matter = json.dumps({"configs": [config("default", train="data/train-0*", test="data/test-*")]})
    hub.pipe("/datasets/org/name/README.md", f"---\n{matter}\n---\n# a card".encode())
    hub.pipe("/datasets/org/name/.gitattributes", b"x")
    folder = "hublike://datasets/org/name"
    recipe = data_recipe(tiny_path, [folder], validation=[folder])  # type: ignore[list-item]
    prepared = prepare_local(recipe)
    assert [reading.path for reading in prepared.validation] == [f"{folder}/data/test-00000-of-00001.parquet"]
    shards = TokenShards.open(prepared.train)
    assert shards.manifest.documents == 2
    assert f"{folder}/data/train-00000-of-00001.parquet:1" in shards[0].sources
    before = content_identity(resolve([folder], split="train")[0])
    name = "/datasets/org/name/data/train-00000-of-00001.parquet"
    size = hub.info(name)["size"]
    with hub.open(name, "wb") as sink:
        pq.write_table(pa.table({"text": ["x", "y"]}), sink)
    assert hub.info(name)["size"] == size
    assert content_identity(resolve([folder], split="train")[0]) != before
    assert prepare_local(recipe).train != prepared.train


def test_the_subset_of_a_catalogue_is_a_configuration_of_the_hub(
    hub: HubLike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `load_dataset(name=…)` takes, whatever its files are called; of a local folder a folder in it."""
    monkeypatch.setattr("cairn.data.catalog.HUB", "hublike://datasets/")
    for name in ("x", "y"):
        hub.pipe(f"/datasets/org/set/data/{name}-train.jsonl", LINE)
    matter = json.dumps({"configs": [config("en", default=True, train="data/x-*"), config("de", train="data/y-*")]})
    hub.pipe("/datasets/org/set/README.md", f"---\n{matter}\n---\n".encode())
    fill(tmp_path / "set" / "de", "train.jsonl")
    listed = {
        "default": {"hf_hub_url": "org/set"},
        "named": {"hf_hub_url": "org/set", "subset": "de"},
        "local": {"file_name": "set", "subset": "de"},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps(listed))
    data = Data.parse({"train": [{"catalog": str(tmp_path), "name": list(listed)}]})
    found = [str(file.location) for file in data_files(data, documents=True)]
    base = "hublike://datasets/org/set/data"
    assert found == [f"{base}/x-train.jsonl", f"{base}/y-train.jsonl", f"{tmp_path}/set/de/train.jsonl"]


def test_the_identity_of_a_remote_file_changes_with_it(memory: MemoryFileSystem) -> None:
    memory.pipe("/a.jsonl", LINE)
    location = Location("memory://a.jsonl")
    first = content_identity(location)
    assert content_identity(location) == first
    assert first.startswith("ukey:")
    memory.pipe("/a.jsonl", LINE * 2)
    assert content_identity(location) != first


def test_what_a_remote_place_lacks_is_said(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/corpus/a.bin", b"x")
    for given, message in {
        "memory://corpus/b.jsonl": "there is no such file",
        "memory://corpus/*.jsonl": "no file matches",
        "memory://corpus/a.bin": "no known suffix",
        "memory://corpus": "no data files",
    }.items():
        with pytest.raises(DataError, match=message) as caught:
            resolve([given])
        assert caught.value.where == given
        assert caught.value.next_step

    def fails(*args: object, **settings: object) -> None:
        raise RuntimeError("403 Forbidden")

    monkeypatch.setattr(MemoryFileSystem, "info", fails)
    with pytest.raises(DataError, match="cannot be read \\(403 Forbidden\\)") as caught:
        resolve(["memory://corpus/a.jsonl"])
    assert "access" in caught.value.next_step


def test_a_missing_package_and_an_unknown_file_system_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install it first")

    with pytest.raises(UserError, match="no address of a known file system"):
        resolve(["nowhere://a/b.jsonl"])
    monkeypatch.setattr("cairn.data.sources.location.url_to_fs", missing)
    for url, package in {"s3://b/a.jsonl": "s3fs", "gs://b/a.jsonl": "gcsfs", "abfs://b/a.jsonl": "adlfs"}.items():
        with pytest.raises(UserError, match="needs a package") as caught:
            resolve([url])
        assert caught.value.next_step == f"pip install {package}"


def test_damage_of_a_remote_file_names_it(memory: MemoryFileSystem) -> None:
    memory.pipe("/a.jsonl.gz", gzip.compress(json.dumps({"text": "x" * 1000}).encode())[:-5])
    with pytest.raises(DataError, match="truncated") as caught:
        list(read_records(["memory://a.jsonl.gz"]))
    assert caught.value.where == "memory://a.jsonl.gz"
