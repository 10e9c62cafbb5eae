"""``python -m minfer`` is the ``minfer`` command."""

from minfer.cli import main

if __name__ == "__main__":
    main()
