"""Fields of options that count only where another field, a flag, says so."""

# By a flag other than has_ and their own name.
_FLAGS = {"step": "has_position", "microbatch": "has_position"}


def counted(struct):
    """Pairs of a field and its flag."""
    names = [f["name"] for f in struct["fields"]]
    pairs = [(name, _FLAGS.get(name, "has_" + name)) for name in names]
    return [(name, flag) for name, flag in pairs if flag in names]
