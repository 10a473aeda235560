"""What a person writes under `workload:` and `slo:`."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.models.settings import ModelName
from windtunnel.settings.fields import (
    Duration,
    FilePath,
    Flag,
    Name,
    Number,
    Text,
    Whole,
    by_key,
    variant,
)
from windtunnel.settings.limits import (
    FASTEST_REPLAY,
    HIGHEST_PRIORITY,
    LONGEST_TARGET,
    MOST_GROUPS,
    MOST_MEMBERS,
    MOST_REQUESTS,
)
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.arrivals_spec import Arrivals, RateCurve
from windtunnel.twin.scenario.lengths_spec import Lengths, Pauses, Tokens
from windtunnel.twin.scenario.lora_spec import AdaptersSpec

Timeout = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Target = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Share = Annotated[float, Number(0, 1, above=True)]


class PrefixSpec(Section):
    """System prompts that requests share, so that a prefix cache has something to find."""

    tokens: Tokens = Field(
        description="Shared tokens at the start of each prompt, in addition to prompt_tokens."
    )
    groups: Annotated[int, Whole(1, MOST_GROUPS)] = Field(
        default=1,
        description="How many different prefixes there are; each request has one at random, "
        "each session one for all its turns.",
    )


class PopulationSpec(Section):
    """A cohort: many alike who share the source's rate, and of whom each has something its own."""

    members: Annotated[int, Whole(1, MOST_MEMBERS)] = Field(
        description="How many there are. Each request, or session, is that of one at random; "
        "in a closed loop user n is member n for good."
    )
    tenants: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each is a tenant of its own, `acme-0`, `acme-1` and so on "
        "if the tenant is `acme`.",
    )
    prefixes: Literal["shared", "per-member"] = Field(
        default="shared",
        description="`per-member`: each has a prefix of its own instead of one of `prefix.groups`.",
    )


class ExtraSpec(Section):
    """Tokens that some requests have on top."""

    tokens: Lengths = Field(description="How many: a whole number, or a distribution.")
    share: Share = Field(default=1.0, description="Which part of the requests have them.")


class SessionSpec(Section):
    """Conversations: each turn comes after the last one has ended and its reader has thought."""

    turns: Lengths = Field(
        description="Requests of a conversation, at most 10000: a whole number, or a distribution."
    )
    think: Pauses = Field(
        description="From the end of a turn to the next: a duration, or a distribution."
    )
    context: Literal["accumulate", "fresh"] = Field(
        default="accumulate",
        description="`accumulate`: a turn's prompt is all that was said before and prompt_tokens "
        "more, which a prefix cache can find; `fresh`: prompt_tokens alone.",
    )


class SourceSpec(Section):
    """One stream of requests; it draws from its own random stream, whatever other sources do."""

    name: Annotated[str, Name()] = Field(
        description="Its name in results. "
        "Its random draws depend on it and on the seed, nothing else."
    )
    model: ModelName | None = Field(
        default=None, description="The model that it asks for; left out: the scenario's."
    )
    tenant: Annotated[str, Name()] = Field(
        default="default", description="On whose behalf the requests come."
    )
    slo: Annotated[str, Name()] = Field(
        default="standard",
        description="Class of service: critical, standard, batch, sheddable, background, "
        "or one defined under `slo`.",
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None,
        description="Requests in all; with `session`, conversations. "
        "Left out: until `duration`, which must then be given.",
    )
    arrivals: Arrivals = Field(
        description="When requests come, or conversations begin; `process` chooses how."
    )
    rate_curve: RateCurve | None = Field(
        default=None,
        description="What the rate is multiplied by over time: points with straight lines between "
        "them, the first and the last of which hold before and after, or a curve by name. "
        "Left out: the rate stays as it is.",
    )
    prompt_tokens: Lengths = Field(
        description="Tokens of a prompt without its prefix: a whole number, or a distribution."
    )
    output_tokens: Lengths = Field(
        description="Tokens generated for a request: a whole number, or a distribution."
    )
    prefix: PrefixSpec | None = Field(
        default=None, description="Shared system prompts; left out, every prompt is new."
    )
    population: PopulationSpec | None = Field(
        default=None, description="Who sends them; left out, one."
    )
    media: ExtraSpec | None = Field(
        default=None,
        description="Tokens of images and sound, on top of prompt_tokens; "
        "with `serving.encode` an encoder makes them first.",
    )
    reasoning: ExtraSpec | None = Field(
        default=None,
        description="Tokens of thought, on top of output_tokens and written before them.",
    )
    session: SessionSpec | None = Field(
        default=None, description="Conversations; left out, every request is for itself."
    )
    adapters: AdaptersSpec | None = Field(
        default=None,
        description="LoRA adapters that requests are for, each for one at random and each session "
        "for one in all its turns. Left out: the model itself.",
    )
    timeout: Timeout | None = Field(
        default=None,
        description="How long after its arrival whoever sent a request gives up; "
        "left out, everyone waits.",
    )


class TraceSpec(Section):
    """A file of requests that once arrived somewhere."""

    path: Annotated[str, FilePath("the path of a trace")] = Field(
        description="The file; it counts from the scenario's folder. It may be packed."
    )
    format: (
        Literal["azure", "burstgpt", "mooncake", "blis", "windtunnel", "csv", "jsonl", "parquet"]
        | None
    ) = Field(
        default=None,
        description="Left out: recognised by what the file starts with. "
        "Conversations of ShareGPT have no times: `windtunnel trace convert` gives them some.",
    )
    speedup: Annotated[float, Number(1 / FASTEST_REPLAY, FASTEST_REPLAY)] = Field(
        default=1.0, description="Requests arrive this many times as fast."
    )
    sort: Annotated[bool, Flag()] = Field(
        default=False,
        description="Sort all of it in memory first; without, a request may come 8192 rows late.",
    )
    sessions: Literal["open", "closed"] = Field(
        default="open",
        description="`open`: every turn comes at the trace's time. `closed`: a turn comes when the "
        "last one of its session has ended and its reader has thought; all of the trace is then "
        "read before the run.",
    )
    think: Pauses | None = Field(
        default=None,
        description="With `sessions: closed`: the pause before a turn. Left out: as the trace says "
        "(its `think`, else the time between two arrivals less the E2E of the first, if known), "
        "divided by speedup.",
    )
    models: dict[Annotated[str, Text("a model's name in the trace")], ModelName] | None = Field(
        default=None,
        min_length=1,
        description="Which model a request is for, by the name that the trace has for it. Requests "
        "of other names, or of none, are for the entry's `model`. Left out: all are.",
    )
    skip_bad: Annotated[int, Whole(0, MOST_REQUESTS)] = Field(
        default=0, description="Up to this many rows that cannot be read are left out, and counted."
    )


class ReplaySpec(Section):
    """The requests of a trace, at the times that it says; what is left out here, it says too."""

    trace: TraceSpec = Field(description="Which file, and how it is read.")
    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Its name in results. Left out: the trace's own names of sources, "
        "or the file's name.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model that its requests ask for, but those that `trace.models` has; "
        "left out: the scenario's.",
    )
    tenant: Annotated[str, Name()] | None = Field(
        default=None, description="On whose behalf. Left out: as the trace says, or `default`."
    )
    slo: Annotated[str, Name()] | None = Field(
        default=None, description="Class of service. Left out: as the trace says, or `standard`."
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None, description="Only its first requests. Left out: all, or until `duration`."
    )
    timeout: Timeout | None = Field(
        default=None,
        description="How long after its arrival whoever sent a request gives up. "
        "Left out: as the trace says, or never.",
    )


WorkloadEntry = Annotated[
    Annotated[SourceSpec, variant("source")] | Annotated[ReplaySpec, variant("replay")],
    by_key("trace", "replay", "source"),
]


class SloSpec(Section):
    """A class of service: its priority, and the times that count as good."""

    priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] | None = Field(
        default=None,
        description="Higher goes first; below 0 may be shed. Left out: what the built-in class has "
        "(critical 4, standard 3, batch -1, sheddable -2, background -3); "
        "a class of your own needs one.",
    )
    ttft: Target | None = Field(
        default=None, description="Longest time to the first token; left out, no target."
    )
    tpot: Target | None = Field(
        default=None, description="Longest mean time per further token; left out, no target."
    )
    e2e: Target | None = Field(
        default=None,
        description="Longest time from arrival to the last token; left out, no target.",
    )
