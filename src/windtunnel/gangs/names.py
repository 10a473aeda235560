"""Names of all objects. Indices count from 0."""


def base_gang(set_name: str, replica: int) -> str:
    """Name of a base gang, and of the replica's headless service."""
    return f"{set_name}-{replica}"


def clique(set_name: str, replica: int, role: str) -> str:
    """Name of a standalone clique."""
    return f"{set_name}-{replica}-{role}"


def group(set_name: str, replica: int, short: str) -> str:
    return f"{set_name}-{replica}-{short}"


def member(group_name: str, group_replica: int, role: str) -> str:
    """Name of a clique in a scaling group."""
    return f"{group_name}-{group_replica}-{role}"


def scaled_gang(group_name: str, group_replica: int, min_available: int) -> str:
    """Name of the gang of a group replica above the minimum, counted from the first of these."""
    return f"{group_name}-{group_replica - min_available}"


def namespace(name: str) -> str:
    """Namespace of an object, the prefix of its full name unless it is `default`."""
    before, slash, _ = name.partition("/")
    return before if slash else "default"


def short(name: str) -> str:
    """Name without its namespace."""
    return name.rpartition("/")[2]


def host(clique_name: str, index: int) -> str:
    return f"{short(clique_name)}-{index}"
