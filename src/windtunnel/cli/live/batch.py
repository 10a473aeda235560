"""`windtunnel batch`: sends a file of prompts to OpenAI-compatible servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import (
    FILE,
    concurrency_option,
    json_option,
    key_option,
    time_option,
    together,
)
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windtunnel.live.batch.settings import (
        BatchSettings,
        ColumnSettings,
        ColumnsFile,
        EndpointSettings,
    )

EXIT_DROPPED = 4
EXIT_STALLED = 5


options = together(
    click.option("--endpoint", "endpoints", multiple=True, metavar="[NAME=]URL",
                 help="Server to send to; repeat it to share the work among several."),
    click.option("--model", metavar="NAME",
                 help="Model name. [default: from rows or columns, or the server's only model]"),
    click.option("-o", "--output", required=True, type=FILE, metavar="FILE",
                 help="Output file: one line per finished row."),
    click.option("--resume", is_flag=True,
                 help="Continue an unfinished output; start a new one if none exists."),
    click.option("--template", metavar="TEXT|@FILE",
                 help="Prompt template; {{ field }} stands for that field of the row."),
    click.option("--system", metavar="TEXT|@FILE", help="System message, also a template."),
    click.option("--columns", "columns_file", type=FILE, metavar="FILE",
                 help="Several prompts per row; a prompt may use the answers of others."),
    click.option("--completions", is_flag=True,
                 help="Use /completions, for models without a chat template."),
    click.option("--set", "sets", multiple=True, metavar="KEY=VALUE",
                 help="Set a field of every request, as in max_tokens=200."),
    key_option(),
    concurrency_option(64, "Maximum calls in flight, per model and endpoint."),
    click.option("--limiter", type=click.Choice(["aimd", "gradient", "fixed"]), default="aimd",
                 show_default=True,
                 help="How to set the concurrency limit: from refusals (aimd), from latency "
                      "(gradient), or fixed. All obey Retry-After."),
    click.option("--requests-per-minute", type=click.IntRange(1), metavar="N",
                 help="Request budget per endpoint. [default: from rate-limit headers]"),
    click.option("--tokens-per-minute", type=click.IntRange(1), metavar="N",
                 help="Token budget per endpoint. [default: from rate-limit headers]"),
    click.option("--tenant-field", metavar="FIELD",
                 help="Field that names the tenant of a row; tenants share fairly."),
    click.option("--tenant-weight", "tenant_weights", multiple=True, metavar="TENANT=N",
                 help="Weight of a tenant's share. [default: 1]"),
    click.option("--priority-field", metavar="FIELD",
                 help="Field with the priority of a row: an integer, highest first. "
                      "[default: all 0]"),
    click.option("--group-rows", type=click.IntRange(1, 1_000_000), default=256,
                 show_default=True, metavar="N", help="Number of rows started together."),
    click.option("--skip-bad", type=click.IntRange(0, 1_000_000), default=19,
                 show_default=True, metavar="N",
                 help="Stop when more than N rows are refused before any succeeds."),
    click.option("--retries", type=click.IntRange(0, 1000), default=4, show_default=True,
                 metavar="N", help="Retries before a call is deferred to the end of the run."),
    time_option("--retry-time", "10m",
                "Give up a row, or the whole run, after it has failed for this long; queueing "
                "does not count."),
    time_option("--timeout", "10m", "Time limit of one call."),
    time_option("--wait", "10s", "How long to wait for an endpoint at the start."),
    click.option("--events", type=FILE, metavar="FILE",
                 help="Write every decision and its reason, one per line."),
    click.option("--perfetto", type=FILE, metavar="FILE",
                 help="Write a trace for ui.perfetto.dev."),
    click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT",
                 help="Serve Prometheus metrics while it runs; 0 takes a free port."),
    json_option("the summary as JSON"),
)  # fmt: skip
"""In the order of the help text."""


@click.command(short_help="Send a file of prompts to OpenAI-compatible servers.")
@click.argument("prompts", type=FILE)
@options
def batch(prompts: Path, **asked: Any) -> int:
    """Send a file of prompts to OpenAI-compatible servers.

    PROMPTS has one JSON object per line: a request in OpenAI's Batch format, or a row with a
    `prompt`, with `messages`, or with fields for --template or --columns. The output has one line
    per row, in OpenAI's Batch format; failed rows go to a file beside it.

    Ctrl-C stops cleanly, and --resume continues without sending a finished row again. Exit codes:
    0 all rows finished, 4 some rows were dropped or given up, 5 nothing succeeded for
    --retry-time, 2 bad input or refused by the server, 130 interrupted.
    """
    from windtunnel.cli.live.batch_run import run

    return run(batch_plan(prompts, asked), asked)


def batch_plan(prompts: Path, options: Mapping[str, Any]) -> BatchSettings:
    """The plan that the options describe; an InputError if they are contradictory."""
    from windtunnel.live.batch.settings import BatchSettings, LimiterKind, load_columns
    from windtunnel.live.wire.addresses import Api

    file = load_columns(options["columns_file"]) if options["columns_file"] is not None else None
    columns = _columns(options, file)
    endpoints = _endpoints(options, file)
    _check_columns(columns, endpoints, options)
    return BatchSettings(
        input=prompts,
        output=options["output"],
        endpoints=endpoints,
        columns=columns,
        model=options["model"] or "",
        api=Api.COMPLETIONS if options["completions"] else Api.CHAT,
        body=_body(options["sets"]),
        tenant_field=options["tenant_field"] or "",
        tenant_weights=_weights(options),
        priority_field=options["priority_field"] or "",
        group_rows=options["group_rows"],
        limiter=LimiterKind(options["limiter"]),
        skip_bad=options["skip_bad"],
        retries=options["retries"],
        retry_time_s=options["retry_time"],
        timeout_s=options["timeout"],
        wait_s=options["wait"],
        resume=options["resume"],
    )


def _columns(options: Mapping[str, Any], file: ColumnsFile | None) -> dict[str, ColumnSettings]:
    from windtunnel.live.batch.settings import ANSWER, ColumnSettings
    from windtunnel.live.batch.templates import PromptTemplate

    template, system = (_text(options[name], f"--{name}") for name in ("template", "system"))
    if file is not None:
        for name in ("template", "system", "completions"):
            if options[name]:
                what = "the columns already set this"
                raise InputError(what, where=f"--{name}", hint="leave it out, or --columns")
        return file.columns
    if not template:
        if system:
            raise InputError("there is no template to go with it", where="--system")
        return {}
    if system and options["completions"]:
        raise InputError("only a chat has a system message", where="--system")
    PromptTemplate(template, "--template")
    PromptTemplate(system, "--system")
    api = "completions" if options["completions"] else "chat"
    return {ANSWER: ColumnSettings(prompt=template, system=system or None, api=api)}


def _text(value: str | None, where: str) -> str:
    """The text of an option, or of the file that it names after an @."""
    from windtunnel.core.system.files import read_bounded

    if value is None:
        return ""
    if value.startswith("@"):
        data = read_bounded(Path(value[1:]), 1 << 22, subject="the template")
        try:
            value = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError("the text is not UTF-8", where=value) from None
    if not value.strip():
        raise InputError("the text is blank", where=where)
    return value


def _endpoints(options: Mapping[str, Any], file: ColumnsFile | None) -> dict[str, EndpointSettings]:
    import os

    from windtunnel.live.batch.endpoints import name_of, parse_endpoint
    from windtunnel.live.batch.settings import EndpointSettings
    from windtunnel.live.wire.addresses import checked_url
    from windtunnel.live.wire.keys import named_key

    declared = dict(file.endpoints) if file is not None else {}
    urls = {name: checked_url(one.url, f"endpoint {name}") for name, one in declared.items()}
    given: dict[str, str] = {}
    for text in options["endpoints"]:
        name, url = parse_endpoint(text)
        name = name or name_of(url)
        if name in given:
            raise InputError(f"two of them are called {name!r}", where="--endpoint",
                             hint="NAME=URL gives one another name")  # fmt: skip
        given[name] = url
    urls |= given
    if not urls:
        raise InputError(
            "there is no endpoint to ask",
            hint="--endpoint http://localhost:8000/v1, or `endpoints` in the file of --columns",
        )
    defaults = {
        "key_env": named_key(options["key_env"], os.environ),
        "concurrency": options["concurrency"],
        "requests_per_minute": options["requests_per_minute"],
        "tokens_per_minute": options["tokens_per_minute"],
    }
    endpoints = {}
    for name, url in urls.items():
        one = declared.get(name) or EndpointSettings(url=url)
        endpoints[name] = one.model_copy(update={"url": url}).filled(**defaults)
    return endpoints


def _check_columns(
    columns: Mapping[str, ColumnSettings],
    endpoints: Mapping[str, EndpointSettings],
    options: Mapping[str, Any],
) -> None:
    from windtunnel.core.errors import nearest

    for name, column in columns.items():
        if column.endpoint and column.endpoint not in endpoints:
            raise InputError(
                f"there is no endpoint {column.endpoint!r}",
                where=f"column {name}",
                allowed=", ".join(endpoints),
                hint=nearest(column.endpoint, endpoints),
            )
    if options["model"] and columns and all(column.model for column in columns.values()):
        raise InputError("every column already names its model", where="--model")


def _body(sets: tuple[str, ...]) -> dict[str, Any]:
    from windtunnel.live.batch.settings import OURS
    from windtunnel.settings.document import parse_value

    body: dict[str, Any] = {}
    for text in sets:
        key, equals, value = text.partition("=")
        where = f"--set {text[:60]}"
        if not equals or not key.strip():
            raise InputError("there is no value", where=where, allowed="KEY=VALUE")
        if key in OURS:
            what = f"--set cannot change a request's {key}"
            raise InputError(what, where=where, hint="use --model or --template")
        body[key] = parse_value(value, where)
    return body


def _weights(options: Mapping[str, Any]) -> dict[str, int]:
    weights = {}
    for text in options["tenant_weights"]:
        tenant, _, number = text.rpartition("=")
        if not number.isdecimal() or not 1 <= int(number) <= 1_000_000:
            where = f"--tenant-weight {text[:60]}"
            raise InputError("this is not a weight", where=where, allowed="TENANT=N, N from 1")
        if tenant in weights:
            what = f"the weight of {tenant!r} is given twice"
            raise InputError(what, where=f"--tenant-weight {text[:60]}")
        weights[tenant] = int(number)
    if weights and not options["tenant_field"]:
        raise InputError("no field names the tenant of a row", where="--tenant-weight",
                         hint="--tenant-field names the field")  # fmt: skip
    return weights
