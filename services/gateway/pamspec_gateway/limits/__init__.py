"""Limits: how much of the service a tenant and each of its principals may take at once and over time.

Every door asks here. What it costs a request is a few comparisons: nothing waits for Valkey or PostgreSQL.
"""
