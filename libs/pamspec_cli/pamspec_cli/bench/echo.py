"""The floor of every figure over HTTP: a bare FastAPI endpoint that validates the create and echoes it.

`python -m pamspec_cli.bench.echo` serves it on uvicorn with httptools and uvloop and prints its port.
"""

import socket
from datetime import datetime
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9+.\-]*:[A-Za-z0-9+._:\-/]+$", max_length=255)]


class Provenance(BaseModel):
    """Where it comes from."""

    model_config = ConfigDict(extra="forbid")

    activity: Annotated[str, Field(min_length=1)]
    source_ref: str | None = None


class Create(BaseModel):
    """The same document that the product takes."""

    model_config = ConfigDict(extra="forbid")

    scope_id: Id
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)]
    object_type: str
    canonical_content: Any
    valid_from: datetime
    provenance: Provenance


def application() -> FastAPI:
    """One endpoint."""
    app = FastAPI()

    @app.post("/v1/create", status_code=201)
    async def create(body: Create) -> Create:
        return body

    return app


def main() -> None:
    """Serve until ended."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(application(), http="httptools", loop="uvloop", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
