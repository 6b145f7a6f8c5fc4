"""Published routers: versions and aliases as adapters have, under a root of their own, `<storage.path>/routers`.

So a router is never listed, resolved or loaded as an adapter. Its card names the exact versions it chooses among and the
base and tokenizer whose features it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn.errors import AdapterError
from cairn.store.card import Facts
from cairn.store.names import check_name
from cairn.store.store import Adapter, Store

ROUTER = "router"
"""`card.method` of a router."""


class Routers(Store):
    """The routers of a storage folder."""

    noun = "router"
    how_to_fill = "cairn adapters route A B --publish NAME"

    def __init__(self, storage: str | Path) -> None:
        super().__init__(Path(storage) / "routers")
        self.adapters = Store(Path(storage) / "adapters")

    def publish(self, name: str, folder: str | Path, facts: Facts) -> Adapter:
        """As `Store.publish`; AdapterError for the name of an adapter, which would be asked for by mistake."""
        self.check_free(name)
        return super().publish(name, folder, facts)

    def check_free(self, name: str) -> None:
        """AdapterError where an adapter has the name, or it can name nothing."""
        if check_name(name) in self.adapters.names():
            raise AdapterError(f"'{name}' is an adapter", where="--publish", next_step="choose another name")

    def delete_adapter(self, reference: str) -> Adapter:
        """As `Store.delete` of the adapters; AdapterError too while a router in use, the newest version or one with an
        alias, chooses it."""
        adapter = self.adapters.resolve(reference)
        for router in self._in_use():
            if adapter.reference in router.card.parents:
                raise AdapterError(
                    f"the router {router.reference} chooses {adapter.reference}",
                    where=str(self.root),
                    next_step=f"route among others first: cairn adapters route … --publish {router.card.name}",
                )
        return self.adapters.delete(reference)

    def _in_use(self) -> Iterator[Adapter]:
        for name in self.names():
            aliased = set(self.aliases(name).values())
            versions = self.versions(name)
            yield from (one for one in versions if one is versions[-1] or one.card.version in aliased)
