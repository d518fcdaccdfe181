"""What an engine allocates on a device: policies, one file per kind of rule, and the builder of the memory table.

The engines themselves are files of ``data/engines`` that name their policies.
"""
