"""A page of /metrics, scraped and read."""

from prometheus_client.core import Sample
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.served import Served


class Page:
    def __init__(self, text: str) -> None:
        self.samples: list[Sample] = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
        self.names = {sample.name for sample in self.samples}

    def samples_of(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.name == name]

    def value(self, name: str) -> float:
        (sample,) = self.samples_of(name)
        return float(sample.value)


async def scrape(served: Served, accept: str = "") -> str:
    async with served.session.get("/metrics", headers={"Accept": accept} if accept else {}) as response:
        assert response.status == 200
        return await response.text()
