"""Errors, HTTP mapping, events, Redis client, settings reader. Knows no product word."""
