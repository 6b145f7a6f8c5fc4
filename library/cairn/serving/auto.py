"""`model="auto"`: the adapter that the service's router chooses for a prompt, or the base.

What is looked at is the prompt that would be answered: messages through the router's chat template (the one its training
prompts went through) with the beginning of the assistant's turn, a text or tokens as they are. The router's alias is
resolved anew for each request, as an adapter's is; the versions that it chooses among never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.adapters.routing.features import prompt_features
from cairn.adapters.routing.router import Router, load_router
from cairn.generation.generator import Generator
from cairn.serving.catalogue import Catalogue
from cairn.serving.refusal import UnknownModelError
from cairn.store.routers import Routers

AUTO = "auto"


class Auto:
    """`reference` names a published router; None is a service without one."""

    def __init__(self, reference: str | None, storage: str, catalogue: Catalogue) -> None:
        self.reference, self.routers, self.catalogue = reference, Routers(storage), catalogue
        self._loaded: tuple[str, Router] | None = None
        if reference is not None:
            self.router()

    def router(self) -> Router:
        """The router as it is now; UnknownModelError where there is none, AdapterError for one of another base, or of
        adapters that cannot be served here."""
        if self.reference is None:
            raise UnknownModelError(
                "this service has no router, which 'auto' needs",
                next_step="publish one: cairn adapters route A B --publish NAME, and serve with router: NAME",
            )
        published = self.routers.resolve(self.reference)
        if self._loaded is None or self._loaded[0] != published.reference:
            self.catalogue.check_card(published.card)
            router = load_router(published.path)
            for reference in router.adapters:
                self.catalogue.resolve(reference)
            self._loaded = (published.reference, router)
        return self._loaded[1]

    def models(self) -> list[dict[str, Any]]:
        """What `GET /v1/models` lists of it."""
        if self.reference is None:
            return []
        published = self.routers.resolve(self.reference)
        return [self.catalogue.entry(AUTO, root=str(published.path), parent=self.catalogue.base_name)]

    def choose(self, router: Router, tokens: Sequence[int], generator: Generator) -> str:
        """The model that answers `tokens`; called in the engine's thread, between steps. Costs one pass of the base
        over them."""
        (chosen,) = router.choose(prompt_features(generator.model, [tokens]))
        return self.catalogue.base_name if chosen is None else chosen
