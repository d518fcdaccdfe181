"""Measurement campaigns: the runs made on a device, their order, and the record files they write."""
