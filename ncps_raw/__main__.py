"""``python -m ncps_raw`` is the same program as ``ncps``."""

import sys

from ncps_raw.cli import main

if __name__ == "__main__":
    sys.exit(main())
