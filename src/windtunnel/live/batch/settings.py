"""Settings of a batch: the `--columns` file, and the options of a run.

The file declares endpoints and columns, and is checked all at once.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import Field

from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.core.errors import InputError
from windtunnel.live.batch.templates import PromptTemplate
from windtunnel.live.wire.addresses import Api
from windtunnel.settings.checking import checked
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Leaf, Name, Text, Whole, is_not
from windtunnel.settings.section import Section

ANSWER = "answer"
"""The only column, if no file declares any."""
NOUN = "columns"
MOST_COLUMNS = 256
MOST_CONCURRENCY = 100_000
CONCURRENCY = 64
"""Calls in flight, if no option sets them."""
MOST_BUDGET = 10**12
APIS = {"chat": Api.CHAT, "completions": Api.COMPLETIONS}
OURS = ("model", "messages", "prompt", "stream")
"""Request fields that `body` may not set."""


class PromptText(Leaf):
    """Text of any length and any number of lines."""

    allowed = "text, with {{ fields }} of the row and {{ columns }} in it"
    schema = {"type": "string", "minLength": 1}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"))
        if not value.strip():
            self.fail("the text is blank")
        return value


class ColumnName(Leaf):
    """A column name that a template can use."""

    allowed = "letters, digits and '_', the first no digit"
    schema = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not value.isidentifier() or not value.isascii():
            self.fail(is_not(value, "a name for a column"))
        return value


class ApiWord(Leaf):
    """The API of a server that is used."""

    allowed = ", ".join(APIS)
    schema = {"enum": list(APIS)}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str) or value not in APIS:
            self.fail(is_not(value, "an interface"))
        return value


class EndpointSettings(Section):
    """A server."""

    url: Annotated[str, Text("an address, such as http://localhost:8000/v1")] = Field(
        description="Address of the server; /v1 is added if it has no path."
    )
    key_env: Annotated[str, Name()] | None = Field(
        default=None,
        description="The environment variable that holds its key. Default: OPENAI_API_KEY, if set.",
    )
    concurrency: Annotated[int, Whole(1, MOST_CONCURRENCY)] | None = Field(
        default=None,
        description="Calls in flight at most. Default: what --concurrency says; the limit in use "
        "is found below it.",
    )
    requests_per_minute: Annotated[int, Whole(1, MOST_BUDGET)] | None = Field(
        default=None, description="Calls in any minute at most. Default: what its replies say."
    )
    tokens_per_minute: Annotated[int, Whole(1, MOST_BUDGET)] | None = Field(
        default=None, description="Tokens in any minute at most. Default: what its replies say."
    )

    @property
    def slots(self) -> int:
        """Calls in flight to each of its models, at most."""
        return self.concurrency or CONCURRENCY

    def filled(self, **defaults: Any) -> "EndpointSettings":
        """A copy with these defaults for values that the file does not set."""
        missing = {name: value for name, value in defaults.items() if not getattr(self, name)}
        return self.model_copy(update=missing)


class ColumnSettings(Section):
    """A column."""

    prompt: Annotated[str, PromptText()] = Field(
        description="What to ask, with {{ fields }} of the row and {{ columns }} that come before."
    )
    system: Annotated[str, PromptText()] | None = Field(
        default=None, description="The system message, with places as in the prompt."
    )
    model: Annotated[str, Text("the name of a model")] | None = Field(
        default=None, description="Model. Default: --model, or the only model there is."
    )
    endpoint: Annotated[str, Name()] | None = Field(
        default=None, description="Which endpoint to ask. Default: any that has the model."
    )
    api: Annotated[str, ApiWord()] = Field(
        default="chat", description="chat, or completions for models without a chat template."
    )
    body: dict[str, Any] = Field(
        default_factory=dict,
        description="What else the request says: max_tokens, temperature, response_format, ...",
    )

    @property
    def interface(self) -> Api:
        return APIS[self.api]

    def templates(self, name: str) -> list[PromptTemplate]:
        """The templates of the prompt and, if there is one, of the system message."""
        texts = [self.prompt, *([self.system] if self.system else [])]
        return [PromptTemplate(text, f"column {name}") for text in texts]


class ColumnsFile(Section):
    """The whole file."""

    endpoints: dict[Annotated[str, Name()], EndpointSettings] = Field(
        default_factory=dict, description="Servers by name, beside those of --endpoint."
    )
    columns: dict[Annotated[str, ColumnName()], ColumnSettings] = Field(
        description="Columns by name; the last one is the response of the row."
    )


def load_columns(path: Path) -> ColumnsFile:
    """Reads and checks a columns file."""
    document = parse_document(read_text(path, NOUN), str(path), NOUN, "columns and endpoints")
    return checked(document, ColumnsFile, _faults)[0]


def graph_of(columns: Mapping[str, ColumnSettings]) -> ColumnGraph:
    """The dependencies between columns, from the names in their templates."""
    named = {
        name: sorted({field for template in column.templates(name) for field in template.names})
        for name, column in columns.items()
    }
    return ColumnGraph({name: [one for one in named[name] if one in columns] for name in columns})


def _faults(file: ColumnsFile) -> list[Fault]:
    faults = []
    if not file.columns:
        faults.append(Fault(("columns",), "there are no columns", "one or more"))
    if len(file.columns) > MOST_COLUMNS:
        what = f"there are {len(file.columns)} columns"
        faults.append(Fault(("columns",), what, f"up to {MOST_COLUMNS}"))
    for name, column in file.columns.items():
        path = ("columns", name)
        for key in ("prompt", "system"):
            try:
                PromptTemplate(getattr(column, key) or "", f"column {name}")
            except InputError as error:
                faults.append(Fault((*path, key), error.what))
        faults += [
            Fault((*path, "body", key), "this is set by the column itself", hint=_instead(key))
            for key in column.body
            if key in OURS
        ]
        if column.system and column.interface is not Api.CHAT:
            hint = "put it into the prompt"
            faults.append(Fault((*path, "system"), "only a chat has a system message", hint=hint))
    if not faults:  # templates can be read
        try:
            graph_of(file.columns)
        except InputError as error:
            faults.append(Fault(("columns",), error.what, hint=error.hint))
    return faults


def _instead(key: str) -> str:
    return {
        "model": "write it beside `body`, not in it",
        "stream": "responses are not streamed",
    }.get(key, "write a `prompt` beside `body`")


class LimiterKind(StrEnum):
    """How the limit of calls in flight is determined."""

    AIMD = "aimd"
    GRADIENT = "gradient"
    FIXED = "fixed"


class BatchSettings(msgspec.Struct, frozen=True):
    """The options of a run, all filled in."""

    input: Path
    output: Path
    endpoints: Mapping[str, EndpointSettings]
    columns: Mapping[str, ColumnSettings] = {}
    """Empty if each row is its own request."""
    model: str = ""
    """The model to use instead of the one that a row names."""
    api: Api = Api.CHAT
    """The API for rows with a prompt, if there are no columns."""
    body: Mapping[str, Any] = {}
    tenant_field: str = ""
    tenant_weights: Mapping[str, int] = {}
    priority_field: str = ""
    group_rows: int = 256
    limiter: LimiterKind = LimiterKind.AIMD
    skip_bad: int = 19
    """Rows that may all be refused at the start, before the run stops."""
    retries: int = 4
    retry_time_s: float = 600.0
    timeout_s: float = 600.0
    wait_s: float = 10.0
    """How long to wait at the start for an endpoint to appear."""
    resume: bool = False
