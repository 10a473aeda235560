"""Every kind of bad scenario gets its sentence: where, what, what is allowed, what to do."""

from pathlib import Path

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError, InputFaults
from windtunnel.settings.document import MOST_BYTES
from windtunnel.twin.scenario.load import load, load_text

KEYS = (
    "name, seed, duration, model, workload, measure, slo, serving, scaling, gangs, fleet, faults, "
    "progress, plan"
)
NAME = "letters, digits, '.', '_' and '-', at most 64, the first a letter or digit"
STEP_TIMES = "physics, roofline, linear, table, blis-trained-physics"


def sentence(text: str, *sets: str, seed: int | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_text(text, "s.yaml", sets, seed)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert SMALL.count(old) == 1
    return SMALL.replace(old, new)


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


def deep_aliases() -> str:
    lines = ["a0: &a0 x"]
    lines += [f"a{n}: &a{n} {'[' * 9}*a{n - 1}{']' * 9}" for n in range(1, 10)]
    return "\n".join(lines)


TOP = "allowed: a mapping with the keys workload, serving and others"
YAML_FAULTS = {
    "empty": ("", f"s.yaml: the file is empty; {TOP}"),
    "only comments": ("# nothing\n", f"s.yaml: the file is empty; {TOP}"),
    "a list": ("- a\n", f"s.yaml:1: the file is a list; {TOP}"),
    "a value": ("hello\n", f"s.yaml:1: the file is a single value; {TOP}"),
    "a tab": ("a:\n\t- 1\n", "s.yaml:2: the line is indented by a tab; YAML is indented by spaces"),
    "duplicate key": (
        "name: a\nserving:\n  pools: []\n  pools: []\n",
        "s.yaml:4: the key 'pools' is written twice, first on line 3",
    ),
    "second document": (
        "a: 1\n---\nb: 1\n",
        "s.yaml:2: a second document starts here; one file is one scenario",
    ),
    "key is a number": ("1: a\n", "s.yaml:1: the key '1' is not text; put it in quotes"),
    "key is a list": ("[a]: 1\n", "s.yaml:1: a key is a word, not a list, a mapping or an alias"),
    "tag": (
        "a: !!python/object:os.system x\n",
        "s.yaml:1: the tag 'tag:yaml.org,2002:python/object:os.system' is not supported; "
        "leave tags out",
    ),
    "unprintable": ("a: 1\nb: \x07\n", r"s.yaml:2: the text has the unprintable character '\x07'"),
    "deep": ("a: " + "[" * 1000, "s.yaml:1: values are nested more than 32 deep"),
    "deep by aliases": (deep_aliases(), "s.yaml:5: values are nested more than 32 deep"),
    "alias bomb": (bomb(), "s.yaml:6: the text holds more than 200000 values"),
    "alias in itself": (
        "a: &x [*x]\n",
        "s.yaml:1: the alias *x refers to no anchor that is complete before it",
    ),
    "long number": ("seed: " + "9" * 5000, "s.yaml:1: a number of 5000 characters is too long"),
}


@pytest.mark.parametrize("case", YAML_FAULTS)
def test_yaml_fault(case: str) -> None:
    text, expected = YAML_FAULTS[case]
    assert sentence(text) == expected


@pytest.mark.parametrize("text", ["a: b: c\n", "name: x\nb: [1, 2\n", "a: 'b\n", "a: {b\n"])
def test_syntax_fault_has_a_line(text: str) -> None:
    found = sentence(text)
    line = len(text.splitlines())
    assert found.startswith(f"s.yaml:{line}: this is not YAML: ")
    assert "\n" not in found


REPLICAS = "allowed: a whole number from 0 to 100000"
RATE = "allowed: a rate from 0.01/d to 1000000/s, such as 40/s"
RUN = "allowed: a duration above 0s, up to 366d, such as 250ms"
PROCESSES = "poisson, constant, gamma, weibull, closed"
SHAPED = "missing, but rate is given; allowed: rate and cv, or shape and scale"
LENGTHS = "allowed: a whole number from 1 to 10000000, or a mapping with a 'distribution'"
VALUE_FAULTS = [
    ("replicas: 2", "replicas: -1", f"11: serving.pools[0].replicas: -1 is too small; {REPLICAS}"),
    (
        "replicas: 2",
        "replicas: 0",
        "11: serving.pools[0].replicas: 0 servers, and nothing adds any: the scenario has no "
        "`scaling` (give at least 1, or add `scaling`)",
    ),
    (
        "replicas: 2",
        'replicas: "4"',
        f"11: serving.pools[0].replicas: '4' is not a whole number; {REPLICAS} "
        "(numbers are written without quotes)",
    ),
    (
        "replicas: 2",
        "replicas: true",
        f"11: serving.pools[0].replicas: true is not a whole number; {REPLICAS}",
    ),
    (
        "replicas: 2",
        "replicas: 2.5",
        f"11: serving.pools[0].replicas: 2.5 is not a whole number; {REPLICAS}",
    ),
    (
        "replicas: 2",
        "replicas: .nan",
        f"11: serving.pools[0].replicas: nan is not a whole number; {REPLICAS}",
    ),
    (
        "replicas: 2",
        "replicas: 99999999999",
        f"11: serving.pools[0].replicas: 99999999999 is too large; {REPLICAS}",
    ),
    (
        "replicas: 2",
        "replicas:",
        f"11: serving.pools[0].replicas: nothing is written here; {REPLICAS}",
    ),
    (
        "replicas: 2",
        "replica: 2",
        "11: serving.pools[0].replica: unknown key (did you mean 'replicas'?)",
    ),
    (
        "name: small",
        "scaling: {policy: saturation, pools: {mian: {}}}",
        "1: scaling.pools.mian: there is no such pool; allowed: main (did you mean 'main'?)",
    ),
    ("name: small", "colour: red", f"1: colour: unknown key; allowed: {KEYS}"),
    ("name: small", "name: 7", f"1: name: 7 is not text; allowed: {NAME} (put it in quotes)"),
    ("name: small", "name: ../up", f"1: name: '../up' is not a name; allowed: {NAME}"),
    ("name: small", "duration: 12:30", f"1: duration: '12:30' is not a duration; {RUN}"),
    ("name: small", "duration: 1e999", f"1: duration: inf is not a duration; {RUN}"),
    ("name: small", "duration: -1", f"1: duration: -1 is too small; {RUN}"),
    (
        "name: small",
        "duration: 5 parsecs",
        f"1: duration: '5 parsecs' is not a duration; {RUN} (unknown unit 'parsecs', "
        "known are ns, us, ms, s, m, min, h, d)",
    ),
    (
        "name: small",
        f"duration: {'x' * 500}",
        f"1: duration: '{'x' * 56}... is not a duration; {RUN}",
    ),
    ("rate: 40/s", "rate: -40/s", f"5: workload[0].arrivals.rate: '-40/s' is too small; {RATE}"),
    ("rate: 40/s", "rate: 0", f"5: workload[0].arrivals.rate: 0 is too small; {RATE}"),
    (", rate: 40/s", "", f"5: workload[0].arrivals.rate: missing; {RATE}"),
    (
        "poisson",
        "poison",
        f"5: workload[0].arrivals.process: 'poison' is not known here; allowed: {PROCESSES} "
        "(did you mean 'poisson'?)",
    ),
    (
        "poisson",
        "gamma",
        f"5: workload[0].arrivals.cv: {SHAPED}",
    ),
    (
        "{process: poisson, rate: 40/s}",
        "fast",
        "5: workload[0].arrivals: 'fast' is not a mapping; "
        f"allowed: a mapping in which 'process' is one of {PROCESSES}",
    ),
    (
        "    arrivals: {process: poisson, rate: 40/s}\n",
        "",
        "3: workload[0].arrivals: missing",
    ),
    (
        "process: poisson, ",
        "",
        f"5: workload[0].arrivals.process: missing; allowed: {PROCESSES}",
    ),
    ("tokens: 512", "tokens: 0", f"6: workload[0].prompt_tokens: 0 is too small; {LENGTHS}"),
    (
        "mean: 200, cv: 0.8",
        "mean: 200, cv: -1",
        "7: workload[0].output_tokens.cv: -1 is too small; allowed: a number from 0 to 100",
    ),
    (
        "fixed: 6ms",
        "fixed: 6 ms, per_decod: 1us",
        "13: serving.pools[0].step_time.per_decod: unknown key (did you mean 'per_decode'?)",
    ),
    (
        "model: linear",
        "model: pysics",
        "13: serving.pools[0].step_time.model: 'pysics' is not known here; "
        f"allowed: {STEP_TIMES} (did you mean 'physics'?)",
    ),
    (
        "kv_blocks: 1000",
        "kv_blocks: lots",
        "12: serving.pools[0].engine.kv_blocks: 'lots' is not a whole number; "
        "allowed: auto, or a whole number from 2 to 1000000000",
    ),
    (
        "kv_blocks: 1000",
        "kv_blocks: 1000, prefix_caching: on",
        "12: serving.pools[0].engine.prefix_caching: 'on' is not true or false; "
        "allowed: true or false",
    ),
    (
        "kv_blocks: 1000",
        "kv_blocks: 1000, scheduling: 3",
        "12: serving.pools[0].engine.scheduling: 3 is not known here; "
        "allowed: fcfs, priority, shortest-prompt",
    ),
    (
        "{kv_blocks: 1000}",
        "[1]",
        "12: serving.pools[0].engine: a list is not a mapping; allowed: a mapping with the keys "
        "version, max_num_seqs, max_num_batched_tokens, block_size, memory_utilization, "
        "prefix_caching, chunked_prefill, mixed_batches, prompt_wait_steps, "
        "long_prefill_threshold, max_model_len, scheduling, preemption, over_length, "
        "async_scheduling, kv_blocks, kv_cache_dtype, null_block, host_overhead, "
        "reserve_full_prompt, unhashed_blocks_first, compute_whole_hits, store_last_token, "
        "last_step_blocks, lora, offload, speculative, "
        "kv_bytes_per_token",
    ),
    (
        "name: small",
        "slo: [a]",
        "1: slo: a list is not a mapping; allowed: a mapping with names as keys",
    ),
    ("name: small", "slo: {a b: {}}", f"1: slo.a b: 'a b' is not a name; allowed: {NAME}"),
    (
        "name: small",
        "model: '  '",
        "1: model: the text is blank; "
        "allowed: a model's catalog name, or the path of a Hugging Face config.json",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), VALUE_FAULTS)
def test_value_fault(old: str, new: str, expected: str) -> None:
    assert sentence(changed(old, new)) == f"s.yaml:{expected}"


RULE_FAULTS = [
    (
        "    count: 100\n",
        "",
        "3: workload[0].count: missing, and the scenario has no duration either, "
        "so that traffic would never end (give one of the two)",
    ),
    (
        "count: 100",
        "count: 100\n    slo: critcal",
        "5: workload[0].slo: 'critcal' is not a class of service; "
        "allowed: critical, standard, batch, sheddable, background (did you mean 'critical'?)",
    ),
    (
        "max: 4096",
        "min: 300, max: 200",
        "7: workload[0].output_tokens.min: 300 is more than max, which is 200",
    ),
    (
        "max: 4096",
        "max: 100",
        "7: workload[0].output_tokens.mean: 200 is not between min and max; "
        "allowed: a number from 1 to 100",
    ),
    (
        "{distribution: lognormal, mean: 200, cv: 0.8, max: 4096}",
        "{distribution: normal, mean: 200}",
        "7: workload[0].output_tokens.stddev: missing, and so is cv; allowed: either stddev or cv",
    ),
    (
        "{distribution: lognormal, mean: 200, cv: 0.8, max: 4096}",
        "{distribution: normal, mean: 200, cv: 1, stddev: 9}",
        "7: workload[0].output_tokens.stddev: both stddev and cv are given; "
        "allowed: either stddev or cv",
    ),
    (
        "kv_blocks: 1000",
        "kv_blocks: 1000, max_num_batched_tokens: 128",
        "12: serving.pools[0].engine.max_num_batched_tokens: 128 is less than max_num_seqs, "
        "which is 256 (each running request needs a token of every step)",
    ),
    (
        "kv_blocks: 1000",
        "kv_blocks: 1000, chunked_prefill: false, max_model_len: 9000",
        "12: serving.pools[0].engine.max_model_len: 9000 is more than max_num_batched_tokens, "
        "which is 8192 (without chunked_prefill a longer prompt would wait forever)",
    ),
    (
        "fixed: 6ms",
        "per_decode: 6ms",
        "13: serving.pools[0].step_time: a step may take no time at all; allowed: "
        "a fixed above 0s, or both per_prefill_token and per_decode above 0s",
    ),
    (
        "name: main",
        "name: main\n      accelerator: h200\n      step_time: {model: physics}\n    - name: main",
        "1: model: missing, but the step time 'physics' of serving.pools[0] needs one "
        "(the step time 'linear' needs none)\n"
        "s.yaml:13: serving.pools[1].name: 'main' is already the name of serving.pools[0]",
    ),
    (
        "  - name: chat",
        "  - {name: chat, count: 1, arrivals: {process: poisson, rate: 1}, prompt_tokens: 1, "
        "output_tokens: 1}\n  - name: chat",
        "4: workload[1].name: 'chat' is already the name of workload[0]",
    ),
    (
        "      engine: {kv_blocks: 1000}\n",
        "      accelerator: h200\n",
        "1: model: missing, but kv_blocks: auto of serving.pools[0] needs one "
        "(or set engine.kv_blocks to a number)",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), RULE_FAULTS)
def test_rule_fault(old: str, new: str, expected: str) -> None:
    assert sentence(changed(old, new)) == f"s.yaml:{expected}"


RULES_BY_SETS = {
    "workload.0.output_tokens.max=10": "workload[0].output_tokens.mean: 200 is not between min and "
    "max; allowed: a number from 1 to 10",
    "workload.0.arrivals.process=gamma": f"workload[0].arrivals.cv: {SHAPED}",
    "serving.pools.0.engine.max_num_seqs=9000": "serving.pools[0].engine.max_num_batched_tokens: "
    "8192 is less than max_num_seqs, which is 9000 "
    "(each running request needs a token of every step)",
}


@pytest.mark.parametrize("override", RULES_BY_SETS)
def test_rule_broken_by_an_override_is_reported_there(override: str) -> None:
    assert sentence(SMALL, override) == f"--set {override}: {RULES_BY_SETS[override]}"


EXAMPLE = "allowed: PATH=VALUE, such as serving.pools.0.replicas=8"
SET_FAULTS = {
    "serving.pools.0.replicas=-1": f"serving.pools[0].replicas: -1 is too small; {REPLICAS}",
    "serving.pools[0].replicas=no": "serving.pools[0].replicas: 'no' is not a whole number; "
    + REPLICAS,
    "serving.pools.0.replica=3": "serving.pools[0].replica: unknown key (did you mean 'replicas'?)",
    "servin.pools.0.replicas=3": "there is no list servin.pools to set an item of "
    "(did you mean 'serving'?)",
    "serving.pool.0.replicas=3": "there is no list serving.pool to set an item of "
    "(did you mean 'pools'?)",
    "servin.router.policy=x": "servin: unknown key (did you mean 'serving'?)",
    "serving.pools.1.replicas=3": "serving.pools has no item '1'; allowed: an index from 0 to 0",
    "serving.pools.main.replicas=3": "serving.pools has no item 'main'; "
    "allowed: an index from 0 to 0",
    "serving.pools.-1.replicas=3": "serving.pools has no item '-1'; allowed: an index from 0 to 0",
    "name.first=3": "name is 'small', which has no 'first' in it",
    "serving": f"this is not a path and a value; {EXAMPLE}",
    "=3": f"this is not a path and a value; {EXAMPLE}",
    "serving..pools=3": f"this is not a path and a value; {EXAMPLE}",
    "a." * 32 + "a=1": f"this is not a path and a value; {EXAMPLE}",
    "seed=": f"there is no value after the '='; {EXAMPLE}",
    "seed=# nothing": f"there is no value after the '='; {EXAMPLE}",
    "slo={a: {}, a: {}}": "the key 'a' is written twice, first on line 1",
    "workload.0.arrivals.process=[gamma]": "workload[0].arrivals.process: "
    f"a list is not known here; allowed: {PROCESSES}",
}


@pytest.mark.parametrize("override", SET_FAULTS)
def test_override_fault(override: str) -> None:
    assert sentence(SMALL, override) == f"--set {override}: {SET_FAULTS[override]}"


def test_an_override_that_cannot_be_applied_hides_no_other_fault() -> None:
    sets = ["foo", "serving.pools.7.replicas=2", "duration=-5s", "seed=", "nope.x=1"]
    with pytest.raises(InputFaults) as caught:
        load_text(SMALL, "s.yaml", sets)
    assert [str(fault).split(": ")[0] for fault in caught.value.faults] == [
        "--set duration=-5s",
        "--set nope.x=1",
        "--set foo",
        "--set serving.pools.7.replicas=2",
        "--set seed=",
    ]


def test_a_key_of_the_top_in_another_place_is_told_where_it_belongs() -> None:
    found = sentence(SMALL, "workload.0.duration=5m")
    assert found.startswith("--set workload.0.duration=5m: workload[0].duration: unknown key; ")
    assert found.endswith("(`duration` belongs at the top of the file)")


def test_long_and_strange_overrides_are_quoted_in_one_short_line() -> None:
    found = sentence(SMALL, "name=a\nb\udcff" + "x" * 1000)
    assert found.startswith("--set name=a b\\udcffxxx")
    assert "\n" not in found
    assert len(found) < 200


def test_seed_fault_names_the_option() -> None:
    expected = (
        "--seed -1: seed: -1 is too small; allowed: a whole number from 0 to 9223372036854775807"
    )
    assert sentence(SMALL, seed=-1) == expected


def test_faults_come_together_in_the_order_of_the_file() -> None:
    text = changed("poisson", "poison").replace("name: small", "nam: small").replace(": 2", ": -1")
    with pytest.raises(InputFaults) as caught:
        load_text(text, "s.yaml", ["seed=x"])
    assert [str(fault).split(": ")[0] for fault in caught.value.faults] == [
        "s.yaml:1",
        "s.yaml:5",
        "s.yaml:7",
        "s.yaml:11",
        "--set seed=x",
    ]


@pytest.mark.parametrize("fault", ["serving.pools.0.engine.max_num_seqs=0", "slo=3", "duration=1"])
def test_names_that_no_catalog_has_are_told_with_other_faults(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    pool = "serving.pools.0"
    sets = ["model=llama-3.1-9b", f"{pool}.model=qwen", f"{pool}.accelerator=h100x"]
    with pytest.raises(InputError) as caught:
        load(file, [*sets, fault, "workload.0.slo=nosuch"])
    said = str(caught.value)
    for word in (
        "model 'llama-3.1-9b' is not",
        "model 'qwen' is not",
        "accelerator 'h100x' is not",
    ):
        assert said.count(word) == 1
    assert len(said.splitlines()) > 3


@pytest.mark.parametrize(
    ("many", "says"), [(25, "there are 5 more faults"), (21, "there is 1 more fault")]
)
def test_faults_beyond_a_screenful_are_counted(many: int, says: str) -> None:
    text = SMALL + "".join(f"key{number}: 1\n" for number in range(many))
    lines = sentence(text).splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"s.yaml: {says}"


def test_missing_sections() -> None:
    assert sentence("{}") == "s.yaml:1: workload: missing\ns.yaml:1: serving: missing"


def test_file_faults(tmp_path: Path) -> None:
    binary, large, folder = tmp_path / "b.yaml", tmp_path / "l.yaml", tmp_path / "folder"
    binary.write_bytes(b"name: x\nseed: \xff\n")
    large.write_bytes(b"#" * (MOST_BYTES + 1))
    folder.mkdir()
    missing = tmp_path / "none.yaml"
    for path, expected in (
        (missing, f"{missing}: there is no such file"),
        (folder, f"{folder}: this is a folder; allowed: a scenario file"),
        (binary, f"{binary}:2: the text is not UTF-8"),
        (large, f"{large}: the file is too large; allowed: 4194304 bytes"),
    ):
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(caught.value) == expected


def test_unreadable_file(tmp_path: Path) -> None:
    under_a_file = tmp_path / "a.yaml" / "b.yaml"
    under_a_file.parent.write_text("")
    with pytest.raises(InputError, match="the file cannot be read: Not a directory"):
        load(under_a_file)
    with pytest.raises(InputError, match="the file cannot be read: embedded null byte"):
        load("a\0b")


NOTES = [
    (
        "serving:",
        "serving:\n  startup: {load: {mean: 90s}}",
        "9: serving.startup: no server comes or goes: the scenario has no `scaling` "
        "and no `faults` (add one of them, or leave it out)",
    ),
    (
        "serving:",
        "serving:\n  drain: {policy: redirect}",
        "9: serving.drain: no server is taken away: the scenario has no `scaling` "
        "(add `scaling`, or leave it out)",
    ),
    (
        "replicas: 2",
        "replicas: 2\n      priority: 3",
        "12: serving.pools[0].priority: machines are without end: the scenario has no `fleet` "
        "(add `fleet`, or leave it out)",
    ),
    (
        "replicas: 2",
        "replicas: 2\n      clique: leaders",
        "12: serving.pools[0].clique: the scenario has no `gangs` (add `gangs` with the manifests, "
        "or leave it out: a replica is a pod then)",
    ),
    (
        "name: small",
        "slo: {standard: {ttft: 500, tpot: 50ms}}",
        "1: slo.standard.ttft: ttft of 500 s: a bare number is seconds "
        "(500ms? Write 500s if seconds are meant)",
    ),
    (
        "name: small",
        "slo: {standard: {ttft: 500s, tpot: 40, e2e: 2}}",
        "1: slo.standard.tpot: tpot of 40 s: a bare number is seconds "
        "(40ms? Write 40s if seconds are meant)",
    ),
    (
        "name: small",
        "slo: {standrad: {ttft: 2, tpot: 0.05}}",
        "1: slo.standrad: no traffic has this class, so that its targets change nothing "
        "(did you mean 'standard'?)",
    ),
    (
        "name: small",
        "slo: {standard: {ttft: 2s}, standard2: {ttft: 4s}}",
        "1: slo.standard2: no traffic has this class, so that its targets change nothing "
        "(name it as `slo` of a workload entry)",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), NOTES)
def test_a_setting_that_changes_nothing_or_looks_wrong_is_noted_and_not_refused(
    old: str, new: str, expected: str
) -> None:
    plan = load_text(changed(old, new), "s.yaml")
    assert plan.notes == (f"s.yaml:{expected}",)
    assert load_text(SMALL).notes == ()


def test_a_trace_may_have_any_class() -> None:
    replay = "  - {name: past, trace: {path: t.jsonl, format: mooncake}}\nserving:"
    text = changed("serving:", replay).replace("name: small", "slo: {gold: {ttft: 2s}}")
    assert load_text(text).notes == ()
    (note,) = load_text(text, sets=["workload.1.slo=standard"]).notes
    assert "slo.gold: no traffic has this class" in note
