"""The cache of tokens under concurrent callers, and what a refused token changes. ``test_oauth.py`` has its times."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.core.model.errors import HeadraceError, Retriable
from headrace_connectors.tokens import Token, TokenCache

CALLERS = 8


class Provider:
    """Grants tokens that never end, one after the other. A test holds a request or makes it fail."""

    def __init__(self) -> None:
        self.requests = 0
        self.running = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.failure: HeadraceError | None = None

    def fetch(self) -> Token:
        self.requests += 1
        self.running.set()
        assert self.free.wait(60)
        if self.failure is not None:
            raise self.failure
        return Token(f"token-{self.requests}", 0, 1e12)


def cache(provider: Provider, now: Callable[[], float] = lambda: 1000.0) -> TokenCache:
    return TokenCache(provider.fetch, lambda token, _: token.ends or 0, (1, 10), now)


def test_one_request_serves_all_callers() -> None:
    """Callers wait for the request that runs, and get its token."""
    provider = Provider()
    provider.free.clear()
    tokens = cache(provider)
    with ThreadPoolExecutor(CALLERS) as threads:
        answers = [threads.submit(tokens.token) for _ in range(CALLERS)]
        assert provider.running.wait(60)
        provider.free.set()
        assert {answer.result(60) for answer in answers} == {"token-1"}
    assert provider.requests == 1


def test_one_request_that_fails_serves_all_callers() -> None:
    """The provider is not asked by each caller in turn; the next request follows after the pause."""
    now = [1000.0]
    provider = Provider()
    provider.failure = Retriable("the provider does not answer")
    tokens = cache(provider, lambda: now[0])
    for _ in range(CALLERS):
        with pytest.raises(Retriable, match="does not answer"):
            tokens.token()
    assert provider.requests == 1
    now[0] += 1.5
    provider.failure = None
    assert tokens.token() == "token-2"


def test_a_refused_token_is_replaced_once_for_all_callers() -> None:
    """Callers that had the same token refused share the new one."""
    provider = Provider()
    tokens = cache(provider)
    refused = tokens.token()
    with ThreadPoolExecutor(CALLERS) as threads:

        def refuse(_: int) -> str:
            tokens.discard(refused)
            return tokens.token()

        assert set(threads.map(refuse, range(CALLERS))) == {"token-2"}
    assert provider.requests == 2


def test_a_refusal_does_not_wait_for_a_request() -> None:
    """Kafka's clients report it on their event loop. The token that arrives afterwards is another one, and stays."""
    provider = Provider()
    tokens = cache(provider)
    refused = tokens.token()
    tokens.discard(refused)
    provider.free.clear()
    provider.running.clear()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(tokens.token)
        assert provider.running.wait(60)
        tokens.discard(refused)  # returns while the request is held
        provider.free.set()
        assert answer.result(60) == tokens.token() == "token-2"


def test_a_refused_token_is_not_used_while_the_provider_fails() -> None:
    """It has not ended yet, but servers do not accept it."""
    provider = Provider()
    tokens = cache(provider)
    tokens.discard(tokens.token())
    provider.failure = Retriable("the provider does not answer")
    with pytest.raises(Retriable, match="does not answer"):
        tokens.token()


def test_a_token_that_is_granted_again_after_a_refusal_is_used() -> None:
    """A provider may answer the same token until it ends; a request for each call would not change that."""
    requests: list[None] = []

    def fetch() -> Token:
        requests.append(None)
        return Token("same", 0, 1e12)

    tokens = TokenCache(fetch, lambda token, _: token.ends or 0)
    tokens.discard(tokens.token())
    assert [tokens.token(), tokens.token()] == ["same", "same"]
    assert len(requests) == 2
