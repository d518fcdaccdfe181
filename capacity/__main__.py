"""The `capacity` program: so light that an interrupt while the rest is loaded still ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    try:
        from capacity.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)  # `INTERRUPTED` of the command line, which may not be loaded yet


if __name__ == "__main__":
    main()
