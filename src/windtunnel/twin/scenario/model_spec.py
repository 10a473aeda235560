"""How a person names a model, wherever one is named."""

from typing import Annotated

from windtunnel.settings.fields import Text

ModelName = Annotated[
    str, Text("a model's catalog name, or the path of a Hugging Face config.json")
]
