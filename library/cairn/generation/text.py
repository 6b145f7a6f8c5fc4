"""Tokens to text as they come: never half a character, never the beginning of a stop string.

A token may hold part of a UTF-8 character, and some tokenizers drop a leading space when decoded alone, so text is
the difference between two decodings of a short window that moves on whenever the text is whole. A character left
half at the end of an answer is left out. Cost: one decode of a few tokens per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"
MOST_HELD = 8
"""Replacement characters held back as a possible half character; a longer run is the model's own broken output."""


class TextStream:
    """Decodes one answer. `push` gives the text that later tokens can no longer change."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._window: list[int] = []
        self._settled = 0
        self._known = ""
        self._sent = 0

    def push(self, token: int) -> str:
        """The text made certain by `token`; often empty for a part of a character."""
        self._window.append(token)
        fresh = self._decode(self._window)[len(self._known) :]
        whole = fresh.rstrip(REPLACEMENT)
        held = min(len(fresh) - len(whole), MOST_HELD)
        certain = fresh[: len(fresh) - held]
        new = certain[self._sent :]
        self._sent = max(self._sent, len(certain))
        if fresh and not held:
            self._window = self._window[self._settled :]
            self._settled = len(self._window)
            self._known = self._decode(self._window)
            self._sent = 0
        return new

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class StopMatcher:
    """Finds the first of some strings in a stream, across any borders, and holds back what may become one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = tuple(stop)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that is safe to show, and whether a stop string was found (which is left out, with all after)."""
        if not self.stop:
            return text, False
        text = self._held + text
        found = [at for at in (text.find(word) for word in self.stop) if at >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        keep = self._possible_beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back, at the end of an answer without a stop string."""
        text, self._held = self._held, ""
        return text

    def _possible_beginning(self, text: str) -> int:
        longest = min(max(len(word) for word in self.stop) - 1, len(text))
        for size in range(longest, 0, -1):
            if any(word.startswith(text[len(text) - size :]) for word in self.stop):
                return size
        return 0
