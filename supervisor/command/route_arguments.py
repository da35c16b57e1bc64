"""The words of the commands about routes that stay open: `replay` and `settle`. Adds arguments, and no more."""

from __future__ import annotations

import argparse


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add what ``supervise replay`` takes."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw the four cells, as SVG")
    parser.add_argument(
        "--service",
        metavar="NAME",
        choices=("embedded", "redis"),
        default="embedded",
        help="what keeps the queue: embedded (default), or redis, a server of its own",
    )


def add_settle(parser: argparse.ArgumentParser) -> None:
    """Add what ``supervise settle`` takes beside the run."""
    parser.add_argument("--for", dest="for_s", metavar="D", help="wait no longer than this, such as 10m")
