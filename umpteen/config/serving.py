"""Settings of a server: limits, timeouts and what is logged."""

from dataclasses import dataclass

from umpteen.config.checked import Checked, option

_DAY = 86_400


@dataclass(frozen=True)
class ServeConfig(Checked):
    """Limits of requests, and how a server behaves."""

    max_body: int = option(4 * 2**20, "Bytes of a request's body.", low=1024, high=2**30)
    max_texts: int = option(256, "Texts of a request.", low=1, high=100_000)
    max_characters: int = option(100_000, "Characters of a text.", low=1, high=100_000_000)
    max_k: int = option(100, "Labels per text.", low=1, high=100_000)
    max_allowed: int = option(10_000, "Labels that a request may choose from.", low=1, high=10_000_000)
    max_queue: int = option(2_048, "Texts of a model that wait; further requests are refused (429).", low=1)
    max_batch: int = option(256, "Texts that are predicted at once.", low=1, high=100_000)
    max_explanations: int = option(16, "Explanations and label searches that wait, each.", low=1)
    explained_words: int = option(100, "Words left out one by one to explain a model with an encoder.", low=1)
    request_timeout: float = option(30.0, "Seconds until a request that waits is given up (503).", low=0.05, high=_DAY)
    body_timeout: float = option(10.0, "Seconds in which headers, and then a body, must arrive.", low=0.05, high=_DAY)
    keep_alive: float = option(30.0, "Seconds that an idle connection is kept.", low=0.05, high=_DAY)
    drain_timeout: float = option(30.0, "Seconds that requests may take after SIGTERM.", low=0.0, high=_DAY)
    drain_idle: float = option(0.5, "Seconds that idle connections are kept after SIGTERM.", low=0.0, high=_DAY)
    watch: float = option(1.0, "Seconds between looks at the model folders; 0 does not look.", low=0.0, high=_DAY)
    hosts: tuple[str, ...] = option((), "Host names that requests may use; none: any.")
    threads: int = option(0, "Threads of a prediction; 0 means all cores.", low=0)
    access_log: bool = option(True, "Log a line of JSON per request.")
    log_texts: bool = option(False, "Log the texts of requests, too.")
