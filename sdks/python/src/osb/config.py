"""Where the server is and how to speak to it: given, from the environment, from the file that the
command line uses, or the defaults, in this order.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from ._version import VERSION
from .errors import ConfigError

__all__ = ["Config", "RetryPolicy"]

DEFAULT_DOMAIN = "localhost:8080"
# How long an answer may take, in seconds, as in the other SDKs.
DEFAULT_REQUEST_TIMEOUT = 30.0


class RetryPolicy:
    """When a request is sent again: only those that change nothing, or that certainly did not arrive.

    `attempts` is how many come after the first; the delays are in seconds.
    """

    def __init__(self, attempts: int = 3, first_delay: float = 0.5, longest_delay: float = 30.0) -> None:
        self.attempts = attempts
        self.first_delay = first_delay
        self.longest_delay = longest_delay


class Config:
    """Where the server is and how to speak to it. Looks at no environment and no file; `load` does.

    `domain` is `host[:port]`, or with a scheme, which then decides. `request_timeout` is in seconds
    and bounds how long an answer may take; streams last as long as they last. `use_server_proxy`
    reaches sandboxes through the server where they cannot be reached straight.
    """

    def __init__(
        self,
        domain: str = DEFAULT_DOMAIN,
        api_key: str | None = None,
        *,
        protocol: str = "http",
        request_timeout: float = DEFAULT_REQUEST_TIMEOUT,
        use_server_proxy: bool = False,
        headers: Mapping[str, str] | None = None,
        user_agent: str = f"osb-python/{VERSION}",
        retry: RetryPolicy | None = None,
    ) -> None:
        self.domain = domain
        self.api_key = api_key or None
        self.protocol = _protocol(protocol)
        self.request_timeout = request_timeout
        self.use_server_proxy = use_server_proxy
        self.headers = dict(headers or {})
        self.user_agent = user_agent
        self.retry = retry or RetryPolicy()

    def __repr__(self) -> str:
        # The key is not shown, and headers may be credentials.
        return f"Config(domain={self.domain!r}, protocol={self.protocol!r}, has_api_key={self.api_key is not None})"

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None, file: str | None = None) -> Config:
        """The environment over the file of the command line over the defaults.

        `file` is a path; without it `~/.opensandbox/config.toml`, and then it may be missing.
        """
        environment = os.environ if environment is None else environment
        settings: dict[str, Any] = {}
        path = file or _default_file(environment)
        if path and (file or os.path.exists(path)):
            settings.update(_from_file(path))
        settings.update(_from_environment(environment))
        return cls(**settings)

    @property
    def root_url(self) -> str:
        """Where the server is, without the version: `https://example.com`."""
        domain = self.domain.strip().rstrip("/")
        url = domain if domain.startswith(("http://", "https://")) else f"{self.protocol}://{domain}"
        host = url.split("://", 1)[1].split("/")[0]
        if not host or any(c.isspace() or ord(c) < 33 for c in url) or host.startswith(":"):
            raise ConfigError("domain", f"{self.domain!r} is not host[:port]")
        return url

    @property
    def base_url(self) -> str:
        """Where requests to the server go: `https://example.com/v1`."""
        return f"{self.root_url}/v1"

    @property
    def scheme(self) -> str:
        """The scheme of endpoints, which come without one."""
        return self.root_url.split("://", 1)[0]


def _protocol(text: str) -> str:
    if text.lower() not in ("http", "https"):
        raise ConfigError("protocol", f"{text!r} is neither http nor https")
    return text.lower()


def _default_file(environment: Mapping[str, str]) -> str | None:
    home = environment.get("HOME")
    return os.path.join(home, ".opensandbox", "config.toml") if home else None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("api_key", "domain", "protocol", "request_timeout", "use_server_proxy"):
        text = environment.get(f"OPEN_SANDBOX_{name.upper()}", "").strip()
        # An empty variable is as good as none, and what makes no sense is passed over, as in the other SDKs.
        if not text:
            continue
        if name == "request_timeout":
            try:
                seconds = float(text)
            except ValueError:
                continue
            if seconds > 0:
                found[name] = seconds
        elif name == "use_server_proxy":
            if text.lower() in ("1", "true", "yes", "on"):
                found[name] = True
            elif text.lower() in ("0", "false", "no", "off"):
                found[name] = False
        else:
            found[name] = text
    return found


def _from_file(path: str) -> dict[str, Any]:
    from ._toml import read_toml

    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read()
    except OSError as error:
        raise ConfigError(path, f"it cannot be read: {error.strerror}") from error
    try:
        connection = read_toml(text).get("connection", {})
    except ValueError as error:
        raise ConfigError(path, str(error)) from error
    kinds = {"api_key": str, "domain": str, "protocol": str, "request_timeout": (int, float), "use_server_proxy": bool}
    found = {}
    for name, kind in kinds.items():
        value = connection.get(name)
        if value is None:
            continue
        if not isinstance(value, kind):  # type: ignore[arg-type]
            raise ConfigError(path, f"connection.{name} is {value!r}, which it cannot be")
        if name != "request_timeout" or value > 0:
            found[name] = value
    return found
