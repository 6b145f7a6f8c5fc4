"""What a router in use chooses cannot be deleted under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import AdapterError
from cairn.store.card import Base, Facts
from cairn.store.routers import ROUTER, Routers

pytestmark = pytest.mark.unit


@pytest.fixture
def routers(tmp_path: Path) -> Routers:
    """Three versions of an adapter; the router's first version chooses the first, its second the second."""
    routers, files = Routers(tmp_path), tmp_path / "files"
    files.mkdir()
    (files / "weights").write_text("x")
    base = Base(path="/models/tiny")
    for _ in range(3):
        routers.adapters.publish("support", files, Facts(base=base, method="lora"))
    for version in (1, 2):
        facts = Facts(base=base, method=ROUTER, parents=(f"support@{version}",), operation="route")
        routers.publish("front", files, facts)
    return routers


def test_a_version_that_the_newest_router_chooses_stays(routers: Routers) -> None:
    with pytest.raises(AdapterError, match="the router front@2 chooses support@2"):
        routers.delete_adapter("support@2")
    assert len(routers.adapters.versions("support")) == 3
    assert routers.delete_adapter("support@3").reference == "support@3"


def test_an_older_router_holds_it_while_an_alias_points_there(routers: Routers) -> None:
    routers.promote("front", 1, "prod")
    with pytest.raises(AdapterError, match=r"(?s)front@1 chooses support@1.*cairn adapters route … --publish front"):
        routers.delete_adapter("support@1")
    routers.promote("front", 2, "prod")
    assert routers.delete_adapter("support@1").reference == "support@1"
