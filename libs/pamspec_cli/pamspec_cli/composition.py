"""The whole service in this process: the gateway calls the other services in memory, and only the gateway listens."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pamspec_delegation.app
import pamspec_gateway.app
import pamspec_indexing.app
import pamspec_query.app
import pamspec_relay.app
import pamspec_retention_sweeper.app
import pamspec_subscription.app
import pamspec_write.app
from pamspec_cli.deployment import Deployment, in_environment
from pamspec_common import server
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service
from pamspec_common.settings import CommonSettings
from pamspec_delegation.settings import Settings as DelegationSettings
from pamspec_gateway.settings import Settings as GatewaySettings
from pamspec_indexing.settings import Settings as IndexingSettings
from pamspec_query.settings import Settings as QuerySettings
from pamspec_relay.settings import Settings as RelaySettings
from pamspec_retention_sweeper.settings import Settings as SweeperSettings
from pamspec_subscription.settings import Settings as SubscriptionSettings
from pamspec_write.settings import Settings as WriteSettings

SETTINGS: Mapping[str, type[CommonSettings]] = {
    "relay": RelaySettings,
    "write": WriteSettings,
    "query": QuerySettings,
    "subscription": SubscriptionSettings,
    "delegation": DelegationSettings,
    "indexing": IndexingSettings,
    "retention_sweeper": SweeperSettings,
    "gateway": GatewaySettings,
}
"""What each service reads."""


@asynccontextmanager
async def running(deployment: Deployment) -> AsyncIterator[str]:
    """All services ready behind the gateway; its URL. At the end channels get their end, requests their answers."""
    with in_environment(deployment.variables("write")):
        write = pamspec_write.app.build(WriteSettings())
    with in_environment(deployment.variables("relay")):
        relay = pamspec_relay.app.build(RelaySettings())
    with in_environment(deployment.variables("subscription")):
        subscription = pamspec_subscription.app.build(SubscriptionSettings(), LocalPeer(write))
    with in_environment(deployment.variables("delegation")):
        delegation = pamspec_delegation.app.build(DelegationSettings(), LocalPeer(write))
    with in_environment(deployment.variables("indexing")):
        indexing = pamspec_indexing.app.build(IndexingSettings(), LocalPeer(write))
    with in_environment(deployment.variables("query")):
        query = pamspec_query.app.build(QuerySettings(), LocalPeer(write), LocalPeer(indexing))
    with in_environment(deployment.variables("retention_sweeper")):
        sweeper = pamspec_retention_sweeper.app.build(SweeperSettings(), LocalPeer(write))
    with in_environment(deployment.variables("gateway")):
        settings = GatewaySettings()
    behind = (relay, write, query, subscription, delegation, indexing, sweeper)
    peers = {service.name: LocalPeer(service) for service in behind}
    gateway = pamspec_gateway.app.build(settings, peers)
    async with AsyncExitStack() as stack:
        for service in behind:
            await _started(stack, service)
        door = server.serving(gateway, host=settings.host, port=settings.port, drain_s=settings.drain_s)
        url = await stack.enter_async_context(door)
        # Channels end while requests are still answered, before the listener closes.
        stack.push_async_callback(subscription.drain)
        yield url


async def _started(stack: AsyncExitStack, service: Service) -> None:
    stack.push_async_callback(service.stop)
    await service.start()
