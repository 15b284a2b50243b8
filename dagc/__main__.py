"""`python -m dagc`."""

from dagc.cli.main import main

raise SystemExit(main())
