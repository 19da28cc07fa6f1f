"""``python -m headrace``: the command, whose parts ``headrace_app`` puts together."""

import sys

from headrace_app.command import main

if __name__ == "__main__":
    sys.exit(main())
