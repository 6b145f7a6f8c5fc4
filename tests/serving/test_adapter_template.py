"""An adapter that was trained with a chat template of its own is asked with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import build_tokenizer

from cairn.errors import UserError
from cairn.serving.catalogue import Served
from cairn.serving.replica import Call, Replica

pytestmark = pytest.mark.unit

CALL = Call("support", {}, messages=({"role": "user", "content": "Hi"},))


@pytest.mark.parametrize("own", [None, "own: {{ messages[0].content }}"])
def test_the_adapters_template_goes_before_the_models(tmp_path: Path, own: str | None) -> None:
    replica = object.__new__(Replica)
    replica.tokenizer = build_tokenizer(chat_template=own)
    (tmp_path / "chat_template.jinja").write_text("adapter: {{ messages[0].content }}", encoding="utf-8")
    prompt = replica._prompt(CALL, Served("support", "support@1", tmp_path))
    assert replica.tokenizer.decode(prompt) == "adapter: Hi"
    (tmp_path / "chat_template.jinja").unlink()
    for served in (Served("base"), Served("support", "support@1", tmp_path)):
        if own is None:
            with pytest.raises(UserError, match="no chat template"):
                replica._prompt(CALL, served)
        else:
            assert replica.tokenizer.decode(replica._prompt(CALL, served)) == "own: Hi"
