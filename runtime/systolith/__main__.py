"""`python -m systolith`: the command line."""

from systolith.runtime.cli import main

main()
