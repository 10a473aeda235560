"""The file that `--columns` names: endpoints and columns, checked all at once."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.core.errors import InputError
from windtunnel.live.batch.plan import ColumnPlan, EndpointPlan
from windtunnel.live.batch.templates import Template
from windtunnel.live.wire.addresses import Api
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import Fault, checker_faults, input_error
from windtunnel.settings.fields import Leaf, Name, Text, Whole, is_not
from windtunnel.settings.section import Section

NOUN = "columns"
MOST_COLUMNS = 256
MOST_CONCURRENCY = 100_000
MOST_BUDGET = 10**12
APIS = {"chat": Api.CHAT, "completions": Api.COMPLETIONS}
OURS = ("model", "messages", "prompt", "stream")
"""Fields of a request that are not for `body` to say."""


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
    """A name that a template can use."""

    allowed = "letters, digits and '_', the first no digit"
    schema = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not value.isidentifier() or not value.isascii():
            self.fail(is_not(value, "a name for a column"))
        return value


class ApiWord(Leaf):
    """Which of the interfaces of a server is used."""

    allowed = ", ".join(APIS)
    schema = {"enum": list(APIS)}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str) or value not in APIS:
            self.fail(is_not(value, "an interface"))
        return value


class EndpointSpec(Section):
    """A server."""

    url: Annotated[str, Text("an address, such as http://localhost:8000/v1")] = Field(
        description="Where the server is; /v1 is added to an address that has no path."
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


class ColumnSpec(Section):
    """A column."""

    prompt: Annotated[str, PromptText()] = Field(
        description="What to ask, with {{ fields }} of the row and {{ columns }} that come before."
    )
    system: Annotated[str, PromptText()] | None = Field(
        default=None, description="The system message, with places as in the prompt."
    )
    model: Annotated[str, Text("the name of a model")] | None = Field(
        default=None, description="Who answers. Default: --model, or the only model there is."
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


class ColumnsSpec(Section):
    """The whole file."""

    endpoints: dict[Annotated[str, Name()], EndpointSpec] = Field(
        default_factory=dict, description="Servers by name, beside those of --endpoint."
    )
    columns: dict[Annotated[str, ColumnName()], ColumnSpec] = Field(
        description="Columns by name; the last one is the response of the row."
    )


class ColumnsFile:
    """What the file said; `endpoints` has what was left out as None."""

    def __init__(self, endpoints: dict[str, EndpointSpec], columns: tuple[ColumnPlan, ...]) -> None:
        self.endpoints = endpoints
        self.columns = columns


def load_columns(path: Path) -> ColumnsFile:
    """Reads and checks a file of columns."""
    document = parse_document(read_text(path, NOUN), str(path), NOUN, "columns and endpoints")
    try:
        spec = ColumnsSpec.model_validate(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, ColumnsSpec)) from None
    faults = _faults(spec)
    if faults:
        raise input_error(document, faults)
    columns = tuple(
        ColumnPlan(
            name=name,
            prompt=column.prompt,
            system=column.system or "",
            model=column.model or "",
            endpoint=column.endpoint or "",
            api=APIS[column.api],
            body=column.body,
        )
        for name, column in spec.columns.items()
    )
    try:
        graph_of(columns)
    except InputError as error:
        place = document.place(("columns",))
        raise InputError(error.what, where=place, hint=error.hint) from None
    return ColumnsFile(dict(spec.endpoints), columns)


def graph_of(columns: tuple[ColumnPlan, ...]) -> ColumnGraph:
    """Which column needs which, from what their templates name."""
    names = {column.name for column in columns}
    return ColumnGraph(
        {column.name: [name for name in names_of(column) if name in names] for column in columns}
    )


def names_of(column: ColumnPlan) -> list[str]:
    """Everything that a column's templates name."""
    where = f"column {column.name}"
    found = [*Template(column.prompt, where).names, *Template(column.system, where).names]
    return sorted(set(found))


def _faults(spec: ColumnsSpec) -> list[Fault]:
    faults = []
    if not spec.columns:
        faults.append(Fault(("columns",), "there are no columns", "one or more"))
    if len(spec.columns) > MOST_COLUMNS:
        what = f"there are {len(spec.columns)} columns"
        faults.append(Fault(("columns",), what, f"up to {MOST_COLUMNS}"))
    for name, column in spec.columns.items():
        path = ("columns", name)
        for key in ("prompt", "system"):
            try:
                Template(getattr(column, key) or "", f"column {name}")
            except InputError as error:
                faults.append(Fault((*path, key), error.what))
        faults += [
            Fault((*path, "body", key), "this is said by the column itself", hint=_instead(key))
            for key in column.body
            if key in OURS
        ]
        if column.system and APIS[column.api] is not Api.CHAT:
            hint = "put it into the prompt"
            faults.append(Fault((*path, "system"), "only a chat has a system message", hint=hint))
    return faults


def _instead(key: str) -> str:
    return {
        "model": "write it beside `body`, not in it",
        "stream": "answers come whole",
    }.get(key, "write a `prompt` beside `body`")


def endpoint_plan(
    name: str, url: str, spec: EndpointSpec | None, key_env: str, concurrency: int
) -> EndpointPlan:
    """An endpoint with everything filled in that the file left out."""
    return EndpointPlan(
        name=name,
        url=url,
        key_env=(spec.key_env if spec is not None else None) or key_env,
        concurrency=(spec.concurrency if spec is not None else None) or concurrency,
        requests_per_minute=(spec.requests_per_minute if spec is not None else None) or 0,
        tokens_per_minute=(spec.tokens_per_minute if spec is not None else None) or 0,
    )
