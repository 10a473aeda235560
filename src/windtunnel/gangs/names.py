"""What everything is called. All indices count from 0."""


def base_gang(set_name: str, replica: int) -> str:
    """Also the name of the replica's headless service."""
    return f"{set_name}-{replica}"


def clique(set_name: str, replica: int, role: str) -> str:
    """A clique that stands alone."""
    return f"{set_name}-{replica}-{role}"


def group(set_name: str, replica: int, short: str) -> str:
    return f"{set_name}-{replica}-{short}"


def member(group_name: str, group_replica: int, role: str) -> str:
    """A clique of a scaling group."""
    return f"{group_name}-{group_replica}-{role}"


def scaled_gang(group_name: str, group_replica: int, min_available: int) -> str:
    """The gang of a group replica above the minimum; they are counted from the first of them."""
    return f"{group_name}-{group_replica - min_available}"


def namespace(name: str) -> str:
    """The namespace of an object, which its full name begins with unless it is `default`."""
    before, slash, _ = name.partition("/")
    return before if slash else "default"


def short(name: str) -> str:
    """The name within its namespace."""
    return name.rpartition("/")[2]


def host(clique_name: str, index: int) -> str:
    return f"{short(clique_name)}-{index}"
