FROM python:3.13-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends pgbouncer && rm -rf /var/lib/apt/lists/*
