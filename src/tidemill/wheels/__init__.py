"""The wheel: an index of aggregates by time (paper 001), with rings of closed slots and query plans."""
