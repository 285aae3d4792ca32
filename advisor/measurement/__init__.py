"""Timing launches: on a GPU or on a fake one; replaying recorded latencies; and reading what profilers measured."""
