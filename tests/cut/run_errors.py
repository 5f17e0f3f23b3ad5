"""What a case can end with."""


class Wrong(Exception):
    """The case did not end in a correct state."""


class Broken(Exception):
    """The case could not be played: nothing is said about the product."""
