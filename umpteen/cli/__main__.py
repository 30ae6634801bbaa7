"""``python -m umpteen.cli``: the command where its script is not on the path."""

from umpteen.cli.app import main

if __name__ == "__main__":
    main()
