"""Options: where a value is taken from, and what is said about one that cannot be used."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from daemon.__main__ import NOT_IN_HELP, main
from daemon.config import DaemonConfig
from daemon.config_sources import InvalidOption, config_path, read_config, read_configured, unknown_variables
from engine.config import EngineConfig
from engine.core.limits import Limits


def test_without_anything_every_option_has_its_default() -> None:
    assert read_config({}, {}) == DaemonConfig()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("max-num-seqs = 1\nport = 1\nblock_size = 32\n")
    environment = {"REPRISE_MAX_NUM_SEQS": "2", "REPRISE_PORT": "2"}
    config = read_config({"max_num_seqs": "3"}, environment, str(file))
    assert (config.max_num_seqs, config.port, config.block_size) == (3, 2, 32)


def test_a_switch_is_read_from_flag_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("enable-prefix-caching = false\n")
    assert not read_config({}, {}, str(file)).enable_prefix_caching
    assert read_config({}, {"REPRISE_ENABLE_PREFIX_CACHING": "true"}, str(file)).enable_prefix_caching
    assert not read_config({"enable_prefix_caching": False}, {}).enable_prefix_caching


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 * 2**20), ("1.5G", 3 * 2**29), ("500MB", 500_000_000), ("4096", 4096), ("2 gib", 2**31)],
)
def test_sizes_are_read_with_and_without_suffix(text: str, size: int) -> None:
    assert read_config({"kv_cache_memory": text}, {}).kv_cache_memory == size


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("port", "70000", "from 0 to 65535"),
        ("port", "eighty", "whole number"),
        ("port", True, "whole number"),
        ("kv_cache_memory", "12 parsecs", "512MiB"),
        ("kv_cache_memory", "0", "above 0"),
        ("scheduling_policy", "lottery", "fcfs"),
        ("scheduling_policy", "module:", "module:Class"),
        ("tenant_weights", "a=2,b", "a=2,b=1"),
        ("tenant_weights", "a=0", "at least 1"),
        ("tenant_weights", "a=1,a=2", "once"),
        ("max_preemptions", "0", "from 1"),
        ("enable_prefix_caching", "perhaps", "true or false"),
        ("drain_timeout", "nan", "seconds"),
        ("seed", "-1", "from 0"),
        ("log_level", "loud", "warning"),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_the_remedy(option: str, value: object, remedy: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        read_config({option: value}, {})
    message = str(raised.value)
    assert f"--{option.replace('_', '-')}" in message
    assert repr(value) in message
    assert remedy in message


def test_what_policies_are_parameterised_by_reaches_the_limits_of_the_core(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("[tenant-weights]\ngold = 3\n'free=trial' = 1\n")
    flags = {"scheduling_policy": "my.policies:Lottery", "priority_aging": "2.5", "max_passes_over": "9"}
    engine_config = read_config(flags, {}, str(file)).engine_config("")
    given = EngineConfig.from_json(engine_config.to_json()).given_limits()
    assert given["tenant_weights"] == (("gold", 3), ("free=trial", 1))
    assert given["scheduling_policy"] == "my.policies:Lottery"
    assert (given["priority_aging_ns"], given["max_passes_over"], given["max_preemptions"]) == (2_500_000_000, 9, 3)
    assert read_config({"tenant_weights": "a=2, b=1"}, {}).tenant_weights == (("a", 2), ("b", 1))


def test_a_bad_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(InvalidOption, match="REPRISE_PORT: 'x'"):
        read_config({}, {"REPRISE_PORT": "x"})


def test_an_unknown_key_in_the_file_is_named_with_the_nearest_option(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("max-num-seq = 4\n")
    with pytest.raises(InvalidOption, match=r"max-num-seq is not an option: did you mean max-num-seqs\?"):
        read_config({}, {}, str(file))


def test_a_file_that_is_absent_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="cannot be read"):
        read_config({}, {}, str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 1")
    with pytest.raises(InvalidOption, match="is not TOML"):
        read_config({}, {}, str(broken))


def test_a_step_must_have_room_for_every_running_request() -> None:
    with pytest.raises(InvalidOption, match=r"max-num-batched-tokens \(8\) is less than max-num-seqs \(9\)"):
        read_config({"max_num_batched_tokens": "8", "max_num_seqs": "9"}, {})


def test_the_key_never_stands_in_a_message() -> None:
    with pytest.raises(InvalidOption) as raised:
        read_config({"api_key": 12345}, {})
    assert "12345" not in str(raised.value)


def test_a_variable_that_is_nearly_an_option_is_noticed() -> None:
    assert unknown_variables({"REPRISE_PROT": "1", "REPRISE_PORT": "1", "REPRISE_CACHE": "/c", "HOME": "/"}) == [
        "REPRISE_PROT"
    ]


def test_every_option_has_a_unit_a_meaning_and_a_default_that_its_reader_takes() -> None:
    for option in fields(DaemonConfig):
        assert option.metadata["meaning"]
        shown = option.default if option.default is not None else ""
        assert option.metadata["read"](shown) == option.default


def test_the_engine_gets_what_was_chosen() -> None:
    config = read_config({"num_kv_blocks": "12", "kv_cache_memory": "64MiB", "record_content": True}, {})
    engine_config = config.engine_config("/recordings/run")
    assert (engine_config.num_kv_blocks, engine_config.kv_cache_memory_bytes) == (12, 64 * 2**20)
    assert (engine_config.record_dir, engine_config.record_content) == ("/recordings/run", True)


def test_a_bad_option_ends_the_command_with_code_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "x"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--port" in error


def test_every_fault_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("# mine\nport = 'x'\nmax-num-seq = 4\n\n[tenant-weights]\na = 0\n")
    with pytest.raises(InvalidOption) as raised:
        read_config({"log_level": "loud"}, {"REPRISE_SEED": "-1"}, str(file))
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    for start in (f"{file}, line 3: max-num-seq", f"port in {file}, line 2", f"tenant-weights in {file}, line 5"):
        assert any(line.startswith(start) for line in lines)
    assert any(line.startswith("REPRISE_SEED") for line in lines)
    assert any(line.startswith("--log-level") for line in lines)


def test_each_value_knows_where_it_was_taken_from(tmp_path: Path) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("\nblock_size = 32\n")
    (tmp_path / "reprise-api-keys").write_text("")
    environment = {"REPRISE_PORT": "1", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    configured = read_configured({"max_num_seqs": 3}, environment, str(file))
    names = ("max_num_seqs", "port", "block_size", "api_key_file", "host")
    assert [configured.source(name) for name in names] == [
        "flag --max-num-seqs",
        "environment REPRISE_PORT",
        f"file {file}, line 2",
        "credential reprise-api-keys",
        "default",
    ]
    assert configured.config.api_key_file == str(tmp_path / "reprise-api-keys")
    assert read_config({"api_key_file": "mine"}, environment).api_key_file == "mine"


def test_a_service_reads_the_file_of_its_configuration_directory_where_there_is_one(tmp_path: Path) -> None:
    environment = {"CONFIGURATION_DIRECTORY": str(tmp_path)}
    assert config_path(None, environment) == ""
    (tmp_path / "reprise.toml").write_text("")
    assert config_path(None, environment) == str(tmp_path / "reprise.toml")
    assert config_path(None, {**environment, "REPRISE_CONFIG": "other"}) == "other"
    assert config_path("given", {**environment, "REPRISE_CONFIG": "other"}) == "given"


def test_the_same_option_has_the_same_default_in_the_daemon_the_engine_and_the_core() -> None:
    engine_config, limits = DaemonConfig().engine_config(""), Limits()
    for name, value in engine_config.given_limits().items():
        assert value == getattr(limits, name) == getattr(EngineConfig(model=""), name), name


def test_config_check_names_faults_and_config_show_masks_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reprise.toml"
    file.write_text("api-key = 'CaNaRy'\nmax-num-seqs = 3\n")
    monkeypatch.setenv("REPRISE_PROT", "1")
    assert main(["config", "check", str(file)]) == 0
    assert "REPRISE_PROT is no option and is ignored: did you mean REPRISE_PORT?" in capsys.readouterr().err
    assert main(["config", "show", str(file), "--json"]) == 0
    shown = capsys.readouterr().out
    assert "CaNaRy" not in shown
    table = json.loads(shown)
    assert table["api-key"]["value"] == "(set, not shown)"
    assert table["max-num-seqs"] == {"value": 3, "source": f"file {file}, line 2", "in_flight": False}
    assert main(["config", "show", str(file)]) == 0
    assert f"file {file}, line 2" in capsys.readouterr().out
    file.write_text("api-key-file = '/nowhere.toml'\n")
    assert main(["config", "check", str(file)]) == 2
    assert "/nowhere.toml cannot be read" in capsys.readouterr().err


def test_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    for option in fields(DaemonConfig):
        is_listed = f"--{option.name.replace('_', '-')}" in text
        assert is_listed == (option.name not in NOT_IN_HELP)
