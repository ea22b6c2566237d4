"""`python -m kvcourse.models fetch smollm2`: get the weights of a model before they are needed."""

from __future__ import annotations

import argparse
import sys

from kvcourse.tasks.course import UserError

USAGE_MISTAKE = 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kvcourse.models", description="Get the weights of a model.")
    parser.add_argument("command", choices=["fetch"])
    parser.add_argument("model", choices=["smollm2"])
    parser.parse_args(argv)
    from kvcourse.models.smollm2 import fetch_smollm2

    try:
        print(f"smollm2 is ready in {fetch_smollm2()}")
    except UserError as error:
        print(error, file=sys.stderr)
        return USAGE_MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())
