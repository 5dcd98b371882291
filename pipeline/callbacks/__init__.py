"""Webhooks: the body, the signature, and an HTTP client that goes only where it may."""
