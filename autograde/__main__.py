"""`python -m autograde` is `kvgrade`."""

import sys

from autograde.cli import main

if __name__ == "__main__":
    sys.exit(main())
