"""The index of aggregates by time (paper 001): rings of closed slots, the plan of a query over them."""
