"""`python -m dagc`."""

from dagc.cli import main

raise SystemExit(main())
