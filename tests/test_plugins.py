"""The contract of every plugin that can be discovered, so that a new file is tested from birth."""

from __future__ import annotations

import importlib
import inspect

import pytest

from cairn.config.section import Section
from cairn.errors import UserError
from cairn.plugins import FAMILIES, OPTIMIZERS, SCHEDULES, STAGES, Plugins
from cairn.records import KINDS

pytestmark = pytest.mark.unit

EVERY = [(family, name) for family, plugins in FAMILIES.items() for name in plugins.names()]
SMALLEST: dict[tuple[str, str], dict[str, object]] = {("data.filters", "quality"): {"model": "any.safetensors"}}
"""What a Config needs that has keys without a default."""


def load(family: str, name: str):
    return FAMILIES[family].load(name)


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_the_name_is_the_stem_and_the_class_is_documented(family, name):
    plugin = load(family, name)
    assert plugin.name == name == plugin.__module__.rpartition(".")[2]
    for documented in (plugin, inspect.getmodule(plugin)):
        assert (documented.__doc__ or "").strip(), documented


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_the_config_survives_a_round_trip_and_refuses_unknown_keys(family, name):
    config = load(family, name).Config
    assert issubclass(config, Section)
    first = config.parse(SMALLEST.get((family, name), {}))
    assert config.parse(first.model_dump(mode="json")) == first
    with pytest.raises(ValueError, match="no_such_key"):
        config.parse({"no_such_key": 1})


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_every_key_of_the_config_is_described(family, name):
    assert [key for key, field in load(family, name).Config.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_every_public_method_is_documented_somewhere(family, name):
    members = inspect.getmembers(load(family, name), inspect.isfunction)
    assert [key for key, member in members if not key.startswith("_") and not inspect.getdoc(member)] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_offers_something_and_mends_a_typo(family):
    names = FAMILIES[family].names()
    assert names, family
    with pytest.raises(UserError, match=f"did you mean '{names[0]}'"):
        FAMILIES[family].load(f"{names[0]}x")


@pytest.mark.parametrize("name", STAGES.names())
def test_a_stage_says_which_record_it_eats(name):
    assert STAGES.load(name).record in KINDS.values()


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_an_optimizer_lowers_a_loss_with_its_learning_rate(name):
    import torch

    plugin = OPTIMIZERS.load(name)
    assert "learning_rate" in plugin.Config.model_fields
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    optimizer = plugin(plugin.Config(learning_rate=0.05)).build(layer.named_parameters())
    assert {group["lr"] for group in optimizer.param_groups} == {0.05}
    x = torch.randn(16, 4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (layer(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_a_schedule_is_a_pure_function_of_the_step(name):
    schedule = SCHEDULES.load(name)()
    assert [schedule.factor(step, 9) for step in (5, 0, 5)] == [schedule.factor(step, 9) for step in (5, 0, 5)]
    assert 0 < schedule.factor(0, 100) <= 1


def test_two_classes_in_one_file_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "two_choices"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "both.py").write_text(
        "from cairn.schedules.base import Schedule\nclass A(Schedule):\n    pass\nclass B(Schedule):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugins = Plugins("two_choices", "cairn.schedules.base:Schedule")
    assert plugins.names() == ["both"]
    with pytest.raises(TypeError, match="exactly one Schedule, it defines 2"):
        plugins.load("both")
