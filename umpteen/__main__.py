"""``python -m umpteen`` runs the ``umpteen`` command."""

from umpteen.cli.app import main

if __name__ == "__main__":
    main()
