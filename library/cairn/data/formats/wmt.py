"""Translation pairs: the two languages by name, for a prompt that says them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LANGUAGES = {
    "af": "Afrikaans", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish",
    "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian",
    "kk": "Kazakh", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam",
    "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "nl": "Dutch", "nn": "Norwegian Nynorsk",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "te": "Telugu", "th": "Thai",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""ISO 639-1 codes that the sets use; another code stands for itself."""


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`{"translation": {code: text, code: text}}` to the names and texts of both sides, in the order of the row."""
    (one, one_text), (other, other_text) = list(row["translation"].items())[:2]
    yield {
        "from_language": LANGUAGES.get(one, one),
        "from_text": one_text,
        "to_language": LANGUAGES.get(other, other),
        "to_text": other_text,
        "pair": f"{one}-{other}",
        "id": row.get("id"),
    }
