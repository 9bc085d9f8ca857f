"""Where an option's value is taken from: the first place that has it, and that place is kept beside the value.

    flag (`--max-num-seqs 8`) > environment (`REPRISE_MAX_NUM_SEQS=8`) > TOML file (`max-num-seqs = 8`)
        > systemd credential (the files of keys, of TLS, and of the viewer's token) > default

All that is wrong is found in one pass; each message names the place, what stands there and the remedy. It must not
know what the options do.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from daemon.config import DaemonConfig, flag_name
from engine.core.errors import EngineError

ENVIRONMENT_PREFIX = "REPRISE_"
SERVICE_FILE = Path("/etc/reprise/reprise.toml")
DEFAULT_SOURCE = "default"
NOT_SHOWN = "(not shown)"
CREDENTIALS = {  # option → name in $CREDENTIALS_DIRECTORY; its value is the path
    "api_key_file": "reprise-api-keys",
    "viewer_token_file": "reprise-viewer-token",
    "tls_cert": "reprise-tls-cert",
    "tls_key": "reprise-tls-key",
}
_OTHER_VARIABLES = ("CACHE", "CONFIG", "VAULT_KEY", "VAULT_KEYS")  # that are no options


class InvalidOption(EngineError):
    """An option's value or name cannot be used; the message names it and says what to give instead, a line each."""


@dataclass(frozen=True, slots=True)
class Configured:
    """
    sources   option name → where its value stands, as in "environment REPRISE_PORT"; defaults are not in it
    path      the TOML file that was read; "" where there was none
    """

    config: DaemonConfig
    sources: Mapping[str, str] = field(default_factory=dict)
    path: str = ""

    def source(self, name: str) -> str:
        return self.sources.get(name, DEFAULT_SOURCE)


def read_configured(
    flags: Mapping[str, Any], environment: Mapping[str, str], toml_path: str | None = None
) -> Configured:
    """The configuration from all places together.

    flags       option name (with underscores) → value as given; only those that were given
    toml_path   None or "": no file is read
    Raises InvalidOption with every fault there is.
    """
    text = _read_text(toml_path) if toml_path else ""
    table = _parse(text, toml_path or "")
    problems = _unknown_keys(table, text, toml_path or "")
    from_file = {key.replace("-", "_"): value for key, value in table.items()}
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in fields(DaemonConfig):
        found = _find(option, flags, environment, from_file, text, toml_path or "")
        if found is None:
            continue
        value, sources[option.name], place = found
        try:
            chosen[option.name] = option.metadata["read"](value)
        except ValueError as error:
            shown = NOT_SHOWN if option.metadata["is_secret"] else repr(value)
            problems.append(f"{place}: {shown} cannot be used: {error}")
    if problems:
        raise InvalidOption("\n".join(problems))
    config = DaemonConfig(**chosen)
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise InvalidOption(
            f"max-num-batched-tokens ({config.max_num_batched_tokens}) is less than max-num-seqs "
            f"({config.max_num_seqs}), but every running request needs a token in each step: raise the first"
        )
    return Configured(config, sources, toml_path or "")


def read_config(flags: Mapping[str, Any], environment: Mapping[str, str], toml_path: str | None = None) -> DaemonConfig:
    """As `read_configured`, for whom the values are enough."""
    return read_configured(flags, environment, toml_path).config


def config_path(given: str | None, environment: Mapping[str, str]) -> str:
    """The file to read: the one given, $REPRISE_CONFIG, or, in a service, reprise.toml of its configuration directory.

    systemd names that directory, /etc/reprise as the unit has it; a service without the file runs on defaults.
    """
    chosen = given or environment.get(ENVIRONMENT_PREFIX + "CONFIG", "")
    directory = environment.get("CONFIGURATION_DIRECTORY", "").split(":")[0]
    if not chosen and directory and (Path(directory) / SERVICE_FILE.name).exists():
        return str(Path(directory) / SERVICE_FILE.name)
    return chosen


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like options but are none: to be warned of, since a slip would else pass unseen."""
    known = {ENVIRONMENT_PREFIX + name.upper() for name in _names()}
    known |= {ENVIRONMENT_PREFIX + name for name in _OTHER_VARIABLES}
    return sorted(name for name in environment if name.startswith(ENVIRONMENT_PREFIX) and name not in known)


def nearest(name: str) -> str:
    """The option that a mistaken one was meant to be, as a flag is written; "" where none is near."""
    found = difflib.get_close_matches(name.replace("-", "_").lower(), _names(), n=1)
    return found[0].replace("_", "-") if found else ""


def _names() -> list[str]:
    return [option.name for option in fields(DaemonConfig)]


def _find(
    option: "Field[Any]",
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    from_file: Mapping[str, Any],
    text: str,
    path: str,
) -> tuple[Any, str, str] | None:
    """The value as given, its source, and the place as a message about it begins; None: the default holds."""
    flag, variable = f"--{flag_name(option)}", ENVIRONMENT_PREFIX + option.name.upper()
    if option.name in flags:
        return flags[option.name], f"flag {flag}", flag
    if variable in environment:
        return environment[variable], f"environment {variable}", variable
    if option.name in from_file:
        place = _place(text, option.name, path)
        return from_file[option.name], f"file {place}", f"{flag_name(option)} in {place}"
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if directory and option.name in CREDENTIALS and (Path(directory) / CREDENTIALS[option.name]).exists():
        credential = CREDENTIALS[option.name]
        return str(Path(directory) / credential), f"credential {credential}", flag
    return None


def _place(text: str, key: str, path: str) -> str:
    """The file with the line where the key stands, as far as a line begins with it: `tomllib` keeps no positions."""
    written = re.escape(key).replace("_", "[-_]")
    match = re.search(rf"^[ \t]*\[?[ \t]*[\"']?{written}[\"']?[ \t]*[\]=]", text, re.MULTILINE)
    return f"{path}, line {text.count(chr(10), 0, match.start()) + 1}" if match else path


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise InvalidOption(f"--config: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"--config: {path} is not TOML: it is not UTF-8: {error.reason}") from error


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"--config: {path} is not TOML: {error}") from error


def _unknown_keys(table: Mapping[str, Any], text: str, path: str) -> list[str]:
    known, problems = set(_names()), []
    for key in table:
        if key.replace("-", "_") not in known:
            near = nearest(key)
            hint = f"did you mean {near}?" if near else "`reprise serve --help` lists the options"
            place = _place(text, key.replace("-", "_"), path)
            problems.append(f"{place}: {key.replace('_', '-')} is not an option: {hint}")
    return problems
