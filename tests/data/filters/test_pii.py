"""What is masked and what only looks like it. The numbers are made here, so that no file holds a key."""

from __future__ import annotations

import pytest
from tests.data.filters.verdicts import judge, left, taken

from cairn.data.filters.pii import PATTERNS, is_card, is_iban, masked

pytestmark = pytest.mark.unit

PRIVATE = "PRIVATE " + "KEY-----"
KEY = f"-----BEGIN RSA {PRIVATE}\n{'Ab3/+=' * 40}\n-----END RSA {PRIVATE}"
FOUND = [
    ("email", "ada.lovelace+notes@mail.example.org"),
    ("email", "x_1@a-b.co"),
    ("ip_address", "8.8.4.4"),
    ("ip_address", "2606:4700:4700::1111"),
    ("ip_address", "2001:4860:4860:0:0:0:0:8888"),
    ("phone", "+44 20 7946 0958"),
    ("phone", "+4930123456"),
    ("phone", "(415) 555-2671"),
    ("phone", "415-555-2671"),
    ("card", "4242 4242 4242 4242"),
    ("card", "378282246310005"),
    ("card", "5555-5555-5555-4444"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "GB82WEST12345698765432"),
    ("secret", "AKIA" + "Q" * 16),
    ("secret", "ghp_" + "a1B2" * 9),
    ("secret", "github_pat_" + "a1B2_" * 8),
    ("secret", "xoxb-" + "1234567890-abc"),
    ("secret", "AIza" + "b" * 35),
    ("secret", "sk_live_" + "c" * 24),
    ("secret", KEY),
]
NOT_FOUND = [
    "@home", "a@b", "me@localhost", "the @ sign", "x@y@", "import a.b@c",
    "192.168.0.1", "10.0.0.7", "127.0.0.1", "v8.8.4.4", "8.8.4.4.4", "300.1.1.1", "1.2.3",
    "12:30:45", "std::vector<int>", "::1", "fe80::1", "a::b", "[1:2:3]",
    "1914-1918", "2026-12-01 13:00", "+1", "3.14159265358979", "123-456-7890", "415-155-2671", "5415-555-2671",
    "4242 4242 4242 4241", "1234567812345678", "42424242424242424242424",
    "DE88 3704 0044 0532 0130 00", "ISO 27001 2022 1234 5678",
    "AKIA", "AKIA" + "q" * 16, "xAKIA" + "Q" * 16, "ghp_short", "sk_test_" + "c" * 24,
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), FOUND, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(FOUND)])
@pytest.mark.parametrize("frame", ["{}", "Write to {}, please.", "({})", "see:\n{}\nend", "größer: {}."])
def test_what_is_found_is_masked_whole_once_and_for_good(kind, text, frame):
    text = frame.format(text)
    mask = f"<{kind.upper()}>"
    out, counts = masked(text)
    assert out == frame.format(mask)
    assert counts == {kind: 1}
    assert masked(out) == (out, {})


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_only_looks_like_it_stays(text):
    assert masked(f"It is {text} here") == (f"It is {text} here", {})


def test_several_are_counted_by_kind_and_only_what_is_asked_for():
    text = "a@b.org, c@d.org and 8.8.8.8"
    assert left("pii", text) == "<EMAIL>, <EMAIL> and <IP_ADDRESS>"
    assert taken("pii", text) == {"email masked": 2, "ip address masked": 1}
    assert left("pii", text, kinds=["ip_address"]) == "a@b.org, c@d.org and <IP_ADDRESS>"
    assert judge("pii", "nothing here") is None


def test_luhn_and_the_check_digits_of_iban():
    assert [is_card(f"424242424242424{digit}") for digit in range(10)] == [digit == 2 for digit in range(10)]
    assert [is_iban(f"DE{digits:02d}370400440532013000") for digits in (88, 89, 90)] == [False, True, False]


HOSTILE = ["a", "1", "1.", "a@", "@a.", "a.", "+1 ", "1:", "A1", "AKIA", "-----BEGIN RSA " + PRIVATE, "(212) ", "xoxb-"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_through(piece):
    """300 KB of the beginnings of what is looked for: a pattern that begins anew at each of them would never end."""
    text = piece * (300_000 // len(piece)) + "_"
    assert masked(text) == (text, {})


def test_every_kind_is_in_the_table_and_begins_where_a_scan_is_fast():
    assert set(PATTERNS) == {"secret", "email", "iban", "card", "ip_address", "phone"}
    assert not [
        p.regex.pattern for patterns in PATTERNS.values() for p in patterns if p.regex.pattern.startswith("(?<")
    ]
