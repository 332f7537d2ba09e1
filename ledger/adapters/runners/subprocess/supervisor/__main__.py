"""`python -I -S -E <this file> <run folder>`: supervises one attempt; see `main`."""

import os
import sys

if __name__ == "__main__":
    # At the end of the path: no module in this folder may hide one of the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from supervisor.main import main  # type: ignore[import-not-found]

    main(sys.argv[1])
