"""`python -m cairn`, the same as the command `cairn`."""

from cairn.cli.main import main

if __name__ == "__main__":
    main()
