"""Contenders that run under other interpreters, without this package."""
