"""`python -m flows.cli`: the `dpal` command."""

from flows.cli.main import main

if __name__ == "__main__":
    main()
