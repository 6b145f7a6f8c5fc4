"""placeholder"""

NAME = "quickstart"


def command() -> None:
    """Quick."""
