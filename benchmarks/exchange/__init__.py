"""Exchanges: what travels between hosts, and how long that takes (paper 002, section 7)."""
