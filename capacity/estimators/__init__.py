"""Closed forms. `modules`, `memory`, `work` and `engine_memory` read specs; the rest see numbers and arrays only."""
