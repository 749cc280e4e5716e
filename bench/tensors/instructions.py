"""Arguments in a program's instructions, for those who draw it and those who replay it."""


class V:
    """A tensor, by its number."""
    def __init__(self, i):
        self.i = i

    def __repr__(self):
        return f"v{self.i}"


class D:
    """An element type, by its name."""
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name
