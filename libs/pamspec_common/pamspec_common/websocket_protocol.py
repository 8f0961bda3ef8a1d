"""uvicorn's WebSocket protocol, for which the end of a connection is nothing unexpected.

A stop closes every connection. The server below fails over one that is in the middle of its closing handshake, and then
the process ends without draining the others; and it reports each refusal of a handshake as an error.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState


class OrderlyWebSocketProtocol(WebSocketsSansIOProtocol):
    """Lets a stop go on over connections that are closing, and counts a refusal as a whole handshake."""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            self.transport.close()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True
