"""How a row becomes requests: the request it contains, or columns filled from templates."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from windtunnel.admission.dataset.graph import ColumnGraph
from windtunnel.live.batch.settings import ANSWER, BatchSettings, ColumnSettings, graph_of
from windtunnel.live.wire.addresses import Api

Row = Mapping[str, Any]
PREFIX = "/v1/"


class WantedServer(NamedTuple):
    """The API, model and endpoint that the input asks for; an empty name leaves it open."""

    api: Api
    model: str = ""
    endpoint: str = ""


class Work:
    """Turns the cells of rows into requests; by default one column and model for all rows."""

    by_row = False
    """Whether the model depends on the row."""

    def __init__(self, plan: BatchSettings) -> None:
        self.graph = ColumnGraph({ANSWER: []})
        self._wanted = WantedServer(plan.api, plan.model)
        self._body = plan.body

    def fault(self, row: Row) -> str:
        """What is wrong with a row, in a sentence; empty if nothing."""
        raise NotImplementedError

    def custom_id(self, row: Row) -> str | None:
        """A row's own identifier: its `custom_id` or `id`, if that is text or a number."""
        for key in ("custom_id", "id"):
            value = row.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
        return None

    def wanted(self, column: int, row: Row | None) -> WantedServer:  # noqa: ARG002 - the same for all
        """The model for a column of a row; `row` may be None if the model does not depend on it."""
        return self._wanted

    def body(self, column: int, row: Row, values: Mapping[str, Any]) -> dict[str, Any]:
        """The request without its model; `values` are the columns finished so far."""
        raise NotImplementedError


def build_work(plan: BatchSettings, *, requests: bool) -> Work:
    """The work for rows that are requests, have a prompt each, or fill the columns' templates."""
    if plan.columns:
        return ColumnsWork(plan)
    return RequestsWork(plan) if requests else PromptsWork(plan)


def is_request(row: Row) -> bool:
    """Whether a row is a line of OpenAI's Batch format."""
    return "custom_id" in row and "body" in row


class RequestsWork(Work):
    """Rows in OpenAI's Batch format: `custom_id`, `method`, `url`, `body`."""

    by_row = True

    def fault(self, row: Row) -> str:
        if not is_request(row):
            return "the first row is a request with custom_id and body, and this one is not"
        custom_id, body = row["custom_id"], row["body"]
        if not isinstance(custom_id, str) or not custom_id:
            return "custom_id is not text"
        if row.get("method", "POST") != "POST":
            return f"the method is {str(row['method'])[:20]!r}, and only POST asks for an answer"
        if _api_of(row.get("url", "/v1/chat/completions")) is None:
            known = ", ".join(f"{PREFIX}{api.value}" for api in Api)
            return f"the url {str(row['url'])[:60]!r} is not known; known are {known}"
        if not isinstance(body, dict):
            return "body is not a mapping"
        if body.get("stream"):
            return "the request asks for a stream, which is not supported; leave `stream` out"
        model = body.get("model", "")
        return "" if isinstance(model, str) else "the model is not text"

    def wanted(self, column: int, row: Row | None) -> WantedServer:  # noqa: ARG002 - there is but one
        assert row is not None
        api = _api_of(row.get("url", "/v1/chat/completions"))
        assert api is not None, "rows were checked"
        return WantedServer(api, self._wanted.model or row["body"].get("model", ""))

    def body(self, column: int, row: Row, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return {**row["body"], **self._body}


class PromptsWork(Work):
    """Rows with a `prompt`, or with the `messages` of a chat."""

    def fault(self, row: Row) -> str:
        messages, prompt = row.get("messages"), row.get("prompt")
        if is_request(row):
            return "this row is a request with custom_id and body, and the first row is not"
        if messages is not None:
            if not isinstance(messages, list) or not messages:
                return "messages is not a list with messages in it"
            if self._wanted.api is not Api.CHAT:
                return "messages are for a chat; this run asks for completions"
            return ""
        if isinstance(prompt, str) and prompt:
            return ""
        return "there is no prompt in the row; give it one, or `messages`, or use --template"

    def body(self, column: int, row: Row, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        if "messages" in row and row["messages"] is not None:
            return {"messages": row["messages"], **self._body}
        return {**asked(self._wanted.api, row["prompt"], ""), **self._body}


class ColumnsWork(Work):
    """Columns whose templates are filled from the row and from the columns before them."""

    def __init__(self, plan: BatchSettings) -> None:
        super().__init__(plan)
        self.graph = graph_of(plan.columns)
        self._columns = [_Column(name, column, plan) for name, column in plan.columns.items()]
        self._empty = dict.fromkeys(self.graph.names, "")

    def fault(self, row: Row) -> str:
        for name in self.graph.names:
            if name in row:
                return f"the row has a field {name!r}, which is also the name of a column"
        for column in self._columns:
            for template in column.templates:
                fault = template.lacks(row, self._empty)
                if fault:
                    return f"{fault}; it has {', '.join(sorted(row)[:20]) or 'nothing'}"
        return ""

    def wanted(self, column: int, row: Row | None) -> WantedServer:  # noqa: ARG002 - the same for all
        return self._columns[column].wanted

    def body(self, column: int, row: Row, values: Mapping[str, Any]) -> dict[str, Any]:
        one = self._columns[column]
        known = {**row, **values} if values else row
        prompt = one.prompt.fill(known)
        system = one.system.fill(known) if one.system is not None else ""
        return {**asked(one.wanted.api, prompt, system), **one.body}


class _Column:
    def __init__(self, name: str, column: ColumnSettings, plan: BatchSettings) -> None:
        self.wanted = WantedServer(
            column.interface, column.model or plan.model, column.endpoint or ""
        )
        self.templates = column.templates(name)
        self.prompt = self.templates[0]
        self.system = self.templates[1] if column.system else None
        self.body = {**plan.body, **column.body}


def asked(api: Api, prompt: str, system: str) -> dict[str, Any]:
    """The part of a request that holds the prompt."""
    if api is not Api.CHAT:
        return {"prompt": prompt}
    messages = [{"role": "system", "content": system}] if system else []
    return {"messages": [*messages, {"role": "user", "content": prompt}]}


def _api_of(url: object) -> Api | None:
    if isinstance(url, str) and url.startswith(PREFIX):
        end = url[len(PREFIX) :]
        return next((api for api in Api if api.value == end), None)
    return None
