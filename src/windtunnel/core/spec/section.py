"""The form that every section of a file has."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping with known keys: an unknown key is a fault, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
