"""Which series a PromQL expression reads: enough of the language for dashboards and rules."""

import re
from typing import NamedTuple

from tests.daemon.telemetry.pages import Page

_SELECTOR = re.compile(r"\b([a-zA-Z_]\w*:\w+)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
_BY = re.compile(r"\bby\s*\(([^)]*)\)")


class Selector(NamedTuple):
    """A metric's name and its label matchers, those with a dashboard's variable left out."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def finds_series(self, page: Page) -> bool:
        return any(self._fits(sample.labels) for sample in page.samples_of(self.name))

    def _fits(self, labels: dict[str, str]) -> bool:
        return all(name in labels and _holds(operator, labels[name], value) for name, operator, value in self.matchers)


def selectors(expression: str) -> list[Selector]:
    found = []
    for name, inside in _SELECTOR.findall(expression):
        matchers = _MATCHER.findall(inside)
        found.append(Selector(name, tuple([matcher for matcher in matchers if "$" not in matcher[2]])))
    return found


def labels_grouped_by(expression: str) -> set[str]:
    return {label.strip() for group in _BY.findall(expression) for label in group.split(",") if label.strip()}


def _holds(operator: str, actual: str, value: str) -> bool:
    match operator:
        case "=":
            return actual == value
        case "!=":
            return actual != value
        case "=~":
            return re.fullmatch(value, actual) is not None
        case _:
            return re.fullmatch(value, actual) is None
