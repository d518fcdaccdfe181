"""What results leave out, in the words that go with each of them."""

from __future__ import annotations

OUTSIDE_MEMORY = ("runtime context, libraries and allocator slack (memory outside memory_fraction is meant for them)",)
OUTSIDE_TIME = (
    "in a bound: links between devices and kernel launches (an attainable time counts both)",
    "scheduling and sampling time",
    "activation traffic and cache writes",
)
OUTSIDE_DECISION = (
    "in a bound: kernel launches, and links between devices (an attainable time counts both)",
    "sampling and detokenisation on the host",
    "warm-up: first calls compile, capture graphs and load weights",
)
