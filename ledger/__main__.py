"""`python -m ledger` is `jobledger`."""

from ledger.cli import main

if __name__ == "__main__":
    main()
