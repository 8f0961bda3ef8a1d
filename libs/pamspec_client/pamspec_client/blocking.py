"""The synchronous client: the asynchronous one, run on an event loop in a thread of its own.

Every method is made from the asynchronous method of the same name, with its signature and types; there is no second
implementation.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pamspec_client.bus import NatsLogin
from pamspec_client.client import AsyncClient
from pamspec_client.transport import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pamspec-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The result of a coroutine; an interruption of the waiting thread cancels it and waits until it has ended."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this client is closed")
        tasks: list[asyncio.Task[R]] = []
        ended = threading.Event()

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda task: ended.set())

        def stop() -> None:
            if tasks:
                tasks[0].cancel()
            else:
                work.close()
                ended.set()

        try:
            self._loop.call_soon_threadsafe(start)
            ended.wait()
        except BaseException:
            # Until it has ended, what it iterates can't be closed.
            self._loop.call_soon_threadsafe(stop)
            ended.wait()
            raise
        return tasks[0].result()

    def close(self) -> None:
        """Stop the loop and wait for its thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[R]],
) -> Callable[Concatenate[Client, P], Iterator[R]]:
    @functools.wraps(method)
    def iterate(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = self._loop.run(_made(lambda: method(self._client, *args, **kwargs)))
        try:
            while True:
                try:
                    item = self._loop.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._loop.run(_close(items))

    return iterate


async def _made(make: Callable[[], R]) -> R:
    return make()


async def _next(items: AsyncIterator[R]) -> R:
    return await anext(items)


async def _close(items: AsyncIterator[object]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class Client:
    """The client for code without an event loop; arguments and promises are those of `AsyncClient`.

    Use it as `with Client() as client:` or call `close` at the end. It may be used by several threads.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        session: bool = False,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        nats: NatsLogin | None = None,
    ) -> None:
        self._client = AsyncClient(base_url, api_key, session=session, retry=retry, timeout_s=timeout_s, nats=nats)
        self._loop = _Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread."""
        try:
            self._loop.run(self._client.aclose())
        finally:
            self._loop.close()

    @property
    def base_url(self) -> str:
        """The address of the gateway."""
        return self._client.base_url

    call = _blocking(AsyncClient.call)
    create = _blocking(AsyncClient.create)
    update = _blocking(AsyncClient.update)
    transition = _blocking(AsyncClient.transition)
    redact = _blocking(AsyncClient.redact)
    delete = _blocking(AsyncClient.delete)
    relate = _blocking(AsyncClient.relate)
    promote = _blocking(AsyncClient.promote)
    batch = _blocking(AsyncClient.batch)
    read = _blocking(AsyncClient.read)
    read_fields = _blocking(AsyncClient.read_fields)
    query = _blocking(AsyncClient.query)
    query_pages = _iterating(AsyncClient.query_pages)
    query_items = _iterating(AsyncClient.query_items)
    inspect_history = _blocking(AsyncClient.inspect_history)
    history_pages = _iterating(AsyncClient.history_pages)
    get_operation = _blocking(AsyncClient.get_operation)
    create_scope = _blocking(AsyncClient.create_scope)
    get_scope = _blocking(AsyncClient.get_scope)
    update_scope = _blocking(AsyncClient.update_scope)
    list_policy_versions = _blocking(AsyncClient.list_policy_versions)
    place_hold = _blocking(AsyncClient.place_hold)
    release_hold = _blocking(AsyncClient.release_hold)
    list_erasures = _blocking(AsyncClient.list_erasures)
    get_erasure = _blocking(AsyncClient.get_erasure)
    forget = _blocking(AsyncClient.forget)
    list_reads = _blocking(AsyncClient.list_reads)
    list_holds = _blocking(AsyncClient.list_holds)
    register_schema = _blocking(AsyncClient.register_schema)
    get_schema = _blocking(AsyncClient.get_schema)
    list_schemas = _blocking(AsyncClient.list_schemas)
    list_scopes = _blocking(AsyncClient.list_scopes)
    seal_snapshot = _blocking(AsyncClient.seal_snapshot)
    list_snapshots = _blocking(AsyncClient.list_snapshots)
    get_snapshot = _blocking(AsyncClient.get_snapshot)
    assemble = _blocking(AsyncClient.assemble)
    compare_snapshots = _blocking(AsyncClient.compare_snapshots)
    get_checkpoint = _blocking(AsyncClient.get_checkpoint)
    prove_ledger = _blocking(AsyncClient.prove_ledger)
    verify_ledger = _blocking(AsyncClient.verify_ledger)
    subscribe = _blocking(AsyncClient.subscribe)
    unsubscribe = _blocking(AsyncClient.unsubscribe)
    poll = _blocking(AsyncClient.poll)
    ack = _blocking(AsyncClient.ack)
    reset = _blocking(AsyncClient.reset)
    list_parked = _blocking(AsyncClient.list_parked)
    replay = _blocking(AsyncClient.replay)
    list_deliveries = _blocking(AsyncClient.list_deliveries)
    rotate_webhook_secret = _blocking(AsyncClient.rotate_webhook_secret)
    list_subscriptions = _blocking(AsyncClient.list_subscriptions)
    get_subscription = _blocking(AsyncClient.get_subscription)
    grant_delegation = _blocking(AsyncClient.grant_delegation)
    revoke_delegation = _blocking(AsyncClient.revoke_delegation)
    check_delegation = _blocking(AsyncClient.check_delegation)
    explain_delegation = _blocking(AsyncClient.explain_delegation)
    list_delegations = _blocking(AsyncClient.list_delegations)
    list_indexes = _blocking(AsyncClient.list_indexes)
    rebuild_index = _blocking(AsyncClient.rebuild_index)
    drop_index = _blocking(AsyncClient.drop_index)
    verify_index = _blocking(AsyncClient.verify_index)
    register_embedding_space = _blocking(AsyncClient.register_embedding_space)
    list_embedding_spaces = _blocking(AsyncClient.list_embedding_spaces)
    put_vectors = _blocking(AsyncClient.put_vectors)
    reembed = _blocking(AsyncClient.reembed)
    drop_vectors = _blocking(AsyncClient.drop_vectors)
    bind_role = _blocking(AsyncClient.bind_role)
    unbind_role = _blocking(AsyncClient.unbind_role)
    list_role_bindings = _blocking(AsyncClient.list_role_bindings)
    set_access_rules = _blocking(AsyncClient.set_access_rules)
    get_access_rules = _blocking(AsyncClient.get_access_rules)
    explain_access = _blocking(AsyncClient.explain_access)
    list_administration = _blocking(AsyncClient.list_administration)
    delete_scope = _blocking(AsyncClient.delete_scope)
    create_key = _blocking(AsyncClient.create_key)
    list_keys = _blocking(AsyncClient.list_keys)
    rotate_key = _blocking(AsyncClient.rotate_key)
    revoke_key = _blocking(AsyncClient.revoke_key)
    create_tenant = _blocking(AsyncClient.create_tenant)
    list_tenants = _blocking(AsyncClient.list_tenants)
    suspend_tenant = _blocking(AsyncClient.suspend_tenant)
    resume_tenant = _blocking(AsyncClient.resume_tenant)
    offboard_tenant = _blocking(AsyncClient.offboard_tenant)
    get_quotas = _blocking(AsyncClient.get_quotas)
    set_quotas = _blocking(AsyncClient.set_quotas)
    list_parked_entries = _blocking(AsyncClient.list_parked_entries)
    replay_parked_entries = _blocking(AsyncClient.replay_parked_entries)
    export = _iterating(AsyncClient.export)
    import_ = _blocking(AsyncClient.import_)
    follow = _iterating(AsyncClient.follow)
    events = _iterating(AsyncClient.events)
