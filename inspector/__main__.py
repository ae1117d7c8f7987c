"""`python -m inspector` is the command `inspector`."""

import sys

from .cli import main

sys.exit(main())
