"""A fuzzer of queries, data, sources and splits, with an oracle that shares no code with the engines."""
