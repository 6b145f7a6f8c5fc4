"""A PEFT directory: `PeftModel.from_pretrained(base, folder)` opens it, and so does everything that reads PEFT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cairn.adapters.attach import attach_saved
from cairn.exports._reload import fresh_target, probe, require_equal
from cairn.exports.base import Export
from cairn.store.opening import load_base, require_adapter_files
from cairn.store.store import Adapter


class Peft(Export):
    """The published files, the base model named in the config; checked by loading both into PEFT itself."""

    def export(self, adapter: Adapter, target: Path) -> Path:
        """Copy, reload with `PeftModel.from_pretrained`, compare logits (fp32, 1e-4).

        Raises AdapterError for a version that is no adapter, UserError when `target` holds something.
        """
        require_adapter_files(adapter)
        with fresh_target(target) as draft:
            for name in adapter.card.files:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(adapter.path / name, draft / name)
            _name_base(draft / "adapter_config.json", adapter.card.base.path)
            expected = probe(attach_saved(load_base(adapter), adapter.path))
            require_equal(expected, probe(_reopen(adapter, draft)), where=target)
        return target


def _name_base(config: Path, base: str) -> None:
    values = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**values, "base_model_name_or_path": base}, indent=2) + "\n", encoding="utf-8")


def _reopen(adapter: Adapter, folder: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(load_base(adapter), str(folder)).eval()
